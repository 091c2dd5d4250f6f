"""Captured calls: the calls of a program as CUDA graphs, and the calls between them.

The first run is as without CUDA graphs. The second runs the same calls on static memory, so that
every kernel is compiled and loaded. The third captures each segment and replays it at once; later
ones only replay. What a graph depends on is compared in each run: the memory of parameters, the
layouts of inputs, torch's settings of precision. After a change the second and the third run follow
again. Inputs are copied into static memory in each run, and so are variables that get other memory
in each run, such as running statistics. Where graphs communicate, all ranks do the same; see
`rank_modes`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch

from ...distributed.world import world
from ...engine.commit import Write
from ...engine.tensor import Shards
from ...kernels.select import uses_triton
from ...kernels.staging import Later, copied_later, fill
from ..call_list import Call, CallList, Filled, watchers
from ..random_draws import Draws
from .captured_update import CapturedUpdate
from .rank_agreement import RankAgreement
from .rank_modes import Mode, Progress, Verdict
from .segments import (
    Segment,
    Where,
    communication_of,
    moves_draws,
    segments_of,
    summary,
)
from .static_memory import copies_of, layout_of
from .static_values import StaticValues
from .stream_capture import Capturer, failure
from .variable_memory import VariableMemory

Filling: TypeAlias = Sequence[tuple[int, Shards]]  # what stands in some places

_FIRST = "the first call runs without CUDA graphs"
_WATCHED = "something looks at each step, such as a profile"
_MOVES = "a parameter of the update gets other memory in each call"
_LOOSE = "the update reads what is computed between CUDA graphs"
_WARM_UP = "the kernels were compiled and loaded by this call, for the capture by the next"
_OTHERS = {
    Mode.AS_EVER: "rank {} ran this call without CUDA graphs",
    Mode.WARM_UP: "rank {} has to capture again, and so all ranks do",
}


@dataclass(frozen=True)
class Ends:
    """The indices of the values at the start and at the end of a run."""

    inputs: Sequence[int]
    variables: Sequence[int]
    assigned: Sequence[int]  # those of the variables that get other memory at the end of a run
    kept: Sequence[int]  # what outlives the run: outputs, and what is assigned


@dataclass(eq=False)
class _Part:
    """The calls of a segment, and the CUDA graph that replays them."""

    segment: Segment
    calls: CallList
    taken: Sequence[int]  # the places of what it reads of other calls
    made: Sequence[int]
    dead: Sequence[int]  # what it reads of other calls, and nothing after it
    moves: Sequence[Call]  # its work on the host
    micro_batch: int  # for which it begins
    carried: Sequence[int] = ()  # what it makes, and a captured segment reads
    replay: Callable[[], object] | None = None
    results: Filling = ()  # after a replay
    later: Later = field(default_factory=list)  # what only the graph reads


class CapturedCalls:
    """The calls of a program before the first one that writes; `run` runs them once.

    `reason` says why the last run did not replay them; it is empty if it did. None will where they
    have `failed`. `update` is what follows them.
    """

    def __init__(
        self,
        calls: CallList,
        update: CallList,
        ends: Ends,
        draws: Draws,
        capturer: Capturer,
        between: str = Where.between,
    ) -> None:
        """`between` says why communication is not captured; empty if it is."""
        kind = capturer.device_type
        where = Where(kind, world().launched, kind == "cpu" or uses_triton(kind), between)
        self.segments = segments_of(calls.steps, where)
        self.reason = _FIRST
        self._calls, self._ends, self._draws, self._capturer = calls, ends, draws, capturer
        communication = communication_of(calls.steps, where)
        self._agreement = RankAgreement(communication, self.segments, kind)
        self._progress = Progress()
        self._memory = VariableMemory([x for x in ends.variables if x not in ends.assigned])
        self._given = [*calls.calls]  # they may be changed to look at a run
        self.failed = not any(segment.captured for segment in self.segments)
        if self.failed:
            texts = dict.fromkeys(text for segment in self.segments for text in segment.reasons)
            self.reason = f"no step is captured: {'; '.join(texts) or 'there are none'}"
        captured = {i for each in self.segments if each.captured for i in each.steps}
        self._values = StaticValues(calls, captured, [*ends.inputs, *ends.assigned], draws, update)
        self._parts = [self._part(segment) for segment in self.segments]
        self.update = CapturedUpdate(
            update, self._values.drawing(update), ends.kept,
            replace(where, between=Where.between), capturer,
        )  # fmt: skip
        steps = calls.steps
        self._frozen = [frozen for i in captured if (frozen := steps[i].frozen) is not None]
        self._tie_to_update()
        self._reset(None)

    def _tie_to_update(self) -> None:
        """Find the values that segments pass to the update and to each other."""
        numbers, reads = self._values.numbers, {*self.update.reads}
        read = {place for part in self._parts if part.segment.captured for place in part.taken}
        self._values.read = read = read | numbers & reads
        between = [part for part in self._parts if not part.segment.captured]
        for part in between:
            part.carried = [place for place in part.made if place in read]
        moving = {place for part in between for place in part.made} - numbers
        if (moving | {*self._ends.assigned}) & reads:
            self.update.fail(self.update.reason or _LOOSE)

    def __str__(self) -> str:
        first = summary(self._calls.steps, self.segments)
        return "\n".join(filter(None, [first, str(self.update)]))

    @property
    def why_between(self) -> str:
        """Why requested communication is no longer captured; empty if it may be."""
        return self.reason if self._agreement.ranks and self._progress.over else ""

    def writes(self, places: Filled) -> deque[Write]:
        """The writes of the update after a run."""
        return self.update.writes(places, self._mode, self._values)

    def _part(self, segment: Segment) -> _Part:
        """The calls of a segment, and what they read and make."""
        given, steps = self._calls.calls, [self._calls.steps[index] for index in segment.steps]
        calls = [given[index] for index in segment.steps]
        moves = [call for call, step in zip(calls, steps, strict=True) if moves_draws(step)]
        moved = [step for step in self._calls.steps[: segment.steps[0]] if moves_draws(step)]
        micro_batch = moved[-1].attrs[0] if moved else 0
        assert isinstance(micro_batch, int)
        if segment.captured:
            calls = self._values.drawing(CallList(calls, steps)).calls
        made = [place for _, _, one, several, _ in calls for place in several or (one,)]
        made = [place for place in made if place >= 0]
        taken = dict.fromkeys(place for call in calls for place in call[1])
        outside = [place for place in taken if place not in set(made)]
        dead = {place for call in calls for place in call[4]}
        return _Part(
            segment, CallList(calls, steps), outside, made,
            [place for place in outside if place in dead], moves, micro_batch,
        )  # fmt: skip

    def release(self) -> None:
        """Drop the graphs, and the communicators that they hold."""
        for part in self._parts:
            part.replay, part.results = None, ()
        self.update.forget()
        self._mode = Mode.AS_EVER  # of the last run, which the update follows
        self._capturer.renew()

    def _reset(self, key: Hashable) -> None:
        """Forget graphs and static memory; `key` says what the next ones are for."""
        self._key = key
        self._values.forget()
        self._progress.restart()
        self.release()

    def run(self, places: Filled) -> bool:
        """Run the calls on the filled places; False if the caller has to run them."""
        if self._progress.over or (self.failed and not self._agreement.ranks):
            return False
        proposed = self._propose(places)
        answer = self._agreement.begin(proposed)
        inputs = {*self._ends.inputs}
        before = [(place, places[place]) for place in self._values.copied]
        if proposed > Mode.AS_EVER:
            self._values.prepare(places)
        mode = self._hear(answer(), proposed)
        if mode > Mode.AS_EVER:
            self._compute(places, mode)
        for place, shards in before:
            if place not in inputs or mode is Mode.AS_EVER or mode is Mode.NEVER:
                places[place] = shards  # what the update writes, or calls outside graphs read
        self._progress.finish(mode)
        if self.failed:
            self._reset(None)
        return mode > Mode.AS_EVER

    def _compute(self, places: Filled, mode: Mode) -> None:
        for part in self._parts:
            if part.segment.captured:
                self._replay(part, places, mode is Mode.CAPTURE)
            else:
                part.calls.run(places)
                for place in part.carried:
                    self._values.fill(place, places)
        for place in self._ends.kept:
            if places[place] and place not in self.update.touched:
                places[place] = copies_of(places[place])
        self._mode = mode

    # What a run can do, and does as other ranks do.

    def _propose(self, places: Filled) -> Mode:
        """The mode that this process proposes for the filled places."""
        if not self.failed and self._agreement.why_not:
            self._fail(self._agreement.why_not)
        if self.failed:
            return Mode.NEVER
        if watchers or self._agreement.watched or self._given != self._calls.calls:
            self.reason = _WATCHED
            return Mode.AS_EVER
        key = self._state(places)
        if key != self._key:
            self._reset(key)
            if not self._is_on_one_device(places):
                return Mode.AS_EVER
        mode = self._progress.propose()
        self.reason = {Mode.AS_EVER: _FIRST, Mode.WARM_UP: _WARM_UP}.get(mode, "")
        return mode

    def _hear(self, verdict: Verdict, proposed: Mode) -> Mode:
        """Prepare for the mode that all ranks agreed on."""
        mode = verdict.mode
        if self._progress.begin(mode) and any(part.replay for part in self._parts):
            self.release()
        if mode is Mode.NEVER:
            self._fail(self._agreement.why_never(verdict, self.reason if self.failed else ""))
        elif mode < proposed and mode in _OTHERS:
            self.reason = _OTHERS[mode].format(verdict.rank)
        return mode

    def _fail(self, reason: str) -> None:
        self.failed, self.reason = True, reason

    def _state(self, places: Filled) -> Hashable:
        """The state that graphs depend on, besides the values in static memory."""
        memory, copied = self._memory.look(places)
        self._values.copied += copied
        if {*copied} & {*self.update.reads}:
            self.update.fail(_MOVES)
        return (
            memory,
            [layout_of(places[place]) for place in self._values.copied],
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.allow_tf32,
            torch.are_deterministic_algorithms_enabled(),
            [frozen() for frozen in self._frozen],
            self._agreement.epoch,
        )

    def _is_on_one_device(self, places: Filled) -> bool:
        devices = self._devices(places)
        if len(devices) > 1:
            self._fail(
                "the ranks of this process are on several devices: "
                f"{', '.join(sorted(map(str, devices)))}"
            )
        self._values.device = next(iter(devices), None)
        return len(devices) == 1

    def _devices(self, places: Filled) -> set[torch.device]:
        given = (*self._ends.inputs, *self._ends.variables)
        kind = self._capturer.device_type
        found = {part.device for place in given for part in places[place]}
        return {device for device in found if device.type == kind}

    # Segments.

    def _replay(self, part: _Part, places: Filled, capture: bool) -> None:
        """Replay a captured segment; without a graph, run its calls one by one."""
        replay = part.replay or (self._capture(part, places) if capture else None)
        if replay is None:
            results = self._function(part, places)()
        else:
            replay()
            if self._agreement.communicates(part.segment):
                self._agreement.watch(part.segment, self._capturer.finished(self._values.device))
            results = part.results
            for move in part.moves:
                move[0]()
        for place, shards in results:
            places[place] = shards
        for place in part.dead:
            places[place] = None

    def _function(self, part: _Part, places: Filled, reports: bool = True) -> Callable[[], Filling]:
        """The calls of a segment on the current values that it reads, as a function."""
        filled: Filled = [None] * len(places)
        for place in part.taken:
            filled[place] = places[place]

        def function() -> Filling:
            mine = filled.copy()
            if self._values.moves_draws:
                self._draws.move_to(part.micro_batch)
            part.calls.run(mine, reports)
            return [(place, mine[place]) for place in part.made if mine[place] is not None]

        return function

    def _capture(self, part: _Part, places: Filled) -> Callable[[], object] | None:
        """The function that replays a segment; None if it cannot be captured on some rank."""
        if not self.failed:
            self._try_capture(part, places)
        if self._agreement.communicates(part.segment) and not self._progress.over:
            mine = Mode.CAPTURE if part.replay is not None else Mode.NEVER
            verdict = self._agreement.begin(mine, part.segment)()
            if verdict.mode is Mode.NEVER:
                self._hear(verdict, mine)
                part.replay = None
        return part.replay

    def _try_capture(self, part: _Part, places: Filled) -> None:
        shards = [places[place] for place in part.taken]
        static = [x for each in shards if type(each) is tuple for x in each]
        static += self._values.tables
        if not static:
            return
        function = self._function(part, places, reports=False)
        try:
            outside = self._capturer.outside(static[0].device)
            with copied_later(outside) as later, self._agreement.capturing(part.segment, self):
                replay, results = self._capturer.capture(function, static)
            fill(later)
            part.later, part.results, part.replay = later, results, replay
        except Exception as error:  # noqa: BLE001 - the calls raise it again, if it is theirs
            self._fail(f"the capture failed: {failure(error)}")
