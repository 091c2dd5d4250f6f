"""Executor: a program as a flat list of calls on shards. Values are freed after their last use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from ..distributed.world import world
from ..engine import interpreter
from ..engine.inplace import changed, take, writable
from ..engine.meta import Meta
from ..engine.op import error_class
from ..engine.tensor import Shards, Tensor, from_shards
from ..errors import OnefoldError, OnefoldRuntimeError
from .async_boxing import steps_with_async_boxing
from .ir import Program, ProgramStep, Run, Value
from .unrolled_calls import failed_call, unrolled

_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)

# What is called, from where to where (one place, or one for each part of the result), and the
# places to clear after it.
Call: TypeAlias = tuple[Run, tuple[int, ...], int, "tuple[int, ...] | None", tuple[int, ...]]
Filled: TypeAlias = list[Any]  # what stands in each place: shards, a constant, or None


# Functions that are given a step and what runs it, and give what runs instead, to look at it.
watchers: list[Callable[[ProgramStep, Run], Run]] = []


class CallList(NamedTuple):
    """Steps as calls, one for each."""

    calls: list[Call]
    steps: Sequence[ProgramStep]

    def run(self, places: Filled) -> None:
        """Run the calls in turn on the values in their places."""
        index = 0
        calls = self._watched() if watchers else self.calls
        try:
            for run, taken, made, several, dead in calls:
                result = run(*[places[place] for place in taken])
                if several is None:
                    places[made] = result
                else:
                    for place, part in zip(several, result, strict=True):
                        places[place] = part
                    part = None  # else it would be there until the next such step
                result = None
                for place in dead:
                    places[place] = None
                index += 1
        except _ERRORS as error:
            self.fail(error, index)

    def fail(self, error: Exception, index: int) -> NoReturn:
        """Raise what a call raised, with the step that it belongs to."""
        step = self.steps[index]
        explained = _explained(error, step)
        made_here = [value.meta.is_global for value in step.outputs]
        # With a local value every process has computed the same, and raises it by itself.
        if made_here and all(made_here):
            world().tell(explained)
        if explained is error:
            raise error
        raise explained from error

    def _watched(self) -> list[Call]:
        """The calls, seen by the newest watcher."""
        watch = watchers[-1]
        return [
            (watch(step, call[0]), *call[1:])
            for call, step in zip(self.calls, self.steps, strict=True)
        ]


class Places:
    """Where the values of a program stand in the list that one run of it fills."""

    def __init__(self) -> None:
        self.template: Filled = []
        self._of: dict[int, int] = {}

    def of(self, what: object) -> int:
        """The place of a value, or a new one that always holds the constant `what`."""
        if type(what) is Value:
            found = self._of.get(what.number)
            if found is not None:
                return found
            self._of[what.number] = len(self.template)
            what = None
        self.template.append(what)
        return len(self.template) - 1

    def all_of(self, values: Iterable[object]) -> list[int]:
        return [self.of(value) for value in values]

    def call(self, step: ProgramStep, dead: Iterable[Value]) -> Call:
        """A step as what is called, from where to where; `dead` are values to drop after it."""
        taken, made, dropped = map(tuple, map(self.all_of, (step.inputs, step.outputs, dead)))
        if step.several:
            return step.run, taken, -1, made, dropped
        return step.run, taken, made[0], None, dropped

    def calls(
        self, steps: Sequence[ProgramStep], wanted: Iterable[Value] | None = None
    ) -> CallList:
        """Steps in turn; each value but those `wanted` is dropped after the last that needs it.

        Without `wanted` nothing is dropped.
        """
        if wanted is None:
            return CallList([self.call(step, ()) for step in steps], steps)
        last = _last_uses(steps, wanted)
        found = []
        for index, step in enumerate(steps):
            values = {v.number: v for v in (*step.reads(), *step.outputs)}
            dead = [v for v in values.values() if last.get(v.number, index) == index]
            found.append(self.call(step, dead))
        return CallList(found, steps)


class Executor(ABC):
    """Runs a program for the ranks that this process owns.

    The same list serves one process per rank and all ranks in one process: what differs is only
    how many shards stand in each place. The values are those of eager, since the steps are the
    dispatcher's own plans.
    """

    def __init__(self, program: Program, end: Program, micro_batches: int) -> None:
        """`end` is what a call ends with: the program itself, or what is done after it."""
        self.program = program
        self.places = Places()
        place = self.places.of
        self.variables = [(place(v.value), v.tensor, v.value) for v in program.variables]
        self.inputs = self.places.all_of(program.inputs)
        self.outputs = [(place(value), value.meta) for value in end.outputs]
        self.assigns = [(v.tensor, place(value)) for v, value in end.assigns]
        self._micro_batches = micro_batches
        self._written = [variable.tensor for variable in end.written()]
        kept = kept_by_outputs(program)
        self._kept = [v.tensor for v in program.variables if v.value.number in kept]
        self._kept_inputs = [i for i, v in enumerate(program.inputs) if v.number in kept]

    @abstractmethod
    def call_lists(self) -> list[CallList]:
        """All calls; the lists may be changed between runs."""

    @abstractmethod
    def compute(self, places: Filled, inputs: Sequence[Shards]) -> None:
        """Do all steps, on variables that are in their places already."""

    def make_writable(self) -> None:
        """Give what steps write into memory of its own."""
        for tensor in self._written:
            writable(tensor)

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run once; the outputs.

        Random calls take the generators' next ids. Assigns are done when every step has run, so
        that an error changes nothing. Raises OnefoldRuntimeError when a tensor from outside is no
        longer what it was at the capture.
        """
        draws = self.program.draws
        draws.take(self._micro_batches)
        try:
            for _, tensor, value in self.variables:
                if tensor.meta is not value.meta:
                    raise _changed(tensor, value)
            given = [x.shards for x in inputs]
            for index in self._kept_inputs:
                inputs[index].shared = True  # an output may be its memory, even a parameter's
            self.make_writable()
            places = self.places.template.copy()
            for place, tensor, _ in self.variables:
                places[place] = tensor.shards
            self.compute(places, given)
            for tensor in self._kept:
                tensor.shared = True
            outputs = [_shared(places[place], meta) for place, meta in self.outputs]
            for tensor, place in self.assigns:
                if places[place]:  # else of a stage on other ranks
                    take(tensor, _shared(places[place], tensor.meta))
        except BaseException:
            draws.give_back()
            raise
        self._mark_written()
        return outputs

    def _mark_written(self) -> None:
        """Let the tape, and bases and views, know that these tensors have changed."""
        if self._written:
            now = interpreter.stamp()
            for tensor in self._written:
                tensor.version = now
            changed(self._written)


