"""Captured calls: the calls of a program as CUDA graphs, and the calls between them.

The first run is as without CUDA graphs. The second runs the same calls on static memory, so that
every kernel is compiled and loaded. The third captures each segment and replays it at once; later
ones only replay. What a graph depends on is compared in each run: the memory of parameters, the
layouts of inputs, torch's settings of precision. After a change the second and the third run follow
again. Inputs are copied into static memory in each run, and so are variables that get other memory
in each run, such as running statistics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from ...distributed import comm_log
from ...distributed.world import world
from ...engine.commit import Write
from ...engine.ops.dropout import DropoutKey
from ...engine.tensor import Shards
from ...kernels.select import uses_triton
from ...kernels.staging import Later, copied_later, fill
from ..call_list import Call, CallList, Filled, watchers
from ..ir import UPDATE, Run
from ..random_draws import Draws
from .captured_update import CapturedUpdate
from .segments import (
    Segment,
    Where,
    draws_of,
    is_constant,
    is_host,
    is_source,
    moves_draws,
    segments_of,
    summary,
)
from .static_memory import (
    DrawMemory,
    beside,
    copies_of,
    in_memory,
    layout_of,
    refill,
    static_copies,
)
from .stream_capture import Capturer, failure
from .variable_memory import VariableMemory

Filling: TypeAlias = Sequence[tuple[int, Shards]]  # what stands in some places

_FIRST = "the first call runs without CUDA graphs"
_WATCHED = "something looks at each step, such as a profile"
_MOVES = "a parameter of the update gets other memory in each call"
_LOOSE = "the update reads gradients that are made between CUDA graphs"
_WARM_UP = "the kernels were compiled and loaded by this call, for the capture by the next"


@dataclass(frozen=True)
class Ends:
    """The places of what a run finds at its start, and of what it leaves."""

    inputs: Sequence[int]
    variables: Sequence[int]
    assigned: Sequence[int]  # those of the variables that get other memory at the end of a run
    kept: Sequence[int]  # what outlives the run: outputs, and what is assigned


@dataclass(eq=False)
class _Part:
    """The calls of a segment, and what replays them."""

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
    """The calls of a program before the first that writes; `run` does them once.

    `reason` says why the last run did not replay them; it is empty if it did. None will where they
    have `failed`. `update` is what follows them.
    """

    def __init__(
        self, calls: CallList, update: CallList, ends: Ends, draws: Draws, capturer: Capturer
    ) -> None:
        kind = capturer.device_type
        where = Where(kind, world().launched, kind == "cpu" or uses_triton(kind))
        self.update = CapturedUpdate(update, ends.kept, where, capturer)
        self.segments = segments_of(calls.steps, where)
        self.reason = _FIRST
        self._calls, self._ends, self._draws, self._capturer = calls, ends, draws, capturer
        self._copied = [*ends.inputs, *ends.assigned]
        self._memory = VariableMemory([x for x in ends.variables if x not in ends.assigned])
        self._given = [*calls.calls]  # they may be changed to look at a run
        self._draws_made = 0
        self._parts = [self._part(segment) for segment in self.segments]
        self.failed = not any(segment.captured for segment in self.segments)
        if self.failed:
            texts = dict.fromkeys(text for segment in self.segments for text in segment.reasons)
            self.reason = f"no step is captured: {'; '.join(texts) or 'there are none'}"
        captured = {i for each in self.segments if each.captured for i in each.steps}
        steps = calls.steps
        self._frozen = [frozen for i in captured if (frozen := steps[i].frozen) is not None]
        self._numbers = {
            place
            for call, step in zip(calls.calls, steps, strict=True)
            for place, value in zip(call[3] or call[2:3], step.outputs, strict=False)
            if step.scope == UPDATE and value.meta.shape == ()
        }
        read = {place for part in self._parts if part.segment.captured for place in part.taken}
        read |= self._numbers & {*self.update.reads}
        for part in self._parts:
            if not part.segment.captured:
                part.carried = [place for place in part.made if place in read]
        self._read = read
        moving = {place for part in self._parts if not part.segment.captured for place in part.made}
        if ({*self._copied} | moving - self._numbers) & {*self.update.reads}:
            self.update.fail(self.update.reason or _LOOSE)
        self._moves_draws = any(map(moves_draws, steps))
        overwritten = {step.place.number for step in steps if step.place is not None}
        self._constant = {
            call[2]
            for call, step in zip(calls.calls, steps, strict=True)
            if is_constant(step) and step.outputs[0].number not in overwritten
        }
        # What is done, or looked at, before all others: sources and draws, in turn.
        self._before = [
            (call, step, [key.draw for key in draws_of(step)] if index in captured else [])
            for index, (call, step) in enumerate(zip(calls.calls, steps, strict=True))
            if moves_draws(step)
            or is_source(step)
            or is_host(step)
            or (index in captured and draws_of(step))
        ]
        self._device: torch.device | None = None
        self._reset(None)

    def __str__(self) -> str:
        first = summary(self._calls.steps, self.segments)
        return "\n".join(filter(None, [first, str(self.update)]))

    def writes(self, places: Filled) -> deque[Write]:
        """What the update is still to do after a run."""
        return self.update.writes(places, self._device if self._ready else None)

    def _part(self, segment: Segment) -> _Part:
        """The calls of a segment, and what they read and make."""
        given, steps = self._calls.calls, [self._calls.steps[index] for index in segment.steps]
        calls = [given[index] for index in segment.steps]
        moves = [call for call, step in zip(calls, steps, strict=True) if moves_draws(step)]
        moved = [step for step in self._calls.steps[: segment.steps[0]] if moves_draws(step)]
        micro_batch = moved[-1].attrs[0] if moved else 0
        assert isinstance(micro_batch, int)
        if segment.captured:
            calls = [self._drawing(*pair) for pair in zip(calls, map(draws_of, steps), strict=True)]
        made = [place for _, _, one, several, _ in calls for place in several or (one,)]
        made = [place for place in made if place >= 0]
        taken = dict.fromkeys(place for call in calls for place in call[1])
        outside = [place for place in taken if place not in set(made)]
        dead = {place for call in calls for place in call[4]}
        return _Part(
            segment, CallList(calls, steps), outside, made,
            [place for place in outside if place in dead], moves, micro_batch,
        )  # fmt: skip

    def _drawing(self, call: Call, keys: Sequence[DropoutKey]) -> Call:
        """A call whose draws read their numbers from memory."""
        if not keys:
            return call
        first, self._draws_made = self._draws_made, self._draws_made + len(keys)
        run: Run = call[0]

        def from_memory(*given: object) -> object:
            assert self._drawn is not None
            with ExitStack() as stack:
                for row, key in enumerate(keys, first):
                    stack.enter_context(in_memory(key.draw, self._drawn.rows[row]))
                return run(*given)

        return (from_memory, *call[1:])

    def _reset(self, key: Hashable) -> None:
        """Forget graphs and static memory; `key` tells what the next ones are for."""
        self._key = key
        self._static: dict[int, Shards] = {}
        self._drawn: DrawMemory | None = None
        self._warm = False
        for part in self._parts:
            part.replay, part.results = None, ()
        self.update.forget()
        self._ready = False  # whether the update reads static memory
        self._capturer.renew()

    def run(self, places: Filled) -> bool:
        """Do the calls on values in their places; False if they are left to be done as ever."""
        if self.failed:
            return False
        if watchers or comm_log.watchers or self._given != self._calls.calls:
            self.reason = _WATCHED
            return False
        key = self._state(places)
        if key != self._key:
            first = self._key is None
            self._reset(key)
            if not self._is_on_one_device(places) or first:
                return False
        own = [(place, places[place]) for place in self._copied]
        self._prepare(places)
        warm = self._warm
        self.reason = "" if warm else _WARM_UP
        for part in self._parts:
            if part.segment.captured:
                self._replay(part, places, capture=warm)
            else:
                part.calls.run(places)
                for place in part.carried:
                    self._fill(place, places)
        for place in self._ends.kept:
            if places[place] and place not in self.update.touched:
                places[place] = copies_of(places[place])
        for place, shards in own:
            places[place] = shards  # what the update writes
        self._warm, self._ready = True, warm
        if self.failed:
            self._reset(None)
        return True

    # What a run is given.

    def _state(self, places: Filled) -> Hashable:
        """What graphs depend on, besides the values in static memory."""
        memory, copied = self._memory.look(places)
        self._copied += copied
        if {*copied} & {*self.update.reads}:
            self.update.fail(_MOVES)
        return (
            memory,
            [layout_of(places[place]) for place in self._copied],
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.allow_tf32,
            torch.are_deterministic_algorithms_enabled(),
            [frozen() for frozen in self._frozen],
        )

    def _is_on_one_device(self, places: Filled) -> bool:
        devices = self._devices(places)
        if len(devices) > 1:
            self.failed = True
            self.reason = (
                "the ranks of this process are on several devices: "
                f"{', '.join(sorted(map(str, devices)))}"
            )
        self._device = next(iter(devices), None)
        return len(devices) == 1

    def _devices(self, places: Filled) -> set[torch.device]:
        given = (*self._ends.inputs, *self._ends.variables)
        kind = self._capturer.device_type
        found = {part.device for place in given for part in places[place]}
        return {device for device in found if device.type == kind}

    def _prepare(self, places: Filled) -> None:
        """Put all that is read into static memory: inputs, sources, the numbers of draws."""
        for place in self._copied:
            self._fill(place, places)
        numbers = []
        for call, step, draws in self._before:
            if draws:
                numbers += [(draw.seed, draw.call) for draw in draws]
            elif is_source(step):
                self._make(call, places)
            elif is_host(step):
                places[call[2]] = call[0]()
                if call[2] in self._read and isinstance(places[call[2]][0], torch.Tensor):
                    self._fill(call[2], places)
            else:
                call[0]()
        if self._moves_draws:
            self._draws.move_to(0)
        if numbers:
            self._set_draws(numbers)

    def _make(self, source: Call, places: Filled) -> None:
        """Let a source make what it makes, unless that is there."""
        place = source[2]
        if place in self._constant and place in self._static:
            places[place] = self._static[place]
        else:
            places[place] = source[0]()
            self._fill(place, places)

    def _fill(self, place: int, places: Filled) -> None:
        """Copy what stands in a place into static memory, which then stands there."""
        if place in self._numbers and self._device is not None:
            places[place] = beside(places[place], self._device)
        static = self._static.get(place)
        if static is None:
            static = self._static[place] = static_copies(places[place])
        refill(static, places[place])
        places[place] = static

    def _set_draws(self, numbers: Sequence[tuple[int, int]]) -> None:
        if self._drawn is None:
            assert self._device is not None
            self._drawn = DrawMemory(self._draws_made, self._device)
        self._drawn.set(numbers)

    # Segments.

    def _replay(self, part: _Part, places: Filled, capture: bool) -> None:
        """Do the calls of a captured segment; without a graph one by one."""
        replay = part.replay or (self._capture(part, places) if capture else None)
        if replay is None:
            results = self._function(part, places)()
        else:
            replay()
            results = part.results
            for move in part.moves:
                move[0]()
        for place, shards in results:
            places[place] = shards
        for place in part.dead:
            places[place] = None

    def _function(self, part: _Part, places: Filled) -> Callable[[], Filling]:
        """The calls of a segment on what now stands in the places that it reads."""
        filled: Filled = [None] * len(places)
        for place in part.taken:
            filled[place] = places[place]

        def function() -> Filling:
            mine = filled.copy()
            if self._moves_draws:
                self._draws.move_to(part.micro_batch)
            part.calls.run(mine)
            return [(place, mine[place]) for place in part.made if mine[place] is not None]

        return function

    def _capture(self, part: _Part, places: Filled) -> Callable[[], object] | None:
        """What replays a segment; None if it cannot be captured."""
        if self.failed:
            return None
        shards = [places[place] for place in part.taken]
        static = [x for each in shards if type(each) is tuple for x in each]
        if self._drawn is not None:
            static.append(self._drawn.table)
        if not static:
            return None
        function = self._function(part, places)
        try:
            with copied_later() as later:
                replay, results = self._capturer.capture(function, static)
            fill(later)
            part.later, part.results, part.replay = later, results, replay
        except Exception as error:  # noqa: BLE001 - the calls raise it again, if it is theirs
            self.failed = True
            self.reason = f"the capture failed: {failure(error)}"
        return part.replay
