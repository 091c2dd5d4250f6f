"""Gradient clipping for optimizers."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import OnefoldValueError


@dataclass(frozen=True)
class GlobalNorm:
    """The gradients of all variables together have at most this norm."""

    clip_norm: float

    def __post_init__(self) -> None:
        if not self.clip_norm > 0:
            raise OnefoldValueError(f"clip_norm must be more than 0, but got {self.clip_norm!r}")


def by_global_norm(clip_norm: float) -> GlobalNorm:
    """Scale all gradients so that their norm together is at most `clip_norm`."""
    return GlobalNorm(clip_norm)
