"""Calibration: all probes of this machine, and the hardware record that they give."""

from __future__ import annotations

import platform
from dataclasses import replace

import torch

from ..hardware import Hardware
from .compute_probes import DTYPES, ComputeProbes
from .link_probes import LinkProbes
from .program_probes import ProgramProbes
from .turns import Probe


class Calibration:
    """The probes that two processes run at the same time, since processors share memory and links.

    Both make one, take turns with its `probes`, and then ask for the record.
    """

    def __init__(self) -> None:
        self._compute = ComputeProbes()
        self._links = LinkProbes()
        self._programs = ProgramProbes()
        self.probes: list[Probe] = [
            *self._compute.probes(),
            *self._links.probes(),
            *self._programs.probes(),
        ]

    def hardware(self, device_bytes: int) -> Hardware:
        """The record of this machine, whose ranks have so many bytes each; both ranks call it."""
        products = {dtype: self._compute.products(dtype) for dtype in DTYPES}
        peak = {dtype: best for dtype, (best, _) in products.items()}
        bandwidth, memory = self._compute.memory()
        best, matmul = products[torch.float32]
        found = Hardware(
            name=platform.node() or "this machine",
            peak=peak,
            memory_bytes=device_bytes,
            memory_bandwidth=bandwidth,
            launch=self._programs.launch(),
            launches_ahead=False,
            contention=self._links.contention(),
            collective_launch=self._links.launch(),
            skew=self._links.skew(),
            matmul=matmul,
            narrow=self._compute.narrow(best, matmul),
            host_bandwidth=bandwidth,
            attention=self._compute.attention(best),
            memory=memory,
            links=(self._links.link(),),
        )
        return replace(found, ops=self._programs.ops(found))

    def whole_step(self, hardware: Hardware) -> tuple[float, float]:
        """Seconds of a transformer's step on one rank: measured, and simulated."""
        return self._programs.whole_step(hardware)
