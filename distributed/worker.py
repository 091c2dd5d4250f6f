"""`python -m onefold.distributed.worker [--also-print] [-m] script args...`: one rank's program.

The launcher starts it in place of `python script args...`. There are two differences for the
program: the traceback of an exception that ends it goes to the launcher, which prints it last.
Output is written in whole lines, so that lines of several ranks do not mix.
"""

from __future__ import annotations

import io
import os
import runpy
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from types import TracebackType

from ..early_interrupt import raise_again
from ..env import ERROR_DIR, RANK
from ..errors import CommError, OnefoldError, RankMismatch
from .failure import Failure, leave

# Frames of these files stand before the program's own.
_OURS = (__file__, runpy.__file__, "<frozen runpy>")


def _program_frames(trace: TracebackType | None) -> TracebackType | None:
    """`trace` without the frames that lead to the program; None when it never started."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return trace


def _report(
    folder: str,
    also_print: bool,
    process: int,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """The last of the exception hooks of `process`: leave the traceback in `folder`."""
    if os.getpid() != process:
        sys.__excepthook__(kind, error, trace)  # it was forked from the rank
        return
    if issubclass(kind, KeyboardInterrupt):
        return  # the launcher was stopped, and says so
    trace = _program_frames(trace)
    text = "".join(traceback.format_exception(kind, error, trace)).rstrip("\n")
    if also_print:
        sys.stderr.write(text + "\n")
    rank = RANK.read() or 0
    secondary = isinstance(error, OnefoldError) and error.raised_on not in (None, rank)
    lost = isinstance(error, CommError) and not isinstance(error, RankMismatch)
    leave(folder, Failure(rank, time.time(), secondary or lost, text))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main() -> None:
    """Run the program named on the command line as `__main__`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Also if buffering is off: a print would then write its parts and its end separately.
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    if sys.platform != "linux":  # see parent_death
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    arguments = sys.argv[1:]
    also_print = arguments[0] == "--also-print"
    if also_print:
        arguments = arguments[1:]
    if folder := ERROR_DIR.read():
        sys.excepthook = partial(_report, folder, also_print, os.getpid())
    raise_again()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        # `python -m` puts the working directory first, and this process was started that way.
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
