"""Ends a process that takes too long to leave the others."""

from __future__ import annotations

import os
import threading


class ExitGuard:
    """Ends the process if the block under `with` takes longer than this, in seconds.

    It guards one block, and not in a forked process. Its thread waits for that from the start: when
    Python is ending it can start none, from Python 3.12 on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun, self._over = threading.Event(), threading.Event()
        threading.Thread(target=self._watch, name="onefold exit guard", daemon=True).start()

    def _watch(self) -> None:
        self._begun.wait()
        if not self._over.wait(self._seconds):
            os._exit(1)

    def __enter__(self) -> None:
        self._begun.set()

    def __exit__(self, *error: object) -> None:
        self._over.set()
