"""Coordinates the launchers of one job, one per machine: if a rank fails on one, all stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from .failure import Failure

_KEY = "onefold-launch/failed"
_INTERVAL = 0.5


class OtherLaunchers:
    """Watches, in a thread, for failures that the launchers of other machines tell.

    When there is one, or when the first machine's launcher has gone, this process gets SIGTERM,
    which ends its ranks; `failure` then says why.
    """

    def __init__(self, host: str, port: int, node_rank: int, timeout: float) -> None:
        self.failure: Failure | None = None
        self.gone = False
        self._where = (host, port)
        self._serves = node_rank == 0
        self._timeout = timedelta(seconds=timeout)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _connect(self) -> TCPStore:
        host, port = self._where
        return TCPStore(host, port, None, False, self._timeout, wait_for_workers=False)

    def _listen(self) -> None:
        try:
            store = self._connect()
            while not self._stop.wait(_INTERVAL):
                if store.check([_KEY]):
                    self.failure = Failure.from_json(store.get(_KEY))
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

    def tell(self, failure: Failure) -> None:
        """Tell the others of a failure here; the first one told stands."""
        with contextlib.suppress(RuntimeError):
            self._connect().compare_set(_KEY, "", failure.to_json())
            if self._serves:
                # The store ends with this process.
                time.sleep(4 * _INTERVAL)
