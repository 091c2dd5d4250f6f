"""Memory probe: measures the bytes that each rank holds while a program runs, step by step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...engine.meta import Meta
from ...engine.tensor import Tensor
from ..program_executor import Executor
from .storages import position_of


class Probe:
    """Runs an executable and notes, for each rank of this process, the bytes its steps hold.

    It counts the storages of the tensors that steps made, as long as such a tensor is live: after
    each step, and before the inputs that it uses last are freed. It does not count inputs,
    variables, and memory that kernels allocate and free inside. In a virtual world several ranks
    may share one torch tensor: it counts for each of them, with the bytes that the rank itself
    would hold of it.
    """

    def __init__(self, executable: Executor, ranks: Sequence[int]) -> None:
        self.live: dict[int, list[int]] = {rank: [] for rank in ranks}
        self._executable = executable
        self._held: dict[int, dict[int, _Storage]] = {rank: {} for rank in ranks}

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """As `run` of the executable."""
        self._executable.make_writable()
        program = self._executable.program
        for tensor, value in (
            *((v.tensor, v.value) for v in program.variables),
            *zip(inputs, program.inputs, strict=True),
        ):
            self.note(tensor.shards, value.meta, outside=True)
        lists = self._executable.call_lists()
        before = [list(calls) for calls, _ in lists]
        for calls, steps in lists:
            calls[:] = [
                (self._watch(run, step.output_metas, step.several), taken, made, several, dead)
                for (run, taken, made, several, dead), step in zip(calls, steps, strict=True)
            ]
        try:
            return self._executable.run(inputs)
        finally:
            for (calls, _), old in zip(lists, before, strict=True):
                calls[:] = old

    def peak(self, rank: int) -> int:
        """The most bytes that the rank held at once."""
        return max(self.live[rank], default=0)

    def _watch(
        self, run: Callable[..., Any], metas: Sequence[Meta], several: bool
    ) -> Callable[..., Any]:
        def watched(*args: Any) -> Any:
            result = run(*args)
            parts = tuple([apart(shards) for shards in (result if several else (result,))])
            del result
            for shards, meta in zip(parts, metas, strict=True):
                self.note(shards, meta)
            self.look()
            return parts if several else parts[0]

        return watched

    def look(self) -> None:
        """Record the bytes that every rank holds now."""
        for rank, held in self._held.items():
            for pointer in [p for p, storage in held.items() if not storage.there]:
                del held[pointer]
            self.live[rank].append(sum(storage.nbytes for storage in held.values()))

    def note(self, shards: Sequence[Any], meta: Meta, outside: bool = False) -> None:
        """Count the storages of these shards from now on; memory from `outside` is not counted."""
        owned = (0,) if meta.placement is None else meta.placement.owned
        for rank, held in self._held.items():
            position = position_of(meta, rank)
            if position not in owned:
                continue
            shard = shards[owned.index(position)]
            if not isinstance(shard, torch.Tensor):
                continue  # a number of the host
            pointer = shard.untyped_storage().data_ptr()
            if not pointer:
                continue
            found = held.get(pointer)
            if found is None or not found.there:
                held[pointer] = found = _Storage(0 if outside else _own_bytes(shard, meta))
            found.tensors.append(weakref.ref(shard))


class _Storage:
    """A storage that a rank holds, by the tensors in it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.tensors: list[weakref.ref[torch.Tensor]] = []

    @property
    def there(self) -> bool:
        return any(tensor() is not None for tensor in self.tensors)


def apart(shards: Sequence[Any]) -> tuple[Any, ...]:
    """The same storages by tensors that only this value refers to.

    In a virtual world boxing may hand one rank's tensor to another, which then lives longer.
    """
    once = {id(x): x.detach() if isinstance(x, torch.Tensor) else x for x in shards}
    return tuple([once[id(shard)] for shard in shards])


def _own_bytes(shard: torch.Tensor, meta: Meta) -> int:
    """A rank's part of a storage that several ranks may share; the whole where it is alone."""
    storage = shard.untyped_storage().nbytes()
    if meta.placement is None or len(meta.placement.owned) == 1:
        return storage
    return min(storage, shard.numel() * shard.element_size())
