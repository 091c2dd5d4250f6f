"""Executor: a program as a flat list of calls on shards. Values are freed after their last use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from ..distributed.world import world
from ..engine import interpreter
from ..engine.inplace import changed, take, writable
from ..engine.op import error_class
from ..engine.tensor import Tensor
from ..errors import OnefoldError, OnefoldRuntimeError
from .async_boxing import steps_with_async_boxing
from .ir import Program, ProgramStep, Value

_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)


Call: TypeAlias = tuple[Callable[..., Any], tuple[int, ...], Any, tuple[int, ...]]


class Places:
    """Where the values of a program stand in the list that one run of it fills."""

    def __init__(self) -> None:
        self.template: list[Any] = []
        self._of: dict[int, int] = {}

    def of(self, what: Any) -> int:
        """The place of a value, or a new one that always holds the constant `what`."""
        if type(what) is Value:
            found = self._of.get(what.number)
            if found is not None:
                return found
            self._of[what.number] = len(self.template)
            what = None
        self.template.append(what)
        return len(self.template) - 1

    def call(self, step: ProgramStep, dead: Iterable[Value]) -> Call:
        """A step as what is called, from where to where; `dead` are values to drop after it."""
        inputs = tuple([self.of(value) for value in step.inputs])
        made = tuple([self.of(value) for value in step.outputs])
        dropped = tuple([self.of(value) for value in dead])
        return step.run, inputs, made if step.several else made[0], dropped

    def calls(self, steps: Sequence[ProgramStep], wanted: Iterable[Value]) -> list[Call]:
        """Steps in turn; each value but those `wanted` is dropped after the last that needs it."""
        last = _last_uses(steps, wanted)
        found = []
        for index, step in enumerate(steps):
            values = {v.number: v for v in (*step.reads(), *step.outputs)}
            dead = [v for v in values.values() if last.get(v.number, index) == index]
            found.append(self.call(step, dead))
        return found


def execute(calls: Sequence[Call], steps: Sequence[ProgramStep], places: list[Any]) -> None:
    """Run calls, which are those of the `steps`, on the values in their places."""
    index = 0
    try:
        for run, taken, made, dead in calls:
            result = run(*[places[place] for place in taken])
            if type(made) is int:
                places[made] = result
            else:
                for place, part in zip(made, result, strict=True):
                    places[place] = part
                part = None  # else it would be there until the next such step
            result = None
            for place in dead:
                places[place] = None
            index += 1
    except _ERRORS as error:
        explained = _explained(error, steps[index])
        made_here = [value.meta.is_global for value in steps[index].outputs]
        # With a local value every process has computed the same, and raises it by itself.
        if made_here and all(made_here):
            world().tell(explained)
        if isinstance(error, OnefoldError):
            raise
        raise explained from error


class Executable:
    """Runs a program for the ranks that this process owns.

    The same list serves one process per rank and all ranks in one process: what differs is only
    how many shards stand in each place. The values are those of eager, since the steps are the
    dispatcher's own plans.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._places = Places()
        place = self._places.of
        self._variables = [(place(v.value), v.tensor, v.value) for v in program.variables]
        self._inputs = [place(value) for value in program.inputs]
        self._steps = steps_with_async_boxing(program)
        self._calls = self._places.calls(self._steps, program.wanted())
        self._outputs = [(place(v), v.meta) for v in program.outputs]
        self._assigns = [(v.tensor, place(x)) for v, x in program.assigns]
        self._written = [variable.tensor for variable in program.written()]
        kept = kept_by_outputs(program)
        self._kept = [v.tensor for v in program.variables if v.value.number in kept]
        self._kept_inputs = [i for i, v in enumerate(program.inputs) if v.number in kept]

    def call_lists(self) -> list[tuple[list[Call], Sequence[ProgramStep]]]:
        """All calls, with the steps that they are of."""
        return [(self._calls, self._steps)]

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
        draws.take(self.program.micro_batches)
        try:
            return self._run(inputs)
        except BaseException:
            draws.give_back()
            raise

    def _run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        self.program.draws.move_to(0)
        check_variables(self._variables)
        given = [x.shards for x in inputs]
        for index in self._kept_inputs:
            inputs[index].shared = True  # an output may be its memory, even if it is a parameter's
        self.make_writable()
        places = self._places.template.copy()
        for place, tensor, _ in self._variables:
            places[place] = tensor.shards
        for place, shards in zip(self._inputs, given, strict=True):
            places[place] = shards
        execute(self._calls, self._steps, places)
        for tensor in self._kept:
            tensor.shared = True
        outputs = [shared(places[place], meta) for place, meta in self._outputs]
        for tensor, place in self._assigns:
            take(tensor, shared(places[place], tensor.meta))
        mark_written(self._written)
        return outputs


def mark_written(tensors: Sequence[Tensor]) -> None:
    """Let the tape, and bases and views, know that these tensors have changed."""
    if tensors:
        now = interpreter.stamp()
        for tensor in tensors:
            tensor.version = now
        changed(tensors)


def check_variables(variables: Iterable[tuple[int, Tensor, Value]]) -> None:
    """Raise OnefoldRuntimeError for a variable that is not what it was at the capture."""
    for _, tensor, value in variables:
        if tensor.meta is not value.meta:
            raise _changed(tensor, value)


def shared(shards: Any, meta: Any) -> Tensor:
    """A tensor of these shards, whose memory others may have too."""
    tensor = Tensor(shards, meta)
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
