"""Gated activations of feed-forward layers: swiglu and geglu, as one op each."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels import gated_ref as kernels
from ..dispatcher import binary, several
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Needs, Op
from ..signature import Axis, Rule, pointwise_of
from ..tensor import Tensor
from .activation import gelu_second, sigmoid, silu_second
from .arithmetic import mul, plus
from .slicing import narrow


class GatedAttributes(NamedTuple):
    """The activation."""

    act: str


class Gated(Op):
    """y = act(gate) * up"""

    name = "gated"
    attributes = GatedAttributes
    order = "row-major"
    saves = ((0, 1), (0,))
    flops_per_element = 6.0
    kernel = staticmethod(kernels.gated)

    def infer(self, gate: Meta, up: Meta, attrs: GatedAttributes) -> Meta:
        if gate.shape != up.shape or gate.dtype != up.dtype or not gate.dtype.is_floating_point:
            raise OnefoldRuntimeError(
                "gate and up must have one shape and one floating dtype, but have "
                f"{tuple(gate.shape)} of {gate.dtype} and {tuple(up.shape)} of {up.dtype}"
            )
        return gate

    def rule(self, axis: Axis, gate: Meta, up: Meta, attrs: GatedAttributes) -> Rule:
        return pointwise_of((gate, up), "1")

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, gate: Tensor, up: Tensor, attrs: GatedAttributes
    ) -> Gradients:
        if not needs[0]:
            return None, _gated(gate, dy, attrs.act)
        return _gated_grad((dy, gate, up), attrs.act)


class GatedGrad(Op):
    """The gradients of act(gate) * up for gate and up, from those for the result."""

    name = "gated_grad"
    attributes = GatedAttributes
    order = "row-major"
    num_outputs = 2
    like = (1, 2)
    flops_per_element = 6.0
    kernel = staticmethod(kernels.gated_grad)

    def rule(self, axis: Axis, dy: Meta, gate: Meta, up: Meta, attrs: GatedAttributes) -> Rule:
        return pointwise_of((dy, gate, up), "0", 2)

    def vjp(
        self,
        needs: Needs,
        dy: tuple[Tensor | None, Tensor | None],
        y: object,
        given: Tensor,
        gate: Tensor,
        up: Tensor,
        attrs: GatedAttributes,
    ) -> Gradients:
        a, b = dy
        act = attrs.act
        d_dy = d_gate = d_up = None
        if a is not None:
            d_dy = _gated_grad((a, gate, up), act)[0]
            d_up = _gated_grad((a, gate, given), act)[0]
            d_gate = mul(mul(a, mul(given, up)), _second(gate, act))
        if b is not None:
            d_dy = plus(d_dy, _gated(gate, b, act))
            d_gate = plus(d_gate, _gated_grad((b, gate, given), act)[0])
        return d_dy, d_gate, d_up


def _second(x: Tensor, act: str) -> Tensor:
    """The second derivative of an activation."""
    if act == "silu":
        return silu_second(x)
    return gelu_second(x, "tanh" if act == "gelu_tanh" else "none")


_gated = binary(Gated())
_gated_grad = several(GatedGrad())


@register_function
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, of two tensors of one shape, in one pass over memory.

    The gated half of a feed-forward layer, whose two linear layers may be split by columns.
    Source: Shazeer, "GLU Variants Improve Transformer" (2020). Raises OnefoldRuntimeError when
    shapes or dtypes differ.

    Example: `swiglu(x @ w_gate, x @ w_up) @ w_down`.
    """
    return _gated(gate, up, "silu")


@register_function
def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """gelu(gate) * up, with gelu's `approximate` "none" or "tanh"; see `swiglu`.

    Raises OnefoldValueError for another `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise OnefoldValueError(f'approximate must be "none" or "tanh", but got {approximate!r}')
    return _gated(gate, up, "gelu" if approximate == "none" else "gelu_tanh")


@register_function
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of the input along `dim` times the sigmoid of the second.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks" (2017). Raises
    OnefoldRuntimeError when the dim has an odd size.
    """
    size = input.shape[dim]
    if size % 2:
        raise OnefoldRuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {size}"
        )
    up, gate = narrow(input, dim, 0, size // 2), narrow(input, dim, size // 2, size // 2)
    return mul(up, sigmoid(gate))
