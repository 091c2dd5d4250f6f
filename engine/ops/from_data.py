"""Tensors of existing data that need no copy: as_tensor, asarray, frombuffer, scalar_tensor."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch

from ..argument_types import DeviceLike, Layout, NumberLike, TypedLayout
from ..grad_attributes import detach
from ..names import register_function
from ..tensor import Tensor
from ..values import from_torch
from .cast import clone
from .creation import full, tensor
from .device_transfer import to


@register_function
def as_tensor(data: object, dtype: torch.dtype | None = None, **layout: Unpack[Layout]) -> Tensor:
    """`data` as a tensor: itself, or sharing its memory, where dtype and device allow.

    Lists, and whatever is given with `placement=` and `sbp=`, are copied as `tensor` does.

    >>> import onefold as flow
    >>> x = flow.ones(2)
    >>> flow.as_tensor(x) is x
    True
    """
    if layout.get("placement") is not None:
        return tensor(data, dtype=dtype, **layout)
    if isinstance(data, Tensor):
        return to(data, dtype=dtype, device=layout.get("device"))
    if isinstance(data, np.ndarray):
        data = torch.as_tensor(data)
    if isinstance(data, torch.Tensor):
        return to(from_torch(data), dtype=dtype, device=layout.get("device"))
    return tensor(data, dtype=dtype, **layout)


@register_function
def asarray(
    obj: object,
    *,
    dtype: torch.dtype | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`obj` as a tensor: a tensor, an array, what has `__dlpack__` or a buffer, a number, a list.

    `copy` says whether it has memory of its own; None: only where that is needed. Raises ValueError
    where `copy=False` cannot be.
    """
    if isinstance(obj, Tensor):
        made = to(obj, dtype=dtype, device=device)
        if copy is False and made is not obj:
            raise ValueError(
                "can't alias tensor with another dtype or device; leave out copy=False"
            )
        made = clone(made) if copy and made is obj else made
        return made.requires_grad_() if requires_grad else detach(made)
    options: dict[str, Any] = {"dtype": dtype, "copy": copy}
    made = to(from_torch(torch.asarray(obj, **options)), device=device)
    return made.requires_grad_() if requires_grad else made


@register_function
def frombuffer(
    buffer: object,
    *,
    dtype: torch.dtype,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """A vector that shares memory with an object of Python's buffer protocol.

    `count` elements from byte `offset` on are read, -1 meaning all.

    >>> import onefold as flow
    >>> flow.frombuffer(bytearray([1, 0, 2, 0]), dtype=flow.int16)
    tensor([1, 2], dtype=torch.int16)
    """
    given: Any = buffer
    value = torch.frombuffer(given, dtype=dtype, count=count, offset=offset)
    return from_torch(value, requires_grad=requires_grad)


@register_function
def scalar_tensor(s: NumberLike, **layout: Unpack[TypedLayout]) -> Tensor:
    """A 0-d tensor of a number, in the default dtype unless another is given."""
    layout["dtype"] = layout.get("dtype") or torch.get_default_dtype()
    return full((), s, **layout)
