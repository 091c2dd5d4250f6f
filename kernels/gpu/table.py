"""Table: for each op of the engine, which Triton twins do its work on cuda, or why none does.

`table.json` is what the ops were seen to do; tests/triton/test_table.py runs them all and compares.
An op is whole when torch does no work in it: views and other changes of metadata are none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PATH = Path(__file__).with_name("table.json")

# Ops whose work torch does also on cuda, and why.
_WIDE_HEADS = "on cuda only for heads of more than 256 features: a tile does not fit the registers"
REASONS = {
    "attention": _WIDE_HEADS,
    "attention_grad": _WIDE_HEADS,
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one op uses: twins, and operators of torch that compute or move values."""

    twins: tuple[str, ...]
    torch: tuple[str, ...]


def read() -> dict[str, Row]:
    """The committed table, by op."""
    rows = json.loads(PATH.read_text())
    return {name: Row(tuple(row["twins"]), tuple(row["torch"])) for name, row in rows.items()}


def write(rows: Mapping[str, Row]) -> None:
    """One line for each op, sorted."""
    lines = [f"{json.dumps(name)}: {json.dumps(asdict(rows[name]))}" for name in sorted(rows)]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def missing(rows: Mapping[str, Row], ops: Sequence[str]) -> list[str]:
    """The ops that use torch, or that were never run, and have no reason for it."""
    return [name for name in ops if name not in REASONS and (name not in rows or rows[name].torch)]


def text(rows: Mapping[str, Row]) -> str:
    """The table to read: op, and its twins or why it has none."""
    lines = []
    for name, row in sorted(rows.items()):
        done = ", ".join(row.twins) or "changes metadata only"
        if row.torch:
            why = REASONS.get(name, "no twin yet")
            done = f"torch ({', '.join(row.torch)}): {why}"
        lines.append(f"{name:28} {done}")
    return "\n".join(lines)
