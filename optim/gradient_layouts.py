"""Boxes gradients to the layouts of their parameters, together in buckets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..engine import boxing, interpreter
from ..engine.convert import box
from ..engine.flat_buffer import flat_meta, flatten, unflatten
from ..engine.meta import Meta
from ..engine.sbp import without_partial
from ..engine.tensor import Tensor, from_shards
from ..errors import OnefoldRuntimeError, user_line

BUCKET_BYTES = 25 * 1024 * 1024  # large enough for full bandwidth, small enough to hold twice


def with_gradients(params: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Those of the parameters that have a gradient, and their gradients."""
    found = [(param, grad) for param in params if (grad := param.grad) is not None]
    return [param for param, _ in found], [grad for _, grad in found]


def aligned(params: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of each parameter in the parameter's layout.

    Gradients that go from the same layout to broadcast travel together, in buckets; the others
    are boxed one by one.
    """
    found = list(grads)
    buckets: dict[object, list[int]] = {}
    for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
        meta = param.meta
        if meta.partial:
            found[index] = _one_addend(grad, meta)
        elif grad.meta is meta:
            continue
        elif _in_bucket(grad.meta, meta):
            key = (grad.meta.placement, grad.meta.nd_sbp, grad.dtype)
            buckets.setdefault(key, []).append(index)
        else:
            plan = boxing.plan(grad.meta, meta)
            found[index] = from_shards(boxing.run(plan, grad.shards, op="gradients"), meta)
    for indices in buckets.values():
        for bucket in _cut(indices, params):
            together = _together([grads[i] for i in bucket], params[bucket[0]].meta)
            for index, grad in zip(bucket, together, strict=True):
                found[index] = grad
    for grad in found:
        grad.shared = True  # buckets and slices are views
    return found


def _one_addend(grad: Tensor, target: Meta) -> Tensor:
    """A gradient for a partial parameter, each element whole on one rank and 0 on the others.

    An update rule that is not linear may then work on each addend by itself.
    """
    return box(box(grad, target.like(nd_sbp=without_partial(target.nd_sbp))), target)


def _in_bucket(grad: Meta, param: Meta) -> bool:
    """Whether all ranks have shards of the logical shape, which flatten alike, to be joined."""
    whole = param.is_whole and not any(sbp.is_split for sbp in grad.nd_sbp)
    return whole and boxing.plan(grad, param).communicates


def _cut(indices: list[int], params: Sequence[Tensor]) -> list[list[int]]:
    buckets: list[list[int]] = [[]]
    size = 0
    for index in indices:
        nbytes = params[index].meta.nbytes
        if buckets[-1] and size + nbytes > BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append(index)
        size += nbytes
    return buckets


def _together(grads: Sequence[Tensor], like: Meta) -> list[Tensor]:
    """Box the gradients as one flat tensor."""
    source = flat_meta([grad.meta for grad in grads])
    target = source.like(nd_sbp=like.nd_sbp)
    flat = flatten(*[grad.shards for grad in grads])
    moved = boxing.run(boxing.plan(source, target), flat, op="gradients")
    parts = unflatten([grad.shape for grad in grads], moved)
    metas = [grad.meta.like(nd_sbp=like.nd_sbp) for grad in grads]
    return [from_shards(shards, meta) for shards, meta in zip(parts, metas, strict=True)]


def not_in_build(what: str, instead: str) -> None:
    """Raise OnefoldRuntimeError while a graph is captured: it has no gradients of numbers then."""
    if interpreter.capturing():
        raise OnefoldRuntimeError(
            f"{what} was called inside build(), at {user_line()}; leave it out there: {instead}"
        )
