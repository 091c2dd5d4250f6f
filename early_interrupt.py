"""Ctrl-C while the launcher or a rank is still importing: one line, not a traceback of imports.

`python -m onefold.distributed.launch` imports the whole package before any line of the launcher.
Importing this module is enough; it does nothing in other programs.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_SAYS = {
    f"{__package__}.distributed.launch": "launch: stopped by SIGINT\n",
    f"{__package__}.distributed.worker": "",  # the launcher says it
}


def _running() -> str:
    """The module that `python -m` runs, while it imports the module's package; else nothing."""
    if sys.argv[:1] != ["-m"] or "-m" not in sys.orig_argv[:-1]:
        return ""
    return sys.orig_argv[sys.orig_argv.index("-m") + 1]


_says = _SAYS.get(_running())


def _end(number: int, frame: FrameType | None) -> None:
    sys.stderr.write(_says or "")
    sys.stderr.flush()
    os._exit(128 + number)


def raise_again() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if _says is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by parent_death
