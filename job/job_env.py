"""Settings of machines. They are accepted; processes are started by the launcher."""

from __future__ import annotations

from collections.abc import Sequence

from .ignored import note_ignored
from .session import session


def machine(*machines: str | Sequence[str] | dict[str, object]) -> None:
    """Use so many machines as are named."""
    named = (
        machines[0] if len(machines) == 1 and isinstance(machines[0], (list, tuple)) else machines
    )
    session.devices.set_machines(len(named))


def ctrl_port(value: int) -> None:
    """Accepted; the launcher chooses its port."""
    _note("ctrl_port", value)


def grpc_use_no_signal(value: bool = True) -> None:
    """Accepted; there is no grpc."""
    _note("grpc_use_no_signal", value)


def log_dir(value: str) -> None:
    """Accepted; nothing is logged to files."""
    _note("log_dir", value)


def _note(name: str, value: object) -> None:
    reason = "python -m onefold.distributed.launch starts the processes, and has options for that"
    note_ignored("env", name, value, reason)
