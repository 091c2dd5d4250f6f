"""Candidates: the sizes that a search chooses among, without layouts of single tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..graph.schedules.named_schedules import SCHEDULES

_MAX_ACTIONS = 2**14  # micro-batches of all stages together: larger schedules take long to make
_CHUNKS = (2, 4)  # stages of each mesh, where a schedule takes any number
_UNROLLED = 4  # micro-batches that a program without stages repeats at most

# How the tensor axis splits a stage: weights by a table; activations along the sequence, too; or
# both as the exact search says.
Layouts: TypeAlias = Literal["table", "sequence", "searched"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """How the ranks are divided and the batch is cut."""

    meshes: int
    data: int
    tensor: int
    layouts: Layouts
    rows: int  # of one micro-batch on each rank of the data axis
    micro_batches: int
    schedule: str | None
    chunks: int  # stages of each mesh
    zero: int

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return self.meshes * self.chunks

    @property
    def pure(self) -> str:
        """The name of the plain strategy that it is; "" for all others."""
        if self.meshes > 1 or self.micro_batches > 1:
            return ""
        if self.tensor == 1:
            return {0: "data", 3: "ZeRO-3"}.get(self.zero, "")
        return "tensor" if self.data == 1 else ""


@dataclass(frozen=True)
class Space:
    """What candidates are made of."""

    size: int
    rows: int  # of the whole batch
    layers: int  # how many units can be stages
    tensors: Sequence[int]  # sizes of the tensor axis
    layouts: Layouts  # of a tensor axis
    schedules: Sequence[str]
    zeros: Sequence[int]

    def candidates(self) -> Iterator[Candidate]:
        """All of them."""
        for meshes, data, tensor in self._meshes():
            for rows in divisors(self.rows // data):
                count = self.rows // data // rows
                layouts: Layouts = self.layouts if tensor > 1 else "table"
                sizes = (meshes, data, tensor, layouts, rows, count)
                for zero in self.zeros if data > 1 else (0,):
                    for schedule, chunks in self._schedules(meshes, count):
                        yield Candidate(*sizes, schedule, chunks, zero)

    def _meshes(self) -> Iterator[tuple[int, int, int]]:
        for tensor in self.tensors:
            for meshes in divisors(self.size // tensor) if self.size % tensor == 0 else ():
                data = self.size // tensor // meshes
                if meshes <= self.layers and self.rows % data == 0:
                    yield meshes, data, tensor

    def _schedules(self, meshes: int, count: int) -> Iterator[tuple[str | None, int]]:
        if meshes == 1:
            if count <= _UNROLLED:
                yield None, 1
            if 1 < count <= _MAX_ACTIONS and "1f1b" in self.schedules:
                yield "1f1b", 1
            return
        if count == 1:
            return
        for name in self.schedules:
            each = SCHEDULES[name].stages_per_rank
            if each is None and count % meshes:
                continue
            if name.startswith("zb-") and count < 2 * meshes - 1:
                continue
            for chunks in _CHUNKS if each is None else (each,):
                stages = meshes * chunks
                if stages <= self.layers and stages * count <= _MAX_ACTIONS:
                    yield name, chunks


def divisors(number: int) -> list[int]:
    """The divisors of a number, in increasing order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
