"""Boxes gradients to the layouts of their parameters, together in buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine import boxing, interpreter
from ..engine.convert import box
from ..engine.flat_buffer import flat_meta, flatten, unflatten
from ..engine.meta import Meta
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, user_line

BUCKET_BYTES = 25 * 1024 * 1024  # large enough for full bandwidth, small enough to hold twice


def aligned(params: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of each parameter in the parameter's layout.

    Gradients that go from the same layout to broadcast travel together, in buckets; the others
    are boxed one by one.
    """
    found: list[Tensor | None] = [None] * len(params)
    buckets: dict[Any, list[int]] = {}
    for index, param in enumerate(params):
        grad = param.grad
        assert grad is not None
        if param.meta.partial:
            found[index] = _one_addend(grad, param.meta)
        elif grad.meta is param.meta:
            found[index] = grad
        elif _in_bucket(grad.meta, param.meta):
            key = (grad.meta.placement, grad.meta.nd_sbp, grad.dtype)
            buckets.setdefault(key, []).append(index)
        else:
            plan = boxing.plan(grad.meta, param.meta)
            found[index] = Tensor(boxing.run(plan, grad.shards, op="gradients"), param.meta)
    for indices in buckets.values():
        for bucket in _cut(indices, params):
            grads = [params[i].grad for i in bucket]
            for index, grad in zip(bucket, _together(grads, params[bucket[0]].meta), strict=True):
                found[index] = grad
    boxed = [grad for grad in found if grad is not None]
    for grad in boxed:
        grad.shared = True  # buckets and slices are views
    return boxed


def _one_addend(grad: Tensor, target: Meta) -> Tensor:
    """A gradient for a partial parameter, each element whole on one rank and 0 on the others.

    An update rule that is not linear may then work on each addend by itself.
    """
    nd_sbp = tuple(broadcast if sbp.is_partial else sbp for sbp in target.nd_sbp)
    return box(box(grad, target.like(nd_sbp=nd_sbp)), target)


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


def _together(grads: Sequence[Any], like: Meta) -> list[Tensor]:
    """Box the gradients as one flat tensor."""
    source = flat_meta([grad.meta for grad in grads])
    target = source.like(nd_sbp=like.nd_sbp)
    flat = flatten(*[grad.shards for grad in grads])
    moved = boxing.run(boxing.plan(source, target), flat, op="gradients")
    parts = unflatten([grad.shape for grad in grads], moved)
    metas = [grad.meta.like(nd_sbp=like.nd_sbp) for grad in grads]
    return [Tensor(shards, meta) for shards, meta in zip(parts, metas, strict=True)]


def not_in_build(what: str, instead: str) -> None:
    """Raise OnefoldRuntimeError while a graph is captured: it has no gradients of numbers then."""
    if interpreter.capturing():
        raise OnefoldRuntimeError(
            f"{what} was called inside build(), at {user_line()}; leave it out there: {instead}"
        )
