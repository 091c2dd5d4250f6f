"""Call lists: the steps of a program as calls on shards, in the places of one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

from ..distributed.world import world
from ..engine.op import error_class
from ..errors import OnefoldError
from .ir import ProgramStep, Run, Value

T = TypeVar("T")

ERRORS = (RuntimeError, ValueError, TypeError, IndexError)

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

    def run(self, places: Filled, reports: bool = True) -> None:
        """Run the calls in turn on the values in their places; `reports` is for `fail`."""
        index = 0
        calls = self.watched()
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
        except ERRORS as error:
            self.fail(error, index, reports)

    def explaining(self, index: int, function: Callable[[], T]) -> Callable[[], T]:
        """A part of a call whose errors are raised by `fail`."""

        def explained() -> T:
            try:
                return function()
            except ERRORS as error:
                self.fail(error, index)

        return explained

    def fail(self, error: Exception, index: int, reports: bool = True) -> NoReturn:
        """Raise the error of a call, with the step that it belongs to.

        If it `reports`, other ranks raise it too, where they cannot continue without this one.
        """
        step = self.steps[index]
        explained = _explained(error, step)
        made_here = [value.meta.is_global for value in step.outputs]
        # With a local value every process has computed the same, and raises it by itself.
        if reports and made_here and all(made_here):
            world().report_error(explained)
        if explained is error:
            raise error
        raise explained from error

    def watched(self) -> list[Call]:
        """The calls, observed by the newest watcher if there is one."""
        if not watchers:
            return self.calls
        watch = watchers[-1]
        return [
            (watch(step, call[0]), *call[1:])
            for call, step in zip(self.calls, self.steps, strict=True)
        ]


class Places:
    """The indices of a program's values in the list that a run fills."""

    def __init__(self) -> None:
        self.template: Filled = []
        self._of: dict[int, int] = {}

    def of(self, what: object) -> int:
        """The index of a value, or a new one that always holds the constant `what`."""
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
        """A step as a call, with its inputs and outputs; `dead` are values to drop after it."""
        taken, made, dropped = map(tuple, map(self.all_of, (step.inputs, step.outputs, dead)))
        if step.several:
            return step.run, taken, -1, made, dropped
        return step.run, taken, made[0], None, dropped

    def calls(
        self, steps: Sequence[ProgramStep], wanted: Iterable[Value] | None = None
    ) -> CallList:
        """The steps as calls, in order; values are dropped after their last use, unless `wanted`.

        Without `wanted` nothing is dropped.
        """
        if wanted is None:
            return CallList([self.call(step, ()) for step in steps], steps)
        last = last_uses(steps, wanted)
        found = []
        for index, step in enumerate(steps):
            values = {v.number: v for v in (*step.reads(), *step.outputs)}
            dead = [v for v in values.values() if last.get(v.number, index) == index]
            found.append(self.call(step, dead))
        return CallList(found, steps)


def _explained(error: Exception, step: ProgramStep) -> OnefoldError:
    """The error with the module and the user's line; an OnefoldError keeps its class."""
    where = f"{step.name} of {step.scope}" if step.scope else step.name
    if not isinstance(error, OnefoldError):
        return error_class(error)(f"{where}, written at {step.line}: {error}")
    if error.args:
        error.args = (f"{error.args[0]} (in {where}, written at {step.line})", *error.args[1:])
    return error


def last_uses(steps: Sequence[ProgramStep], wanted: Iterable[Value]) -> dict[int, int]:
    """The index of the last step that reads each value; values wanted at the end have none."""
    last = {v.number: i for i, step in enumerate(steps) for v in step.reads()}
    return last | {value.number: len(steps) for value in wanted}
