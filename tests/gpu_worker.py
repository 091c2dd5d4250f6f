"""A pytest plugin for one worker of tests/gpu_tests.py: takes tests, and writes a row for each.

All workers collect the same tests. Each has a range of them, in a file that they share, and one
that has none left takes half of the longest. So neighbors, which launch the same compiled forms,
mostly run in one process.
"""

import fcntl
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

DEVICE_LOST = 91  # the exit code of a worker whose CUDA context is broken
TEXT = 6000  # characters of a failure that are kept


def pytest_addoption(parser):
    group = parser.getgroup("gpu-worker")
    group.addoption("--worker", type=int, help="the number of this worker")
    group.addoption("--workers", type=int, help="how many there are")
    group.addoption("--shared", type=Path, help="a folder that all workers share")
    group.addoption("--rows", type=Path, help="the file of results, a row for each test")
    group.addoption("--part", help="i/n: the i-th of n parts of the tests")


def pytest_configure(config):
    if config.option.worker is not None:
        config.pluginmanager.register(Worker(config.option), "worker")


class Ranges:
    """The ranges of tests that are left, one for each worker, in a file under a lock."""

    def __init__(self, path, workers, total):
        self.path, self.workers, self.total = path, workers, total

    def take(self, worker):
        """The number of the next test, or None if no range has one left."""
        with self.path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            state = json.loads(file.read() or "null") or self.first()
            assert state["total"] == self.total, "the workers collected different tests"
            ranges = state["ranges"]
            if ranges[worker][0] == ranges[worker][1]:
                longest = max(ranges, key=lambda part: part[1] - part[0])
                middle = (longest[0] + longest[1]) // 2
                ranges[worker] = [middle, longest[1]]
                longest[1] = middle
            start, end = ranges[worker]
            ranges[worker][0] = min(start + 1, end)
            file.truncate(0)
            file.write(json.dumps(state))
            file.flush()
        return start if start < end else None

    def first(self):
        at = [self.total * index // self.workers for index in range(self.workers + 1)]
        return {"total": self.total, "ranges": [list(pair) for pair in pairwise(at)]}


class Worker:
    """Runs the tests that it takes, and says in a file of its own which one it runs."""

    def __init__(self, options):
        self.options = options
        self.state = options.shared / f"worker-{options.worker}.json"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        """Keep the tests of this part that no earlier run has passed."""
        index, count = map(int, self.options.part.split("/"))
        part = items[len(items) * (index - 1) // count : len(items) * index // count]
        done = set(json.loads((self.options.shared / "done.json").read_text()))
        items[:] = [item for item in part if item.nodeid not in done]

    def pytest_runtestloop(self, session):
        ranges = Ranges(
            self.options.shared / "ranges.json", self.options.workers, len(session.items)
        )
        (self.options.shared / "total").write_text(str(ranges.total))
        while (number := ranges.take(self.options.worker)) is not None:
            item = session.items[number]
            self.say({"test": item.nodeid, "since": time.time()})
            self.parts = []
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            row = row_of(item.nodeid, self.parts)
            add_row(self.options.rows, row)
            self.say({})
            if row["outcome"] == "failed" and device_is_lost():
                os._exit(DEVICE_LOST)  # every further launch in this process would fail
        return True

    def pytest_runtest_logreport(self, report):
        self.parts.append(report)

    def say(self, state):
        new = self.state.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(self.state)


def row_of(test, parts):
    """The row of a test: failed if any part of it failed, with what pytest prints."""
    outcomes = [part.outcome for part in parts]
    outcome = next((word for word in ("failed", "skipped") if word in outcomes), "passed")
    why = "".join(part.longreprtext[-TEXT:] for part in parts if part.outcome == "failed")
    if outcome == "skipped":
        why = str(next(part.longrepr for part in parts if part.outcome == "skipped"))[-200:]
    seconds = sum(part.duration for part in parts)
    return {"test": test, "outcome": outcome, "seconds": round(seconds, 3), "why": why}


def add_row(path, row):
    """Append a row in one write, so that those of several processes do not mix."""
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(row).encode() + b"\n")


def device_is_lost():
    """Whether the GPU no longer answers in this process, as after a wrong address."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
