"""Norm sums: the steps that sum the gradient of batch norm or group norm, and what they read."""

from __future__ import annotations

from dataclasses import dataclass

from ...engine.ops.channel_groups import GroupSums
from ...engine.ops.channel_norm import ChannelSums
from ..ir import ProgramStep, Value
from .fuse_chains import on_triton
from .fusion_groups import lies_alike


@dataclass(frozen=True, slots=True)
class NormSums:
    """What such a step reads; `size` is the number of channels of a group, 0 of batch norm."""

    step: ProgramStep
    dy: Value
    x: Value
    mean: Value
    rstd: Value
    weight: Value | None
    size: int

    @staticmethod
    def of(step: ProgramStep) -> NormSums | None:
        """What a step reads, if it is such a step and Triton does its work."""
        if not (isinstance(step.op, (ChannelSums, GroupSums)) and on_triton(step)):
            return None
        dy, x, mean, rstd, *rest = step.reads()
        size = step.attrs[0] if isinstance(step.op, GroupSums) else 0
        assert isinstance(size, int)
        return NormSums(step, dy, x, mean, rstd, rest[0] if rest else None, size)

    def is_vector(self, value: Value) -> bool:
        """Whether it is one of the statistics, or a number for each channel of all samples."""
        if value in (self.mean, self.rstd):
            return True
        like = self.weight if self.size else self.mean
        return like is not None and lies_alike(value.meta, like.meta)
