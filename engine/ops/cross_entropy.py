"""cross_entropy and nll_loss. Batch and classes may be split; logits are not gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import compress
from typing import NamedTuple, TypeAlias

import torch

from ...errors import OnefoldValueError
from ...kernels import cross_entropy_ref as kernels, reduce_ref as sums
from ...kernels.cross_entropy_ref import Classes
from ...kernels.select import uses_triton
from .. import interpreter
from ..dispatcher import general, several
from ..meta import Meta
from ..names import register_function
from ..op import Arg, Gradients, Kernel, Local, Metas, Needs, Op, blank, required
from ..own_group import on_ranks_of
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from ..thread_stack import ThreadStack
from ..views import frozen
from .arithmetic import add, div, div_by_count, mul, neg, sub
from .cast import cast, narrowed, widened
from .compare import eq
from .dims import squeeze, unsqueeze
from .extremum import amax
from .like import ones_like
from .reduce import is_split_along, sum, without_partials
from .softmax import log_softmax, softmax
from .unary import exp, log
from .view import view
from .where import masked_fill

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> None:
    """Raise OnefoldValueError unless it is "none", "mean" or "sum"."""
    if reduction not in REDUCTIONS:
        raise OnefoldValueError(
            f"{reduction!r} is not a valid value for reduction; allowed are none, mean and sum"
        )


def _class_dim(x: Meta | Tensor) -> int:
    return 1 if x.ndim > 1 else 0


Present: TypeAlias = Sequence[Meta | None]  # the tensors, None for what is absent


def _signatures(tensors: Present, rows: Iterable[tuple[Sequence[Sbp], Sbp]]) -> Rule:
    """The signatures of these rows (inputs, output), without the layouts of absent tensors."""
    given = [tensor is not None for tensor in tensors]
    return [Signature(tuple(compress(inputs, given)), (output,)) for inputs, output in rows]


def _only(place: int, sbp: Sbp, count: int) -> list[Sbp]:
    """One input laid out as `sbp`, the others broadcast."""
    return [sbp if i == place else broadcast for i in range(count)]


def _sample_splits(x: Meta) -> list[tuple[Sbp, Sbp]]:
    """The splits of each dim but the classes': of x, and of what lacks the class dim."""
    dim = _class_dim(x)
    return [(split(i), split(i - (i > dim))) for i in range(x.ndim) if i != dim]


class CrossEntropyGradAttributes(NamedTuple):
    """The reduction of the losses, the target that is ignored, and label smoothing."""

    reduction: str
    ignore_index: int
    smoothing: float


class CrossEntropyAttributes(NamedTuple):
    """The same, and the dtype of the loss; None: that of x."""

    reduction: str
    ignore_index: int
    smoothing: float
    dtype: torch.dtype | None


class CrossEntropyOp(Op):
    """The base of a loss of (x, target, weight, lse) and of its gradient, with dy before these.

    x is logits or, with `log_input`, log probabilities. lse is the logarithm of the sum of
    exponentials. It is passed only when the classes are split; partial losses have its dtype.
    """

    flops_per_element = 4.0
    first = 0  # which input x is

    def __init__(self, log_input: bool) -> None:
        self.name = "nll_loss" if log_input else "cross_entropy"
        self.log_input = log_input

    def needs_lse(self, tensors: Present) -> bool:
        """Whether the classes are split and lse over all of them is not known yet."""
        x, lse = required(tensors[self.first]), tensors[self.first + 3]
        return lse is None and not self.log_input and is_split_along(x, _class_dim(x))

    def classes(
        self, local: Local, attrs: CrossEntropyGradAttributes | CrossEntropyAttributes
    ) -> Classes | None:
        """The classes that the shard holds; None for all of them."""
        x = local.input(self.first)
        dim = _class_dim(x)
        if local.input_shape(self.first)[dim] == x.shape[dim]:
            return None
        offset = local.input_offset(self.first)[dim]
        return Classes(offset, x.shape[dim], attrs.ignore_index, attrs.smoothing)


def _loss_meta(
    x: Meta, target: Meta, weight: Meta | None, log_input: bool, attrs: CrossEntropyAttributes
) -> Meta:
    """The loss of logits of all classes."""
    if target.is_floating and not log_input:
        raise OnefoldValueError("class indices must be integers")
    dtype = attrs.dtype or x.dtype
    if x.ndim == 2 and x.shape[:1] == target.shape and weight is None and x.is_floating:
        return x.like(shape=target.shape if attrs.reduction == "none" else (), dtype=dtype)
    of_weight = None if weight is None else blank(weight)
    y = kernels.whole_cross_entropy(blank(x), blank(target), of_weight, log_input, *attrs)
    return Meta.of(y.shape, y.dtype, device=y.device)


