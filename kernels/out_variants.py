"""Elementwise functions with `out=`, which write their result into given memory.

The memory may be that of an argument: each element is read before it is written. The bits are those
of the function without `out=`, for arguments in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import pointwise_ref

Kernel = Callable[..., torch.Tensor]

_aten: Any = torch.ops.aten
_nn: Any = torch._C._nn


def _relu(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    if out is x:
        return torch.relu_(x)
    # relu has no `out=`. This is what it calls, and says of itself that it is.
    return torch.clamp_min(x, 0, out=out)


def _gelu(x: torch.Tensor, approximate: str, *, out: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = _aten.gelu.out(x, approximate=approximate, out=out)
    return y


def _relu_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    dx: torch.Tensor = _aten.threshold_backward.grad_input(dy, y, 0, grad_input=out)
    return dx


def _gelu_backward(
    dy: torch.Tensor, x: torch.Tensor, approximate: str, *, out: torch.Tensor
) -> torch.Tensor:
    dx: torch.Tensor = _aten.gelu_backward.grad_input(
        dy, x, approximate=approximate, grad_input=out
    )
    return dx


# Functions whose form with `out=` is another function, or takes other arguments.
_OTHERS: dict[Kernel, Kernel] = {
    torch.relu: _relu,
    pointwise_ref.gelu: _gelu,
    pointwise_ref.relu_backward: _relu_backward,
    pointwise_ref.gelu_backward: _gelu_backward,
}


def into(kernel: Kernel) -> Kernel | None:
    """The form with `out=` of the torch function of an elementwise op, or None.

    >>> x = torch.ones(2)
    >>> into(torch.add)(x, 1, out=x) is x
    True
    """
    if kernel in _OTHERS:
        return _OTHERS[kernel]
    name = pointwise_ref.aten_name(kernel) or getattr(kernel, "__name__", "no name")
    forms = getattr(_aten, name, None)
    if getattr(torch, name, None) is kernel:
        return kernel if _overload(forms, "out") is not None else None
    if getattr(_nn, name, None) is kernel:
        found: Kernel | None = _overload(forms, "out")
        return found
    if pointwise_ref.aten_name(kernel):
        gradient = _overload(forms, "grad_input")
        return gradient and (lambda *args, out: gradient(*args, grad_input=out))
    return None


def _overload(forms: Any, argument: str) -> Any:
    """The overload of an operator that takes memory; not one that torch generates, with a copy."""
    for name in () if forms is None else forms.overloads():
        found = getattr(forms, name)
        given = {each.name for each in found._schema.arguments if each.is_out}
        if argument in given and torch.Tag.generated not in found.tags:
            return found
    return None
