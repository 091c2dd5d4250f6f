"""Memory traffic: the bytes that steps read and write, and what fusion saves."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..engine.meta import Meta
from .ir import ProgramStep


def read_and_written(step: ProgramStep, rank: int | None = None) -> int:
    """The bytes that a step reads and writes, on a rank or (None) of the logical values.

    Views, and steps that move values between ranks, count as 0.
    """
    if step.aliases or step.name == "boxing":
        return 0
    values = {value.number: value for value in (*step.reads(), *step.outputs)}
    metas = [value.meta for value in values.values()]
    return sum(meta.nbytes if rank is None else local_bytes(meta, rank) for meta in metas)


def local_bytes(meta: Meta, rank: int) -> int:
    """The bytes of the rank's shard: 0 where it has none, all of a local tensor.

    >>> import torch
    >>> local_bytes(Meta.of((4, 5), torch.float32, device=torch.device("cpu")), 3)
    80
    """
    position = 0 if meta.placement is None else meta.placement.position.get(rank)
    return 0 if position is None else prod(meta.local_shape(position)) * meta.dtype.itemsize


def readable(count: float) -> str:
    """A number of bytes as text, such as 22.2 KiB.

    >>> readable(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def summary(steps: Sequence[ProgramStep], rank: int) -> str:
    """The effect of fusion on a rank, in one line; "" where nothing was fused."""
    fused = [step for step in steps if step.parts]
    if not fused:
        return ""
    alone = [part for step in steps for part in step.parts or (step,)]
    before, after = (sum(read_and_written(each, rank) for each in some) for some in (alone, steps))
    parts = sum(len(step.parts) for step in fused)
    return (
        f"# {parts} steps fused into {len(fused)} kernels: {readable(after)} read and written "
        f"per run, not {readable(before)}"
    )
