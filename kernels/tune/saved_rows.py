"""Rows of measurements: each is appended to a file, so that a run that is cut off can go on."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..gpu.launch.configs import Config
from .config_search import Form, Outcome, form_of


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file. A row that was cut off while it was written is left out."""
    found = []
    for line in path.read_text().split("\n") if path.exists() else []:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def add_row(path: Path, row: object) -> None:
    """Append one row in one write, so that rows of several processes do not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        whole = end == 0 or os.pread(file.fileno(), 1, end - 1) == b"\n"
        file.write((b"" if whole else b"\n") + json.dumps(row, default=vars).encode() + b"\n")


class Rows:
    """The tuner's outcomes in a file, by the name of the table's entry and the configuration.

    Rows of another GPU or compiler than `machine` are left alone and not used.
    """

    def __init__(self, path: Path, machine: str) -> None:
        self.path, self.machine = path, machine
        self.known: defaultdict[str, dict[Form, Outcome]] = defaultdict(dict)
        for row in read_rows(path):
            if row["machine"] == machine:
                self.known[row["entry"]][form_of(row["config"])] = row["outcome"]

    def add(self, entry: str, config: Config, outcome: Outcome) -> None:
        """Append one outcome."""
        self.known[entry][form_of(config)] = outcome
        row = {
            "entry": entry, "config": dict(config), "outcome": outcome, "machine": self.machine,
        }  # fmt: skip
        add_row(self.path, row)
