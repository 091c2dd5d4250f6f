"""Signals (`flow.signal`), whose windows are the functions of `torch.signal.windows`.

Written by `make stubs`; do not edit.
"""

from .engine.ops.signal import *