class CrossEntropy(CrossEntropyOp):
    """y = -weight[target] * log_softmax(x)[target], per sample, summed or averaged"""

    attributes = CrossEntropyAttributes
    order = "row-major"
    saves = ((0, 1, 2, 3), (), (), ())

    def infer(
        self,
        x: Meta,
        target: Meta,
        weight: Meta | None,
        lse: Meta | None,
        attrs: CrossEntropyAttributes,
    ) -> Meta:
        y = _loss_meta(x, target, weight, self.log_input, attrs)
        return y if lse is None else y.like(dtype=lse.dtype)

    def rule(self, axis: Axis, x: Meta, *others: Arg) -> Rule:
        _, weight, lse, attrs = others
        rows: list[tuple[Sequence[Sbp], Sbp]] = []
        if self.log_input:
            rows.append((_only(0, partial_sum, 4), partial_sum))
        if attrs.reduction != "mean":
            if weight is not None:
                rows.append((_only(2, partial_sum, 4), partial_sum))
            for of_x, rest in _sample_splits(x):
                of_y = rest if attrs.reduction == "none" else partial_sum
                rows.append(((of_x, rest, broadcast, rest), of_y))
            if lse is not None or self.log_input:
                rows.append((_only(0, split(_class_dim(x)), 4), partial_sum))
        return _signatures((x, *others[:3]), rows)

    def bind(self, local: Local, attrs: CrossEntropyAttributes) -> Kernel:
        classes = self.classes(local, attrs)
        if classes is None and local.inputs[3] is None:
            log_input, whole = self.log_input, local.pick(kernels.whole_cross_entropy)
            return local.around(
                whole, lambda x, target, weight, lse: whole(x, target, weight, log_input, *attrs)
            )
        if classes is None:
            classes = Classes(0, local.input_shape(0)[_class_dim(local.input(0))], *attrs[1:3])
        part = local.bind(kernels.cross_entropy, classes)
        if attrs.reduction != "sum":
            return part
        total = local.pick(sums.total)
        return lambda *tensors: total(part(*tensors), None, False, None)

    def decompose(self, metas: Metas, attrs: CrossEntropyAttributes) -> Kernel | None:
        if self.needs_lse(metas):
            return _with_lse
        if attrs.reduction == "mean" and not all(required(meta).is_whole for meta in metas[:2]):
            return partial(_mean, self.log_input)
        return None

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, *args: Arg) -> Gradients:
        *tensors, attrs = args
        if not needs[0]:  # the weights of classes get none
            return ()
        return (_grads[self.log_input]((dy, *tensors), *attrs[:3]),)


class CrossEntropyWithLse(Op):
    """`CrossEntropy` of (x, target, weight) with all classes, and lse, kept for the gradient"""

    name = "cross_entropy_with_lse"
    attributes = CrossEntropyAttributes
    order = "row-major"
    num_outputs = 2
    saves = ((0, 1, 2), (), ())
    saves_output = ((1,), (), ())
    one_gradient = True
    flops_per_element = 4.0

    def infer(
        self, x: Meta, target: Meta, weight: Meta | None, attrs: CrossEntropyAttributes
    ) -> tuple[Meta, Meta]:
        y = _loss_meta(x, target, weight, False, attrs)
        wide = torch.promote_types(x.dtype, torch.float32)
        return y, y.like(shape=target.shape, dtype=wide)

    def rule(
        self, axis: Axis, x: Meta, target: Meta, weight: Meta | None, attrs: CrossEntropyAttributes
    ) -> Rule:
        if attrs.reduction == "mean":
            return []
        found = []
        for of_x, rest in _sample_splits(x):
            of_y = rest if attrs.reduction == "none" else partial_sum
            others = () if weight is None else (broadcast,)
            found.append(Signature((of_x, rest, *others), (of_y, rest)))
        if weight is not None:  # it is linear in the weights
            found.append(Signature((broadcast, broadcast, partial_sum), (partial_sum, broadcast)))
        return found

    def bind(self, local: Local, attrs: CrossEntropyAttributes) -> Kernel:
        return local.bind(kernels.whole_cross_entropy_with_lse, *attrs)

    def vjp(self, needs: Needs, dy: Arg, y: Arg, *args: Arg) -> Gradients:
        *tensors, attrs = args
        if not needs[0]:
            return ()
        return (cross_entropy_grad((dy[0], *tensors, y[1]), *attrs[:3]),)


