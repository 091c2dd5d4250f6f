"""The memory of a tensor: that of this process's shard, the first one in a virtual world."""

from __future__ import annotations

import torch

from ...errors import OnefoldRuntimeError
from .. import interpreter
from ..names import register_function
from ..tensor import Tensor
from .cast import clone


def _shard(x: Tensor, what: str) -> torch.Tensor:
    """The shard whose memory is requested."""
    if interpreter.capturing():
        raise OnefoldRuntimeError(
            f"{what}: tensors have no memory while a graph is captured; ask outside of build()"
        )
    if not x.shards:
        raise OnefoldRuntimeError(
            f"{what}: this process holds no shard of the tensor, which is on {x.placement!r}; ask "
            "on one of its ranks"
        )
    return x.shards[0]


@register_function
def data_ptr(self: Tensor) -> int:
    """The address of the first element of this process's shard."""
    return _shard(self, "data_ptr").data_ptr()


@register_function
def untyped_storage(self: Tensor) -> torch.UntypedStorage:
    """The memory of this process's shard, which in-place methods then leave to the caller."""
    self.shared = True
    return _shard(self, "untyped_storage").untyped_storage()


@register_function
def storage(self: Tensor) -> torch.TypedStorage:
    """The memory of this process's shard as elements; torch warns to use `untyped_storage`."""
    self.shared = True
    found: torch.TypedStorage = _shard(self, "storage").storage()
    return found


@register_function
def get_device(self: Tensor) -> int:
    """The index of the cuda device that holds this process's shard; -1 for the cpu."""
    if self.meta.device_type == "cpu":
        return -1
    return _shard(self, "get_device").get_device()


@register_function
def is_pinned(self: Tensor) -> bool:
    """Whether the memory of all shards of this process is page-locked."""
    return bool(self.shards) and all(part.is_pinned() for part in self.shards)


@register_function
def pin_memory(self: Tensor) -> Tensor:
    """A copy in page-locked memory, from which copies to a GPU are faster; itself if it is there.

    Raises RuntimeError where torch has no accelerator.
    """
    if is_pinned(self):
        return self
    y = clone(self)
    y.shards = tuple([part.pin_memory() for part in y.shards])
    return y


@register_function
def is_shared(self: Tensor) -> bool:
    """Whether other processes of this machine can map the memory of this process's shards."""
    return bool(self.shards) and all(part.is_shared() for part in self.shards)


@register_function
def share_memory_(self: Tensor) -> Tensor:
    """Move this process's shards to memory that other processes of this machine can map."""
    for part in self.shards:
        part.share_memory_()
    return self


@register_function
def record_stream(self: Tensor, s: torch.Stream) -> None:
    """Keep the memory of this process's shards until stream `s` has finished its current work."""
    for part in self.shards:
        part.record_stream(s)


@register_function
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both tensors have the same memory and layout."""
    return self.meta is tensor.meta and all(
        a.is_set_to(b) for a, b in zip(self.shards, tensor.shards, strict=True)
    )


@register_function
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both tensors have the same shape."""
    return input.meta.shape == other.meta.shape


@register_function
def is_conj(input: Tensor) -> bool:
    """False: conjugation is never lazy."""
    return False


@register_function
def is_neg(input: Tensor) -> bool:
    """False: negation is never lazy."""
    return False
