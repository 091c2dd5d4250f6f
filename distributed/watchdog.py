"""Watchdog: explains a failed wait by the ranks that arrived and those that did not.

A collective costs one increment and one small object. Only when a wait fails, the process asks all
others through the key-value store where they are. A thread in each process answers. So a rank that
is busy elsewhere, or blocked in another collective, is named with its line.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch._C._distributed_c10d import Store

from ..errors import CommError, CommTimeout, OnefoldError, PeerLost, user_line
from .pending import Counter, Pending
from .rank_error import posted_errors
from .rank_state import RankState, RankStates

_TIMED_OUT = re.compile(r"time[d]? ?out", re.IGNORECASE)
_LOST = re.compile(r"connect|peer|socket|pipe|closed|recv", re.IGNORECASE)
_SILENT = (
    "no answer: its process was killed, or does not run Python code, or has not yet made a "
    "placement or communicated"
)
# How the ending of a rank begins that failed because of another one.
BECAUSE_OF_ANOTHER = "failed because of another rank"
# A rank that has not said where it is after this long is taken for ended or stuck.
_MAX_INTERVAL = 1.0


@dataclass(slots=True)
class _Report:
    """What was learnt about the other ranks, by rank."""

    arrived: dict[int, str] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    compared: dict[int, int] = field(
        default_factory=dict
    )  # their last collective that they compared

    def lines(self) -> str:
        rows = []
        for name, ranks in (("arrived", self.arrived), ("did not arrive", self.missing)):
            rows += [f"  rank {rank} {name}: {text}" for rank, text in sorted(ranks.items())]
        return "\n".join(rows)

    def silent(self, wanted: Iterable[int]) -> set[int]:
        """The ranks of `wanted` of which nothing is known yet."""
        return {*wanted} - self.arrived.keys() - self.missing.keys()


def _cause(error: Exception) -> str:
    """The first sentence of an error of torch, without the place in its sources."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^]]*\] ", "", first).split(". ")[0]


