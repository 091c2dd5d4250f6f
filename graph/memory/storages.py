"""Storages: the memory of each output of a step on one rank, and its size in bytes.

The kernel of each op is run on meta tensors, which have shapes, strides and storages but no data.
This tells whether a reshape is a view or a copy, and that an expanded value is small. It works for
any rank, also for one that another process owns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import torch

from ...engine import boxing
from ...engine.boxing.boxes import cut_out, take
from ...engine.boxing.boxing_steps import BoxingStep, Local as LocalStep
from ...engine.boxing.combine import Layout
from ...engine.boxing.launched_steps import overwrites
from ...engine.boxing.route_step import Route
from ...engine.dispatch_plan import ops
from ...engine.meta import Meta
from ...engine.op import Kernel, Local, Op
from ...kernels.common_shapes import joined_shape
from ..host_copies import FETCH, OFFLOAD, extent
from ..ir import HOST, ProgramStep, Value
from ..passes.accumulate_products import Accumulating
from ..passes.in_place import placed_op
from .forms import Form, row_major

_TRACED = (Value, type(None), bool, int, float, complex)
# What torch says of a kernel that cannot be followed without data.
_UNTRACED = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True, slots=True)
class Made:
    """One output of a step: its form and its storage.

    `source` is the input (>= 0) whose storage it shares, or -1 for new memory; outputs of one step
    with the same `group` share that, which has `nbytes`.
    """

    form: Form
    source: int
    group: int
    nbytes: int


def position_of(meta: Meta, rank: int) -> int | None:
    """The rank's position in the flattened mesh; 0 for local tensors, None if it has no shard."""
    return 0 if meta.placement is None else meta.placement.position.get(rank)


def whole(meta: Meta, position: int) -> Form:
    """A shard in row-major order, in new memory."""
    shape = tuple(meta.local_shape(position))
    return Form(shape, row_major(shape))


# What each output of steps is, by what it depends on.
Known: TypeAlias = dict[Any, "tuple[Made | None, ...]"]


