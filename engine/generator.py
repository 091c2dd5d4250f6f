"""Generator: the seed and call counter of counter-based random numbers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral

from torch import Tensor

from ..distributed.collectives import gather_objects
from ..distributed.world import world
from ..errors import OnefoldTypeError, OnefoldValueError
from ..kernels.philox import Seed
from .commit import restored
from .thread_stack import ThreadStack

_MASK = (1 << 64) - 1


@dataclass(slots=True, eq=False)
class Draw:
    """One random call: the generator's seed and the call's id, which a captured graph advances.

    Where a graph works on one micro-batch, `part` is (dim, number of micro-batches, which one):
    the numbers are then those that the whole batch has there. For a CUDA graph `memory` is an int64
    tensor of the seed and the id, which kernels read in place of both.
    """

    seed: int
    call: int
    part: tuple[int, int, int] | None = field(default=None, repr=False)
    memory: Tensor | None = field(default=None, repr=False)

    @property
    def key(self) -> tuple[Seed, int]:
        """The arguments for a kernel: the seed and the id, or the memory that holds them."""
        return (self.seed, self.call) if self.memory is None else (self.memory, 0)

    def within(
        self, shape: tuple[int, ...], offset: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The logical shape of the draw, and the offset in it of what is at `offset` in `shape`.

        >>> draw = Draw(0, 0)
        >>> draw.part = (0, 4, 2)
        >>> draw.within((5, 3), (1, 0))
        ((20, 3), (11, 0))
        """
        if self.part is None:
            return shape, offset
        dim, count, index = self.part
        whole = (*shape[:dim], shape[dim] * count, *shape[dim + 1 :])
        start = (*offset[:dim], offset[dim] + index * shape[dim], *offset[dim + 1 :])
        return whole, start


# The lists in which draws are noted now, with their generators.
_recording = ThreadStack[list[tuple["Generator", Draw]]]("record_draws")


@contextmanager
def record_draws() -> Iterator[list[tuple[Generator, Draw]]]:
    """Record every draw of the block, and restore all generators after it."""
    noted: list[tuple[Generator, Draw]] = []
    before = _recording.items()

    def undo() -> None:
        _recording.set(before)
        for generator, draw in reversed(noted):
            generator.set_state((draw.seed, draw.call))

    with restored(undo):
        _recording.push(noted)
        yield noted


class Generator:
    """A source of random call ids. Every random op takes the next id of one generator.

    The numbers depend on (seed, call id, logical index of the element) alone, so the same program
    draws the same numbers for every placement, sbp and number of processes. All processes of a
    job must therefore make the same random calls in the same order.

    >>> generator = Generator().manual_seed(7)
    >>> generator.next_call(), generator.next_call()
    (0, 1)
    """

    __slots__ = ("_next", "_seed", "device")

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._seed = 0
        self._next = 0

    def manual_seed(self, seed: int) -> Generator:
        """Set the seed, from -2**63 to 2**64 - 1, and restart from the first call.

        A negative seed counts from 2**64. Raises OnefoldValueError for any other number.
        """
        if isinstance(seed, bool) or not isinstance(seed, Integral):
            raise OnefoldTypeError(f"manual_seed needs an integer, but got {seed!r}")
        if not -(1 << 63) <= seed <= _MASK:
            raise OnefoldValueError(
                f"manual_seed needs a seed from -2**63 to 2**64 - 1, but got {seed}"
            )
        self._seed = int(seed) & _MASK
        self._next = 0
        return self

    def seed(self) -> int:
        """Set a random seed and return it; in a launched world rank 0's, so all must call it."""
        drawn = secrets.randbits(63)
        here = world()
        if here.launched and not here.planned:
            drawn = gather_objects(drawn, tuple(range(here.size)))[0]
        self.manual_seed(drawn)
        return self._seed

    def initial_seed(self) -> int:
        """The seed."""
        return self._seed

    def next_call(self) -> int:
        """The id of the next random call."""
        call = self._next
        self._next = (call + 1) & _MASK
        return call

    def draw(self) -> Draw:
        """The next random call."""
        made = Draw(self._seed, self._next)
        noted = _recording.items()
        if noted:  # before the id is taken, so that an interrupt takes none that is not given back
            noted[-1].append((self, made))
        self._next = (self._next + 1) & _MASK  # `next_call`, written out
        return made

    def get_state(self) -> tuple[int, int]:
        """(seed, next call id), which is the whole state."""
        return self._seed, self._next

    def set_state(self, state: Sequence[int]) -> None:
        """Continue from a state that `get_state` gave."""
        given: object = state
        if (
            not isinstance(given, Sequence)
            or len(state) != 2
            or not all(isinstance(part, Integral) for part in state)
        ):
            raise OnefoldValueError(
                "set_rng_state: a generator state is (seed, next call id), as get_state() gives; "
                f"got {state!r}"
            )
        self._seed, self._next = (int(part) & _MASK for part in state)


default_generator = Generator()

# Of the default generator.
manual_seed = default_generator.manual_seed
seed = default_generator.seed
initial_seed = default_generator.initial_seed
get_rng_state = default_generator.get_state
set_rng_state = default_generator.set_state
