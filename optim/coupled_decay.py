"""Weight decay that is added to gradients, for update rules that are not linear in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..engine.convert import box
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..kernels.guarded_update import gradient
from .device_scalar import Given
from .optimizer import Group

Part = tuple[Group, Sequence[Tensor], Sequence[Tensor], Sequence[dict[str, Any]], Given]


def decayed_apart(
    group: Group,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[dict[str, Any]],
    given: Given,
) -> Iterator[Part]:
    """The arguments of an update in parts; partial parameters have gradients with the decay in.

    A kernel adds it to each addend, and only one of a gradient's may be other than 0.
    """
    partial = [bool(group["weight_decay"]) and param.meta.partial for param in params]
    plain = [i for i, addends in enumerate(partial) if not addends]
    if plain:
        some = [params[i] for i in plain], [grads[i] for i in plain], [states[i] for i in plain]
        yield group, *some, given
    rest = [i for i, addends in enumerate(partial) if addends]
    if rest:
        settled = {**group, "weight_decay": 0.0, "maximize": False}
        found = [_decayed(group, params[i], grads[i], given) for i in rest]
        own = [params[i] for i in rest], found, [states[i] for i in rest]
        yield settled, *own, replace(given, scale=None)


def _decayed(group: Group, param: Tensor, grad: Tensor, given: Given) -> Tensor:
    nd_sbp = tuple(broadcast if sbp.is_partial else sbp for sbp in param.meta.nd_sbp)
    target = param.meta.like(nd_sbp=nd_sbp)
    sign = -1.0 if group["maximize"] else 1.0
    parts = []
    for p, g in zip(box(param, target).shards, box(grad, target).shards, strict=True):
        scaled = gradient(g, given.on(g)["scale"])
        parts.append((sign * scaled + group["weight_decay"] * p).to(p.dtype))
    return box(Tensor(tuple(parts), target), param.meta)
