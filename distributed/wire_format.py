"""Wire format of tensors: bytes when they are moved, a dtype that can be reduced otherwise.

Gloo and NCCL do not support every dtype of torch, and both lose NaN in max and min. Moved tensors
are viewed as bytes, so every dtype can be sent without conversion. Reduced tensors are mapped to a
dtype that both back ends reduce, such that the result is torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..errors import OnefoldTypeError, OnefoldValueError

REDUCTIONS = ("sum", "max", "min")

# What both back ends add up as it is.
_SUMMED = frozenset(
    {
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
    }
)
# Wider integers that hold every value; sums wrap to the same low bits.
_WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
_LOWEST = -(2**63)


def to_bytes(t: Tensor) -> Tensor:
    """The elements of `t` in row-major order as a flat uint8 tensor; a view where possible."""
    flat = t.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    if flat.stride(0) != 1:  # an expanded single element counts as contiguous with any stride
        flat = flat.clone(memory_format=torch.contiguous_format).as_strided(flat.shape, (1,))
    return flat.view(torch.uint8)


def from_bytes(data: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The inverse of `to_bytes`: a view of `data`."""
    return data.view(dtype).view(tuple(shape))


def size_in_bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes of a tensor of this shape and dtype."""
    return math.prod(shape) * dtype.itemsize


Restore = Callable[[Tensor], Tensor]


def to_reducible(t: Tensor, op: str, inplace: bool) -> tuple[Tensor, str, Restore]:
    """A contiguous tensor to reduce in `t`'s place, the reduction to use, and the way back.

    The returned tensor shares memory with `t` only when `inplace`. Floating max and min keep
    NaN, as torch.maximum does; bool sums are "or"; int sums wrap as in torch.

    OnefoldValueError for an unknown reduction, OnefoldTypeError for max and min of complex.
    """
    if op not in REDUCTIONS:
        raise OnefoldValueError(f"all_reduce op must be one of {REDUCTIONS}, not {op!r}.")
    if t.dtype.is_complex:
        if op != "sum":
            raise OnefoldTypeError(
                f"all_reduce {op} of {t.dtype} is not possible: complex numbers have no order. "
                "Only 'sum' is defined; take abs() first if magnitudes are meant."
            )
        parts = torch.view_as_real(_fresh(t, inplace))
        return parts, op, torch.view_as_complex
    if t.dtype is torch.bool:
        data = _fresh(t, inplace).view(torch.uint8)
        return data, "max" if op == "sum" else op, lambda r: r.view(torch.bool)
    if t.dtype in _WIDER:
        return t.to(_WIDER[t.dtype]).contiguous(), op, lambda r: r.to(t.dtype)
    if t.dtype is torch.uint64:
        data = _fresh(t, inplace).view(torch.int64)
        if op == "sum":
            return data, op, lambda r: r.view(torch.uint64)
        swap = torch.bitwise_xor(data, _LOWEST)
        return swap, op, lambda r: torch.bitwise_xor(r, _LOWEST).view(torch.uint64)
    if op != "sum" and t.dtype.is_floating_point:
        return _ordered(t, op), op, lambda r: _unordered(r).to(t.dtype)
    if t.dtype in _SUMMED:
        return _fresh(t, inplace), op, lambda r: r
    # The 8-bit floats: float32 holds each of them.
    return t.to(torch.float32).contiguous(), op, lambda r: r.to(t.dtype)


def _fresh(t: Tensor, inplace: bool) -> Tensor:
    plain = t.detach().resolve_conj().resolve_neg()
    if inplace and plain.is_contiguous():
        return plain
    return plain.clone(memory_format=torch.contiguous_format)


def _ordered(t: Tensor, op: str) -> Tensor:
    """Floats as integers of the same order, with NaN beyond infinity on the side that wins."""
    wide = t.detach() if t.dtype is torch.float64 else t.detach().to(torch.float32)
    nan = torch.full((), math.nan, dtype=wide.dtype, device=wide.device)
    winner = nan.abs() if op == "max" else -nan.abs()
    wide = torch.where(wide.isnan(), winner, wide).contiguous()
    return _flip(wide.view(torch.int64 if wide.dtype is torch.float64 else torch.int32))


def _unordered(bits: Tensor) -> Tensor:
    return _flip(bits).view(torch.float64 if bits.dtype is torch.int64 else torch.float32)


def _flip(bits: Tensor) -> Tensor:
    """Negative floats sort backwards as integers: turn their magnitude round. Its own inverse."""
    sign = bits.dtype.itemsize * 8 - 1
    return torch.bitwise_xor(bits, torch.bitwise_and(bits >> sign, 2**sign - 1))
