"""Costs of steps: the flop and bytes of a rank's share, and the seconds that they take."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..hardware import Hardware
from ..ir import ProgramStep
from ..memory_traffic import local_bytes, read_and_written
from ..step_products import Product, products_of


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a step on one rank."""

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
            return Cost(len(step.outputs) * self.launched(0.0))
        if step.name == "boxing":  # a slice, or a copy of what is kept
            nbytes = 2 * sum(local_bytes(meta, self.rank) for meta in step.output_metas)
            return Cost(self.launched(self.moving(nbytes)), nbytes=nbytes)
        written = {value.number: value for value in step.writes}
        nbytes = read_and_written(step, self.rank)
        nbytes += sum(local_bytes(value.meta, self.rank) for value in written.values())
        products, dtype = list(products_of(step, self.rank)), _dtype(step)
        flop = sum(product.flop for product in products)
        computing = sum(self.computing(product, dtype) for product in products)
        seconds = max(computing, self.moving(nbytes))
        seconds *= self.hardware.ops.get(step.name, 1.0)
        return Cost(self.launched(seconds), flop, nbytes, dtype)

    def launched(self, seconds: float) -> float:
        """The time of an op with its launch, which is hidden where the host is ahead."""
        launch = self.hardware.launch
        if self.hardware.launches_ahead:
            return max(launch, seconds) if seconds else 0.0
        return launch + seconds

    def computing(self, product: Product, dtype: torch.dtype) -> float:
        """Seconds of the arithmetic of a matrix product or a similar op."""
        machine = self.hardware
        if product.attention:
            share = machine.attention.at(product.done)
        else:
            share = machine.matmul.at(product.done) / (1 + machine.narrow / product.width)
        return product.done / (machine.flops(dtype) * share)

    def moving(self, nbytes: float) -> float:
        """Seconds to read and write so many bytes."""
        machine = self.hardware
        return nbytes / (machine.memory_bandwidth * machine.memory.at(nbytes)) if nbytes else 0.0


def _dtype(step: ProgramStep) -> torch.dtype:
    """The dtype of a step's first floating input."""
    return next((v.meta.dtype for v in step.reads() if v.meta.is_floating), torch.float32)
