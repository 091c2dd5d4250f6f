"""Records what runs: ops, their gradients, modules, exchanges of data, steps of graphs, updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, ExitStack, contextmanager
from time import time_ns
from typing import Any, Self, TypeVar

from ..distributed import comm_log
from ..engine import interpreter
from ..engine.autocast import is_observing, observing
from ..engine.convert import BOXING
from ..engine.meta import Meta
from ..engine.observer import Observer
from ..engine.sbp import short
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, user_line
from ..graph import call_list
from ..graph.ir import ProgramStep, Run
from .events import Event, Kind

R = TypeVar("R")


class EventRecorder(Observer):
    """The interpreter that records when each call began and ended, and which calls contain it."""

    def __init__(self, record_shapes: bool = False) -> None:
        super().__init__(interpreter.get_current())
        self.events: list[Event] = []
        self._open: list[Event] = []
        self._record_shapes = record_shapes
        self._comm = comm_log.CommLog()
        self._seen = 0  # records of the log that belong to an event
        self.started = time_ns()

    def now(self) -> float:
        """Microseconds since the recorder was made."""
        return (time_ns() - self.started) / 1000

    @contextmanager
    def event(
        self,
        name: str,
        kind: Kind,
        line: str | None = None,
        module: str | None = None,
        backward: bool | None = None,
        metas: Sequence[Meta] = (),
    ) -> Iterator[Event]:
        """The block that an event stands for; what is not given is as around it."""
        event = Event(
            name,
            kind,
            0.0,
            module=self.scope if module is None else module,
            line=user_line() if line is None else line,
            backward=self.backward if backward is None else backward,
            parent=self._open[-1] if self._open else None,
        )
        if self._record_shapes:
            event.input_shapes = tuple([tuple(meta.shape) for meta in metas])
            event.layouts = tuple([short(meta.nd_sbp) for meta in metas])
        self.events.append(event)
        self._open.append(event)
        event.start = self.now()
        try:
            yield event
        finally:
            event.end = self.now()
            self._open.remove(event)

    def run(self, call: Callable[..., R], op: Any, args: tuple[object, ...]) -> R:
        if self.captures:
            return super().run(call, op, args)
        given = args[0] if args and isinstance(args[0], tuple) else args
        metas = [x.meta for x in given if isinstance(x, Tensor)]
        name = "to_global" if op is BOXING else op.name
        with self.event(name, "op", metas=metas):
            return super().run(call, op, args)

    def call_module(
        self,
        module: object,
        forward: Callable[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> R:
        def call(*args: object, **kwargs: object) -> R:
            with self.event(type(module).__name__, "module"):
                return forward(*args, **kwargs)

        return super().call_module(module, call, args, kwargs)

    def step_optimizer(self, optimizer: object, update: Callable[[], None]) -> None:
        with self.event(f"Optimizer.step#{type(optimizer).__name__}.step", "optimizer"):
            super().step_optimizer(optimizer, update)

    def exchange(self, op: str, run: Callable[[], Any]) -> Any:
        """An exchange of data, with what was logged of it before it began."""
        around = self._open[-1] if self._open else None
        line = around.line if around else None
        with self.event("communication", "communication", line) as event:
            result = run()
        records = self._comm.records[self._seen :]
        self._seen = len(self._comm.records)
        # What moves no data between ranks, such as taking a part, has no records.
        event.name = ", ".join(dict.fromkeys(record.kind for record in records)) or "local"
        event.comm_bytes = sum(record.total_bytes() for record in records)
        return result

    def watch(self, step: ProgramStep, run: Run) -> Run:
        """What runs a step of a graph, as an event of its module and line."""
        metas = [meta for meta in step.input_metas if meta is not None]

        def watched(*args: object) -> Any:
            with self.event(step.name, "op", step.line, step.scope, step.backward, metas):
                return run(*args)

        return watched

    def check_innermost(self) -> None:
        """Raise OnefoldRuntimeError where something that was started later still runs."""
        if not is_observing(self):
            raise OnefoldRuntimeError(
                "profile: cannot stop, since another profile or block that was started in this "
                "one still runs: stop the inner profile first"
            )

    @contextmanager
    def recording(self) -> Iterator[Self]:
        """Record the block."""
        with (
            observing(self),
            comm_log.comm() as self._comm,
            _listening(comm_log.watchers, self.exchange),
            _listening(call_list.watchers, self.watch),
            _listening(_recorders, self),
        ):
            yield self
        for event in self._open:
            event.end = self.now()


@contextmanager
def _listening(listeners: list[Any], one: object) -> Iterator[None]:
    """The block in which a list of listeners ends with this one."""
    listeners.append(one)
    try:
        yield
    finally:
        listeners.remove(one)


_recorders: list[EventRecorder] = []


class record_function(ContextDecorator):
    """A block or function that the running profile shows under a name; nothing without one.

    Example:
        >>> with flow.profiler.profile() as prof:
        ...     with flow.profiler.record_function("evaluation"):
        ...         y = flow.ones(3) * 2
        >>> [each.key for each in prof.key_averages() if each.count == 1 and "eval" in each.key]
        ['evaluation']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._blocks: list[ExitStack] = []

    def __enter__(self) -> Self:
        block = ExitStack()
        if _recorders:
            name = f"{self.name}({self.args})" if self.args else self.name
            block.enter_context(_recorders[-1].event(name, "user"))
        self._blocks.append(block)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._blocks.pop().__exit__(*exc)
