"""Chooses the layouts of one op call: the cheapest signature on each mesh axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

from .boxing import axis_cost
from .dispatch_counters import note_fallback
from .machine import machine
from .meta import Meta
from .op import Attributes, Metas, Op
from .placement import Placement
from .sbp import NdSbp, Sbp, broadcast
from .signature import Axis, Rule, Signature, all_broadcast


def choose(
    op: Op,
    metas: Sequence[Meta | None],
    described: Sequence[object],
    given: Attributes,
    outputs: Sequence[Meta],
    placement: Placement,
) -> tuple[tuple[NdSbp | None, ...], tuple[NdSbp, ...]]:
    """The layouts that the inputs must have and the outputs get: least modeled time, per axis.

    `given` is what the op's rule gets after the tensors.

    Axes are decided one by one: the time of boxing each input along the axis plus the op's own
    time, which a signature that splits something divides by the axis' size. An axis on which
    every input is broadcast, or is best boxed to it, has broadcast outputs: nothing requires
    another layout. Ties prefer the inputs' present layout, then split over broadcast, then the
    order of the rule.
    """
    tensors = [(i, meta) for i, meta in enumerate(metas) if meta is not None]
    kind = placement.device_type
    work: float | None = None
    seen = _Seen(described, metas)
    chosen: list[Signature] = []
    plain = all_broadcast(len(tensors), len(outputs))
    for axis, parts in enumerate(placement.shape):
        present = tuple([meta.nd_sbp[axis] for _, meta in tensors])
        if present == plain.inputs:
            chosen.append(plain)
            continue
        if work is None:
            work = _work(op, metas, outputs, kind)
        rule = [*op.rule(seen.axis(placement.shape, chosen), *seen.args, *given), plain]
        sizes = [_bytes_along(meta, axis) for _, meta in tensors]
        share = work / (placement.num_ranks / parts)
        best = _cheapest(rule, present, sizes, parts, share, kind)
        if best.inputs == plain.inputs:
            best = plain
        if len(rule) == 1 and any(sbp.is_split for sbp in present):
            note_fallback(op.name, present)
        chosen.append(best)
    wanted: list[NdSbp | None] = [None] * len(metas)
    for place, (i, _) in enumerate(tensors):
        wanted[i] = tuple([signature.inputs[place] for signature in chosen])
    produced = [tuple([signature.outputs[i] for signature in chosen]) for i in range(len(outputs))]
    return tuple(wanted), tuple(produced)


def op_time(op: Op, metas: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
    """Modeled seconds of the op itself in these layouts: on every axis split or done by all."""
    placement = outputs[0].global_placement
    work = _work(op, metas, outputs, placement.device_type)
    tensors = [meta for meta in (*metas, *outputs) if meta is not None]
    for axis, parts in enumerate(placement.shape):
        if any(meta.nd_sbp[axis].is_split for meta in tensors):
            work /= parts
    return work


def _work(op: Op, metas: Sequence[Meta | None], outputs: Sequence[Meta], kind: str) -> float:
    """Modeled seconds of the whole logical op on one device."""
    moved = sum([meta.nbytes for meta in (*metas, *outputs) if meta is not None])
    device = machine(kind)
    return op.flops(metas, outputs) * device.flop + moved * device.byte


def signatures_along(
    op: Op,
    described: Sequence[object],
    metas: Sequence[Meta | None],
    outputs: Sequence[Meta],
    attrs: Attributes,
    axis: int,
) -> list[tuple[Metas, tuple[Meta, ...]]]:
    """Every legal layout of inputs and outputs that differs along one axis at most from this one.

    `metas` and `outputs` are a legal layout of the op. Each axis is legal for what the axes
    before it leave, as in `choose`.
    """
    tensors = [meta for meta in metas if meta is not None]
    placement = tensors[0].global_placement
    used = [
        Signature(tuple([m.nd_sbp[a] for m in tensors]), tuple([m.nd_sbp[a] for m in outputs]))
        for a in range(placement.ndim)
    ]
    plain = all_broadcast(len(tensors), len(outputs))
    given = op.attribute_args(attrs)

    def rule(before: Sequence[Signature]) -> list[Signature]:
        seen = _Seen(described, metas)
        return [*op.rule(seen.axis(placement.shape, before), *seen.args, *given), plain]

    found = []
    for signature in rule(used[:axis]):
        chosen = [*used[:axis], signature, *used[axis + 1 :]]
        later = range(axis + 1, placement.ndim)
        if all(chosen[other] in rule(chosen[:other]) for other in later):
            ins = iter([_along(m, axis, s) for m, s in zip(tensors, signature.inputs, strict=True)])
            outs = [_along(m, axis, s) for m, s in zip(outputs, signature.outputs, strict=True)]
            found.append((tuple([m and next(ins) for m in metas]), tuple(outs)))
    return found


def legal_layouts(
    op: Op,
    described: Sequence[object],
    metas: Sequence[Meta | None],
    outputs: Sequence[Meta],
    attrs: Attributes,
    only: int | None = None,
) -> list[tuple[Metas, tuple[Meta, ...]]]:
    """Every legal layout of inputs and outputs; along axes of one rank they stay as they are.

    With `only` they stay along all axes but that one. `metas` and `outputs` are a legal layout of
    the op. Each axis is legal for what the axes before it leave, as in `choose`.
    """
    tensors = [meta for meta in metas if meta is not None]
    mesh = tensors[0].global_placement.shape
    plain = all_broadcast(len(tensors), len(outputs))
    given = op.attribute_args(attrs)
    found: list[tuple[Signature, ...]] = [()]
    for axis, parts in enumerate(mesh):
        longer: list[tuple[Signature, ...]] = []
        for chosen in found:
            if parts == 1 or only not in (None, axis):
                along = [tuple([m.nd_sbp[axis] for m in each]) for each in (tensors, outputs)]
                longer.append((*chosen, Signature(along[0], along[1])))
                continue
            seen = _Seen(described, metas)
            rule = op.rule(seen.axis(mesh, chosen), *seen.args, *given)
            longer += [(*chosen, signature) for signature in dict.fromkeys((*rule, plain))]
        found = longer
    return [(_laid(metas, each, "inputs"), _laid(outputs, each, "outputs")) for each in found]


def _laid(
    metas: Sequence[Meta | None], chosen: Sequence[Signature], side: Literal["inputs", "outputs"]
) -> tuple[Any, ...]:
    """The metas in the layouts of the signatures, one per axis; None stays None."""
    layouts = iter(zip(*[getattr(signature, side) for signature in chosen], strict=True))
    return tuple([meta and meta.like(nd_sbp=next(layouts)) for meta in metas])


def _along(meta: Meta, axis: int, sbp: Sbp) -> Meta:
    return meta.like(nd_sbp=(*meta.nd_sbp[:axis], sbp, *meta.nd_sbp[axis + 1 :]))


def _bytes_along(meta: Meta, axis: int) -> float:
    """Bytes of the tensor over one group of the axis: what the other axes leave of it."""
    others = prod(
        parts
        for other, parts in enumerate(meta.global_placement.shape)
        if other != axis and meta.nd_sbp[other].kind == "S"
    )
    return meta.nbytes / others


def _cheapest(
    rule: Rule, present: tuple[Sbp, ...], sizes: list[float], parts: int, work: float, kind: str
) -> Signature:
    best: tuple[tuple[float, int, int], Signature] | None = None
    partial = any(have.is_partial for have in present)
    for signature in rule:
        cost = work / parts if signature.shares_work else work
        matches = 0
        for have, want, size in zip(present, signature.inputs, sizes, strict=True):
            if have is want:
                matches += 1
                continue
            cost += axis_cost(have, want, parts, size, kind)
            if want.is_partial and not signature.shares_work and (have.kind == "S" or not partial):
                cost += axis_cost(want, broadcast, parts, size, kind)  # to be reduced later
        rank = (cost, -matches, not signature.shares_work)
        if best is None or rank < best[0]:
            best = rank, signature
    assert best is not None
    return best[1]


class _Seen:
    """The tensor arguments as an axis sees them: already split along the axes before it."""

    def __init__(self, described: Sequence[object], metas: Sequence[Meta | None]) -> None:
        self.args = list(described)
        self._axes = 0  # the number of axes along which the arguments are split
        self._places = [i for i, meta in enumerate(metas) if meta is not None]
        self._ragged: list[set[int]] = [set() for _ in self._places]
        self._whole = tuple([tuple(meta.shape) for meta in metas if meta is not None])

    def axis(self, mesh: Sequence[int], before: Sequence[Signature]) -> Axis:
        """The axis of a mesh that follows those with the signatures `before`."""
        for number in range(self._axes, len(before)):
            self._split(before[number], mesh[number])
        self._axes = len(before)
        ragged = tuple([frozenset(dims) for dims in self._ragged])
        return Axis(mesh[self._axes], ragged, self._whole)

    def _split(self, signature: Signature, parts: int) -> None:
        for place, ragged, sbp in zip(self._places, self._ragged, signature.inputs, strict=True):
            if sbp.kind == "S":
                meta = self.args[place]
                assert isinstance(meta, Meta)
                size, rest = divmod(meta.shape[sbp.dim], parts)
                shape = list(meta.shape)
                shape[sbp.dim] = size + (rest > 0)
                self.args[place] = meta.like(shape=shape)
                if rest:
                    ragged.add(sbp.dim)
