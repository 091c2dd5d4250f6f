"""The memory of a launch's arguments, and which of it each program reads and writes.

The interpreter runs one program after the other, and each load and store at once. On a GPU programs
run at the same time, and so do the threads of a program, up to a barrier. What is right in one
order only is an error here, and so is an address outside of the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from .access_record import ATOMIC, SEVERAL, AccessRecord, Block, Race

_PAGE = 4096  # bytes
Handle = Any  # the interpreter's pointers and masks: a numpy array and Triton's type


class _Storage:
    """The memory of one argument, or of several; or a page of other memory."""

    def __init__(self, start: int, nbytes: int, *names: str) -> None:
        self.start, self.end = start, start + nbytes
        self.names = [*names]
        self.record = AccessRecord(nbytes)


class LaunchMemory:
    """What the running launch was given, and what was done with it so far."""

    def __init__(self, args: Mapping[str, object]) -> None:
        storages: dict[int, _Storage] = {}
        for name, arg in args.items():
            for x in _tensors(arg):
                start, nbytes = x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()
                found = storages.setdefault(start, _Storage(start, nbytes))
                found.names.append(name)
        self.storages = [*storages.values()]
        self.only = True  # whether no other memory may be accessed
        self.pages: dict[int, _Storage] = {}  # of other memory
        self.programs: list[tuple[int, ...]] = []  # by their indices in the grid
        self.firsts: list[int] = []  # the first phase of each
        self.phase = -1

    def begin(self, program: tuple[int, ...]) -> None:
        """From now on this program runs."""
        self.phase += 1
        self.programs.append(program)
        self.firsts.append(self.phase)

    def barrier(self) -> None:
        """What the program does from now on comes after all that it did."""
        self.phase += 1

    def load(self, pointers: Handle, mask: Handle) -> None:
        """The program reads elements.

        Raises:
            IndexError: they are not in the arguments' memory.
            RuntimeError: they were written, and on a GPU that may come later.
        """
        for storage, block in self._blocks(pointers, mask):
            race = storage.record.read(block, self.phase, self.firsts[-1])
            self._check(race, "reads", storage)

    def store(self, pointers: Handle, mask: Handle) -> None:
        """The program writes elements; see `load`."""
        for storage, block in self._blocks(pointers, mask):
            race = storage.record.write(block, self.phase, self.firsts[-1])
            self._check(race, "writes", storage)

    def update(self, pointers: Handle, mask: Handle) -> None:
        """The program updates elements by atomic operations; see `load`."""
        for storage, block in self._blocks(pointers, mask):
            race = storage.record.update(block, self.phase, self.firsts[-1])
            self._check(race, "updates", storage)

    def _blocks(self, pointers: Handle, mask: Handle) -> Iterator[tuple[_Storage, Block]]:
        """What is accessed, by storages."""
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        chosen = np.broadcast_to(mask.data, pointers.data.shape).astype(bool, copy=False)
        addresses = pointers.data[chosen]
        # Blocks of other sizes are laid over the threads in another way.
        lanes = np.flatnonzero(chosen) + (pointers.data.size << 32)
        count = len(addresses)
        for storage in self.storages:
            if not len(addresses):
                return
            inside = (addresses >= storage.start) & (addresses <= storage.end - size)
            if inside.any():
                at = (addresses[inside] - storage.start).astype(int)
                yield storage, Block(at, lanes[inside], size)
                addresses, lanes = addresses[~inside], lanes[~inside]
        if len(addresses) and self.only:
            raise IndexError(f"{len(addresses)} of {count} addresses are in no tensor")
        pages = addresses // _PAGE
        for page in np.unique(pages).tolist():
            start = page * _PAGE
            storage = self.pages.setdefault(page, _Storage(start, _PAGE, hex(start)))
            inside = pages == page
            at = (addresses[inside] - storage.start).astype(int)
            yield storage, Block(at, lanes[inside], size)

    def _check(self, race: Race | None, does: str, storage: _Storage) -> None:
        if race is None:
            return
        here = self.programs[-1]
        if race.phase == SEVERAL:
            other = "other programs have"
        elif race.phase == ATOMIC:
            other = "an atomic operation has"
        else:
            earlier = self.programs[np.searchsorted(self.firsts, race.phase, side="right") - 1]
            other = "it has" if earlier is here else f"program {earlier} has"
        raise RuntimeError(
            f"program {here} {does} {race.elements} elements of `{'/'.join(storage.names)}`, the "
            f"first at byte {race.first}, that {other} {race.earlier}. On a GPU these accesses "
            "come in any order. Let only one program access what it writes, with "
            "tl.debug_barrier() between the accesses of different threads, or use atomic operations"
        )


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [x for part in value for x in _tensors(part)]
    base = getattr(value, "base", None)  # of a tensor descriptor
    return [] if base is None else _tensors(base)
