"""The elastic agent of one machine: starts its ranks, watches them, and ends them with a report.

torch's agent ends all ranks as soon as it sees one that has failed. Here the others first get a
moment to fail by themselves, because they know in which op and line they waited for it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

from torch._C._distributed_c10d import FileStore
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SubprocessContext

from ..env import TIMEOUT, TOKEN
from .elastic_rendezvous import ElasticRendezvous
from .failure import STOPPED, FailureReport, ended, ending, first, found, halted, lost
from .launch_rendezvous import FixedRendezvous
from .rank_files import RankFiles
from .rank_state import RankStates, job_keys

# How long ranks may take to say where they waited for one that has failed, in seconds.
_LAST_WORDS = 2.0
_INTERVAL = 0.05

Processes = Mapping[int, "Popen[bytes]"]


class Agent(LocalElasticAgent):
    """The agent of the ranks of one machine. After `run`, `report` says why they failed, if so."""

    def __init__(
        self,
        spec: WorkerSpec,
        rendezvous: FixedRendezvous | ElasticRendezvous,
        files: RankFiles,
        shutdown_timeout: int,
    ) -> None:
        super().__init__(spec, files)
        self._grace = shutdown_timeout  # seconds that ranks get to end
        self.report: FailureReport | None = None
        self._meeting = rendezvous
        self._files = files
        self._stopped: set[int] = set()  # as reported to the others
        self._held_since: float | None = None  # when a stopped rank was found to hold the store
        self._halted: set[int] = set()  # which were ended because of that

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, int]:
        start = self._meeting.start
        self._files.begin(start)
        self._stopped, self._held_since, self._halted = set(), None, set()
        if start:
            ranks = [worker.global_rank for worker in worker_group.workers]
            size = worker_group.workers[0].world_size
            sys.stderr.write(f"launch: start {start + 1}, here with ranks {ranks} of {size}\n")
        started: dict[int, int] = super()._start_workers(worker_group)
        return started

    def _states(self) -> RankStates:
        """What the ranks say of themselves."""
        store = FileStore(self._files.store) if self._files.store else self._meeting.store
        return RankStates(job_keys(store, TOKEN.read(), self._meeting.start))

    def _processes(self) -> Processes:
        """The processes of this machine, by global rank."""
        if not isinstance(self._pcontext, SubprocessContext):
            return {}
        workers = self._worker_group.workers
        return {
            workers[local].global_rank: handler.proc
            for local, handler in self._pcontext.subprocess_handlers.items()
        }

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        processes = self._processes()
        codes = [process.poll() for process in processes.values()]
        if any(codes) or self._has_lost_one():
            self.report = self._explain(processes)
            end(processes, signal.SIGTERM, self._grace)
        elif None in codes:
            # torch's agent would look again, and end all at once if a rank has failed since.
            self._note_stopped(processes)
            return RunResult(state=WorkerState.HEALTHY)
        result: RunResult = super()._monitor_workers(worker_group)
        return result

    def _has_lost_one(self) -> bool:
        meeting = self._meeting
        return isinstance(meeting, ElasticRendezvous) and meeting.has_lost_one()

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        if self.report is None:
            sys.stderr.write(
                f"{self._endings()}launch: starts again, since machines wait to join\n"
            )
        else:
            left = self._remaining_restarts
            sys.stderr.write(f"{self.report.text()}\nlaunch: starts again ({left} restarts left)\n")
            self.report = None
        super()._restart_workers(worker_group)

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: int | None = None
    ) -> None:
        end(self._processes(), death_sig, self._grace)
        super()._shutdown(death_sig)

    def _endings(self) -> str:
        """How ranks of other machines ended, if they did; a line for each."""
        states, found = self._states(), ""
        with suppress(RuntimeError):
            if states.any_ended():
                for rank in range(self._worker_group.workers[0].world_size):
                    if how := states.ending(rank):
                        found += f"[rank {rank}] {how}\n"
        return found

    def _note_stopped(self, processes: Processes) -> None:
        """Tell the other ranks of those that are stopped, and so cannot say where they are."""
        stopped = {rank for rank, process in processes.items() if _is_stopped(process.pid)}
        if changed := stopped ^ self._stopped:
            if stopped and self._files.store_is_locked():
                self._end_holder(processes, stopped)
                return
            self._held_since = None
            with suppress(RuntimeError):
                states = self._states()
                for rank in changed:
                    states.note(rank, STOPPED if rank in stopped else "")
            self._stopped = stopped

    def _end_holder(self, processes: Processes, stopped: set[int]) -> None:
        """End ranks that were stopped in a call of the store, when others would give up waiting.

        Nobody can use the store meanwhile, and so say that a wait takes too long.
        """
        self._held_since = self._held_since or time.monotonic()
        if time.monotonic() - self._held_since > TIMEOUT.read():
            self._halted = stopped
            for rank in stopped:
                _signal(processes[rank], signal.SIGKILL)

    def _explain(self, processes: Processes) -> FailureReport:
        """Why the first rank failed, and where the others were, after they had time to say it."""
        states = self._states()
        moments: dict[int, float] = {}
        asked = _ask(states)
        deadline = time.monotonic() + _LAST_WORDS
        while len(moments) < len(processes) and time.monotonic() < deadline:
            for rank, process in processes.items():
                if rank not in moments and process.poll() is not None:
                    moments[rank] = time.time()
                    with suppress(RuntimeError):
                        halted_here = rank in self._halted
                        states.end(rank, STOPPED if halted_here else ending(process.returncode))
            time.sleep(_INTERVAL)
        left = {failure.rank: failure for failure in found(self._files.folder)}
        failures = {
            rank: halted(rank, moment) if rank in self._halted else ended(rank, code, moment)
            for rank, moment in moments.items()
            if (code := processes[rank].returncode)
        } | left
        running = processes.keys() - moments.keys()
        stopped = {rank for rank in running if _is_stopped(processes[rank].pid)}
        if all(failure.secondary for failure in failures.values()):
            failures |= {rank: halted(rank, time.time()) for rank in stopped}
        if not failures:  # nobody failed here, so another machine is lost
            size = self._worker_group.workers[0].world_size
            rank = next(rank for rank in range(size) if rank not in processes)
            failures[rank] = lost(rank, time.time())
        cause = first(failures.values())
        others = {
            rank: f"failed too: {failure.summary()}"
            for rank, failure in failures.items()
            if failure is not cause
        }
        others |= {rank: _where(states, rank, asked) for rank in running - failures.keys()}
        return FailureReport(cause, others)


def _ask(states: RankStates) -> int:
    try:
        return states.ask()
    except RuntimeError:
        return 0


def _where(states: RankStates, rank: int, asked: int) -> str:
    """Where a rank was that did not fail."""
    with suppress(RuntimeError):
        state = states.read(rank)
        if state is not None and state.asked >= asked:
            return f"was {state.at}"
    return "did not say where it was"


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger; False where that is not known."""
    try:
        # The state follows the program's name, which is in brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def end(processes: Processes, how: signal.Signals, timeout: float) -> None:
    """End processes with the signal `how`; with SIGKILL those that still run after the timeout."""
    for process in processes.values():
        _signal(process, how)
        # A stopped process would not notice.
        _signal(process, signal.SIGCONT)
    _wait(processes, timeout)
    for process in processes.values():
        _signal(process, signal.SIGKILL)
    _wait(processes, timeout)


def _wait(processes: Processes, timeout: float) -> None:
    """Return when all processes have ended, or after the timeout."""
    deadline = time.monotonic() + timeout
    while any(process.poll() is None for process in processes.values()):
        if time.monotonic() > deadline:
            return
        time.sleep(_INTERVAL)


def _signal(process: Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process that runs, and to its children if it has a group of its own."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
