"""Garbage: a block without its collection, which takes most of the time of making many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ..engine.commit import restored


@contextmanager
def uncollected() -> Iterator[None]:
    """A block without garbage collection, in any thread; the setting is restored after it."""
    if not gc.isenabled():
        yield
        return
    with restored(gc.enable):
        gc.disable()
        yield
