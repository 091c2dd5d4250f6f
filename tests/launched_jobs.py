"""Start the launcher as a user does, follow what its ranks print, and end it whatever happens."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

LAUNCH = [sys.executable, "-m", "onefold.distributed.launch"]
LIMIT = 100.0


def free_port():
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


class Job:
    """A launcher that runs `script`, or another program, in a folder of its own.

    A rank that prints `ready` with its number and its process id is known by `pids` then.
    """

    def __init__(self, folder, script, *options, env=None, program=None):
        self.script = Path(folder, "train.py")
        self.script.write_text(script)
        self.stderr = Path(folder, f"stderr{time.monotonic_ns()}")
        self.pids = {}
        self.printed = []
        with self.stderr.open("w") as errors:
            self.process = subprocess.Popen(
                [*LAUNCH, *map(str, options), *(program or [str(self.script)])],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder), **(env or {})},
                # Jobs that a shell runs in the background ignore SIGINT, and so would theirs.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # and with it the ranks
        self.process.communicate()

    def until_ready(self, ranks):
        """Read what the job prints until so many ranks are ready."""
        while len(self.pids) < ranks:
            if found := re.match(r"ready (\d+) (\d+)$", self._line()):
                self.pids[int(found[1])] = int(found[2])

    def until(self, pattern):
        """Read what the job prints until a line begins so."""
        while not re.match(pattern, self._line()):
            pass

    def _line(self):
        line = self.process.stdout.readline()
        assert line, self.stderr.read_text()
        self.printed.append(line.rstrip("\n"))
        return line

    def end(self, timeout=LIMIT):
        """Wait for the end: the exit code and the lines of stderr."""
        out, _ = self.process.communicate(timeout=timeout)
        self.printed += out.splitlines()
        return self.process.returncode, self.stderr.read_text().splitlines()


def runs(pid):
    """Whether a process is there and has not ended."""
    try:
        # The state follows the program's name, which is in brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def listening(*pids):
    """The addresses, as the kernel writes them, on which these processes listen."""
    sockets = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(entry))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                found.add(local)
    return found


def gone_within(pids, seconds):
    """Whether all these processes end in time."""
    deadline = time.monotonic() + seconds
    while any(runs(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
