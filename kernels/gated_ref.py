"""Gated activations, act(gate) * up, and their gradients.

Source: Shazeer, "GLU Variants Improve Transformer" (2020).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .pointwise_ref import aten, gelu, gelu_backward

_silu: Callable[[Tensor], Tensor] = torch.nn.functional.silu
_silu_backward: Callable[..., Tensor] = aten("silu_backward")


def gated(gate: Tensor, up: Tensor, act: str) -> Tensor:
    """act(gate) * up, with act "silu", "gelu" or "gelu_tanh"; both of one shape and dtype."""
    return _value(gate, act).mul_(up)


def gated_grad(dy: Tensor, gate: Tensor, up: Tensor, act: str) -> tuple[Tensor, Tensor]:
    """The gradients of `gated` for gate and up."""
    if act == "silu":
        d_gate = _silu_backward(dy * up, gate)
    else:
        d_gate = gelu_backward(dy * up, gate, _approximate(act))
    return d_gate, _value(gate, act).mul_(dy)


def _value(gate: Tensor, act: str) -> Tensor:
    return _silu(gate) if act == "silu" else gelu(gate, _approximate(act))


def _approximate(act: str) -> str:
    return "tanh" if act == "gelu_tanh" else "none"
