"""linear_cross_entropy: the loss of a last layer in chunks, without all logits at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...errors import OnefoldValueError, ShapeError
from ...kernels import linear_cross_entropy_ref as kernels
from .. import interpreter
from ..dispatcher import general, several
from ..meta import Meta
from ..names import register_function
from ..op import Arg, Gradients, Needs, Op, required
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import div_by_count, mul
from .compare import ne
from .cross_entropy import class_indices, cross_entropy, cross_entropy_grad
from .matmul import linear, mm, mm_tn
from .reduce import sum
from .view import flatten, view


class LinearLossAttributes(NamedTuple):
    """The target that is ignored, and the dtype of the loss and the weight's gradient.

    None: those of x and the weight.
    """

    ignore_index: int
    dtype: torch.dtype | None


class LinearCrossEntropy(Op):
    """The sum of the cross entropies of x @ weight.T: (x, weight, target, count)

    It is divided by a count, if there is one. With `keeps`, that many of its gradients, for x and
    weight, are made at once.
    """

    attributes = LinearLossAttributes
    order = "row-major"
    saves = (0, 1, 2, 3)
    one_gradient = True

    def __init__(self, keeps: int) -> None:
        self.kernel = (
            kernels.linear_cross_entropy,
            kernels.linear_cross_entropy_with_input_grad,
            kernels.linear_cross_entropy_with_grads,
        )[keeps]
        self.name = self.kernel.__name__
        self.keeps = keeps
        self.num_outputs = 1 + keeps
        self.saves_output = ((1,), (2,))[:keeps] if keeps else False

    def infer(
        self, x: Meta, weight: Meta, target: Meta, count: Meta | None, attrs: LinearLossAttributes
    ) -> Meta | tuple[Meta, ...]:
        if x.dtype is not weight.dtype:
            super().infer(x, weight, target, attrs)  # torch's own error
        wide = attrs.dtype or x.dtype
        loss = x.like(shape=(), dtype=wide)
        return (loss, x, weight.like(dtype=wide))[: self.num_outputs] if self.keeps else loss

    def rule(self, axis: Axis, x: Meta, *others: Arg) -> Rule:
        counts = [broadcast] * (others[2] is not None)
        found = []
        for at in map(split, range(x.ndim - 1)):
            outputs = (partial_sum, at, partial_sum)[: self.num_outputs]
            found.append(Signature((at, broadcast, at, *counts), outputs))
        return found

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        x, weight = map(required, inputs[:2])
        return 2.0 * x.numel * weight.shape[0] * self.num_outputs

    def vjp(self, needs: Needs, dy: Arg, y: Arg, *args: Arg) -> Gradients:
        """The gradients through all logits: differentiable again, or for the weight only."""
        if self.keeps:
            dy = dy[0]
            assert dy is not None  # the others are for this gradient only
            if not interpreter.is_grad_enabled():
                pairs = zip(needs, y[1:], strict=False)
                return [need and mul(dy, slope) for need, slope in pairs]
        return _whole_grads(needs, dy, *args)


_linear_cross_entropy = general(LinearCrossEntropy(keeps=0))
_linear_cross_entropy_with_input_grad = several(LinearCrossEntropy(keeps=1), only_first=True)
_linear_cross_entropy_with_grads = several(LinearCrossEntropy(keeps=2), only_first=True)


def _rows(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if x.ndim == 2:
        return x, target
    return flatten(x, 0, x.ndim - 2), flatten(target)


def _whole_grads(
    needs: Needs, dy: Tensor, x: Tensor, weight: Tensor, target: Tensor, count: Tensor | None,
    attrs: LinearLossAttributes,
) -> Gradients:  # fmt: skip
    dy = dy if count is None else div_by_count(dy, count)
    rows, wanted = _rows(x, target)
    logits = linear(rows, weight)
    slope = cross_entropy_grad((dy, logits, wanted, None, None), "sum", attrs.ignore_index, 0.0)
    dx = mm(slope, weight) if needs[0] else None
    if dx is not None and x.ndim != 2:
        dx = view(dx, x.shape)
    return dx, needs[1] and mm_tn(slope, rows), None, None


@register_function
def linear_cross_entropy(
    input: Tensor, weight: Tensor, target: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """`cross_entropy(linear(input, weight), target)` for inputs (..., h) and weight (classes, h).

    The logits are made, used for loss and gradients, and dropped in chunks of rows: the memory
    for (rows, classes) is never needed. `target` holds class indices in the shape of the input
    without its last dim. Splits of leading dims stay; where classes or h are split, the logits
    are made as a whole. Raises OnefoldValueError for a reduction other than "mean" and "sum", and
    ShapeError when the shapes do not fit.

    Example: `linear_cross_entropy(x, w, labels)` with x (6, 8), w (10, 8) and labels (6,).
    """
    if reduction not in ("mean", "sum"):
        raise OnefoldValueError(
            f"{reduction!r} is not a valid value for reduction; allowed are mean and sum"
        )
    target = class_indices(target)
    x, w, t = input.meta, weight.meta, target.meta
    if x.ndim < 2 or w.ndim != 2 or x.shape[-1] != w.shape[1] or x.shape[:-1] != t.shape:
        raise ShapeError(
            "linear_cross_entropy needs input (..., h), weight (classes, h) and target (...), but "
            f"got shapes {tuple(x.shape)}, {tuple(w.shape)} and {tuple(t.shape)}"
        )
    if not _is_fused(x, w):
        rows, wanted = _rows(input, target)
        return cross_entropy(linear(rows, weight), wanted, None, ignore_index, reduction)
    count = sum(ne(target, ignore_index)) if reduction == "mean" else None
    tensors = (input, weight, target, count)
    if interpreter.is_grad_enabled():
        if weight.node is not None:
            return _linear_cross_entropy_with_grads(tensors, ignore_index, None)[0]
        if input.node is not None:
            return _linear_cross_entropy_with_input_grad(tensors, ignore_index, None)[0]
    return _linear_cross_entropy(tensors, ignore_index, None)


def _is_fused(x: Meta, weight: Meta) -> bool:
    """Whether rows are independent: no axis splits h or the classes."""
    split_x = any(sbp.kind == "S" and sbp.dim == x.ndim - 1 for sbp in x.nd_sbp)
    split_weight = any(sbp.kind == "S" for sbp in weight.nd_sbp)
    return x.is_floating and not (split_x or split_weight)