class Watchdog:
    """The watch of one process: its counters, what it waits in, and the answering thread.

    `store` must be a client of its own, because the main thread may hold the other one's lock
    for as long as it waits.
    """

    def __init__(self, store: Store, rank: int, timeout: float, warn_after: float) -> None:
        self.pending: Pending | None = None
        self.replay: Pending | None = None  # the CUDA graph with communication that runs
        self.device = -1  # the index of the GPU on which collectives run; -1 if there is none
        self._store = store
        self._states = RankStates(store)
        self._rank = rank
        self._timeout = timeout
        self._warn_after = warn_after
        self._interval = min(_MAX_INTERVAL, timeout / 4, warn_after / 4)
        self._counters: list[Counter] = []
        self._answered = 0
        self._warned: Pending | None = None
        self._main = threading.main_thread().ident or 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._answer, name="onefold-watch", daemon=True)
        self._thread.start()

    def counter(self, key: str, ranks: tuple[int, ...], epoch: int = 0) -> Counter:
        """A new counter whose value the others can ask for."""
        counter = Counter(f"{key}@{epoch}" if epoch else key, ranks, epoch)
        self._counters.append(counter)
        return counter

    def forget_counters(self) -> None:
        """Start over, with counters of another epoch."""
        self.pending = None
        self._counters = []

    def end(self, how: str) -> None:
        """Leave word how this process ended; the first word counts."""
        with contextlib.suppress(RuntimeError):
            self._post(self._answered)
            self._states.end(self._rank, how)

    def stop(self) -> None:
        """End the answering thread. A thread inside C++ while Python ends would abort us."""
        self._stop.set()
        self._thread.join(timeout=5.0)

    def explain(self, pending: Pending, error: Exception, line: str = "") -> CommError:
        """The error to raise when a wait in `pending` failed with `error`."""
        at = line or user_line()
        cause = _cause(error)
        timed_out = _TIMED_OUT.search(cause) is not None
        head = f"{pending.describe()}, at {at},"
        if not timed_out and not _LOST.search(cause):
            return CommError(f"{head} failed: {cause}")
        report = self.ask(pending)
        report.arrived[self._rank] = f"at {at}"
        if timed_out:
            return CommTimeout(
                f"{head} waited {self._timeout:g} s for other ranks (ONEFOLD_TIMEOUT).\n"
                f"{report.lines()}\n"
                "Every rank must run the same operations in the same order. If the others only "
                f"need more time, set ONEFOLD_TIMEOUT to more than {self._timeout:g} seconds."
            )
        ends = [f"rank {rank} {how}; " for rank, how in sorted(report.ended.items())]
        return PeerLost(
            f"{head} lost the connection to another rank ({''.join(ends)}{cause}).\n"
            f"{report.lines()}\n"
            "Look first at the error of the rank that failed or gave no answer."
        )

    def ask(self, pending: Pending) -> _Report:
        """Ask every rank that `pending` waits for where it is, and wait a little for answers."""
        wanted = {
            rank: counter
            for counter in pending.counters
            for rank in counter.ranks
            if rank != self._rank
        }
        report = _Report()
        try:
            asked = self._states.ask()
            self._post(asked)
            deadline = time.monotonic() + 2 * _MAX_INTERVAL + 0.5
            while silent := report.silent(wanted):
                for rank in silent:
                    self._read(rank, wanted[rank], asked, report)
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        except RuntimeError:
            for rank in report.silent(wanted):
                report.missing[rank] = "unknown: the key-value store of rank 0 is gone too"
        for rank in report.silent(wanted):
            report.missing[rank] = _SILENT
        return report

    def _read(self, rank: int, counter: Counter, asked: int, report: _Report) -> None:
        """File what `rank` has said by now, if anything, under arrived or missing."""
        state = self._states.read(rank)
        progress = -1 if state is None else state.progress.get(counter.key, 0)
        text = state.at if state is not None and state.asked >= asked else self._states.noted(rank)
        if end := self._states.ending(rank):
            text = end
            if not end.startswith(BECAUSE_OF_ANOTHER):
                report.ended[rank] = end
        elif state is not None and state.asked >= asked:
            report.compared[rank] = state.compared.get(counter.key, 0)
        if text:
            files = report.arrived if progress >= counter.seq else report.missing
            files[rank] = text

    def _post(self, asked: int) -> None:
        """Say where the main thread is. `asked` is the number of the question answered."""
        with self._lock:
            line = self._main_line()
            pending = self.pending
            at = f"at {line}" if pending is None else f"in {pending.describe()}, at {line}"
            counters = list(self._counters)
            progress = {counter.key: counter.seq for counter in counters}
            compared = {counter.key: counter.compared for counter in counters if counter.compared}
            self._states.post(self._rank, RankState(asked, at, progress, compared))
            self._answered = max(self._answered, asked)

    def _main_line(self) -> str:
        frame = sys._current_frames().get(self._main)
        return user_line(frame) if frame is not None else "the end of the program"

    def _answer(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                asked = self._states.last_asked()
                if asked > self._answered:
                    self._post(asked)
            except RuntimeError:
                return  # the process that served the store has ended, and with it the job
            for pending in (self.pending, self.replay):
                if pending is not None:
                    self._look(pending)

    def _look(self, pending: Pending) -> None:
        if not pending.since:
            pending.since = time.monotonic()
            return
        waited = time.monotonic() - pending.since
        if pending.works:
            self._check_device(pending, waited)
        elif waited > self._warn_after and self._warned is not pending:
            self._warned = pending
            self._warn(pending, waited)

    def _warn(self, pending: Pending, waited: float) -> None:
        """Say that this process waits, for which ranks, and how much longer it will."""
        line = self._main_line()
        with contextlib.suppress(RuntimeError):
            if not all(
                self._states.first_to_warn(self._rank, counter.key, counter.seq)
                for counter in pending.counters
            ):
                return
            missing = self.ask(pending).missing
            if not missing or self.pending is not pending:
                return
            rows = [f"  rank {rank} did not arrive: {text}\n" for rank, text in missing.items()]
            sys.stderr.write(
                f"[rank {self._rank}] {pending.describe()}, at {line}, has waited "
                f"{waited:.0f} s for other ranks:\n{''.join(rows)}"
                f"  It gives up after {self._timeout:g} s (ONEFOLD_TIMEOUT).\n"
            )

    def _check_device(self, pending: Pending, waited: float) -> None:
        """End the process when a collective that runs on a device is overdue.

        The main thread is blocked in the device's driver then, or far ahead: nothing could be
        raised there. Devices are only asked after the timeout, because asking one while a CUDA
        graph is captured would spoil the capture.
        """
        errors = posted_errors(self._store, pending.counters)
        if not errors and waited <= self._timeout:
            return
        # This thread began on device 0, where the driver would take memory for each such process.
        with torch.cuda.device(self.device):
            done = all(work.is_completed() for work in pending.works)
        if done:
            pending.works = ()
            if self.replay is pending:
                self.replay = None
            return
        line = self._main_line()
        error: OnefoldError = self.explain(pending, TimeoutError("timed out"), line)
        if errors:
            error = errors[0].raised_again(self._rank, pending.describe(), line, errors[1:], True)
        sys.excepthook(type(error), error, None)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
