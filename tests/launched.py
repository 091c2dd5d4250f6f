"""Run a test's functions as the ranks of a launched world: real processes, forked in milliseconds.

The processes are forked from this one, so everything is imported already and the functions may be
closures. They meet through a file.
"""

import contextlib
import faulthandler
import io
import os
import runpy
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from onefold.distributed.world import forget_world, world
from onefold.errors import CommError, OnefoldError, RankMismatch


class RankFailed(AssertionError):
    """A rank raised, was killed, or did not end in time; says which, with its traceback."""


@dataclass
class _Rank:
    number: int
    pid: int
    pipe: int
    stacks: Any  # a file that the rank writes its stack to when it is late
    data: bytearray = field(default_factory=bytearray)
    reads: bool = True
    status: int | None = None


def run_ranks(
    n: int,
    program: Callable[..., Any] | str | Path,
    *args: Any,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
) -> list[Any]:
    """What `program(*args)` returns on each of n ranks, in rank order.

    A script (str or Path) gets `args` as its command line, and its result is what it printed.
    The ranks are connected when the program starts. `env` is added to their environment.

    RankFailed carries the traceback of the rank that failed first; ranks that only lost their peer
    are not blamed. Never takes longer than `timeout` seconds plus a moment to end what is left;
    waits between ranks give up after half of it.

    Example:
        >>> run_ranks(2, lambda: world().rank)
        [0, 1]
    """
    with tempfile.TemporaryDirectory(prefix="onefold-ranks-") as folder:
        common = {
            "WORLD_SIZE": str(n),
            "LOCAL_WORLD_SIZE": str(n),
            "ONEFOLD_STORE": str(Path(folder, "store")),
            "ONEFOLD_DEVICE": "cpu",
            "ONEFOLD_TIMEOUT": str(timeout / 2),
            **({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}),
            **(env or {}),
        }
        sys.stdout.flush()
        sys.stderr.flush()
        ranks: list[_Rank] = []
        try:
            for number in range(n):
                own = {**common, "RANK": str(number), "LOCAL_RANK": str(number)}
                ranks.append(_fork(number, own, program, args))
            _collect(ranks, time.monotonic() + timeout)
            return _results(ranks, timeout)
        finally:
            for rank in ranks:
                _end(rank)


def _fork(number: int, environ: dict[str, str], program: Any, args: Sequence[Any]) -> _Rank:
    reader, writer = os.pipe()
    stacks = tempfile.TemporaryFile()  # noqa: SIM115 (closed by _end)
    with warnings.catch_warnings():
        # Python 3.12 warns that this process has threads; the child only uses its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writer)
        return _Rank(number, pid, reader, stacks)
    # From here on in the child, which must never return into the test session.
    try:
        faulthandler.register(signal.SIGUSR1, file=stacks)
        outcome = _child(environ, program, args)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(outcome)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _child(environ: dict[str, str], program: Any, args: Sequence[Any]) -> bytes:
    """The packed outcome: (time, failure, result), a failure being (secondary, traceback)."""
    for name in ("GROUP_RANK", "NODE_RANK", "ONEFOLD_ERROR_DIR"):
        os.environ.pop(name, None)
    os.environ.update(environ)
    torch.set_num_threads(1)
    forget_world()
    # The parent shows the traceback; the world puts its own hook before this one.
    sys.excepthook = lambda *_: None
    try:
        world().ensure(tuple(range(world().size)))
        result = program(*args) if callable(program) else _run_script(str(program), args)
        outcome = _pack((time.monotonic(), None, result))
    except BaseException as error:  # noqa: BLE001
        lost = isinstance(error, CommError) and not isinstance(error, RankMismatch)
        reported = isinstance(error, OnefoldError) and error.raised_on not in (None, world().rank)
        secondary = lost or reported
        outcome = _pack((time.monotonic(), (secondary, traceback.format_exc()), None))
        sys.excepthook(type(error), error, error.__traceback__)
    world().disconnect()
    return outcome


def _pack(outcome: tuple[Any, ...]) -> bytes:
    """torch's own format: pickle alone loses some dtypes."""
    data = io.BytesIO()
    torch.save(outcome, data)
    return data.getvalue()


def _unpack(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=False)


def _run_script(path: str, args: Sequence[Any]) -> str:
    sys.argv = [path, *map(str, args)]
    sys.path.insert(0, str(Path(path).resolve().parent))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
    return printed.getvalue()


def _collect(ranks: Sequence[_Rank], deadline: float) -> None:
    """Read what the ranks say until all have ended or the time is over."""
    by_pipe = {rank.pipe: rank for rank in ranks}
    while reading := [rank.pipe for rank in ranks if rank.reads]:
        left = deadline - time.monotonic()
        ready = select.select(reading, [], [], max(left, 0.0))[0]
        if not ready:
            return
        for pipe in ready:
            chunk = os.read(pipe, 1 << 16)
            by_pipe[pipe].data += chunk
            by_pipe[pipe].reads = bool(chunk)
    for rank in ranks:
        rank.status = os.waitpid(rank.pid, 0)[1]


def _results(ranks: Sequence[_Rank], timeout: float) -> list[Any]:
    late = [rank for rank in ranks if rank.reads]
    outcomes = {rank.number: _unpack(rank.data) for rank in ranks if rank.data and rank not in late}
    failures = [
        (failure[0], moment, f"rank {number} failed:\n{failure[1]}")
        for number, (moment, failure, _) in outcomes.items()
        if failure is not None
    ]
    failures += [
        (False, 0.0, f"rank {rank.number} ended without a result: {_ending(rank.status)}")
        for rank in ranks
        if not rank.data and rank not in late
    ]
    if failures:
        raise RankFailed(min(failures)[2])
    if late:
        raise RankFailed(
            f"after {timeout:g} s these ranks were still running:\n"
            + "\n".join(f"rank {rank.number}:\n{_stack(rank)}" for rank in late)
        )
    return [outcomes[rank.number][2] for rank in ranks]


def _ending(status: int | None) -> str:
    code = os.waitstatus_to_exitcode(status or 0)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _stack(rank: _Rank) -> str:
    os.kill(rank.pid, signal.SIGUSR1)
    time.sleep(0.2)
    return os.pread(rank.stacks.fileno(), 1 << 16, 0).decode(errors="replace")


def _end(rank: _Rank) -> None:
    """Kill this child of ours unless it has ended, and free what it used here."""
    if rank.status is None:
        os.kill(rank.pid, signal.SIGKILL)
        rank.status = os.waitpid(rank.pid, 0)[1]
    os.close(rank.pipe)
    rank.stacks.close()
