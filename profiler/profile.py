"""profile: records what a program does in a block, or in the steps that a schedule names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, supported_activities

from ..engine import interpreter
from ..engine.env_api import get_rank
from ..errors import OnefoldRuntimeError
from . import chrome_trace
from .averages import AverageList, By, averages
from .event_recorder import EventRecorder
from .events import Event, with_kernels

_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:
    """Records ops, gradients, modules, communication, graphs' steps and kernels, as torch's does.

    activities: what is recorded besides the program itself: the kernels that torch runs on the CPU,
        and on GPUs those of Triton too. By default all that this machine has; an empty list
        records none of them.
    schedule: which steps are recorded, from `onefold.profiler.schedule(wait=..., ...)`; the
        program calls `step()` after each.
    on_trace_ready: called with this object when something was recorded.
    record_shapes: whether events have the shapes and layouts of inputs.
    with_stack, with_modules: accepted as in torch; events always have a line and a module.
    profile_memory, with_flops, acc_events: accepted as in torch, and change nothing: the memory of
        a step is that of `graph.memory`, flops are counted by `flow.utils.flop_counter`, and events
        of the last steps are kept.

    Outside such blocks nothing is recorded, and calls cost nothing extra. Profiles may be nested,
    of which one records kernels. Raises OnefoldRuntimeError for a second one that would, for a
    start inside the `build` of a graph, and for the end of a profile before that of an inner one.

    Example:
        >>> p = flow.placement("cpu", [0, 1])
        >>> x = flow.ones(4, 6, placement=p, sbp=flow.sbp.split(0))
        >>> with flow.profiler.profile(activities=[]) as prof:
        ...     y = flow.exp(x).to_global(sbp=flow.sbp.broadcast)
        >>> [(each.key, each.count) for each in prof.key_averages()]
        [('exp', 1), ('to_global', 1), ('all_gather', 1)]
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        acc_events: bool = False,
    ) -> None:
        self._activities = set(supported_activities() if activities is None else activities)
        self._schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self._names_steps = schedule is not None
        self._on_trace_ready = on_trace_ready
        self._record_shapes = record_shapes
        self.step_num = 0
        self._action = ProfilerAction.NONE
        self._recording: ExitStack | None = None
        self._step_event = ExitStack()
        self._events: list[Event] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with the first step."""
        self._become(self._schedule(0), 0)

    def stop(self) -> None:
        """End; what is being recorded is ready."""
        self._become(ProfilerAction.NONE, self.step_num)

    def step(self) -> None:
        """End a step of the program, and begin the next one."""
        self._become(self._schedule(self.step_num + 1), self.step_num + 1)

    def events(self) -> list[Event]:
        """What was recorded last, in the order of time.

        Raises OnefoldRuntimeError before something was.
        """
        if self._events is None:
            raise OnefoldRuntimeError(
                "profile: nothing was recorded yet; ask after the block, or in on_trace_ready"
            )
        return self._events

    def key_averages(
        self, group_by_input_shape: bool = False, *, group_by: By = "op"
    ) -> AverageList:
        """The events added up by op, or by "module", "line" or "kernel".

        Raises OnefoldValueError for another `group_by`.
        """
        return averages(self.events(), group_by, group_by_input_shape)

    def export_chrome_trace(self, path: str | Path, use_python_export: bool = False) -> None:
        """Write what was recorded as a JSON file that Perfetto and chrome://tracing open.

        It is compressed where the path ends in ".gz". `use_python_export` changes nothing.
        """
        chrome_trace.save(self.events(), path, get_rank())

    def _become(self, action: ProfilerAction, step: int) -> None:
        ended = self._action is ProfilerAction.RECORD_AND_SAVE or action not in _RECORDS
        if self._recording is None:
            if action in _RECORDS:
                self._check_start()
        elif ended:
            self._recorder.check_innermost()
        self.step_num = step
        if self._recording is not None:
            self._step_event.close()
            if ended:
                self._recording.close()
                self._recording = None
                if self._on_trace_ready is not None:
                    self._on_trace_ready(self)
        self._action = action
        if action in _RECORDS:
            if self._recording is None:
                self._recording = self._record()
            self._step_event = ExitStack()
            if self._names_steps:
                name = f"ProfilerStep#{self.step_num}"
                self._step_event.enter_context(self._recorder.event(name, "user"))

    def _check_start(self) -> None:
        if interpreter.capturing():
            raise OnefoldRuntimeError(
                "profile: cannot start while a graph is captured; profile the calls of the graph"
            )
        if self._activities and torch.autograd.profiler._is_profiler_enabled:
            raise OnefoldRuntimeError(
                "profile: another profile records kernels; use activities=[] for one of them"
            )

    def _record(self) -> ExitStack:
        """Begin to record; closing the result ends it."""
        stack = ExitStack()
        recorder = self._recorder = EventRecorder(self._record_shapes)
        kernels: Any = None
        if self._activities:
            kernels = torch.profiler.profile(activities=self._activities)
            kernels.start()

        def end() -> None:
            recorded, start = [], 0.0
            if kernels is not None:
                kernels.stop()
                recorded = kernels.events()
                start = kernels.profiler.kineto_results.trace_start_ns() - recorder.started
                start /= 1000
            self._events = with_kernels(recorder.events, recorded, start)

        stack.callback(end)
        stack.enter_context(recorder.recording())
        return stack
