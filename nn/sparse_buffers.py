"""Sparse tensors as buffers of modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..engine.ops.sparse_tensor import SparseTensor

if TYPE_CHECKING:
    from .module_tree import Tree


class SparseBuffer:
    """A buffer that is sparse: two buffers hold its places and values, and reading it joins them.

    So it moves, is laid out and is saved as the other buffers are.
    """

    def __init__(self, name: str, tensor: SparseTensor) -> None:
        self.name, self.parts = name, (f"{name}_indices", f"{name}_values")
        self.shape, self.coalesced = tensor.shape, tensor.is_coalesced()

    def value(self, module: Any) -> SparseTensor:
        indices, values = (module._buffers[part] for part in self.parts)
        return SparseTensor(indices, values, self.shape, self.coalesced)

    def assign(self, module: Any, value: Any) -> None:
        persistent = self.parts[0] not in module._non_persistent_buffers_set
        module.register_buffer(self.name, value, persistent)

    def remove(self, module: Tree) -> None:
        """Take the buffer from its module."""
        del module.__dict__["_computed_tensors"][self.name]
        for part in self.parts:
            module._remove_member(part)


def register_sparse(module: Tree, name: str, tensor: SparseTensor, persistent: bool) -> None:
    """Register a sparse tensor as the buffer `name`, which is not registered."""
    buffer = SparseBuffer(name, tensor)
    module._set_computed(name, buffer)
    for part, kept in zip(buffer.parts, (tensor._indices(), tensor._values()), strict=True):
        module.register_buffer(part, kept, persistent)
