"""The launcher's temporary folder, which is removed whatever becomes of the launcher."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

# Waits until the launcher has ended, which closes the pipe. Ranks may write for a moment longer.
_REMOVE = """
import os, shutil, sys, time
sys.stdin.read()
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for the body of a `with`; a process of its own removes it if this one is killed."""
    folder = tempfile.mkdtemp(prefix="onefold-launch-")
    remover = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _REMOVE, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal to the launcher's group is not for this process
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with remover:
            pass
