"""Boxes gradients to the layouts of their parameters, together in buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..engine import boxing, interpreter
from ..engine.convert import box
from ..engine.flat_buffer import flat_meta, flatten, unflatten
from ..engine.meta import Meta
from ..engine.sbp import without_partial
from ..engine.tensor import Tensor, from_shards
from ..errors import OnefoldRuntimeError, user_line

BUCKET_BYTES = 25 * 1024 * 1024  # large enough for full bandwidth, small enough to hold twice


def with_gradients(params: Iterable[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters that have a gradient, and their gradients."""
    params = list(params)
    grads = [param.grad for param in params]
    there = [grad for grad in grads if grad is not None]
    if len(there) < len(params):
        params = [p for p, grad in zip(params, grads, strict=True) if grad is not None]
    return params, there


def are_aligned(params: Sequence[Tensor], grads: Sequence[Tensor]) -> bool:
    """Whether `aligned` has nothing to do: each gradient has its parameter's layout."""
    for param, grad in zip(params, grads, strict=True):
        meta = param.meta
        if grad.meta is not meta or meta.partial:
            return False
    return True


def aligned(params: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of each parameter in the parameter's layout.

    Gradients that go from the same layout to broadcast travel together, in buckets; the others
    are boxed one by one.
    """
    found, buckets = _boxed_alone(params, grads)
    for bucket in buckets:
        together = _begin_together([grads[i] for i in bucket], params[bucket[0]].meta)
        _put(found, bucket, together())
    return _shared(found)


def begin_aligned(params: Sequence[Tensor], grads: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
    """Start what `aligned` does; the returned function waits for it.

    All ranks start such work in one order, and wait for it in one order.
    """
    found, buckets = _boxed_alone(params, grads)
    ends = [
        (bucket, _begin_together([grads[i] for i in bucket], params[bucket[0]].meta))
        for bucket in buckets
    ]

    def end() -> list[Tensor]:
        for bucket, together in ends:
            _put(found, bucket, together())
        return _shared(found)

    return end


def _boxed_alone(
    params: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[list[Tensor], list[list[int]]]:
    """The gradients, boxed where they travel alone, and the buckets of the others."""
    found = list(grads)
    alike: dict[object, list[int]] = {}
    for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
        meta = param.meta
        if meta.partial:
            found[index] = _one_addend(grad, meta)
        elif grad.meta is meta:
            continue
        elif _in_bucket(grad.meta, meta):
            key = (grad.meta.placement, grad.meta.nd_sbp, grad.dtype)
            alike.setdefault(key, []).append(index)
        else:
            plan = boxing.plan(grad.meta, meta)
            found[index] = from_shards(boxing.run(plan, grad.shards, op="gradients"), meta)
    return found, [bucket for indices in alike.values() for bucket in _cut(indices, params)]


def _put(found: list[Tensor], bucket: Sequence[int], grads: Sequence[Tensor]) -> None:
    for index, grad in zip(bucket, grads, strict=True):
        found[index] = grad


def _shared(found: list[Tensor]) -> list[Tensor]:
    for grad in found:
        grad.shared = True  # buckets and slices are views
    return found


def _one_addend(grad: Tensor, target: Meta) -> Tensor:
    """A gradient for a partial parameter: each element is on one rank, and 0 on the others.

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


def _begin_together(grads: Sequence[Tensor], like: Meta) -> Callable[[], list[Tensor]]:
    """Start to box the gradients as one flat tensor."""
    source = flat_meta([grad.meta for grad in grads])
    plan = boxing.plan(source, source.like(nd_sbp=like.nd_sbp))
    flat = flatten(*[grad.shards for grad in grads])
    wait = boxing.start(plan, flat, op="gradients", consumes=True)

    def end() -> list[Tensor]:
        parts = unflatten([grad.shape for grad in grads], wait())
        metas = [grad.meta.like(nd_sbp=like.nd_sbp) for grad in grads]
        return [from_shards(shards, meta) for shards, meta in zip(parts, metas, strict=True)]

    return end


def not_in_build(what: str, instead: str) -> None:
    """Raise OnefoldRuntimeError while a graph is captured, when gradients have no values."""
    if interpreter.capturing():
        raise OnefoldRuntimeError(
            f"{what} was called inside build(), at {user_line()}; leave it out there: {instead}"
        )
