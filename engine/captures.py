"""Captures: one thread makes one at a time, and tensors that it reads then stand for values.

Other threads that use such a tensor wait until it has shards again.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock

from ..errors import OnefoldRuntimeError
from .tensor import Shards, Tensor

CAPTURES = RLock()  # held while tensors from outside stand for values of a program


class CapturedTensorError(OnefoldRuntimeError):
    """A tensor that stands for a value of a captured program was used as if it had shards."""


def waited(error: Exception, args: Iterable[object]) -> bool:
    """Whether the error came from another thread's capture, which has ended: then try again."""
    if not isinstance(error, CapturedTensorError):
        return False
    with CAPTURES:
        return not any(arg.is_lazy for arg in args if isinstance(arg, Tensor))


def shards_of(x: Tensor) -> Shards:
    """The shards of a tensor, after those captures of other threads that read it."""
    shards = x.shards
    if isinstance(shards, tuple):
        return shards
    with CAPTURES:
        return x.shards
