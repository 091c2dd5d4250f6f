"""Events: what ran, when, for which module and line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torch.autograd.profiler_util import FunctionEvent

Kind: TypeAlias = Literal["op", "communication", "module", "optimizer", "user", "kernel", "device"]


@dataclass(eq=False)
class Event:
    """Something that ran. Times are in microseconds, from the start of the recording.

    A kernel is a call of torch on shards; what runs on a GPU has the kind "device".
    """

    name: str
    kind: Kind
    start: float
    end: float = 0.0
    module: str = ""  # the path of the module that it belongs to
    line: str = ""  # the user's line, as `file.py:LINE in function`
    backward: bool = False
    input_shapes: tuple[tuple[int, ...], ...] = ()  # with record_shapes
    layouts: tuple[str, ...] = ()  # of the inputs, with record_shapes
    comm_bytes: int = 0  # received by all ranks
    parent: Event | None = field(default=None, repr=False)
    # What ran inside, in microseconds.
    kernel_time: float = 0.0
    comm_time: float = 0.0
    device_time: float = 0.0
    self_device_time: float = 0.0  # without that of other events inside
    inner_time: float = 0.0

    @property
    def duration(self) -> float:
        return self.end - self.start


def with_kernels(
    events: Sequence[Event], recorded: Sequence[FunctionEvent], start: float
) -> list[Event]:
    """The events and those of kernels that torch recorded, in order; times are added up.

    `start` is when torch began to record. Events are nested in time, in the order of their starts.
    """
    kernels = [
        Event(each.name, "kernel", start + each.time_range.start, start + each.time_range.end)
        for each in recorded
        if each.device_type.name == "CPU" and each.cpu_parent is None
    ]
    device = [
        Event(each.name, "device", start + each.time_range.start, start + each.time_range.end)
        for each in recorded
        if each.device_type.name != "CPU"
    ]
    for kernel in device:
        kernel.device_time = kernel.self_device_time = kernel.duration
    launches = [
        (start + each.time_range.start, sum(kernel.duration for kernel in each.kernels))
        for each in recorded
        if each.device_type.name == "CPU" and each.kernels
    ]
    inner = _Enclosing(events)
    for kernel in kernels:
        kernel.kernel_time = kernel.duration
        kernel.parent = inner.at(kernel.start)
        if kernel.parent is not None:
            kernel.module, kernel.line = kernel.parent.module, kernel.parent.line
            kernel.backward = kernel.parent.backward
    for event in (*kernels, *events):
        parent = event.parent
        if parent is not None:
            parent.inner_time += event.duration * (event.kind != "kernel")
        while parent is not None:
            if event.kind == "kernel":
                parent.kernel_time += event.duration
                if parent.kind == "communication":
                    break  # copies for it are no computation
            elif event.kind == "communication":
                parent.comm_time += event.duration
                parent.comm_bytes += event.comm_bytes
            parent = parent.parent
    for moment, time in launches:
        parent = inner.at(moment)
        if parent is not None:
            parent.self_device_time += time
        while parent is not None:
            parent.device_time += time
            parent = parent.parent
    return sorted((*events, *kernels, *device), key=lambda event: event.start)


class _Enclosing:
    """Finds the innermost of nested events, which are in the order of their starts."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._starts = [event.start for event in events]

    def at(self, moment: float) -> Event | None:
        index = bisect_right(self._starts, moment) - 1
        event = self._events[index] if index >= 0 else None
        while event is not None and event.end < moment:
            event = event.parent
        return event
