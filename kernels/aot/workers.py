"""Worker processes that compile in parallel. If a compiler crashes, its case is known."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import IO, Any, TypeVar

from ...errors import OnefoldRuntimeError

Task = TypeVar("Task", bound=tuple[object, ...])
Result = TypeVar("Result")
_LINES = 12  # of what a worker printed, shown where it failed


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    printed: IO[bytes]
    task: int | None = None  # the number of the task that it works on
    since: float = 0.0

    def said(self) -> str:
        """The output of the worker; if it is long, the lines about errors."""
        self.printed.seek(0)
        lines = self.printed.read().decode(errors="replace").splitlines()
        if len(lines) > _LINES:
            lines = [line for line in lines if re.search(r"(?i)error|assert|fatal", line)]
        return "\n".join(f"    {line[:300]}" for line in lines[:_LINES])


def run(
    work: Callable[..., Result],
    tasks: Sequence[Task],
    processes: int,
    limit: float,
    done: Callable[[Task, Result | None, str], None],
) -> None:
    """Call `work(*task)` in a process for each task, and `done(task, result, error)` here.

    `error` is empty if there is a result. A task may also raise, crash its process or take more
    than `limit` seconds. `work` must be importable by name, as multiprocessing requires.
    """
    waiting = list(reversed(range(len(tasks))))
    workers = [_start(work) for _ in range(min(processes, len(tasks)))]
    try:
        for worker in workers:
            _await(worker)
        while waiting or any(worker.task is not None for worker in workers):
            for worker in workers:
                if worker.task is None and waiting:
                    worker.task = waiting.pop()
                    worker.since = time.monotonic()
                    worker.printed.truncate(0)
                    worker.pipe.send(tasks[worker.task])
            busy = [worker for worker in workers if worker.task is not None]
            ready = wait([worker.pipe for worker in busy], timeout=1.0)
            for index, worker in enumerate(workers):
                if worker.task is None:
                    continue
                late = time.monotonic() - worker.since > limit
                if worker.pipe not in ready and not late:
                    continue
                task, (result, error) = worker.task, _answer(worker, limit, late)
                if not worker.process.is_alive():
                    _stop(worker)
                    workers[index] = _start(work)
                    _await(workers[index])
                worker.task = None
                done(tasks[task], result, error)
    finally:
        for worker in workers:
            _stop(worker)


def _start(work: Callable[..., object]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
    process = context.Process(target=_serve, args=(work, theirs, _path(printed)), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, printed)


def _await(worker: _Worker) -> None:
    """Wait until the process has imported everything, so that an import error is seen once."""
    try:
        worker.pipe.recv()
    except EOFError:
        worker.process.join()
        raise OnefoldRuntimeError(
            f"a process that compiles kernels ended while it started, with exit code "
            f"{worker.process.exitcode}; what it printed is above"
        ) from None


def _path(file: IO[bytes]) -> str:
    return f"/proc/{os.getpid()}/fd/{file.fileno()}"


def _serve(work: Callable[..., object], pipe: Connection, printed: str) -> None:
    """The loop of a worker: receives tasks, sends results. Compiler output goes into a file."""
    with open(printed, "ab", buffering=0) as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
        os.dup2(file.fileno(), sys.stdout.fileno())
    pipe.send("ready")
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer = (work(*task), "")
        except Exception as error:  # noqa: BLE001 - a compiler may raise anything
            answer = (None, f"{type(error).__name__}: {error}")
        pipe.send(answer)


def _answer(worker: _Worker, limit: float, late: bool) -> tuple[Any, str]:
    if late:
        worker.process.kill()
        worker.process.join()
        return None, f"took more than {limit:.0f} seconds"
    try:
        result, error = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        code = worker.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return None, f"the compiler died ({how})\n{worker.said()}"
    return result, f"{error}\n{worker.said()}" if error else ""


def _stop(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.join(timeout=2)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()
    worker.printed.close()
