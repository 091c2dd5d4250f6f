"""Bucketing: reduces gradients inside the program, many in one collective, as they are produced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from ...engine import boxing
from ...engine.convert import BOXING
from ...engine.flat_buffer import flat_meta, flatten, unflatten
from ...engine.meta import Meta
from ...engine.sbp import broadcast
from ..boxing_calls import boxing_calls
from ..ir import Program, ProgramStep, Value, Variable

_Entry = tuple[int, Variable, Value]  # where the gradient is made, whose it is, itself


def align_gradients(program: Program, layouts: Mapping[int, Meta]) -> Program:
    """The program with its gradients in these layouts, by the number of the variable.

    Partial gradients of variables that are whole go together in buckets, in the order in which
    backward makes them: all but the last travel while the rest of backward is computed.
    """
    made = {v.number: i for i, step in enumerate(program.steps) for v in step.outputs}
    entries = [
        (made.get(grad.number, -1), variable, grad)
        for variable, grad in program.gradients
        if _reducible(layouts[variable.value.number], grad.meta)
    ]
    numbers = program.free_numbers()
    after: dict[int, list[ProgramStep]] = {}
    ends: list[ProgramStep] = []
    reduced: dict[int, Value] = {}  # by the number of the variable
    for bucket in _buckets(entries):
        metas = [grad.meta for _, _, grad in bucket]
        target = bucket[0][1].value.meta
        source = flat_meta(metas)
        flat, whole = (
            Value(next(numbers), source.like(nd_sbp=meta.nd_sbp)) for meta in (source, target)
        )
        parts = [Value(next(numbers), meta.like(nd_sbp=target.nd_sbp)) for meta in metas]
        index = max(index for index, _, _ in bucket)
        after.setdefault(index, []).extend(_steps(bucket, flat, whole))
        ends.append(_cut(whole, parts))
        for (_, variable, _), part in zip(bucket, parts, strict=True):
            reduced[variable.value.number] = part
    gradients = []
    for variable, grad in program.gradients:
        number = variable.value.number
        grad = reduced.get(number, grad)
        ends += (boxes := _boxed(grad, layouts[number], numbers))
        gradients.append((variable, boxes[-1].outputs[0] if boxes else grad))
    steps = after.pop(-1, [])
    steps += [each for i, step in enumerate(program.steps) for each in (step, *after.get(i, ()))]
    return replace(program, steps=[*steps, *ends], gradients=gradients)


def _boxed(grad: Value, layout: Meta, numbers: Iterator[int]) -> list[ProgramStep]:
    """The boxings of one gradient to a layout.

    For a partial variable each element gets to be whole on one rank and 0 on the others: an update
    rule that is not linear may then work on each addend by itself.
    """
    ways = [grad.meta.like(nd_sbp=layout.nd_sbp)]
    if layout.partial:
        whole = tuple([broadcast if sbp.is_partial else sbp for sbp in layout.nd_sbp])
        ways.insert(0, grad.meta.like(nd_sbp=whole))
    found = []
    for meta in ways:
        # On one rank all layouts are the same memory.
        if grad.meta is not meta and boxing.plan(grad.meta, meta).steps:
            made = Value(next(numbers), meta)
            way = boxing_calls(grad.meta, meta, "gradients")
            found.append(ProgramStep("boxing", BOXING, (grad,), (), (made,), backward=True, **way))
            grad = made
    return found


def _reducible(variable: Meta, grad: Meta) -> bool:
    return (
        grad.partial
        and variable.is_whole
        and grad.placement is variable.placement
        and not any(sbp.is_split for sbp in grad.nd_sbp)
        and boxing.plan(grad, grad.like(nd_sbp=variable.nd_sbp)).communicates
    )


def _buckets(entries: list[_Entry]) -> list[list[_Entry]]:
    """Gradients of one layout, in the order in which they are made, in buckets of a good size."""

    def layout(entry: _Entry) -> Any:
        meta = entry[2].meta
        return meta.like(shape=()), entry[1].value.meta.dtype

    found: list[list[_Entry]] = []
    order = {key: i for i, key in enumerate(dict.fromkeys(map(layout, entries)))}
    for _, group in groupby(
        sorted(entries, key=lambda e: (order[layout(e)], e[0])), key=lambda e: order[layout(e)]
    ):
        size = 0.0
        found.append([])
        for entry in group:
            meta = entry[2].meta
            assert meta.placement is not None
            if size >= boxing.efficient_bytes(meta.placement.device_type):
                found.append([])
                size = 0.0
            found[-1].append(entry)
            size += meta.nbytes
    return found


def _steps(bucket: list[_Entry], flat: Value, whole: Value) -> tuple[ProgramStep, ProgramStep]:
    way = boxing_calls(flat.meta, whole.meta, "gradients")
    grads = tuple([grad for _, _, grad in bucket])
    return (
        ProgramStep("flatten_gradients", flatten, grads, (), (flat,), flatten, backward=True),
        ProgramStep("boxing", BOXING, (flat,), (), (whole,), backward=True, **way),
    )


def _cut(whole: Value, parts: list[Value]) -> ProgramStep:
    shapes = tuple([tuple(part.meta.shape) for part in parts])
    run = partial(unflatten, shapes)
    return ProgramStep(
        "unflatten_gradients", unflatten, (whole,), (), tuple(parts), run,
        several=True, backward=True, aliases=True,
    )  # fmt: skip
