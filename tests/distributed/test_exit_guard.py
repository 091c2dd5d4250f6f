"""A process that takes too long to leave is ended, also where Python is already ending."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, time
from onefold.distributed.exit_guard import ExitGuard

def leave(seconds):
    with guard:
        time.sleep(seconds)
    print("left")

guard = ExitGuard(0.5)
if "exit" in sys.argv:
    atexit.register(leave, {seconds})
else:
    leave({seconds})
print("done")
"""


@pytest.mark.parametrize("how", ["now", "exit"])
@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_block_may_not_take_longer(how, seconds):
    program = PROGRAM.format(seconds=seconds)
    found = subprocess.run(
        [sys.executable, "-c", program, how],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert found.stderr == ""
    assert (found.returncode == 0) == ("left" in found.stdout) == (seconds == 0)
