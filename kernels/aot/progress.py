"""Progress of many tasks: on a terminal a line that is overwritten, elsewhere one per tenth."""

from __future__ import annotations

import sys
import time


class Progress:
    """Counts tasks that end, and shows how many on the standard error stream.

    >>> from onefold.kernels.aot.progress import Progress
    >>> bar = Progress(20, "compiled")
    >>> for _ in range(20):
    ...     bar.step("a kernel")
    >>> bar.ended
    20
    """

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what = total, what
        self.ended, self.since = 0, time.monotonic()

    def step(self, text: str) -> None:
        """One task has ended."""
        self.ended += 1
        seconds = time.monotonic() - self.since
        line = f"{self.ended}/{self.total} {self.what}, {seconds:.0f} s"
        tenths = [ended * 10 // self.total for ended in (self.ended - 1, self.ended)]
        if sys.stderr.isatty():
            last = "\n" if self.ended == self.total else ""
            sys.stderr.write(f"\r\x1b[K{line}  {text[:60]}{last}")
        elif self.ended == self.total or tenths[0] != tenths[1]:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
