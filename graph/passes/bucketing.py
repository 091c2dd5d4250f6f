"""Bucketing: reduces gradients inside the program, many in one collective, as they are produced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from operator import itemgetter

from ...engine import boxing
from ...engine.flat_buffer import flat_meta, flatten, unflatten
from ...engine.meta import Meta
from ...engine.sbp import without_partial
from ..boxing_calls import boxing_step
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
        flat = Value(next(numbers), source)
        whole = Value(next(numbers), source.like(nd_sbp=target.nd_sbp))
        parts = [Value(next(numbers), meta.like(nd_sbp=target.nd_sbp)) for meta in metas]
        index = max(index for index, _, _ in bucket)
        grads = tuple([grad for _, _, grad in bucket])
        after.setdefault(index, []).extend(
            (
                ProgramStep(
                    "flatten_gradients", flatten, grads, (), (flat,), flatten, backward=True
                ),
                boxing_step(flat, whole, "gradients", backward=True),
            )
        )
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
        ways.insert(0, grad.meta.like(nd_sbp=without_partial(layout.nd_sbp)))
    found = []
    for meta in ways:
        # On one rank all layouts are the same memory.
        if grad.meta is not meta and boxing.plan(grad.meta, meta).steps:
            made = Value(next(numbers), meta)
            found.append(boxing_step(grad, made, "gradients", backward=True))
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
    """Gradients of one layout, in the order in which they are made, in buckets of limited size."""
    alike: dict[object, list[_Entry]] = {}
    for entry in entries:
        _, variable, grad = entry
        layout = grad.meta.like(shape=()), variable.value.meta.dtype
        alike.setdefault(layout, []).append(entry)
    found: list[list[_Entry]] = []
    for group in alike.values():
        size = inf
        for entry in sorted(group, key=itemgetter(0)):
            meta = entry[2].meta
            if size >= boxing.efficient_bytes(meta.device_type):
                found.append([])
                size = 0.0
            found[-1].append(entry)
            size += meta.nbytes
    return found


def _cut(whole: Value, parts: list[Value]) -> ProgramStep:
    shapes = tuple([tuple(part.meta.shape) for part in parts])
    run = partial(unflatten, shapes)
    return ProgramStep(
        "unflatten_gradients", unflatten, (whole,), (), tuple(parts), run,
        several=True, backward=True, aliases=True,
    )  # fmt: skip
