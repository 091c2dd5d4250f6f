"""Elementwise kernels that put their result into memory that they are given, for those that can.

The memory may be that of an argument: each element is read before it is written. The bits are
those of the kernel without `out=`, for arguments in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Kernel = Callable[..., torch.Tensor]

_aten: Any = torch.ops.aten

# Functions that take `out=` themselves.
_TAKE_OUT: frozenset[Any] = frozenset(
    getattr(torch, name)
    for name in """
        neg add sub mul div remainder fmod pow square exp exp2 expm1 sqrt rsqrt reciprocal log
        log2 log10 log1p cos sin tan asin acos atan cosh sinh asinh acosh atanh erf erfc erfinv
        digamma lgamma floor ceil trunc sign frac abs sgn sigmoid tanh where maximum minimum fmax
        fmin clamp_min clamp_max addcmul addcdiv lerp atan2 hypot logaddexp logaddexp2 copysign
        heaviside bitwise_not bitwise_and bitwise_or bitwise_xor
    """.split()
)


def _relu(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    # relu has no `out=`. This is what it calls, and says of itself that it is.
    return torch.clamp_min(x, 0, out=out)


def _silu(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return _aten.silu.out(x, out=out)  # type: ignore[no-any-return]


def _gelu(x: torch.Tensor, approximate: str, *, out: torch.Tensor) -> torch.Tensor:
    return _aten.gelu.out(x, approximate=approximate, out=out)  # type: ignore[no-any-return]


def _relu_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return _aten.threshold_backward.grad_input(dy, y, 0, grad_input=out)  # type: ignore[no-any-return]


def _gelu_backward(
    dy: torch.Tensor, x: torch.Tensor, approximate: str, *, out: torch.Tensor
) -> torch.Tensor:
    return _aten.gelu_backward.grad_input(  # type: ignore[no-any-return]
        dy, x, approximate=approximate, grad_input=out
    )


def _gradient(function: Any) -> Kernel:
    def into(dy: torch.Tensor, at: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return function(dy, at, grad_input=out)  # type: ignore[no-any-return]

    return into


# By the name of the op: functions with other arguments, and those that only torch's gradients use.
_NAMED: dict[str, Kernel] = {
    "relu": _relu,
    "silu": _silu,
    "gelu": _gelu,
    "relu_backward": _relu_backward,
    "gelu_backward": _gelu_backward,
    "sigmoid_backward": _gradient(_aten.sigmoid_backward.grad_input),
    "tanh_backward": _gradient(_aten.tanh_backward.grad_input),
    "silu_backward": _gradient(_aten.silu_backward.grad_input),
}


def into(name: str, kernel: Kernel) -> Kernel | None:
    """The kernel of the elementwise op `name` with `out=`, or None.

    >>> x = torch.ones(2)
    >>> into("add", torch.add)(x, 1, out=x) is x
    True
    """
    found = _NAMED.get(name)
    return kernel if found is None and kernel in _TAKE_OUT else found
