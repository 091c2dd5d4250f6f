"""Failures: how a failing rank leaves its traceback, and how the launcher finds the first one."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

# What is said of a process in this state.
STOPPED = "stopped by a signal, such as SIGSTOP, or by a debugger"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one rank ended. `secondary` when it was because of another rank."""

    rank: int
    time: float
    secondary: bool
    text: str
    status: int = 1
    raised: bool = True  # else there is no exception, and only the end of the process is known

    def prefixed(self) -> str:
        """The text with the rank before each line."""
        return "\n".join(f"[rank {self.rank}] {line}" for line in self.text.splitlines())

    def summary(self) -> str:
        """One line: what the exception says first."""
        for line in self.text.splitlines():
            # The exception follows the frames, which are indented.
            if line and not line.startswith((" ", "Traceback ")):
                return line
        return "failed"

    def to_json(self) -> str:
        """The inverse of `from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> Failure:
        """The inverse of `to_json`."""
        return Failure(**json.loads(text))


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The failure that a job ended with, and one line about each other rank, by rank.

    A traceback comes last, where it is seen; of a rank that ended without one is said first that
    it did, and then where the others were.
    """

    failure: Failure
    others: Mapping[int, str]

    def because_of(self, failure: Failure) -> FailureReport:
        """The same, if another rank's failure came first."""
        if failure == self.failure:
            return self
        mine = self.failure
        others = {**self.others, mine.rank: f"failed too: {mine.summary()}"}
        return FailureReport(failure, others)

    def text(self) -> str:
        """What to print, with the rank before each line."""
        others = [f"[rank {rank}] {line}" for rank, line in sorted(self.others.items())]
        if self.failure.raised:
            return "\n".join([*others, self.failure.prefixed()])
        return "\n".join([self.failure.prefixed(), *others])


def leave(folder: str, failure: Failure) -> None:
    """Write `failure` where the launcher looks for it."""
    final = Path(folder, f"rank{failure.rank}.json")
    draft = final.with_suffix(".draft")
    draft.write_text(failure.to_json(), encoding="utf-8")
    draft.rename(final)  # so that the launcher never reads half a file


def found(folder: str | Path) -> list[Failure]:
    """What ranks have left in `folder`."""
    files = sorted(Path(folder).glob("rank*.json"))
    return [Failure.from_json(path.read_text(encoding="utf-8")) for path in files]


def ending(code: int) -> str:
    """How a process ended, by its exit code, which is negative for a signal."""
    if code < 0:
        return f"killed by signal {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def ended(rank: int, code: int, moment: float) -> Failure:
    """A failure known only from how the process ended."""
    status = 128 - code if code < 0 else code
    return Failure(rank, moment, False, ending(code), status, raised=False)


def halted(rank: int, moment: float) -> Failure:
    """The failure of a process that was stopped and did not go on while others waited for it."""
    return Failure(rank, moment, False, f"{STOPPED}, while others waited for it", raised=False)


def lost(rank: int, moment: float) -> Failure:
    """The failure of a rank whose machine says nothing more."""
    return Failure(rank, moment, False, "lost with its machine", raised=False)


def first(failures: Iterable[Failure]) -> Failure:
    """The failure that the others follow from: the earliest that is not secondary."""
    return min(failures, key=lambda failure: (failure.secondary, failure.time))
