"""Rows of candidates as a search gives them to a report."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    name: str
    seconds: float | None
    memory: int | None
    description: str
