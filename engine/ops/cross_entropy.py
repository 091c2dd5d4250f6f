"""cross_entropy and nll_loss. Batch and classes may be split; logits are not gathered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ...errors import OnefoldValueError
from ...kernels import cross_entropy_ref as kernels, reduce_ref as sums
from ...kernels.cross_entropy_ref import Classes
from .. import interpreter
from ..dispatcher import general
from ..meta import Meta
from ..names import register_function
from ..op import Kernel, Local, Op
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..views import frozen
from .arithmetic import add, div, div_by_count, mul, neg, sub
from .cast import cast, narrowed, widened
from .dims import squeeze, unsqueeze
from .extremum import amax
from .like import ones_like
from .reduce import sum
from .softmax import combine_partials, is_split_at, log_softmax, softmax
from .unary import exp, log
from .view import view

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> None:
    """Raise OnefoldValueError unless it is "none", "mean" or "sum"."""
    if reduction not in REDUCTIONS:
        raise OnefoldValueError(
            f"{reduction!r} is not a valid value for reduction; allowed are none, mean and sum"
        )


def _class_dim(x: Meta | Tensor) -> int:
    return 1 if x.ndim > 1 else 0


def _classes(local: Local, index: int, ignore_index: int, smoothing: float) -> Classes:
    """What the shard of input `index` (the logits) holds."""
    x = local.inputs[index]
    assert x is not None
    dim = _class_dim(x)
    return Classes(local.input_offset(index)[dim], x.shape[dim], ignore_index, smoothing)


def _sample_splits(x: Meta) -> list[tuple[Sbp, Sbp]]:
    """The splits of each dim but the classes': of x, and of what lacks the class dim."""
    dim = _class_dim(x)
    return [(split(i), split(i - (i > dim))) for i in range(x.ndim) if i != dim]


def _present(sbps: Sequence[Sbp], tensors: Sequence[Meta | None]) -> tuple[Sbp, ...]:
    return tuple(sbp for sbp, tensor in zip(sbps, tensors, strict=True) if tensor is not None)


class ClassLossAttributes(NamedTuple):
    """How losses become one, the target that does not count, and label smoothing."""

    reduction: str
    ignore_index: int
    smoothing: float


class CrossEntropy(Op):
    """y = -weight[target] * log_softmax(x)[target], per sample, summed or averaged

    The inputs are (x, target, weight, lse); lse is only given when the classes are split, and the
    parts of the loss are in its dtype.
    """

    attributes = ClassLossAttributes
    num_outputs = 1
    flops_per_element = 4.0

    def __init__(self, log_input: bool) -> None:
        self.name = "nll_loss" if log_input else "cross_entropy"
        self.log_input = log_input

    def infer(
        self,
        x: Meta,
        target: Meta,
        weight: Meta | None,
        lse: Meta | None,
        attrs: ClassLossAttributes,
    ) -> Meta:
        if target.is_floating and not self.log_input:
            raise OnefoldValueError("class indices must be integers")
        dtype = x.dtype if lse is None else lse.dtype
        if x.ndim == 2 and x.shape[:1] == target.shape and weight is None and x.is_floating:
            return x.like(shape=target.shape if attrs.reduction == "none" else (), dtype=dtype)
        inputs = [None if m is None else _blank(m) for m in (x, target, weight)]
        y = kernels.whole_cross_entropy(inputs[0], inputs[1], inputs[2], self.log_input, *attrs)  # type: ignore[arg-type]
        return Meta.of(y.shape, y.dtype if lse is None else dtype, device=y.device)

    def rule(
        self,
        axis: Axis,
        x: Meta,
        target: Meta,
        weight: Meta | None,
        lse: Meta | None,
        attrs: ClassLossAttributes,
    ) -> Rule:
        tensors = (x, target, weight, lse)
        found = []
        if self.log_input:
            inputs = _present((partial_sum, broadcast, broadcast, broadcast), tensors)
            found.append(Signature(inputs, (partial_sum,)))
        if attrs.reduction == "mean":
            return found
        if weight is not None:
            inputs = _present((broadcast, broadcast, partial_sum, broadcast), tensors)
            found.append(Signature(inputs, (partial_sum,)))
        for of_x, rest in _sample_splits(x):
            inputs = _present((of_x, rest, broadcast, rest), tensors)
            found.append(Signature(inputs, (rest if attrs.reduction == "none" else partial_sum,)))
        if lse is not None or self.log_input:
            classes = split(_class_dim(x))
            inputs = _present((classes, broadcast, broadcast, broadcast), tensors)
            found.append(Signature(inputs, (partial_sum,)))
        return found

    def bind(self, local: Local, attrs: ClassLossAttributes) -> Kernel:
        reduction, ignore_index, smoothing = attrs
        classes = _classes(local, 0, ignore_index, smoothing)
        x = local.inputs[0]
        assert x is not None
        if local.inputs[3] is None and local.input_shape(0)[_class_dim(x)] == classes.total:
            log_input = self.log_input
            whole = local.pick(kernels.whole_cross_entropy)
            return lambda x, target, weight, lse: whole(x, target, weight, log_input, *attrs)
        part = partial(local.pick(kernels.cross_entropy), classes=classes)
        if reduction != "sum":
            return part
        total = local.pick(sums.total)
        return lambda *tensors: total(part(*tensors), None, False, None)

    def decompose(
        self, metas: tuple[Meta | None, ...], attrs: ClassLossAttributes
    ) -> Kernel | None:
        x, target, _, lse = metas
        assert x is not None
        assert target is not None
        if lse is None and not self.log_input and is_split_at(x, _class_dim(x)):
            return partial(_with_lse, self)
        if attrs.reduction == "mean" and not (x.is_whole and target.is_whole):
            return partial(_mean, self)
        return None

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None,
        lse: Tensor | None,
        attrs: ClassLossAttributes,
    ) -> Any:
        grad = _nll_grad if self.log_input else cross_entropy_grad
        return (grad((dy, x, target, weight, lse), *attrs),)


