"""Reads Triton's IR, as text, into a tree of operations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LOCATION = re.compile(r' loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)')
_NAME = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_RESULTS = re.compile(r"^(%[\w$.\-]+)(?::(\d+))? = ")
_OPERATION = re.compile(r'^"?([a-z_]+\.[\w.]+)"?')
_INTEGER = re.compile(r"(?:^|[x ])i(\d+)\b")


@dataclass
class Operation:
    """`results` = `name` `operands`; `text` is what stands behind the name, and `body` within."""

    name: str
    results: list[str]
    operands: list[str]
    text: str
    body: list[Operation] = field(default_factory=list)

    @property
    def bits(self) -> int:
        """The bits of the integers that it makes, or 0."""
        types = self.text.rpartition(" : ")[2]
        found = _INTEGER.findall(types)
        return int(found[-1]) if found and "!tt.ptr" not in types else 0


def read(text: str) -> list[Operation]:
    """The operations of the functions of a module. Blocks are the bodies of what they belong to."""
    lines = iter([_LOCATION.sub("", line).strip() for line in text.splitlines()])
    return [part for top in _block(lines) for part in (top.body if top.name == "tt.func" else [])]


def _block(lines: Iterator[str]) -> list[Operation]:
    found: list[Operation] = []
    for line in lines:
        if line.startswith("module") and line.endswith("{"):
            return _block(lines)
        if line.startswith("}"):
            if line.endswith("{"):  # the other branch of what began before
                found += _block(lines)
            return found
        operation = _operation(line)
        if operation is not None:
            if line.endswith("{"):
                operation.body = _block(lines)
            found.append(operation)
    return found


def _operation(line: str) -> Operation | None:
    results: list[str] = []
    given = _RESULTS.match(line)
    if given is not None:
        name, count = given[1], given[2]
        results = [name] if count is None else [f"{name}#{index}" for index in range(int(count))]
        line = line[given.end() :]
    kind = _OPERATION.match(line)
    if kind is None:
        return None
    text = line[kind.end() :]
    return Operation(kind[1], results, _NAME.findall(text), text)
