"""Costs of steps: the flop and bytes of a rank's share, and the seconds that they take."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...engine.meta import Meta
from ...engine.op import Op
from ..hardware import Hardware
from ..ir import ProgramStep
from ..memory_traffic import local_bytes, read_and_written

_HERE = torch.device("cpu")  # of metas that stand for one rank's shard


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step takes on one rank."""

    seconds: float = 0.0
    flop: float = 0.0  # of matrix products and the like
    nbytes: int = 0  # read and written
    dtype: torch.dtype = torch.float32  # in which the flop are done


class StepCosts:
    """The costs of steps on one rank; steps alike are computed once."""

    def __init__(self, hardware: Hardware, rank: int) -> None:
        self.hardware = hardware
        self.rank = rank
        self._known: dict[object, Cost] = {}

    def of(self, step: ProgramStep) -> Cost:
        """The cost of a step that moves nothing between ranks."""
        key = step.name, step.origin, step.input_metas, step.output_metas, len(step.writes)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._cost(step)
        return found

    def _cost(self, step: ProgramStep) -> Cost:
        if step.aliases:
            return Cost(self.launched(0.0))
        if step.name == "boxing":  # a slice, or a copy of what is kept
            nbytes = 2 * sum(local_bytes(meta, self.rank) for meta in step.output_metas)
            return Cost(self.launched(self.moving(nbytes)), nbytes=nbytes)
        written = {value.number: value for value in step.writes}
        nbytes = read_and_written(step, self.rank)
        nbytes += sum(local_bytes(value.meta, self.rank) for value in written.values())
        flop, dtype = self.products(step), _dtype(step)
        seconds = max(self.computing(flop, dtype, step.name), self.moving(nbytes))
        seconds *= self.hardware.ops.get(step.name, 1.0)
        return Cost(self.launched(seconds), flop, nbytes, dtype)

    def launched(self, seconds: float) -> float:
        """The time of an op with its launch, which is hidden where the host is ahead."""
        launch = self.hardware.launch
        if self.hardware.launches_ahead:
            return max(launch, seconds) if seconds else 0.0
        return launch + seconds

    def computing(self, flop: float, dtype: torch.dtype, name: str) -> float:
        """Seconds of so much arithmetic of matrix products."""
        if not flop:
            return 0.0
        machine = self.hardware
        curve = machine.attention if "attention" in name else machine.matmul
        return flop / (machine.flops(dtype) * curve.at(flop))

    def moving(self, nbytes: float) -> float:
        """Seconds to read and write so many bytes."""
        machine = self.hardware
        return nbytes / (machine.memory_bandwidth * machine.memory.at(nbytes)) if nbytes else 0.0

    def products(self, step: ProgramStep) -> float:
        """The flop of the matrix products, convolutions and the like in a step, on this rank.

        What ops do with each element alone is bound by memory, and counts as 0.
        """
        if step.parts:
            return sum(map(self.products, step.parts))
        op = step.origin if step.op is None else step.op
        if not isinstance(op, Op) or type(op).flops is Op.flops:
            return 0.0
        inputs = [meta and shard(meta, self.rank) for meta in step.input_metas]
        outputs = [shard(meta, self.rank) for meta in step.output_metas]
        here = [meta for meta in outputs if meta is not None]
        return op.flops(inputs, here) if len(here) == len(outputs) else 0.0


def shard(meta: Meta, rank: int) -> Meta | None:
    """A rank's shard as a meta of its own; None where it has none."""
    if meta.placement is None:
        return meta
    position = meta.placement.position.get(rank)
    if position is None:
        return None
    return Meta.of(meta.local_shape(position), meta.dtype, device=_HERE)


def _dtype(step: ProgramStep) -> torch.dtype:
    """The dtype of a step's first floating input."""
    return next((v.meta.dtype for v in step.reads() if v.meta.is_floating), torch.float32)
