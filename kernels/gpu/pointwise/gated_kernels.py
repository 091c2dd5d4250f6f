"""Gated activations in one pass: gate and up are read once, the result is written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import gated_ref as reference
from ..launch.aot_cases import Case, tensors
from ..launch.jit_kernel import Kernel
from ..reduce.reduction_tiles import cdiv, widened

# Left to torch: complex numbers.

_BLOCK = 1024
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SQRT_HALF = tl.constexpr(0.7071067811865476)
_SQRT_TWO_BY_PI = tl.constexpr(0.7978845608028654)
_BELL = tl.constexpr(0.3989422804014327)  # 1 / sqrt(2 pi)
_CUBIC = tl.constexpr(0.044715)


@triton.jit
def _sigmoid(x):
    """Without an exponential that overflows."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1.0 + small)


@triton.jit
def _act(x, ACT: tl.constexpr):
    """(the activation, its derivative)"""
    if ACT == "silu":
        s = _sigmoid(x)
        return x * s, s * (1.0 + x * (1.0 - s))
    elif ACT == "gelu":
        share = 0.5 * (1.0 + tl.erf(x * _SQRT_HALF))
        return x * share, share + x * _BELL * tl.exp(-0.5 * x * x)
    else:
        slope = (1.0 + x * x * (3 * _CUBIC)) * _SQRT_TWO_BY_PI
        share = _sigmoid((x + x * x * x * _CUBIC) * (2 * _SQRT_TWO_BY_PI))  # (1 + tanh) / 2
        return x * share, share + 2.0 * x * share * (1.0 - share) * slope


@triton.jit
def _forward(gate, up, y, at, mask, ACT: tl.constexpr):
    value, _ = _act(widened(tl.load(gate + at, mask=mask)), ACT)
    value *= widened(tl.load(up + at, mask=mask))
    tl.store(y + at, value.to(y.dtype.element_ty), mask=mask)


@Kernel
def _gated(gate, up, y, count: tl.int64, ACT: tl.constexpr, BLOCK: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * BLOCK
    at = begin + tl.arange(0, BLOCK)
    if begin + BLOCK <= count:  # without a mask, so that 16 bytes are read at once
        _forward(gate, up, y, at, None, ACT)
    else:
        _forward(gate, up, y, at, at < count, ACT)


@triton.jit
def _backward(dy, gate, up, d_gate, d_up, at, mask, ACT: tl.constexpr):
    value, slope = _act(widened(tl.load(gate + at, mask=mask)), ACT)
    g = widened(tl.load(dy + at, mask=mask))
    u = widened(tl.load(up + at, mask=mask))
    tl.store(d_gate + at, (g * u * slope).to(d_gate.dtype.element_ty), mask=mask)
    tl.store(d_up + at, (g * value).to(d_up.dtype.element_ty), mask=mask)


@Kernel
def _gated_grad(
    dy, gate, up, d_gate, d_up, count: tl.int64, ACT: tl.constexpr, BLOCK: tl.constexpr
):
    begin = tl.program_id(0).to(tl.int64) * BLOCK
    at = begin + tl.arange(0, BLOCK)
    if begin + BLOCK <= count:
        _backward(dy, gate, up, d_gate, d_up, at, None, ACT)
    else:
        _backward(dy, gate, up, d_gate, d_up, at, at < count, ACT)


def _works(*given: Tensor) -> bool:
    first = given[0]
    return first.dtype in _DTYPES and all(
        x.dtype is first.dtype and x.shape == first.shape for x in given
    )


def _like(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def gated(gate: Tensor, up: Tensor, act: str) -> Tensor:
    if not _works(gate, up):
        return reference.gated(gate, up, act)
    y = _like(gate)
    grid = (cdiv(y.numel(), _BLOCK),)
    _gated.launch(grid, (gate.contiguous(), up.contiguous(), y, y.numel()), (act, _BLOCK))
    return y


def gated_grad(dy: Tensor, gate: Tensor, up: Tensor, act: str) -> tuple[Tensor, Tensor]:
    if not _works(dy, gate, up):
        return reference.gated_grad(dy, gate, up, act)
    d_gate, d_up = _like(gate), _like(up)
    _gated_grad.launch(
        (cdiv(gate.numel(), _BLOCK),),
        (dy.contiguous(), gate.contiguous(), up.contiguous(), d_gate, d_up, gate.numel()),
        (act, _BLOCK),
    )
    return d_gate, d_up


CASES = [
    *[
        Case(_gated, (*tensors(dtype, "gate", "up", "y"), "i64?"), (act, _BLOCK))
        for dtype, act in (("bf16", "silu"), ("fp32", "silu"), ("bf16", "gelu"))
    ],
    *[
        Case(
            _gated_grad,
            (*tensors("bf16", "dy", "gate", "up", "d_gate", "d_up"), "i64?"),
            (act, _BLOCK),
        )
        for act in ("silu", "gelu_tanh")
    ],
]
