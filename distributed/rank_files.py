"""The files of one machine's ranks: their output, their tracebacks and the store they meet in."""

from __future__ import annotations

import fcntl
import time
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs

from ..env import ERROR_DIR, RESTART_COUNT, STORE

# How often the lock of the store's file is tried, and the seconds between. A call of the store has
# it for some microseconds.
_TRIES = 20
_PAUSE = 0.005


class RankFiles(LogsSpecs):
    """A folder in `scratch` for each start of the ranks.

    With `shared_store` all ranks are on this machine and meet through a file there. Output goes to
    the terminal, or to files in `logdir` in OneFlow's layout.
    """

    def __init__(self, scratch: str, shared_store: bool, logdir: str | None) -> None:
        super().__init__(log_dir=scratch)
        self.folder = Path(scratch)
        self._scratch = Path(scratch)
        self._shared_store = shared_store
        self._logdir = logdir
        self._start = 0

    @property
    def root_log_dir(self) -> str:
        return str(self._scratch)

    @property
    def store(self) -> str:
        """The file through which the ranks meet; empty if they do not meet through a file."""
        return str(self.folder / "store") if self._shared_store else ""

    def store_is_locked(self) -> bool:
        """Whether one process has the lock of the store's file for longer than any call takes."""
        if not self.store or not Path(self.store).exists():
            return False
        with open(self.store, "rb") as file:
            for _ in range(_TRIES):
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the file is closed
                    return False
                time.sleep(_PAUSE)
        return True

    def begin(self, start: int) -> None:
        """Prepare for the start with this number."""
        self._start = start
        self.folder = self._scratch / f"start{start}"
        self.folder.mkdir()

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The files of each process, by local rank; an empty name is the terminal."""
        outs, errs, errors = dict.fromkeys(envs, ""), dict.fromkeys(envs, ""), {}
        for local, variables in envs.items():
            errors[local] = str(self.folder / f"agent{local}.json")
            variables["TORCHELASTIC_ERROR_FILE"] = errors[local]
            variables[RESTART_COUNT.name] = str(self._start)
            variables[ERROR_DIR.name] = str(self.folder)
            if self.store:
                variables[STORE.name] = self.store
            if self._logdir is not None:
                folder = Path(self._logdir, f"local_rank_{local}")
                if self._start:
                    folder /= f"start{self._start}"
                folder.mkdir(parents=True, exist_ok=True)
                outs[local], errs[local] = str(folder / "stdout"), str(folder / "stderr")
        return LogsDest(stdouts=outs, stderrs=errs, error_files=errors)
