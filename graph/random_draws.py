"""Random draws: the random calls of a program, which get new call ids at every run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from ..engine.commit import restored
from ..engine.generator import Draw, Generator
from ..errors import OnefoldRuntimeError

_MASK = (1 << 64) - 1

Taken: TypeAlias = "list[tuple[Generator, tuple[int, int]]]"  # generators, and where they were


@dataclass
class _Stream:
    """The draws of a program from one generator, with their ids relative to the first."""

    generator: Generator
    start: tuple[int, int]
    used: int = 0  # how many ids one run takes
    draws: list[tuple[Draw, int]] = field(default_factory=list)


class Draws:
    """The random calls of one program.

    A run takes as many ids from each generator as eager would, and every draw has the id that it
    would have there; one that was recomputed with an earlier id (in a checkpoint) keeps it.
    Dropout in a micro-batch takes the whole batch's id and knows its place in it, so that the
    masks do not depend on the number of micro-batches; other calls draw new numbers for each.
    """

    def __init__(self, noted: Iterable[tuple[Generator, Draw]]) -> None:
        """From the draws of a capture, before their generators are restored.

        Raises OnefoldRuntimeError when a generator was seeded meanwhile.
        """
        self._streams: dict[int, _Stream] = {}
        self._before: Taken = []
        self._after: Taken = []
        for generator, draw in noted:
            stream = self._streams.setdefault(
                id(generator), _Stream(generator, (draw.seed, draw.call))
            )
            stream.draws.append((draw, draw.call - stream.start[1]))
        for stream in self._streams.values():
            seed, call = stream.start
            seeds = {seed, stream.generator.initial_seed(), *(d.seed for d, _ in stream.draws)}
            if len(seeds) > 1:
                raise OnefoldRuntimeError(
                    "a generator was seeded inside build(), which runs only when the graph is "
                    "captured; seed it before the call"
                )
            stream.used = (stream.generator.get_state()[1] - call) & _MASK

    def __len__(self) -> int:
        return sum(len(stream.draws) for stream in self._streams.values())

    def numbers(self) -> dict[Draw, tuple[int, int]]:
        """By draw, the number of its generator and its id: equal for draws of the same numbers."""
        return {
            draw: (number, offset)
            for number, stream in enumerate(self._streams.values())
            for draw, offset in stream.draws
        }

    def begin(self, micro_batches: int) -> None:
        """Begin a run over so many micro-batches, with the next ids of the generators."""
        self._before, self._after = [], []
        for stream in self._streams.values():
            seed, call = stream.generator.get_state()
            self._before.append((stream.generator, (seed, call)))
            rounds = 1 if all(draw.part for draw, _ in stream.draws) else micro_batches
            self._after.append((stream.generator, (seed, call + rounds * stream.used)))

    def advance(self) -> None:
        """Take the ids of the run from the generators."""
        for generator, state in self._after:
            generator.set_state(state)

    def move_to(self, micro_batch: int) -> None:
        """Set the draws to those of this micro-batch of the run."""
        for generator, (seed, call) in self._before:
            stream = self._streams[id(generator)]
            for draw, offset in stream.draws:
                later = 0 if draw.part else micro_batch * stream.used
                draw.seed, draw.call = seed, (call + offset + later) & _MASK
                if draw.part is not None:
                    draw.part = (*draw.part[:2], micro_batch)

    @property
    def taken(self) -> Taken:
        """The states of the generators when the run began, for `repeat`."""
        return self._before

    def repeat(self, taken: Taken) -> None:
        """Set every draw to what it was in the run of these states."""
        self._before = taken
        self.move_to(0)

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """A block in which the generators are in the state at the end of the capture."""
        before = [(s.generator, s.generator.get_state()) for s in self._streams.values()]

        def move_back() -> None:
            for generator, state in before:
                generator.set_state(state)

        with restored(move_back):
            for stream in self._streams.values():
                seed, call = stream.start
                stream.generator.set_state((seed, (call + stream.used) & _MASK))
            yield

    def later(self, noted: Iterable[tuple[Generator, Draw]]) -> Draws:
        """The draws of a capture that continues this one.

        Those that repeat earlier ones are added to this.
        """
        new = []
        for generator, draw in noted:
            stream = self._streams.get(id(generator))
            offset = 0 if stream is None else (draw.call - stream.start[1]) & _MASK
            if stream is None or offset >= stream.used:
                new.append((generator, draw))
            else:
                stream.draws.append((draw, offset))
        return Draws(new)