class Executable(Executor):
    """Runs a program without stages: its steps in turn."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, program, program.micro_batches)
        self._calls = self.places.calls(steps_with_async_boxing(program), program.wanted())
        self._unrolled: Callable[[Filled], None] | None = None
        self._unrolled_of: list[Call] | None = None

    def call_lists(self) -> list[CallList]:
        return [self._calls]

    def compute(self, places: Filled, inputs: Sequence[Shards]) -> None:
        self.program.draws.move_to(0)
        for place, shards in zip(self.inputs, inputs, strict=True):
            places[place] = shards
        if watchers or self._unrolled_of is None:  # a program that runs once is not unrolled
            self._unrolled_of = []
            self._calls.run(places)
            return
        if self._unrolled is None or self._unrolled_of != self._calls.calls:
            self._unrolled_of = [*self._calls.calls]
            self._unrolled = unrolled(self._unrolled_of)
        try:
            self._unrolled(places)
        except _ERRORS as error:
            self._calls.fail(error, failed_call(error))


def _shared(shards: Shards, meta: Meta) -> Tensor:
    """A tensor of these shards, whose memory others may have too."""
    tensor = from_shards(shards, meta)
    tensor.shared = True
    return tensor


def _changed(tensor: Tensor, value: Value) -> OnefoldRuntimeError:
    return OnefoldRuntimeError(
        f"{value.name} was {value.meta!r} when the graph was compiled, but is {tensor.meta!r} now; "
        "make the graph after changing its modules"
    )


def _explained(error: Exception, step: ProgramStep) -> OnefoldError:
    """The error with the module and the user's line; one of ours keeps its class."""
    where = f"{step.name} of {step.scope}" if step.scope else step.name
    if not isinstance(error, OnefoldError):
        return error_class(error)(f"{where}, written at {step.line}: {error}")
    if error.args:
        error.args = (f"{error.args[0]} (in {where}, written at {step.line})", *error.args[1:])
    return error


def _last_uses(steps: Sequence[ProgramStep], wanted: Iterable[Value]) -> dict[int, int]:
    """The index of the last step that reads each value; values wanted at the end have none."""
    last = {v.number: i for i, step in enumerate(steps) for v in step.reads()}
    return last | {value.number: len(steps) for value in wanted}


def kept_by_outputs(program: Program) -> set[int]:
    """The numbers of the values whose memory an output, assigned value or gradient may share."""
    sources: dict[int, list[Value]] = {
        value.number: list(step.reads())
        for step in program.steps
        if step.aliases
        for value in step.outputs
    }
    kept: set[int] = set()
    left = [*program.outputs, *(x for _, x in (*program.assigns, *program.gradients))]
    while left:
        value = left.pop()
        if value.number not in kept:
            kept.add(value.number)
            left.extend(sources.get(value.number, ()))
    return kept
