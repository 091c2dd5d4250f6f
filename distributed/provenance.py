"""Provenance: the origin of a torch tensor, as a hash that ranks compare with ONEFOLD_CHECK=1.

An origin is a hash of the op, its arguments and the origins of its inputs, so that extra work of
one rank does not matter. Zero is an unknown origin, such as that of a part that each rank has read
itself, and of everything computed from it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..errors import user_line

R = TypeVar("R")
_NAME = "_onefold_origin"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MOST = 1 << 13
_PART = 1 << 18  # bytes


class Mark(NamedTuple):
    """An operation: a number that is the same in every process, its text, and its first line."""

    number: int
    text: str
    line: str


_Row = tuple[Mark, tuple[object, ...], tuple[int, ...]]  # operation, values, parents


class _State:
    """Whether origins are tracked, and the newest ones by number."""

    def __init__(self) -> None:
        self.on = False
        self.program = 0  # the origin of all communication in a graph's call
        self.line = ""  # the user's line that calls the graph
        self.rows: dict[int, _Row] = {}


state = _State()


@lru_cache(maxsize=1 << 12)
def mark(text: str) -> Mark:
    """The mark of an operation, with the user's line where it was first done."""
    text = _ADDRESS.sub("", text)
    return Mark(_number(text), text, user_line())


def origin(data: object) -> int:
    """The origin of a torch tensor, or of the first of several."""
    if isinstance(data, (tuple, list)):
        data = data[0] if data else None
    found: int = getattr(data, _NAME, 0)
    return found


def record(data: object, what: Mark, *values: object, parents: tuple[int, ...] = ()) -> None:
    """Set the origin of tensors: an operation with these values on tensors with these origins."""
    plain = tuple([_plain(value) for value in values]) if values else ()
    for index, made in enumerate(_tensors(data)):
        number = hash((what.number, index, plain, parents)) or 1
        setattr(made, _NAME, number)
        _add(number, (what, values, parents))


def record_all(shards: Iterable[Tensor], what: Mark, value: int) -> None:
    """Set one origin for all these tensors: an operation with a number and no inputs."""
    number = hash((what.number, value)) or 1
    for shard in shards:
        setattr(shard, _NAME, number)
    _add(number, (what, (value,), ()))


def of_program(text: str) -> int:
    """The origin of a program's communication: a hash chain of its lines."""
    number = 0
    for line in text.splitlines():
        what = mark(line)
        before, number = number, hash((what.number, number)) or 1
        state.rows[number] = (what, (), (before,))
    return number


def of_call(program: int, inputs: Sequence[object]) -> int:
    """The origin of the communication in a call of a program on these shards."""
    parents = tuple([origin(data) for data in inputs])
    if 0 in parents:
        return program
    what = mark("a call of the graph")
    number = hash((what.number, program, parents)) or 1
    _add(number, (what, (), (program, *parents)))
    return number


def within(program: int, run: Callable[..., R], *args: object) -> R:
    """The result of `run(*args)`, whose communication has the origin `program`."""
    before = state.program, state.line
    state.program, state.line = program, user_line()
    try:
        return run(*args)
    finally:
        state.program, state.line = before


def forget(data: object) -> None:
    """Mark the origin of tensors as unknown."""
    for each in _tensors(data):
        if getattr(each, _NAME, 0):  # most are new, and faster without attributes
            setattr(each, _NAME, 0)


def copy_to(data: object, source: object) -> None:
    """Set the origin of tensors to that of others, which have the same values."""
    found = origin(source)
    for each in _tensors(data):
        setattr(each, _NAME, found)


def tracked(run: Callable[..., Any], what: Mark) -> Callable[..., Any]:
    """`run`, which also records the origin of its results; it maps tensors or tuples to such."""

    def call(*args: object) -> Any:
        made = run(*args)
        if type(made) is Tensor:
            return _one(made, args, what)
        # Inputs with several tensors are passed as the shards of each.
        given = [arg[0] if type(arg) is tuple and arg else arg for arg in args]
        inputs = [x for x in given if isinstance(x, Tensor)]
        made = _unlike(made, inputs)
        parents = tuple([getattr(x, _NAME, 0) for x in inputs])
        if 0 in parents:
            forget(made)
        else:
            values = [x for x in given if not isinstance(x, Tensor) and x is not None and x != ()]
            record(made, what, *values, parents=parents)
        return made

    vars(call)["untracked"] = run
    return call


def untracked(run: Callable[..., R]) -> Callable[..., R]:
    """The argument of `tracked`, for a graph, which has one origin for all communication."""
    found: Callable[..., R] = getattr(run, "untracked", run)
    return found


def _one(made: Tensor, args: Sequence[object], what: Mark) -> Tensor:
    """`tracked` for a kernel of tensors and numbers with one result, which most calls are."""
    parents, values = [], []
    for arg in args:
        if isinstance(arg, Tensor):
            if arg is made:
                made = made.detach()  # as in `_unlike`
            parents.append(getattr(arg, _NAME, 0))
        elif arg is not None:
            values.append(arg)
    if 0 in parents:
        if getattr(made, _NAME, 0):
            setattr(made, _NAME, 0)
        return made
    plain = tuple([_plain(value) for value in values]) if values else ()
    given = tuple(parents)
    number = hash((what.number, 0, plain, given)) or 1
    setattr(made, _NAME, number)
    _add(number, (what, tuple(values), given))
    return made


def _add(number: int, row: _Row) -> None:
    state.rows[number] = row
    if len(state.rows) > 2 * _MOST:
        for old in list(state.rows)[:_MOST]:
            del state.rows[old]


def history(number: int) -> list[tuple[int, str, str]]:
    """The history of an origin, oldest first: numbers, operations, and their first lines."""
    found: set[int] = set()
    more = [number]
    while more:
        each = more.pop()
        if each not in found and each in state.rows:
            found.add(each)
            more += state.rows[each][2]
    return [
        (each, what.text + _shown(values), what.line)
        for each, (what, values, _) in state.rows.items()
        if each in found
    ]


def fingerprint(data: Tensor) -> int:
    """A checksum of a tensor's bytes: all of them, or the first and last of many."""
    if data.device.type != "cpu":
        return 0  # would wait for the device
    flat = data.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
    if len(flat) > 2 * _PART:
        flat = torch.cat((flat[:_PART], flat[-_PART:]))
    return zlib.crc32(flat.numpy().tobytes())


def _unlike(made: Any, inputs: Sequence[Tensor]) -> Any:
    """`made` without any of the inputs, since on some ranks a result may be an input itself."""
    if isinstance(made, Tensor):
        for each in inputs:
            if each is made:
                return made.detach()
        return made
    return tuple([_unlike(part, inputs) for part in made])


def _tensors(data: object) -> Sequence[Tensor]:
    if isinstance(data, Tensor):
        return (data,)
    if isinstance(data, (tuple, list)):
        return [x for part in data for x in _tensors(part)]
    return ()


def _shown(values: Sequence[object]) -> str:
    return f" with {', '.join(map(repr, values))}" if values else ""


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")


def _plain(value: object) -> object:
    """A value with the same hash in all processes, which strings and None do not have."""
    if isinstance(value, (int, float, complex)) and value == value:  # noqa: PLR0124
        return value
    if isinstance(value, tuple):
        return tuple([_plain(part) for part in value])
    return _number(_ADDRESS.sub("", repr(value)))
