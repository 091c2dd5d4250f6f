"""Memory traffic: the bytes that steps read and write, and what fusion saves."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..engine.meta import Meta
from .ir import ProgramStep


def read_and_written(step: ProgramStep, rank: int | None = None) -> int:
    """The bytes of what a step reads and makes, of a rank or (None) of all of the value.

    What only looks at memory in another way, and what moves values between ranks, counts as none.
    """
    if step.aliases or step.name == "boxing":
        return 0
    values = {value.number: value for value in (*step.reads(), *step.outputs)}
    return sum(_bytes(value.meta, rank) for value in values.values())


def _bytes(meta: Meta, rank: int | None) -> int:
    if rank is None:
        return meta.numel * meta.dtype.itemsize
    if meta.placement is None:
        return meta.numel * meta.dtype.itemsize
    position = meta.placement.position.get(rank)
    return 0 if position is None else prod(meta.local_shape(position)) * meta.dtype.itemsize


def readable(count: float) -> str:
    """A number of bytes as people write it.

    >>> readable(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def summary(steps: Sequence[ProgramStep], rank: int) -> str:
    """What fusing did for a rank, in one line; "" where nothing was fused."""
    fused = [step for step in steps if step.parts]
    if not fused:
        return ""
    before = after = 0
    for step in steps:
        after += read_and_written(step, rank)
        before += sum(read_and_written(part, rank) for part in step.parts or (step,))
    parts = sum(len(step.parts) for step in fused)
    return (
        f"# {parts} steps fused into {len(fused)} kernels: {readable(after)} read and written "
        f"per run, not {readable(before)}"
    )
