"""Run a test's functions as the ranks of a launched world: real processes, forked in milliseconds.

The processes are forked from this one, so everything is imported already and the functions may be
closures. They meet through a key-value store that this process serves, like the launcher does.
"""

import contextlib
import io
import os
import pickle
import runpy
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from onefold.distributed.world import forget_world, world
from onefold.errors import CommError, RankMismatch


class RankFailed(AssertionError):  # noqa: N818
    """A rank raised, was killed, or did not end in time; says which, with its traceback."""


@dataclass
class _Rank:
    number: int
    pid: int
    pipe: int
    data: bytearray = field(default_factory=bytearray)
    open: bool = True


def run_ranks(
    n: int,
    program: Callable[..., Any] | str | Path,
    *args: Any,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
) -> list[Any]:
    """What `program(*args)` returns on each of n ranks, in rank order.

    A script (str or Path) gets `args` as its command line, and its result is what it printed.
    `env` is added to every rank's environment. RankFailed carries the traceback of the rank that
    failed first; ranks that only lost their peer are not blamed. Never takes longer than `timeout`
    seconds plus a moment to kill what is left.
    """
    server = TCPStore(
        "127.0.0.1", 0, None, True, timedelta(seconds=timeout), wait_for_workers=False
    )
    common = {
        "WORLD_SIZE": str(n),
        "LOCAL_WORLD_SIZE": str(n),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(server.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "ONEFOLD_DEVICE": "cpu",
        **(env or {}),
    }
    sys.stdout.flush()
    sys.stderr.flush()
    ranks: list[_Rank] = []
    try:
        for number in range(n):
            own = {**common, "RANK": str(number), "LOCAL_RANK": str(number)}
            ranks.append(_fork(number, own, program, args))
        late = _collect(ranks, time.monotonic() + timeout)
    finally:
        for rank in ranks:
            _end(rank)
    return _results(ranks, late, timeout)


def _fork(number: int, environ: dict[str, str], program: Any, args: Sequence[Any]) -> _Rank:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns that this process has threads; the child only uses its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writer)
        return _Rank(number, pid, reader)
    # From here on in the child, which must not return into the test session.
    status = 1
    try:
        os.close(reader)
        outcome = _child(environ, program, args)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(outcome)
        sys.stdout.flush()
        sys.stderr.flush()
        status = 0
    finally:
        os._exit(status)


def _child(environ: dict[str, str], program: Any, args: Sequence[Any]) -> bytes:
    """The pickled outcome: (time, None, result) or (time, (secondary, traceback), None)."""
    os.environ.update(environ)
    for name in ("GROUP_RANK", "NODE_RANK", "ONEFOLD_ERROR_DIR"):
        if name not in environ:
            os.environ.pop(name, None)
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    forget_world()
    try:
        if callable(program):
            result = program(*args)
        else:
            result = _run_script(str(program), args)
        world().disconnect()
        return pickle.dumps((time.monotonic(), None, result))
    except BaseException as error:  # noqa: BLE001
        moment = time.monotonic()
        text = traceback.format_exc()
        secondary = isinstance(error, CommError) and not isinstance(error, RankMismatch)
        with contextlib.suppress(Exception):
            sys.excepthook(type(error), _Quiet(type(error), error), error.__traceback__)
            world().disconnect()
        return pickle.dumps((moment, (secondary, text), None))
