"""Signals (`flow.signal`), whose windows are the functions of `torch.signal.windows`."""

from __future__ import annotations

from . import signal_windows as windows

__all__ = ["windows"]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it
