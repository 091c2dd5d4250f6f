"""Update: the optimizers' steps at the end of a program, and what they write.

An update writes into the memory of its parameters. Where that memory may be read afterwards, by an
output or an assigned value, it writes into a copy, which the parameter takes when the call ends.
Copies in half precision are written with the parameters, or after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace

from ..engine.inplace import dense_copies
from ..engine.meta import Meta
from ..engine.tensor import Shards, Tensor
from .ir import UPDATE, Clipping, Program, ProgramStep, Value, Variable
from .passes.bucketing import align_gradients
from .passes.update_in_backward import turns
from .passes.zero_sharding import copied_boxing
from .program_executor import kept_by_outputs


@dataclass(frozen=True, eq=False)
class Trained:
    """A parameter with a gradient, as the optimizers find it in a program."""

    variable: Variable
    value: Value  # to be written, laid out as the gradient is
    gradient: Value
    copy: Value | None = None  # in half precision, where that may be written too
    turn: int = 0  # those of one turn are updated together

    @property
    def owner(self) -> Tensor:
        """The parameter itself, to which the optimizers' state belongs."""
        return self.variable.tensor

    @property
    def name(self) -> str:
        return self.variable.value.name


@dataclass(frozen=True, eq=False)
class Written:
    """The steps of an update, and values that they make or change."""

    steps: list[ProgramStep]
    states: list[Value]  # what the optimizers keep from call to call
    norms: list[Value]  # of the gradients that are clipped together, in turn
    copied: frozenset[int] = frozenset()  # the numbers of the copies that they write


# The optimizers' steps, after those that clip gradients together.
Updates = Callable[[Sequence[Trained], Sequence[Clipping], Iterator[int]], Written]


def align(program: Program, layouts: Mapping[str, Meta]) -> Program:
    """The program with its gradients in the layouts in which parameters are updated.

    `layouts` are those, by path, of parameters whose layout changes for it.
    """
    return align_gradients(program, _layouts(program, layouts))


def add_updates(
    program: Program,
    updates: Updates,
    layouts: Mapping[str, Meta],
    read_later: AbstractSet[int] | None = None,
    in_turns: bool = False,
) -> Program:
    """The program with the updates by its gradients, which `align` has boxed.

    `read_later` are the numbers of the values whose memory is perhaps read after the program, where
    the program itself does not say so. With `in_turns` each group has several,
    for `passes/update_in_backward.py` to move.
    """
    if read_later is None:
        read_later = kept_by_outputs(program)
    turn = turns(program) if in_turns else {}
    numbers = program.free_numbers()
    targets = _layouts(program, layouts)
    assigned = {variable.value.number: value for variable, value in program.assigns}
    low = _low_copies(program)
    before: list[ProgramStep] = []
    after: list[ProgramStep] = []
    trained: list[Trained] = []
    for variable, gradient in program.gradients:
        whole = variable.value
        now = assigned.get(whole.number, whole)
        target = targets[whole.number]
        own = now is whole and whole.number not in read_later
        if target is not whole.meta:
            part, gathered = Value(next(numbers), target), Value(next(numbers), whole.meta)
            before.append(copied_boxing(now, part, UPDATE))
            after.append(copied_boxing(part, gathered, UPDATE))
            if own:
                after.append(_copy(gathered, whole, low.pop(whole.number, None)))
            else:
                assigned[whole.number] = gathered
            each = Trained(variable, part, gradient)
        elif own:
            each = Trained(variable, whole, gradient, low.get(whole.number))
        else:
            clone = assigned[whole.number] = Value(next(numbers), whole.meta)
            before.append(
                ProgramStep("clone", "clone", (now,), (), (clone,), dense_copies, scope=UPDATE)
            )
            each = Trained(variable, clone, gradient)
        trained.append(replace(each, turn=turn.get(gradient.number, 0)))
    written = updates(trained, program.clippings, numbers)
    found = {v.value.number: v for v in program.variables}
    for number, copy in low.items():
        if copy.number not in written.copied:
            after.append(_copy(assigned.get(number, found[number].value), copy))
    return replace(
        program,
        steps=[*program.steps, *before, *written.steps, *after],
        outputs=[*program.outputs, *written.norms],
        assigns=[(found[number], value) for number, value in assigned.items()],
        states=written.states,
        updates=True,
    )


def _layouts(program: Program, layouts: Mapping[str, Meta]) -> dict[int, Meta]:
    """By the number of each variable with a gradient, its layout during the update."""
    return {v.value.number: layouts.get(v.value.name, v.value.meta) for v, _ in program.gradients}


def _low_copies(program: Program) -> dict[int, Value]:
    """By number of each variable that has a copy in half precision: the copy."""
    values = {id(variable.tensor): variable.value for variable in program.variables}
    return {values[id(copy.param)].number: values[id(copy.tensor)] for copy in program.copies}


def _copy(source: Value, *targets: Value | None) -> ProgramStep:
    """Copies a value into the memory of variables."""
    written = tuple([target for target in targets if target is not None])
    return ProgramStep(
        "copy_", "copy_", (source, *written), (), (), _copied, several=True, scope=UPDATE,
        writes=written,
    )  # fmt: skip


def _copied(source: Shards, *targets: Shards) -> tuple[()]:
    done: set[int] = set()  # replicas of a virtual world may be one tensor
    for part, *into in zip(source, *targets, strict=True):
        if id(into[0]) not in done:
            done.add(id(into[0]))
            for to in into:
                to.copy_(part)
    return ()