@lru_cache(maxsize=1024)
def _keeps_lse(x: Meta, on_triton: Callable[[str], bool]) -> bool:
    """Whether backward reuses the logarithms of sums: torch's own kernels recompute them."""
    return x.is_floating and on_triton(x.device_type) and not is_split_along(x, _class_dim(x))


Inputs: TypeAlias = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def _with_lse(tensors: Inputs, *attrs: Arg) -> Tensor:
    """The loss with split classes: only maxima and sums of exponentials are exchanged."""
    x, target, weight, _ = tensors
    loss = _cross_entropy((x, target, weight, _logsumexp(x)), *attrs)
    return narrowed(loss, attrs[3] or x.dtype)


def _grad_with_lse(tensors: tuple[Tensor, *Inputs], *attrs: Arg) -> Tensor:
    return cross_entropy_grad((*tensors[:4], _logsumexp(tensors[1])), *attrs)


def _logsumexp(x: Tensor) -> Tensor:
    with interpreter.grad_mode(False):
        x, dim = widened(x), _class_dim(x)
        top = without_partials(amax(x, dim, True))
        total = without_partials(sum(exp(sub(x, top)), dim, True))
        return squeeze(add(log(total), top), dim)


def _mean(log_input: bool, tensors: Inputs, reduction: str, ignored: int, *rest: Arg) -> Tensor:
    """The mean over split samples: the sum of the losses over that of the weights."""
    _, target, weight, _ = tensors
    return averaged(losses[log_input](tensors, "sum", ignored, *rest), target, weight, ignored)


def averaged(total: Tensor, target: Tensor, weight: Tensor | None, ignored: int) -> Tensor:
    """A total of losses over samples divided by the total weight of those that count."""
    divide = div_by_count if weight is None else div
    return divide(total, _total_weight(target, weight, ignored, total.dtype))


def _total_weight(
    target: Tensor, weight: Tensor | None, ignore_index: int, dtype: torch.dtype
) -> Tensor:
    return sum(_weights((target, weight), Classes(0, 0, ignore_index, 0.0), dtype))


class CrossEntropyGrad(CrossEntropyOp):
    """dx = dy * weight[target] * (softmax(x) - one_hot(target)), with dy per sample or for all"""

    attributes = CrossEntropyGradAttributes
    order = "row-major"
    first = 1
    like = (1,)

    def __init__(self, log_input: bool) -> None:
        super().__init__(log_input)
        self.name += "_grad"

    def rule(self, axis: Axis, dy: Meta, x: Meta, *others: Arg) -> Rule:
        _, weight, lse, attrs = others
        rows: list[tuple[Sequence[Sbp], Sbp]] = []
        # A mean is over all samples and classes: only of a whole x (see CrossEntropy.decompose).
        if attrs.reduction != "mean":
            for of_x, rest in _sample_splits(x):
                rows.append(((rest if dy.ndim else broadcast, of_x, rest, broadcast, rest), of_x))
            if lse is not None or self.log_input:
                classes = split(_class_dim(x))
                rows.append((_only(1, classes, 5), classes))
        # Linear in dy and in the weights; log probabilities do not count at all.
        rows.append((_only(0, partial_sum, 5), partial_sum))
        if weight is not None and attrs.reduction != "mean":
            rows.append((_only(3, partial_sum, 5), partial_sum))
        if self.log_input:
            rows.append((_only(1, partial_sum, 5), broadcast))
        return _signatures((dy, x, *others[:3]), rows)

    def decompose(self, metas: Metas, attrs: CrossEntropyGradAttributes) -> Kernel | None:
        return _grad_with_lse if self.needs_lse(metas) else None

    def bind(self, local: Local, attrs: CrossEntropyGradAttributes) -> Kernel:
        classes = self.classes(local, attrs)
        if classes is not None:
            return local.bind(kernels.cross_entropy_grad, classes)
        log_input, whole = self.log_input, local.pick(kernels.whole_cross_entropy_grad)
        return local.around(
            whole,
            lambda dy, x, target, weight, lse: whole(dy, x, target, weight, log_input, *attrs, lse),
        )

    def vjp(
        self,
        needs: Needs,
        dy: Tensor,
        y: Meta,
        g: Tensor,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None,
        lse: Tensor | None,
        attrs: CrossEntropyGradAttributes,
    ) -> Gradients:
        dim = _class_dim(x)
        d_g = d_x = None
        if needs[0]:
            each = _grads[self.log_input]((ones_like(frozen(g)), x, target, weight, lse), *attrs)
            d_g = sum(mul(dy, each), dim)
            if g.ndim == 0:
                d_g = sum(d_g)
            d_g = cast(d_g, g.dtype)
        if needs[1] and not self.log_input:
            p = softmax(x, dim)
            total = sum(mul(dy, p), dim, True)
            along = mul(p, sub(dy, total))
            classes = Classes(0, x.shape[dim], attrs.ignore_index, attrs.smoothing)
            weights = _weights((target, weight), classes, x.dtype)
            if attrs.reduction == "mean":
                whole = _total_weight(target, weight, attrs.ignore_index, x.dtype)
                weights = div(weights, whole)
            # Of those that are ignored the gradient is 0, also where the total weight is.
            each = masked_fill(mul(weights, g), eq(target, attrs.ignore_index), 0.0)
            d_x = cast(mul(along, unsqueeze(each, dim)), x.dtype)
        return d_g, d_x


