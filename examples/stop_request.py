"""Ctrl-C as a request to stop: the running step ends, and all ranks stop after the same one."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

import onefold as flow

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # SIGTERM is how SLURM and other schedulers ask


class StopRequest:
    """While it is entered, SIGINT and SIGTERM ask to stop; a second Ctrl-C stops at once.

    Under the launcher a Ctrl-C may reach a rank twice, and the launcher ends what does not stop.
    """

    def __init__(self) -> None:
        self.received = 0  # the number of a signal

    def __enter__(self) -> StopRequest:
        self._before = [signal.signal(number, self._receive) for number in SIGNALS]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in zip(SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received and not flow.env.is_launched():
            raise KeyboardInterrupt
        self.received = number

    def agreed(self) -> bool:
        """Whether some rank was asked to stop. Every rank calls this, at the same place."""
        if not flow.env.is_launched():
            return self.received > 0
        asked = flow.tensor(int(self.received > 0))
        flow.comm.all_reduce(asked)
        return asked.item() > 0
