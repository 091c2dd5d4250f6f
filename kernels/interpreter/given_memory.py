"""The memory of the tensors that the running kernel was given: other addresses are refused."""

from __future__ import annotations

import numpy as np
import torch
from triton.runtime.interpreter import TensorHandle

_spans: list[tuple[int, int]] = []  # first and last byte of each storage; none are not checked


def given(args: list[object]) -> None:
    """From now on, addresses in the memory of these arguments are right."""
    _spans[:] = sorted({_span(x) for arg in args for x in _tensors(arg)})


def check_nothing() -> None:
    """From now on, all addresses are taken as right."""
    _spans.clear()


def check_addresses(pointers: TensorHandle, mask: TensorHandle | np.ndarray) -> None:
    """Raise IndexError where the stock interpreter reads foreign memory or dies."""
    if not _spans:
        return
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    used = pointers.data[np.broadcast_to(getattr(mask, "data", mask), pointers.data.shape)]
    inside = np.zeros(used.shape, dtype=bool)
    for start, end in _spans:
        inside |= (used >= start) & (used + size <= end)
        if inside.all():
            return
    raise IndexError(f"{np.count_nonzero(~inside)} of {used.size} addresses are in no tensor")


def _span(x: torch.Tensor) -> tuple[int, int]:
    storage = x.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [x for part in value for x in _tensors(part)]
    base = getattr(value, "base", None)  # of a tensor descriptor
    return [] if base is None else _tensors(base)
