"""Captured update: the calls of a program from the first that writes on, as one CUDA graph.

What the host computes for them in each call, such as learning rates and bias corrections, is copied
to the device at once before a replay. Where the host finds that a replay would not be right, one
call is done as without CUDA graphs, which compiles what is new, and the next captures again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import torch

from ...engine.commit import Change, Write
from ...engine.tensor import Shards
from ...kernels.staging import Later, copied_later, fill, staged
from ..call_list import Call, CallList, Filled
from ..ir import ProgramStep
from ..writing_calls import writes_of
from .rank_modes import Mode
from .recorded_step import HostHalf, Recordable, Recording
from .segments import Segment, Where, is_host, is_source, reason, summary
from .static_memory import copies_of
from .static_values import StaticValues
from .stream_capture import Capturer, failure

_MOST = 3  # changes in a row after which the update is never captured
_OFTEN = 2  # replays that are worth a capture
_CHANGES = "options of an optimizer change from call to call"
_AGAIN = "its kernels were compiled and loaded by this call, for the capture by the next"
_HOST = "changes numbers that the host keeps"


class CapturedUpdate:
    """The calls of the update; `writes` returns the writes that remain to be done.

    `reads` are the places of what they find, `touched` of what outlives the run and they read, make
    or write. `reason` says why the last ones were not replayed; none will be where they have
    `failed`.
    """

    def __init__(
        self,
        calls: CallList,
        drawing: CallList,
        kept: Sequence[int],
        where: Where,
        capturer: Capturer,
    ) -> None:
        """`drawing` are the calls in the form in which draws read their numbers from memory."""
        self._calls, self._drawing, self._capturer = calls, drawing, capturer
        steps = range(len(calls.steps))
        of_host = [i for i in steps if _is_of_host(calls.steps[i])]
        self._before = CallList(
            [calls.calls[i] for i in of_host], [calls.steps[i] for i in of_host]
        )
        before = {i for i in steps if is_host(calls.steps[i]) or is_source(calls.steps[i])}
        self._of_device = [i for i in steps if i not in of_host and i not in before]
        texts = [_why_not(calls.steps[i], where) for i in self._of_device]
        self.failed = not self._of_device or any(texts)
        self.reason = "; ".join(filter(None, dict.fromkeys(texts)))
        made = {place for i in steps if i not in before for place in _made_by(calls.calls[i])}
        taken = dict.fromkeys(place for call in calls.calls for place in call[1])
        self.reads = [place for place in taken if place not in made]
        found = {place for i in before for place in _made_by(calls.calls[i])}
        self.touched = [place for place in kept if place in {*made, *taken, *found}]
        self._results = [place for place in self.touched if place in made]
        self._unused = 0  # changes in a row
        self.forget()

    def forget(self) -> None:
        """Drop the CUDA graph; the next call that may captures it again."""
        self._replay: Callable[[], object] | None = None
        self._recordings: dict[int, Recording] = {}
        self._made: Sequence[tuple[int, Shards]] = ()
        self._table = torch.empty(0, dtype=torch.float64)
        self._kept: Later = []  # what only the graph reads
        self._form: list[object] | None = None  # what the last call launched
        self._replays = 0

    def fail(self, why: str) -> None:
        """Never capture the calls."""
        if self._of_device:
            self.failed, self.reason = True, why
            self.forget()

    @property
    def why_eager(self) -> str:
        """Why the last calls were not replayed, if there are any."""
        return f"the update runs without a CUDA graph: {self.reason}" if self.reason else ""

    def __str__(self) -> str:
        found = [Segment(self._of_device, (self.reason,) if self.failed else ())]
        texts = [
            summary(self._before.steps, [Segment(range(len(self._before.steps)), (_HOST,))]),
            summary(self._calls.steps, found),
        ]
        return "\n".join(texts[not self._before.steps : 1 + bool(self._of_device)])

    def writes(self, places: Filled, mode: Mode, values: StaticValues) -> deque[Write]:
        """The writes that remain after the other calls, which ran in this mode on these values."""
        halves = None
        can_capture = mode >= Mode.CAPTURE and values.device is not None
        if self._replay is not None:
            halves = self._refreshed()
        if self._replay is None and not self.failed and self._record() and can_capture:
            halves = self._captured(places, values)
        if halves is None:
            writes = writes_of(self._drawing if mode > Mode.AS_EVER else self._calls, places)
            writes.append(lambda: [self._copying(places, x) for x in self.touched if places[x]])
            return writes
        self.reason = ""
        self._replays += 1
        numbers = [number for half in halves for number in half.numbers]
        host = staged(torch.tensor(numbers, dtype=torch.float64), self._table.device)
        changes: list[Change] = [partial(self._table.copy_, host, non_blocking=True)]
        assert self._replay is not None
        changes.append(self._replay)
        changes += [change for half in halves for change in half.changes]
        changes += [partial(places.__setitem__, *pair) for pair in self._made]
        writes = writes_of(self._before, places)
        writes.append(lambda: changes)
        writes.append(lambda: [self._copying(places, place) for place in self.touched])
        return writes

    @staticmethod
    def _copying(places: Filled, place: int) -> Change:
        return partial(places.__setitem__, place, copies_of(places[place]))

    def _refreshed(self) -> list[HostHalf] | None:
        """The host's halves of a replay; None if the graph is no longer valid."""
        halves = self._halves()
        if halves is None:
            self._unused *= self._replays < _OFTEN
            self.forget()
            self._note_change()
        return halves

    def _note_change(self) -> None:
        """Give up if captures or recordings repeatedly become invalid."""
        self._unused += 1
        if self._unused > _MOST:
            self.fail(_CHANGES)

    def _halves(self) -> list[HostHalf] | None:
        found = []
        for index, recording in self._recordings.items():
            half = self._calls.explaining(index, recording.refresh)()
            if half is None:
                return None
            found.append(half)
        return found

    def _record(self) -> bool:
        """Record the calls once more; whether the last call launched the same kernels."""
        before, self._form = self._form, None
        found: dict[int, Recording] = {}
        for index in self._of_device:
            pending = self._calls.steps[index].pending
            if isinstance(pending, Recordable):
                why = pending.why_not()
                if why:
                    self.fail(why)
                    return False
                recording = self._calls.explaining(index, pending.record)()
                if recording is None:
                    self.reason = _AGAIN
                    return False
                found[index] = recording
        self._recordings = found
        self._form = [recording.form() for recording in found.values()]
        self.reason = _AGAIN
        if before not in (None, self._form):
            self._note_change()
        return self._form == before

    def _captured(self, places: Filled, values: StaticValues) -> list[HostHalf] | None:
        """The host's halves of the first replay; None if nothing is captured."""
        device = values.device
        assert device is not None
        halves = self._halves()
        if halves is None:
            self.forget()
            return None
        sizes = [len(half.numbers) for half in halves]
        self._table = torch.zeros(sum(sizes), dtype=torch.float64, device=device)
        for recording, memory in zip(
            self._recordings.values(), self._table.split(sizes), strict=True
        ):
            recording.place(memory)
        static = [x for x in map(places.__getitem__, self.reads) if type(x) is tuple]
        tensors = [x for x in chain.from_iterable(static) if isinstance(x, torch.Tensor)]
        tensors += values.tables
        for recording in self._recordings.values():
            tensors += recording.static()
        try:
            with copied_later(self._capturer.outside(device)) as later:
                replay, made = self._capturer.capture(
                    self._function(places), [*tensors, self._table]
                )
        except Exception as error:  # noqa: BLE001 - the calls raise it again, if it is theirs
            self.fail(f"the capture of the update failed: {failure(error)}")
            return None
        fill(later)
        self._kept, self._made, self._replay = later, made, replay
        return halves

    def _function(self, places: Filled) -> Callable[[], Sequence[tuple[int, Shards]]]:
        """The calls on what now stands in the places that they read."""
        filled: Filled = [None] * len(places)
        for place in self.reads:
            filled[place] = places[place]

        def function() -> Sequence[tuple[int, Shards]]:
            mine = filled.copy()
            for index in self._of_device:
                run, taken, made, several, dead = self._drawing.calls[index]
                given = [mine[place] for place in taken]
                if index in self._recordings:
                    self._recordings[index].launch(given)
                    continue
                result = run(*given)
                if several is None:
                    mine[made] = result
                else:
                    for place, part in zip(several, result, strict=True):
                        mine[place] = part
                for place in dead:
                    mine[place] = None
            return [(place, mine[place]) for place in self._results]

        return function


def _made_by(call: Call) -> Sequence[int]:
    """The places of what a call makes."""
    _, _, one, several, _ = call
    return several or (one,)


def _is_of_host(step: ProgramStep) -> bool:
    """Whether a step changes only what the host keeps, such as the scale of the next call."""
    return step.pending is not None and not isinstance(step.pending, Recordable)


def _why_not(step: ProgramStep, where: Where) -> str:
    return step.pending.why_not() if isinstance(step.pending, Recordable) else reason(step, where)
