"""Weight decay that is added to gradients, for update rules that are not linear in them."""

from __future__ import annotations

from collections.abc import Iterator

from ..engine.convert import box
from ..engine.sbp import without_partial
from ..engine.tensor import Tensor, from_shards
from ..kernels.guarded_update import gradient
from .device_scalar import Given, on_device_of
from .optimizer import Group, Part


def decayed_apart(part: Part) -> Iterator[Part]:
    """The part, split; the gradients of partial parameters include the decay.

    A kernel adds it to each addend, and only one of a gradient's may be other than 0.
    """
    partial = [bool(part.group["weight_decay"]) and param.meta.partial for param in part.params]
    plain = [i for i, addends in enumerate(partial) if not addends]
    if plain:
        yield part.only(plain)
    rest = [i for i, addends in enumerate(partial) if addends]
    if rest:
        own = part.only(rest)
        pairs = zip(own.params, own.grads, strict=True)
        yield own._replace(
            group={**own.group, "weight_decay": 0.0, "maximize": False},
            grads=[_decayed(own.group, param, grad, own.given) for param, grad in pairs],
            given=own.given._replace(scale=None),
        )


def _decayed(group: Group, param: Tensor, grad: Tensor, given: Given) -> Tensor:
    target = param.meta.like(nd_sbp=without_partial(param.meta.nd_sbp))
    sign = -1.0 if group["maximize"] else 1.0
    parts = []
    for p, g in zip(box(param, target).shards, box(grad, target).shards, strict=True):
        scaled = gradient(g, on_device_of(given.scale, g))
        parts.append((sign * scaled + group["weight_decay"] * p).to(p.dtype))
    return box(from_shards(tuple(parts), target), param.meta)
