"""Static values: what a run puts where its CUDA graphs read it, before they are replayed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch

from ...engine.ops.dropout import DropoutKey
from ...engine.tensor import Shards
from ..call_list import Call, CallList, Filled
from ..ir import UPDATE, ProgramStep, Run
from ..random_draws import Draws
from .segments import draws_of, is_constant, is_host, is_source, moves_draws
from .static_memory import DrawMemory, in_memory, on_device, refill, static_copies


class StaticValues:
    """Inputs, sources and the numbers of draws in static memory, and numbers of the update.

    `copied` are the places that are copied in each run, `read` those that the CUDA graphs read.
    """

    def __init__(
        self,
        calls: CallList,
        captured: set[int],
        copied: Sequence[int],
        draws: Draws,
        update: CallList,
    ) -> None:
        """`captured` are those of the calls in CUDA graphs; `update` are the calls after them."""
        steps = calls.steps
        self.copied = [*copied]
        self.read: set[int] = set()
        self.device: torch.device | None = None
        self.moves_draws = any(map(moves_draws, steps))
        self.numbers = {
            place
            for call, step in zip(calls.calls, steps, strict=True)
            for place, value in zip(call[3] or call[2:3], step.outputs, strict=False)
            if step.scope == UPDATE and value.meta.shape == ()
        }
        every = [*steps, *update.steps]
        overwritten = {step.place.number for step in every if step.place is not None}
        self._constant = {
            call[2]
            for call, step in zip([*calls.calls, *update.calls], every, strict=True)
            if is_constant(step) and step.outputs[0].number not in overwritten
        }
        # What is done, or looked at, before all others: sources and draws, in turn.
        self._before: list[tuple[Call, ProgramStep, list[DropoutKey]]] = [
            (call, step, draws_of(step) if index in captured else [])
            for index, (call, step) in enumerate(zip(calls.calls, steps, strict=True))
            if moves_draws(step)
            or is_source(step)
            or is_host(step)
            or (index in captured and draws_of(step))
        ]
        self._before += [
            (call, step, draws_of(step))
            for call, step in zip(update.calls, update.steps, strict=True)
            if is_source(step) or draws_of(step)
        ]
        self._draws = draws
        self._draws_made = 0
        self.forget()

    def forget(self) -> None:
        """Release the memory."""
        self._static: dict[int, Shards] = {}
        self._drawn: DrawMemory | None = None

    @property
    def tables(self) -> list[torch.Tensor]:
        """Memory that kernels read which holds no value of the program."""
        return [] if self._drawn is None else [self._drawn.table]

    def drawing(self, calls: CallList) -> CallList:
        """Calls whose draws read their numbers from memory: those captured, in turn."""
        pairs = zip(calls.calls, map(draws_of, calls.steps), strict=True)
        return CallList([self._drawing(*pair) for pair in pairs], calls.steps)

    def _drawing(self, call: Call, keys: Sequence[DropoutKey]) -> Call:
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

    def prepare(self, places: Filled) -> None:
        """Copy all that graphs read into static memory: inputs, sources, the numbers of draws."""
        for place in self.copied:
            self.fill(place, places)
        numbers = []
        for call, step, keys in self._before:
            if keys:
                numbers += [(key.draw.seed, key.draw.call) for key in keys]
            elif is_source(step):
                self._make(call, places)
            elif is_host(step):
                places[call[2]] = call[0]()
                if call[2] in self.read and isinstance(places[call[2]][0], torch.Tensor):
                    self.fill(call[2], places)
            else:
                call[0]()
        if self.moves_draws:
            self._draws.move_to(0)
        if numbers:
            self._set_draws(numbers)

    def _make(self, source: Call, places: Filled) -> None:
        """Run a source, unless its result is there already."""
        place = source[2]
        if place in self._constant and place in self._static:
            places[place] = self._static[place]
        else:
            places[place] = source[0]()
            self.fill(place, places)

    def fill(self, place: int, places: Filled) -> None:
        """Replace the value at a place by a copy in static memory."""
        if place in self.numbers and self.device is not None:
            places[place] = on_device(places[place], self.device)
        static = self._static.get(place)
        if static is None:
            static = self._static[place] = static_copies(places[place])
        refill(static, places[place])
        places[place] = static

    def _set_draws(self, numbers: Sequence[tuple[int, int]]) -> None:
        if self._drawn is None:
            assert self.device is not None
            self._drawn = DrawMemory(self._draws_made, self.device)
        self._drawn.set(numbers)