class TargetWeightsAttributes(NamedTuple):
    """All classes, and the target dtype."""

    classes: Classes
    dtype: torch.dtype


class TargetWeights(Op):
    """y = weight[target], 0 where the target is ignored"""

    name = "target_weights"
    attributes = TargetWeightsAttributes
    order = "row-major"
    differentiable = False
    kernel = staticmethod(kernels.target_weights)

    def infer(self, target: Meta, weight: Meta | None, attrs: TargetWeightsAttributes) -> Meta:
        return target.like(dtype=attrs.dtype)

    def rule(
        self, axis: Axis, target: Meta, weight: Meta | None, attrs: TargetWeightsAttributes
    ) -> Rule:
        rows = [((split(i), broadcast), split(i)) for i in range(target.ndim)]
        if weight is not None:
            rows.append(((broadcast, partial_sum), partial_sum))
        return _signatures((target, weight), rows)


# By whether the input is log probabilities.
_cross_entropy, _nll = losses = [general(CrossEntropy(log_input)) for log_input in (False, True)]
cross_entropy_grad, _ = _grads = [general(CrossEntropyGrad(each)) for each in (False, True)]
_cross_entropy_with_lse = several(CrossEntropyWithLse(), only_first=True)
_weights = general(TargetWeights())


# Whether local targets are those of global logits, equal on their ranks.
local_targets = ThreadStack[bool]("local_targets")


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

    `target` is class indices (also int32) without the class dim, or class probabilities of the
    input's shape. Batch, spatial dims and classes may be split; split classes exchange two numbers
    per sample, never the logits. Raises OnefoldValueError for an unknown reduction.

    Example: `cross_entropy(logits, labels)` with logits (8, 10) and labels (8,) is a scalar.
    """
    check_reduction(reduction)
    if local_targets.last and input.is_global:
        target = on_ranks_of(input, target)
        weight = None if weight is None else on_ranks_of(input, weight)
    if target.meta.is_floating and target.shape == input.shape:
        return _probabilities(input, target, weight, reduction, label_smoothing)
    trained = input.node is not None and interpreter.is_grad_enabled()
    if trained and _keeps_lse(input.meta, uses_triton):
        return keeping_cross_entropy(
            input, target, weight, ignore_index, reduction, label_smoothing
        )
    attrs = (reduction, ignore_index, label_smoothing, None)
    return _cross_entropy((input, class_indices(target), weight, None), *attrs)


def keeping_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`cross_entropy` of class indices that keeps the logarithms of sums for its gradient."""
    tensors, attrs = (input, class_indices(target), weight), (ignore_index, label_smoothing, None)
    if reduction != "mean" or (input.meta.is_whole and target.meta.is_whole):
        return _cross_entropy_with_lse(tensors, reduction, *attrs)[0]
    total = _cross_entropy_with_lse(tensors, "sum", *attrs)[0]
    return averaged(total, *tensors[1:], ignore_index)


def class_indices(target: Tensor) -> Tensor:
    """The targets in a dtype that kernels take: OneFlow allows int32, torch's kernels do not."""
    return cast(target, torch.int64) if target.dtype is torch.int32 else target


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
    attrs = (reduction, ignore_index, 0.0, None)
    return _nll((input, class_indices(target), weight, None), *attrs)
