"""Failures: how a failing rank leaves its traceback, and how the launcher finds the first one."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one rank ended. `secondary` when it was because of another rank."""

    rank: int
    time: float
    secondary: bool
    text: str
    status: int = 1

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


def leave(folder: str, failure: Failure) -> None:
    """Write `failure` where the launcher looks for it."""
    final = Path(folder, f"rank{failure.rank}.json")
    draft = final.with_suffix(".draft")
    draft.write_text(failure.to_json(), encoding="utf-8")
    draft.rename(final)  # so that the launcher never reads half a file


def found(folder: str) -> list[Failure]:
    """What ranks have left in `folder`."""
    files = sorted(Path(folder).glob("rank*.json"))
    return [Failure.from_json(path.read_text(encoding="utf-8")) for path in files]


def ended(rank: int, code: int, moment: float) -> Failure:
    """A failure known only from how the process ended: its exit code, negative for a signal."""
    if code < 0:
        text = f"killed by signal {signal.Signals(-code).name}"
        # SIGTERM is how the launcher stops ranks because of another one.
        return Failure(rank, moment, -code == signal.SIGTERM, text, 128 - code)
    return Failure(rank, moment, False, f"ended with exit code {code}", code)


def first(failures: Iterable[Failure]) -> Failure:
    """The failure that the others follow from: the earliest that is not secondary."""
    return min(failures, key=lambda failure: (failure.secondary, failure.time))
