"""TensorAttributes: the attributes of a tensor that follow from its dtype, size and device."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, cast
from weakref import finalize

import torch

from ..errors import OnefoldAttributeError, OnefoldRuntimeError
from .meta import Meta
from .names import names

if TYPE_CHECKING:
    from .tensor import Tensor
    from .tensor_methods import TensorMethods  # a stub, which `make stubs` writes
else:
    TensorMethods = object

_ids: dict[int, int] = {}  # by the identity of the tensor
_next_id = count()


def _only_of_global(meta: Meta, attribute: str) -> None:
    """Raise OnefoldAttributeError for a local tensor, which `hasattr` and `getattr` expect."""
    if meta.placement is None:
        raise OnefoldAttributeError(
            f"a local tensor has no {attribute}; make it global with .to_global(placement=..., "
            "sbp=...) first"
        )


class TensorAttributes(TensorMethods):
    """The attributes of `Tensor` that follow from its meta, and its real and imaginary parts."""

    __slots__ = ()

    meta: Meta

    # Of the dtype.

    def is_floating_point(self) -> bool:
        return self.meta.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.meta.dtype.is_complex

    def is_signed(self) -> bool:
        return self.meta.dtype.is_signed

    def element_size(self) -> int:
        return self.meta.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.meta.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole logical tensor."""
        return self.meta.nbytes

    # Of the device or placement.

    @property
    def is_cuda(self) -> bool:
        return self.meta.device_type == "cuda"

    @property
    def is_cpu(self) -> bool:
        return self.meta.device_type == "cpu"

    @property
    def is_meta(self) -> bool:
        """Whether it has no data: on the "meta" device, planned, or not materialized yet."""
        shards: object = getattr(self, "shards", ())
        if isinstance(shards, tuple):
            for part in shards:  # takes a third of the time of any()
                if part.is_meta:
                    return True
        return not self.meta.has_data

    @property
    def global_id(self) -> int:
        """An id of this global tensor, assigned when it is first read.

        It is the same on every process if all ask for those of the same tensors in the same order.
        Raises OnefoldRuntimeError for a local tensor.
        """
        if self.meta.placement is None:
            raise OnefoldRuntimeError("Only global tensors have 'global_id'. This one is local.")
        found = _ids.get(id(self))
        if found is None:
            found = _ids[id(self)] = next(_next_id)
            finalize(self, _ids.pop, id(self))
        return found

    @property
    def device_mesh(self) -> Any:
        """The placement of a global tensor as a DeviceMesh."""
        _only_of_global(self.meta, "device_mesh")
        return names.device_mesh(self)

    @property
    def placements(self) -> tuple[Any, ...]:
        """The sbp of a global tensor by DTensor's names: Shard(dim), Replicate() or Partial()."""
        _only_of_global(self.meta, "placements")
        return tuple(names.placements(self))

    # Of the memory format: tensors are dense.

    @property
    def layout(self) -> torch.layout:
        return torch.strided

    @property
    def is_sparse(self) -> bool:
        return False

    @property
    def is_sparse_csr(self) -> bool:
        return False

    @property
    def is_quantized(self) -> bool:
        return False

    @property
    def is_nested(self) -> bool:
        return False

    is_ipu = is_mkldnn = is_mps = is_mtia = is_vulkan = is_xla = is_xpu = is_nested

    # Of the value and the gradient.

    @property
    def real(self) -> Tensor:
        """The real part: a view of a complex tensor, the tensor itself if it is real."""
        return cast("Tensor", names.real(self))

    @real.setter
    def real(self, value: Tensor) -> None:
        names.real(self).copy_(value)

    @property
    def imag(self) -> Tensor:
        """The imaginary part, a view. Raises OnefoldRuntimeError for a real tensor."""
        return cast("Tensor", names.imag(self))

    @imag.setter
    def imag(self, value: Tensor) -> None:
        names.imag(self).copy_(value)

    @property
    def retains_grad(self) -> bool:
        return cast("bool", names.retains_grad(self))
