"""torch.distributed.algorithms and its folder _checkpoint, of which this is the one module."""

from __future__ import annotations

import sys

from ..nn.parallel.join import Join, Joinable, JoinHook
from . import checkpoint_wrapper

__all__ = ["Join", "JoinHook", "Joinable", "checkpoint_wrapper"]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it

_checkpoint = sys.modules[__name__]
