"""Batching rules of layers of networks: convolutions, norms, attention, cross entropies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..engine.names import Function
from ..engine.ops.arithmetic import add, mul
from ..engine.ops.cross_entropy import averaged, losses
from ..engine.ops.dims import expand
from ..engine.ops.norm import input_gradient, layer_norm_plain, rms_norm_plain
from ..engine.ops.reduce import sum
from ..engine.ops.torch_op import filled
from ..engine.ops.vector_norm import vector_norm
from ..engine.ops.view import view
from ..engine.tensor import Tensor
from .batched_call import BatchedCall, NoRule, Results, Rule, folded, unfolded
from .batching_by_folding import fold

# Convolutions. Of weights that have rows, each row is a group of channels.


def _convolution(call: BatchedCall) -> Results:
    x, w, bias = call.slots
    of_x, of_w = call.mapped[:2]
    if bias is not None and (call.mapped[2] or of_w):
        call = _without_bias(call)
        y = _convolution(call)
        assert isinstance(y, Tensor)
        places = [1] * (y.ndim - 3)
        rows = call.size if bias.ndim == 2 else 1
        return add(y, view(bias, (rows, 1, y.shape[2], *places)))
    if not of_w:
        if of_x:
            return fold(call)
        y = call.run([x, w, None], *call.attrs)
        return expand(y, (call.size, *y.shape))
    attrs = call.attrs
    groups = attrs.groups * call.size
    y = call.run([folded(call.at_front(0), 1), folded(w, 0), None], *attrs._replace(groups=groups))
    return unfolded(y, 1, call.size)


def _without_bias(call: BatchedCall) -> BatchedCall:
    return BatchedCall(
        call.entry, call.op, [*call.slots[:2], None], [*call.mapped[:2], False],
        [*call.rows[:2], None], call.attrs, call.metas, call.size, call.packed,
    )  # fmt: skip


def _weight_grad(call: BatchedCall) -> Results:
    shape, sizes = call.attrs
    dy, x = [folded(call.at_front(index), 1) for index in range(2)]
    whole = (call.size * shape[0], *shape[1:])
    y = call.run([dy, x], whole, sizes._replace(groups=sizes.groups * call.size))
    return unfolded(y, 0, call.size)


# Norms.


def _norm(call: BatchedCall) -> Results:
    """layer_norm or rms_norm, which normalize the last dims; weights with rows come after."""
    x, weight, bias = call.slots
    if not call.mapped[1] and not call.mapped[2]:
        return call.run(call.slots, *call.attrs)
    if x.dtype not in (torch.float32, torch.float64):
        raise NoRule
    plain = rms_norm_plain if call.op.name == "rms_norm" else layer_norm_plain
    ndim = call.rows[0].ndim
    y = plain(x, None, None, *call.attrs)
    if not call.mapped[0]:
        y = view(y, (1, *y.shape))
    if weight is not None:
        y = mul(y, call.aligned(1, ndim))
    if bias is not None:
        y = add(y, call.aligned(2, ndim))
    return y if call.op.num_outputs == 1 else (y,)


def _norm_grad(call: BatchedCall) -> Results:
    """The gradients of layer_norm or rms_norm for x, weight and bias."""
    centered = call.op.name == "layer_norm_grad"
    dy, x, weight = call.at_front(0), call.at_front(1), call.slots[2]
    if x.dtype not in (torch.float32, torch.float64):
        raise NoRule
    through = dy
    if call.mapped[2]:
        through, weight = mul(dy, call.aligned(2, call.rows[1].ndim)), None
    d_x = input_gradient(centered, through, x, weight, call.attrs)
    plain = layer_norm_plain if centered else rms_norm_plain
    dims = tuple(range(1, x.ndim - len(call.attrs.shape)))
    along = mul(dy, plain(x, None, None, *call.attrs))
    d_weight = sum(along, dims) if dims else along
    if not centered:
        return d_x, d_weight
    return d_x, d_weight, sum(dy, dims) if dims else dy


# Attention: rows are more samples.


def _attention(call: BatchedCall) -> Results:
    *tensors, dropout = call.slots
    if dropout is not None:
        raise NoRule
    given: list[Any] = [folded(call.at_front(index), 0) for index in range(3)]
    mask = tensors[3]
    if call.mapped[3]:
        mask = call.aligned(3, 4)
        mask = folded(expand(mask, (call.size, call.rows[0].shape[0], *mask.shape[2:])), 0)
    elif mask is not None and mask.ndim == 4 and mask.shape[0] != 1:  # a mask for each sample
        mask = folded(call.at_front(3), 0)
    given.append(mask)
    (y, *rest) = call.run([*given, None], *call.attrs)
    return [unfolded(part, 0, call.size) for part in (y, *rest)]


# Cross entropies. Losses of samples have rules; their sums and means are made of these.


def _losses(call: BatchedCall) -> Results:
    """Losses of samples, or their gradients; the rows are more samples."""
    if call.attrs.reduction != "none":
        raise NoRule
    x = len(call.slots) - 4  # after dy in gradients
    weight, lse = x + 2, call.slots[x + 3]
    if call.mapped[weight] or lse is not None:
        raise NoRule
    slots = [slot if i == weight else call.at_front(i) for i, slot in enumerate(call.slots)]
    if call.rows[x].ndim > 1:
        slots = [
            folded(slot, 0) if i != weight and slot is not None else slot
            for i, slot in enumerate(slots)
        ]
    return call.whole(call.run(slots, *call.attrs))


Form = Callable[..., Any]


def _reduced_loss(attrs: Any) -> Form | None:
    return None if attrs.reduction == "none" else _loss_in_parts


def _loss_in_parts(
    call: Function, tensors: Any, reduction: str, ignored: int, *rest: Any
) -> Tensor:
    _, target, weight, _ = tensors
    total = sum(call(tensors, "none", ignored, *rest))
    return averaged(total, target, weight, ignored) if reduction == "mean" else total


def _loss_without_lse(call: Function, tensors: Any, *attrs: Any) -> tuple[Tensor]:
    return (losses[False]((*tensors, None), *attrs),)


def _reduced_gradient(attrs: Any) -> Form | None:
    return None if attrs.reduction == "none" else _gradient_in_parts


def _gradient_in_parts(
    call: Function, tensors: Any, reduction: str, ignored: int, smoothing: float
) -> Tensor:
    dy, x, target, weight, lse = tensors
    if reduction == "mean":
        dy = averaged(dy, target, weight, ignored)
    tensors = (expand(dy, target.shape), x, target, weight, lse)
    made: Tensor = call(tensors, "none", ignored, smoothing)
    return made


def _plain_norm(attrs: Any) -> Form | None:
    """The form of `linalg.norm` of all elements, which is torch's function otherwise."""
    _, *given = attrs.positional
    others = [*given, *[value for _, value in attrs.named]]
    return _norm_of_all if all(filled(each, ()) in (None, False) for each in others) else None


def _norm_of_all(call: Function, tensors: Any, *attrs: Any) -> Tensor:
    return vector_norm(tensors[0])


SMALL_FORMS: dict[str, Callable[[Any], Form | None]] = {
    "linalg.norm": _plain_norm,
    **dict.fromkeys(("cross_entropy", "nll_loss"), _reduced_loss),
    **dict.fromkeys(("cross_entropy_grad", "nll_loss_grad"), _reduced_gradient),
    "cross_entropy_with_lse": lambda attrs: _loss_without_lse,
}

RULES: dict[str, Rule] = {
    "convolution": _convolution,
    "convolution_weight_grad": _weight_grad,
    "layer_norm": _norm,
    "layer_norm_with_stats": _norm,
    "rms_norm": _norm,
    "layer_norm_grad": _norm_grad,
    "rms_norm_grad": _norm_grad,
    "attention": _attention,
    **dict.fromkeys("cross_entropy nll_loss cross_entropy_grad nll_loss_grad".split(), _losses),
}
