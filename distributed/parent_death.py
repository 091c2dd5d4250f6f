"""`python -I -S parent_death.py PARENT MASK program args...`: a program that ends with its parent.

The launcher starts every rank this way. On Linux the kernel kills the process when the launcher,
whose process id is PARENT, ends in whatever way. With MASK=block Ctrl-C waits until the program
lets it in. This file is run by its path and imports nothing of the package, so it takes
milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the program that is named on the command line."""
    parent, mask, *command = sys.argv[1:]
    if mask == "block":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):
            os._exit(1)  # it ended before this process asked to be notified
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"launch: cannot run {command[0]!r}: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main()
