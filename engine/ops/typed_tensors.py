"""Legacy constructors: Tensor(2, 3), FloatTensor([1, 2]) and others, and `x.type()`.

A type such as `FloatTensor` is not a class of tensors of its own: it makes tensors of one dtype and
device type, and `isinstance` asks whether a tensor has these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsInt, TypeGuard, Unpack, cast as cast_type

import numpy as np
import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ..argument_types import Layout, TypedLayout
from ..grad_attributes import detach, set_requires_grad
from ..names import register_function, register_name
from ..tensor import Tensor, hold
from ..views import base_of, link
from .cast import cast
from .creation import empty, tensor
from .device_transfer import to
from .like import layout_for_new


@register_function
def legacy_tensor(data: Sequence[object], layout: TypedLayout) -> Tensor:
    """The result of `Tensor(*data, **layout)`: uninitialized of these sizes, or with this data.

    Raises OnefoldTypeError for anything but sizes, a sequence, an array or a tensor of the dtype.
    """
    given: TypedLayout = {**layout, "dtype": layout.get("dtype") or torch.get_default_dtype()}
    sizes = [int(size) for size in data if _is_size(size, len(data) > 1)]
    if len(sizes) == len(data):
        return empty(sizes or 0, **given)
    if len(data) > 1:
        raise OnefoldTypeError(f"Tensor(...) takes sizes or one sequence or tensor, but got {data}")
    (value,) = data
    if isinstance(value, torch.Size):
        return empty(value, **given)
    if isinstance(value, Tensor) and not layout.keys() - {"dtype"}:
        if value.dtype != given["dtype"]:
            raise OnefoldTypeError(
                f"expected {given['dtype']} (got {value.dtype}); use flow.tensor(x, dtype=...)"
            )
        return detach(value)
    if not hasattr(value, "__len__"):
        raise OnefoldTypeError(f"Tensor(...): data must be a sequence (got {type(value).__name__})")
    return tensor(value, **given)


def _is_size(value: object, among_others: bool) -> TypeGuard[SupportsInt]:
    """Whether a value is a size: a whole number or, next to others, a tensor that holds one."""
    if among_others and isinstance(value, Tensor):
        return not value.ndim and not (value.is_floating_point() or value.is_complex())
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


@register_function
def init_tensor(self: Tensor, data: Sequence[object], layout: TypedLayout) -> None:
    """The body of `Tensor.__init__`: make `self` the result of `legacy_tensor`."""
    made = legacy_tensor(data, layout)
    hold(self, made.shards, made.meta)
    base = base_of(made) if made.shared else None
    if base is not None:
        link(self, base, made._step)
    self.shared = made.shared
    if made.requires_grad:
        set_requires_grad(self, True)


@register_function
def new(self: Tensor, *data: object, **layout: Unpack[Layout]) -> Tensor:
    """`Tensor(*data)` with self's dtype, device or (broadcast) placement."""
    return legacy_tensor(data, layout_for_new(self, cast_type("TypedLayout", layout)))


class TensorType(type):
    """The class of typed tensors."""

    dtype: torch.dtype
    device_type: str

    def __call__(cls, *data: object, **layout: Unpack[Layout]) -> Tensor:
        if "dtype" in layout:
            raise OnefoldTypeError(
                f"{cls.__name__}(...) is of {cls.dtype} and takes no dtype; use flow.tensor(x, "
                "dtype=...)"
            )
        if not layout.keys() & {"device", "placement"} and cls.device_type != "cpu":
            layout["device"] = cls.device_type
        return legacy_tensor(data, {**layout, "dtype": cls.dtype})

    def __instancecheck__(cls, x: object) -> bool:
        return (
            isinstance(x, Tensor)
            and x.meta.dtype is cls.dtype
            and x.meta.device_type == cls.device_type
        )

    @property
    def is_cuda(cls) -> bool:
        return cls.device_type == "cuda"

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}'>"


# The dtypes by the first part of the names.
_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


def _typed(device_type: str) -> dict[str, TensorType]:
    module = "onefold" if device_type == "cpu" else f"onefold.{device_type}"
    return {
        f"{name}Tensor": TensorType(
            f"{name}Tensor",
            (),
            {
                "__doc__": f"Tensors of {dtype} on {device_type}: a constructor and a type.",
                "__module__": module,
                "__slots__": (),
                "dtype": dtype,
                "device_type": device_type,
            },
        )
        for name, dtype in _DTYPES.items()
    }


# The typed tensors by their names: those of `onefold`, and those of `onefold.cuda`.
CPU_TENSORS = _typed("cpu")
CUDA_TENSORS = _typed("cuda")


def _read(kind: object) -> tuple[torch.dtype, str | None]:
    """The dtype and the device type of a typed tensor, its name or a dtype."""
    if isinstance(kind, torch.dtype):
        return kind, None
    if isinstance(kind, TensorType):
        return kind.dtype, kind.device_type
    if kind in (Tensor, torch.Tensor):
        return torch.get_default_dtype(), "cpu"
    dtype = getattr(kind, "dtype", None)
    if isinstance(kind, type) and isinstance(dtype, torch.dtype):
        return dtype, "cuda" if getattr(kind, "is_cuda", False) else "cpu"  # one of torch's
    if isinstance(kind, str):
        package, _, name = kind.rpartition(".")
        for prefix in ("torch", "onefold"):
            for module, table in ((prefix, CPU_TENSORS), (f"{prefix}.cuda", CUDA_TENSORS)):
                if package == module and name in table:
                    return table[name].dtype, table[name].device_type
    raise OnefoldTypeError(
        "a type of tensors is a dtype, a typed tensor such as flow.FloatTensor, or its name, such "
        f"as 'torch.cuda.FloatTensor', but got {kind!r}"
    )


def type_of(self: Tensor, dtype: object | None = None, non_blocking: bool = False) -> Tensor | str:
    """The name of the tensor's type, which is torch's; with `dtype`, the tensor cast to that type.

    >>> import onefold as flow
    >>> x = flow.ones(2)
    >>> x.type(), x.type(flow.LongTensor).type()
    ('torch.FloatTensor', 'torch.LongTensor')
    """
    if dtype is None:
        name = next((name for name, each in _DTYPES.items() if each is self.dtype), None)
        device = self.meta.device_type
        if name is None:
            raise OnefoldRuntimeError(f"type(): {self.dtype} has no typed tensor; use .dtype")
        return f"torch.{'' if device == 'cpu' else device + '.'}{name}Tensor"
    wanted, kind = _read(dtype)
    moved = self if kind in (None, self.meta.device_type) else to(self, kind)
    return cast(moved, wanted)


register_name("type", type_of)


def set_default_tensor_type(t: object) -> None:
    """Set the default dtype to that of a typed tensor (of the cpu), which may be given by name.

    Raises OnefoldTypeError for one of cuda: name the device or placement of tensors instead.
    """
    dtype, kind = _read(t)
    if kind != "cpu":
        raise OnefoldTypeError(
            f"set_default_tensor_type needs a typed tensor of the cpu, but got {t!r}; use "
            "flow.set_default_dtype, and device= or placement= where tensors are made"
        )
    torch.set_default_dtype(dtype)
