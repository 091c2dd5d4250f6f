"""Programs as text: operators and tensors by tag, grouped by module, as OneFlow prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..engine.meta import Meta
from ..engine.sbp import short
from .ir import Program, ProgramStep, Value


def laid(meta: Meta) -> str:
    """A value's layout, shape and dtype.

    >>> import torch
    >>> laid(Meta.of((4, 5), torch.float32, device=torch.device("cpu")))
    '(size=(4, 5), dtype=float32)'
    """
    return f"({', '.join(_facts(meta))})"


def tensor(meta: Meta) -> str:
    """A tensor from outside, or an input or output of a module, with its placement."""
    where = f"device={meta.device}" if meta.placement is None else f"placement={meta.placement}"
    return f"tensor({', '.join([*_facts(meta), where])})"


def _facts(meta: Meta) -> list[str]:
    nd_sbp = [] if meta.placement is None else [f"sbp={short(meta.nd_sbp)}"]
    dtype = str(meta.dtype).removeprefix("torch.")
    return [*nd_sbp, f"size={tuple(meta.shape)}", f"dtype={dtype}"]


def operator(step: ProgramStep, with_line: bool = False) -> str:
    """A step as one line: its inputs and outputs, where it runs, its stage, and its module."""
    taken = [f"{x!r}:{laid(x.meta)}" if type(x) is Value else repr(x) for x in step.inputs]
    taken += map(repr, step.attrs)
    made = ", ".join(f"{value!r}:{laid(value.meta)}" for value in step.outputs or step.writes)
    meta = (*step.outputs, *step.writes)[0].meta
    where = f"device={meta.device}" if meta.placement is None else f"placement={meta.placement}"
    more = f", stage={step.stage}" * (step.stage is not None) + ", backward" * step.backward
    more += ", recomputed" * bool(step.recomputation) + ", saved" * step.saved
    line = f", location=({step.line})" * with_line
    return f"(OPERATOR: {step.name}({', '.join(taken)}) -> ({made}), {where}{more}{line})"


@dataclass
class Part:
    """The inputs, own steps and outputs of one module of a program; "" is build()."""

    inputs: dict[int, Value] = field(default_factory=dict)  # by number
    forward: list[ProgramStep] = field(default_factory=list)
    backward: list[ProgramStep] = field(default_factory=list)
    outputs: dict[int, Value] = field(default_factory=dict)


def parts_of(program: Program) -> dict[str, Part]:
    """The parts of a program by module path, in the order in which they begin.

    What a module gets and gives is that of its submodules too, and of the forward pass alone. Of
    several micro-batches it is the first one's.
    """
    steps = [
        each for each in program.steps if not each.micro_batch and (each.outputs or each.writes)
    ]
    found: dict[str, Part] = {}
    makers: dict[int, str | None] = {value.number: None for value in program.inputs}
    users: dict[int, set[str | None]] = {value.number: {None} for value in program.outputs}
    for step in steps:
        part = found.setdefault(step.scope, Part())
        (part.backward if step.backward else part.forward).append(step)
        makers.update((value.number, step.scope) for value in step.outputs)
        for value in () if step.backward else step.reads():
            users.setdefault(value.number, set()).add(step.scope)
    for step in steps:
        for path in () if step.backward else _around(step.scope):
            part = found.setdefault(path, Part())
            for value in step.reads():
                if value.number in makers and not _inside(makers[value.number], path):
                    part.inputs[value.number] = value
            for value in step.outputs:
                if not all(_inside(user, path) for user in users.get(value.number, ())):
                    part.outputs[value.number] = value
    return found


def _around(scope: str) -> Iterator[str]:
    """The module and those that it is in."""
    while scope:
        yield scope
        scope = scope.rpartition(".")[0]


def _inside(scope: str | None, path: str) -> bool:
    return scope is not None and (scope == path or scope.startswith(f"{path}."))
