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
# How long a launcher whose ranks failed because of others waits for the others' launcher to say so.
_PATIENCE = 3.0


class OtherLaunchers:
    """Watches, in a thread, for failures that the launchers of other machines tell.

    When there is one, or when the first machine's launcher has gone, this process gets SIGTERM,
    which ends its ranks; `failure` then says why.
    """

    def __init__(self, connect: Callable[[], Store], serves: bool) -> None:
        self.failure: Failure | None = None
        self.gone = False
        self._connect = connect
        self._serves = serves
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            store = self._connect()
            while not self._stop.wait(_INTERVAL):
                if failures := _told(store):
                    self.failure = first(failures)
                    break
        except RuntimeError:
            # The first launcher serves the store and leaves last; at a normal end we leave, too.
            self.gone = not self._stop.wait(10 * _INTERVAL)
        if self.failure is not None or self.gone:
            os.kill(os.getpid(), signal.SIGTERM)

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(timeout=4 * _INTERVAL)

    def tell(self, failure: Failure) -> Failure:
        """Tell the others of a failure here; the failure that came first, here or elsewhere."""
        self.stop()
        with contextlib.suppress(RuntimeError):
            store = self._connect()
            store.set(_key(store.add(_COUNT, 1)), failure.to_json())
            deadline = time.monotonic() + _PATIENCE
            while failure.secondary and time.monotonic() < deadline:
                time.sleep(_INTERVAL)
                failure = first(_told(store))
            if self._serves:
                # The store ends with this process.
                time.sleep(4 * _INTERVAL)
        return failure


def _key(number: int) -> str:
    return f"failed/{number}"


def _told(store: Store) -> list[Failure]:
    keys = [_key(number) for number in range(1, store.add(_COUNT, 0) + 1)]
    return [Failure.from_json(store.get(key)) for key in keys if store.check([key])]
