"""Ops that also return their result in lower precision, for the product that reads it next.

One kernel writes both. Autocast calls them for norms, and backward for sums of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ...kernels import norm_chain_ref, pointwise_chain_ref, pointwise_ref
from ...kernels.norm_chain_ref import NORMS, NormChain
from ...kernels.pointwise_chain_ref import At, Chain, Link
from ..dispatcher import several_of
from ..grad_attributes import detach
from ..meta import Meta, Shape
from ..op import Gradients, Kernel, Local, Metas, Needs, Op, required
from ..saved_values import after
from ..sbp import partial_sum
from ..signature import Axis, Rule, pointwise_of
from ..tensor import Tensor
from .arithmetic import ADD
from .cast import CastAttributes, cast
from .layer_norm import LAYER_NORM_WITH_STATS, layer_norm_with_stats
from .norm import (
    LAYER_NORM,
    RMS_NORM,
    NormAttributes,
    NormOp,
    layer_norm_plain,
    rms_norm_plain,
    splits_rows_only,
)


def _cast_of(value: int, dtype: torch.dtype) -> Link:
    return Link(pointwise_ref.cast, (At(value), dtype))


class LowNormAttributes(NamedTuple):
    """The attributes of the norm, and the dtype of the low copy."""

    shape: Shape
    eps: float
    dtype: torch.dtype


class LowNorm(NormOp):
    """A norm, its result in a lower precision, and the outputs saved for its gradient."""

    attributes = LowNormAttributes
    one_gradient = True
    depends_on_position = False

    def __init__(self, norm: NormOp, entry: Callable[..., Any]) -> None:
        self.norm = norm
        self.entry = entry  # of the norm
        self.name = f"{norm.name}_and_low_copy"
        self.num_outputs = norm.num_outputs + 1
        if not isinstance(norm.saves_output, bool):
            self.saves_output = after(1, norm.saves_output)

    def infer(
        self, x: Meta, weight: Meta | None, bias: Meta | None, attrs: LowNormAttributes
    ) -> tuple[Meta, ...]:
        made = self.norm.infer(x, weight, bias, NormAttributes(attrs.shape, attrs.eps))
        y, *statistics = [made] if isinstance(made, Meta) else made
        return y, y.like(dtype=attrs.dtype), *statistics

    def rule(
        self, axis: Axis, x: Meta, weight: Meta | None, bias: Meta | None, attrs: LowNormAttributes
    ) -> Rule:
        # Addends that are rounded do not add up to the rounded sum.
        found = super().rule(axis, x, weight, bias, attrs)
        return [signature for signature in found if partial_sum not in signature.inputs]

    def decompose(self, metas: Metas, attrs: LowNormAttributes) -> Kernel | None:
        return None if splits_rows_only(required(metas[0]), attrs.shape) else self._in_parts

    def _in_parts(self, *args: Any) -> tuple[Tensor, ...]:
        *given, dtype = args
        y: Tensor = self.entry(*given)
        return y, cast(detach(y), dtype)

    def bind(self, local: Local, attrs: LowNormAttributes) -> Kernel:
        count = 0
        arguments: list[object] = []
        for meta in local.inputs[1:]:
            arguments.append(None if meta is None else At(count))
            count += meta is not None
        chain = NormChain(
            NORMS[self.norm.name], (*arguments, attrs.shape, attrs.eps),
            after=Chain(1, (_cast_of(0, attrs.dtype),), (1,)), keeps_result=True,
        )  # fmt: skip
        picked = local.pick(norm_chain_ref.with_chains)
        run = picked(chain)

        def in_order(*tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
            low, *statistics, y = run(*[x for x in tensors if x is not None])
            return y, low, *statistics

        return local.around(picked, in_order)

    def vjp(
        self, needs: Needs, dy: tuple[Tensor | None, ...], y: tuple[Tensor | Meta, ...],
        x: Tensor, weight: Tensor | None, bias: Meta | None, attrs: LowNormAttributes,
    ) -> Gradients:  # fmt: skip
        norm = NormAttributes(attrs.shape, attrs.eps)
        if self.norm.num_outputs == 1:
            return self.norm.vjp(needs, dy[0], y[0], x, weight, bias, norm)
        return self.norm.vjp(needs, (dy[0],), (y[0], *y[2:]), x, weight, bias, norm)


class SumAndLowCopy(Op):
    """The sum of two gradients, and the same in a lower precision."""

    name = "add_and_low_copy"
    attributes = CastAttributes
    num_outputs = 2
    differentiable = False
    depends_on_position = False
    saves = ()
    order = "row-major"

    def infer(self, a: Meta, b: Meta, attrs: CastAttributes) -> tuple[Meta, Meta]:
        return a, a.like(dtype=attrs.dtype)

    def rule(self, axis: Axis, a: Meta, b: Meta, attrs: CastAttributes) -> Rule:
        return pointwise_of([a, b], num_outputs=2)

    def bind(self, local: Local, attrs: CastAttributes) -> Kernel:
        links = Link(torch.add, (At(0), At(1))), _cast_of(2, attrs.dtype)
        picked = local.pick(pointwise_chain_ref.several)
        return local.around(picked, picked(Chain(2, links, (2, 3))))


for _norm, _entry in (
    (LAYER_NORM, layer_norm_plain),
    (LAYER_NORM_WITH_STATS, layer_norm_with_stats),
    (RMS_NORM, rms_norm_plain),
):
    _norm.with_low_copy = several_of(LowNorm(_norm, _entry), "x weight? bias?")
ADD.with_low_copy = several_of(SumAndLowCopy(), "a b")