def _blank(meta: Meta) -> torch.Tensor:
    return torch.empty(meta.shape, dtype=meta.dtype, device="meta")


def _with_lse(op: CrossEntropy, tensors: tuple[Any, ...], *attrs: Any) -> Tensor:
    """Classes are split: their maxima and sums of exponentials are exchanged, nothing more."""
    x, target, weight, _ = tensors
    with interpreter.grad_mode(False):
        lse = _logsumexp(x)
    return narrowed(_entry(op)((x, target, weight, lse), *attrs), x.dtype)


def _logsumexp(x: Tensor) -> Tensor:
    x, dim = widened(x), _class_dim(x)
    top = combine_partials(amax(x, dim, True))
    total = combine_partials(sum(exp(sub(x, top)), dim, True))
    return squeeze(add(log(total), top), dim)


def _mean(op: CrossEntropy, tensors: tuple[Any, ...], *attrs: Any) -> Tensor:
    """The samples are split, perhaps unevenly: the sum of the losses over that of the weights."""
    _, target, weight, _ = tensors
    total = _entry(op)(tensors, "sum", *attrs[1:])
    divide = div_by_count if weight is None else div
    return divide(total, _total_weight(target, weight, attrs[1], total.dtype))


def _total_weight(
    target: Tensor, weight: Tensor | None, ignore_index: int, dtype: torch.dtype
) -> Tensor:
    return sum(_weights((target, weight), ignore_index, 0.0, 0, dtype))


class CrossEntropyGrad(Op):
    """dx = dy * weight[target] * (softmax(x) - one_hot(target)), with dy per sample or for all"""

    attributes = ClassLossAttributes
    flops_per_element = 4.0

    def __init__(self, log_input: bool) -> None:
        self.name = "nll_loss_grad" if log_input else "cross_entropy_grad"
        self.log_input = log_input

    def infer(self, dy: Meta, x: Meta, *others: Any) -> Meta:
        return x

    def rule(
        self,
        axis: Axis,
        dy: Meta,
        x: Meta,
        target: Meta,
        weight: Meta | None,
        lse: Meta | None,
        attrs: ClassLossAttributes,
    ) -> Rule:
        tensors = (dy, x, target, weight, lse)
        found = []
        # A mean is over all samples and classes: only of a whole x (see CrossEntropy.decompose).
        for of_x, rest in _sample_splits(x) if attrs.reduction != "mean" else ():
            of_dy = rest if dy.ndim else broadcast
            inputs = _present((of_dy, of_x, rest, broadcast, rest), tensors)
            found.append(Signature(inputs, (of_x,)))
        if attrs.reduction != "mean" and (lse is not None or self.log_input):
            classes = split(_class_dim(x))
            inputs = _present((broadcast, classes, *[broadcast] * 3), tensors)
            found.append(Signature(inputs, (classes,)))
        # Linear in dy and in the weights; log probabilities do not count at all.
        for place in (0, 3):
            sbps = [partial_sum if i == place else broadcast for i in range(5)]
            if tensors[place] is not None and (place == 0 or attrs.reduction != "mean"):
                found.append(Signature(_present(sbps, tensors), (partial_sum,)))
        if self.log_input:
            sbps = [partial_sum if i == 1 else broadcast for i in range(5)]
            found.append(Signature(_present(sbps, tensors), (broadcast,)))
        return found

    def decompose(
        self, metas: tuple[Meta | None, ...], attrs: ClassLossAttributes
    ) -> Kernel | None:
        x, lse = metas[1], metas[4]
        assert x is not None
        if lse is None and not self.log_input and is_split_at(x, _class_dim(x)):
            return _grad_with_lse
        return None

    def bind(self, local: Local, attrs: ClassLossAttributes) -> Kernel:
        classes = _classes(local, 1, *attrs[1:])
        x = local.inputs[1]
        assert x is not None
        if local.inputs[4] is None and local.input_shape(1)[_class_dim(x)] == classes.total:
            log_input = self.log_input
            whole = local.pick(kernels.whole_cross_entropy_grad)
            return lambda dy, x, target, weight, lse: whole(
                dy, x, target, weight, log_input, *attrs
            )
        return partial(local.pick(kernels.cross_entropy_grad), classes=classes)

    def vjp(
        self,
        needs: Sequence[object],
        dy: Tensor,
        y: Meta,
        g: Tensor,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None,
        lse: Tensor | None,
        attrs: ClassLossAttributes,
    ) -> Any:
        reduction, ignore_index, smoothing = attrs
        dim = _class_dim(x)
        d_g = d_x = None
        if needs[0]:
            entry = _nll_grad if self.log_input else cross_entropy_grad
            ones = ones_like(frozen(g))
            each = entry((ones, x, target, weight, lse), reduction, ignore_index, smoothing)
            d_g = sum(mul(dy, each), dim)
            if g.ndim == 0:
                d_g = sum(d_g)
            d_g = cast(d_g, g.dtype)
        if needs[1] and not self.log_input:
            p = softmax(x, dim)
            total = sum(mul(dy, p), dim, True)
            along = mul(p, sub(dy, total))
            weights = _weights((target, weight), ignore_index, smoothing, x.shape[dim], x.dtype)
            if reduction == "mean":
                weights = div(weights, _total_weight(target, weight, ignore_index, x.dtype))
            d_x = cast(mul(along, unsqueeze(mul(weights, g), dim)), x.dtype)
        return d_g, d_x