def _joined(parts: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """`torch.cat`, whose result is in row-major order, unless it has channels that may be last.

    On meta tensors torch runs it in Python, for which it loads its compiler.
    """
    first = parts[0]
    shape = joined_shape([tuple(part.shape) for part in parts], dim)
    known = first.is_meta and first.ndim < 4 and len({part.dtype for part in parts}) == 1
    return first.new_empty(shape) if known and shape is not None else torch.cat(tuple(parts), dim)


class _Followed(Local):
    """A rank whose kernels run on meta tensors: torch's references, whatever its device."""

    __slots__ = ()

    def pick(self, reference: Kernel) -> Kernel:
        return _joined if reference is torch.cat else reference

    def pick_into(self, reference: Kernel, into: Kernel) -> Kernel:
        return into


class Storages:
    """The storages of one rank; equal steps on equal shards are computed once.

    `known` is what other ranks have found: on meshes alike the same kernels run.
    """

    def __init__(self, rank: int, known: Known | None = None) -> None:
        self.rank = rank
        self._known = {} if known is None else known
        self._kinds: dict[Meta, Hashable] = {}
        self._of_step: dict[Any, tuple[Made | None, ...]] = {}  # by identity: it runs many times

    def made(self, step: ProgramStep, forms: Sequence[Form | None]) -> tuple[Made | None, ...]:
        """The storage of each output of the step, None if this rank has no shard of it.

        `forms` are those of the step's inputs; None for numbers and where the rank has no shard.
        """
        if not step.outputs:
            return ()
        key = (id(step), *forms)
        found = self._of_step.get(key)
        if found is None:
            found = self._of_step[key] = self._made(step, forms)
        return found

    def _made(self, step: ProgramStep, forms: Sequence[Form | None]) -> tuple[Made | None, ...]:
        positions = [position_of(value.meta, self.rank) for value in step.outputs]
        if step.name == "boxing":
            src, dst = step.source.meta, step.outputs[0].meta
            inside = src.placement is dst.placement
            ends = (self._kind(src), self._kind(dst)) if inside else (self.rank, src, dst)
            move = (ends, positions[0], step.place is None, forms[0])
            found = self._known.get(move)
            if found is None:
                found = self._known[move] = (self._boxed(step, forms[0], positions[0]),)
            return found
        if step.origin is HOST:
            return tuple([Made(whole(v.meta, 0), -1, i, 0) for i, v in enumerate(step.outputs)])
        if step.origin in (OFFLOAD, FETCH):
            return (_copied(step.source.meta, forms[0]),)
        if not any(position is not None for position in positions):
            return (None,) * len(positions)
        kind = self._kind
        metas = tuple([kind(v.meta) if type(v) is Value else type(v) for v in step.inputs])
        made = tuple(map(kind, step.output_metas))
        place = None if step.place is None else step.inputs.index(step.place)
        key = (step.origin, metas, made, step.attrs, place, tuple(forms), tuple(positions))
        found = self._known.get(key)
        if found is None:
            if place is not None and (isinstance(step.op, Accumulating) or _all_row_major(forms)):
                form = forms[place]
                assert form is not None
                found = self._known[key] = (Made(form, place, 0, 0),)
                return found
            # What a kernel draws at random it computes, data or not.
            traced = all(type(v) in _TRACED for v in step.inputs)
            position = positions[0] if len(set(positions)) == 1 else None
            found = _ordered(step, positions, forms)
            if found is None and traced and position is not None:
                found = self._traced(step, position, forms)
            found = found or _plain(step, positions, forms)
            self._known[key] = found
        return found

    def _kind(self, meta: Meta) -> Hashable:
        """A key that is equal for metas that differ only in their ranks."""
        found = self._kinds.get(meta)
        if found is None:
            form = meta.shape, meta.dtype, meta.nd_sbp
            p = meta.placement
            mesh = None if p is None else (p.device_type, p.shape)
            found = self._kinds[meta] = (*form, mesh)
        return found

    def _traced(
        self, step: ProgramStep, position: int, forms: Sequence[Form | None]
    ) -> tuple[Made, ...] | None:
        outputs = step.output_metas
        local = _Followed(position, step.input_metas, outputs, outputs[0].placement)
        known = ops.get(step.name, ()) if step.place is None else [placed_op(step)]
        for op in known:
            if op.aliases == step.aliases and (op.num_outputs != 1) == step.several:
                try:
                    return self._run(op, local, step, forms)
                except _UNTRACED:
                    continue
        return None

    def _run(
        self, op: Op, local: Local, step: ProgramStep, forms: Sequence[Form | None]
    ) -> tuple[Made, ...] | None:
        given = [
            _without_data(form, v.meta.dtype) if type(v) is Value and form is not None else v
            for v, form in zip(step.inputs, forms, strict=True)
        ]
        results = op.bind(local, step.attrs)(*given)
        results = tuple(results) if step.several else (results,)
        storages = [
            x.untyped_storage()._cdata if isinstance(x, torch.Tensor) else None for x in given
        ]
        groups: dict[int, int] = {}
        found = []
        for value, result in zip(step.outputs, results, strict=True):
            if not isinstance(result, torch.Tensor):
                return None
            form = Form(tuple(result.shape), tuple(result.stride()))
            if form.shape != tuple(value.meta.local_shape(local.position)):
                return None
            storage = result.untyped_storage()
            source = storages.index(storage._cdata) if storage._cdata in storages else -1
            group = groups.setdefault(storage._cdata, len(groups))
            found.append(Made(form, source, group, storage.nbytes()))
        return tuple(found)

    def _boxed(self, step: ProgramStep, form: Form | None, position: int | None) -> Made | None:
        """The storage after boxing on a launched rank, which may be a part of the one before."""
        if position is None:
            return None
        given, (value,) = step.source, step.outputs
        new = _new(value.meta, position)
        if form is None:
            return new
        plan = boxing.plan(given.meta, value.meta)
        x = _without_data(form, value.meta.dtype)
        for index, each in enumerate(plan.steps):
            if not index and step.place is not None and overwrites(each, self.rank, x):
                continue
            cut = _kept(each, self.rank)
            if cut is None:
                return new
            x = take(x, cut)
        return Made(Form(tuple(x.shape), tuple(x.stride())), 0, 0, 0)


def _kept(step: BoxingStep, rank: int) -> Any:
    """The cut of its own shard that a rank keeps in a boxing step; None for new memory."""
    if rank not in step.ranks:
        return None
    if isinstance(step, LocalStep):
        region = step.keeps(rank)
        kept = region is not None and Layout([region], step.made(rank), step.fill).whole
        return cut_out(step.made(rank), step.held(rank)) if kept else None
    if isinstance(step, Route):
        parts = [part for part in step.parts(rank) if rank in part.takers]
        layout = Layout([part.box for part in parts], step.made(rank), step.fill)
        kept = layout.whole and all(part.sources == (rank,) for part in parts)
        return cut_out(step.made(rank), step.held(rank)) if kept else None
    return None


def _ordered(
    step: ProgramStep, positions: Sequence[int | None], forms: Sequence[Form | None]
) -> tuple[Made | None, ...] | None:
    """The storages of a step's results if its op declares their memory order; else None.

    This spares a run of the kernel on meta tensors, much of which torch does in Python.
    """
    if step.op is None or step.aliases:
        return None
    order, first = step.op.order, forms[0]
    if order == "first":
        if first is None or not first.is_dense:
            return None
        plain = _plain(step, positions, forms)
        return tuple([made and replace(made, form=first) for made in plain])
    known = (
        order == "always"
        or (order == "row-major" and _all_row_major(forms))
        or (order == "expanded" and all(form.was_row_major for form in forms if form is not None))
    )
    return _plain(step, positions, forms) if known else None


def _all_row_major(forms: Sequence[Form | None]) -> bool:
    return all(form.is_row_major for form in forms if form is not None)


def _without_data(form: Form, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(form.shape, form.strides, dtype=dtype, device="meta")


def _new(meta: Meta, position: int, group: int = 0) -> Made:
    form = whole(meta, position)
    return Made(form, -1, group, prod(form.shape) * meta.dtype.itemsize)


def _copied(meta: Meta, form: Form | None) -> Made | None:
    """A copy of a shard, with the same strides."""
    if form is None:
        return None
    return Made(form, -1, 0, extent(form.shape, form.strides) * meta.dtype.itemsize)


def _plain(
    step: ProgramStep, positions: Sequence[int | None], forms: Sequence[Form | None]
) -> tuple[Made | None, ...]:
    """Each output in row-major order, in new memory or, if it aliases, in the first input's."""
    found = [
        None if position is None else _new(value.meta, position, group)
        for group, (value, position) in enumerate(zip(step.outputs, positions, strict=True))
    ]
    if step.aliases and forms[0] is not None:
        return tuple([made and Made(made.form, 0, 0, 0) for made in found])
    return tuple(found)
