"""Warmup: the learning rate in the first steps, for schedules."""

from __future__ import annotations

from .schedules import constant, linear

__all__ = ["constant", "linear"]