def _grad_with_lse(tensors: tuple[Any, ...], *attrs: Any) -> Tensor:
    with interpreter.grad_mode(False):
        lse = _logsumexp(tensors[1])
    return cross_entropy_grad((*tensors[:4], lse), *attrs)


class TargetWeightsAttributes(NamedTuple):
    """As in `ClassLossAttributes`, the number of classes, and the dtype to reach."""

    ignore_index: int
    smoothing: float
    total: int
    dtype: torch.dtype


class TargetWeights(Op):
    """y = weight[target], 0 where the target is ignored"""

    name = "target_weights"
    attributes = TargetWeightsAttributes
    differentiable = False

    def kernel(
        self,
        target: torch.Tensor,
        weight: torch.Tensor | None,
        ignore_index: int,
        smoothing: float,
        total: int,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        classes = Classes(0, total, ignore_index, smoothing)
        return kernels.target_weights(target, weight, classes, dtype)

    def bind(self, local: Local, attrs: TargetWeightsAttributes) -> Kernel:
        ignore_index, smoothing, total, dtype = attrs
        classes = Classes(0, total, ignore_index, smoothing)
        kernel = local.pick(kernels.target_weights)
        return partial(kernel, classes=classes, dtype=dtype)

    @property
    def depends_on_position(self) -> bool:
        return False

    def rule(
        self, axis: Axis, target: Meta, weight: Meta | None, attrs: TargetWeightsAttributes
    ) -> Rule:
        tensors = (target, weight)
        found = [
            Signature(_present((split(i), broadcast), tensors), (split(i),))
            for i in range(target.ndim)
        ]
        if weight is not None:
            found.append(Signature((broadcast, partial_sum), (partial_sum,)))
        return found


_CROSS_ENTROPY = CrossEntropy(log_input=False)
_NLL = CrossEntropy(log_input=True)
_cross_entropy = general(_CROSS_ENTROPY)
_nll = general(_NLL)
cross_entropy_grad = general(CrossEntropyGrad(log_input=False))
_nll_grad = general(CrossEntropyGrad(log_input=True))
_weights = general(TargetWeights())


def _entry(op: CrossEntropy) -> Kernel:
    return _nll if op is _NLL else _cross_entropy


@register_function
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of logits (N, C, ...) or (C,) and targets, as in torch.

    `target` is class indices without the class dim, or class probabilities of the input's shape.
    Batch, spatial dims and classes may be split; split classes exchange two numbers per sample,
    never the logits. Raises OnefoldValueError for an unknown reduction.

    Example: `cross_entropy(logits, labels)` with logits (8, 10) and labels (8,) is a scalar.
    """
    check_reduction(reduction)
    if target.meta.is_floating and target.shape == input.shape:
        return _probabilities(input, target, weight, reduction, label_smoothing)
    attrs = (reduction, ignore_index, label_smoothing)
    return _cross_entropy((input, target, weight, None), *attrs)


def _probabilities(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    dim = _class_dim(input)
    if not 0.0 <= smoothing <= 1.0:
        raise OnefoldValueError(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
    if smoothing > 0.0:
        share = smoothing / input.shape[dim]
        target = add(mul(target, 1.0 - smoothing), share)
    each = mul(log_softmax(input, dim), target)
    if weight is not None:
        each = mul(each, view(weight, (-1, *[1] * (input.ndim - 1 - dim))))
    if reduction == "none":
        return neg(sum(each, dim))
    total = neg(sum(each))
    if reduction == "sum":
        return total
    classes = input.shape[dim]
    samples = input.numel() // classes if classes else 0
    return div(total, samples)


@register_function
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of targets under log probabilities (N, C, ...), as in torch.

    Raises OnefoldValueError for an unknown reduction.

    Example: `nll_loss(log_softmax(x, 1), labels)` equals `cross_entropy(x, labels)`.
    """
    check_reduction(reduction)
    attrs = (reduction, ignore_index, 0.0)
    return _nll((input, target, weight, None), *attrs)
