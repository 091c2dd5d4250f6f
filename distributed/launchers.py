"""Coordinates the launchers of one job, one per machine: if a rank fails on one, all stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

from torch._C._distributed_c10d import Store

from .failure import Failure, first

_COUNT = "failed/count"
_INTERVAL = 0.5
# How long a launcher whose ranks failed because of others waits for the report of the cause.
_PATIENCE = 3.0


class OtherLaunchers:
    """Watches, in a thread, for failures that the launchers of other machines report.

    When there is one, or when another launcher has been silent for `silence` seconds, this process
    gets SIGTERM, which ends its ranks; `failure` or `lost`, the number of a machine, then says why.
    """

    def __init__(
        self, connect: Callable[[], Store], node_rank: int, nodes: int, silence: float = 15.0
    ) -> None:
        self.failure: Failure | None = None
        self.lost: int | None = None
        self._connect = connect
        self._node_rank = node_rank
        self._beats: dict[int, tuple[bytes, float]] = {}  # the last beat of each, and when it came
        self._nodes = nodes
        self._silence = silence
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            store = self._connect()
            while self.lost is None and not self._stop.wait(_INTERVAL):
                if failures := _reported(store):
                    self.failure = first(failures)
                    break
                store.set(f"beat/{self._node_rank}", str(time.monotonic_ns()))
                self.lost = self._silent(store)
        except RuntimeError:
            # The first launcher serves the store and leaves last; at a normal end we leave, too.
            if not self._stop.wait(10 * _INTERVAL):
                self.lost = 0
        if self.failure is not None or self.lost is not None:
            os.kill(os.getpid(), signal.SIGTERM)

    def _silent(self, store: Store) -> int | None:
        """A machine whose launcher has sent beats, but none for too long."""
        now = time.monotonic()
        for node in range(self._nodes):
            key = f"beat/{node}"
            if node == self._node_rank or not store.check([key]):
                continue
            beat = store.get(key)
            before, since = self._beats.get(node, (b"", now))
            if beat != before:
                self._beats[node] = (beat, now)
            elif now - since > self._silence:
                return node
        return None

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(timeout=4 * _INTERVAL)

    def reported_failure(self) -> Failure | None:
        """The failure that other launchers report, if one does within a few seconds."""
        self.stop()
        deadline = time.monotonic() + _PATIENCE
        with contextlib.suppress(RuntimeError):
            store = self._connect()
            while self.failure is None and time.monotonic() < deadline:
                self.failure = next(iter(_reported(store)), None)
                time.sleep(_INTERVAL)
        return self.failure

    def report(self, failure: Failure) -> Failure:
        """Report a failure to the others; returns the first one, perhaps of another machine."""
        self.stop()
        with contextlib.suppress(RuntimeError):
            store = self._connect()
            store.set(_key(store.add(_COUNT, 1)), failure.to_json())
            deadline = time.monotonic() + _PATIENCE
            while failure.secondary and time.monotonic() < deadline:
                time.sleep(_INTERVAL)
                failure = first(_reported(store))
            if self._node_rank == 0:
                # The store ends with this process.
                time.sleep(4 * _INTERVAL)
        return failure


def _key(number: int) -> str:
    return f"failed/{number}"


def _reported(store: Store) -> list[Failure]:
    keys = [_key(number) for number in range(1, store.add(_COUNT, 0) + 1)]
    return [Failure.from_json(store.get(key)) for key in keys if store.check([key])]
