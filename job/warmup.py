"""Warm-up of learning rates."""

from __future__ import annotations

from .schedules import constant, linear

__all__ = ["constant", "linear"]
