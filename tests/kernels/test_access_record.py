"""The race that a record of accesses shows is the first one among all pairs of accesses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from onefold.kernels.interpreter.access_record import AccessRecord, Block

SIZE = 4  # bytes of memory


class Access(NamedTuple):
    """Elements that one phase of a program accesses at once, and their lanes."""

    kind: str
    program: int
    phase: int
    size: int
    elements: list[tuple[int, int]]  # byte, lane

    def bytes(self):
        return [(at + i, lane) for at, lane in self.elements for i in range(self.size)]


def is_race(before, after, lane_before, lane_after):
    """Whether two accesses of one byte may come in any order, one of them a write."""
    kinds = before.kind, after.kind
    if kinds in {("read", "read"), ("update", "update")}:
        return False
    if before.kind == "update":  # of it only the last one is known, of any program
        return True
    if before.program != after.program:
        return True
    if before.phase != after.phase:
        return False
    if kinds in {("write", "read"), ("write", "update")}:
        return True
    return lane_before != lane_after


def shows_race(access, earlier):
    mine = access.bytes()
    places = [at for at, _ in access.elements]
    if access.kind == "write" and len({*places}) < len(places):
        return True
    return any(
        at == other and is_race(before, access, lane_before, lane)
        for before in earlier
        for other, lane_before in before.bytes()
        for at, lane in mine
    )


@st.composite
def accesses(draw):
    """Programs one after the other, with barriers, and what they access."""
    found, phase = [], 0
    for program in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(st.sampled_from(["read", "read", "write", "update"]))
            size = draw(st.sampled_from([1, 2]))
            places = draw(st.lists(st.sampled_from(range(0, SIZE, size)), min_size=1, max_size=3))
            lanes = draw(st.permutations(range(3)))[: len(places)]
            found.append(Access(kind, program, phase, size, [*zip(places, lanes, strict=True)]))
            phase += draw(st.integers(0, 1))
        phase += 1
    return found


def reported(record, access, first):
    at, lanes = (np.array(column) for column in zip(*access.elements, strict=True))
    return getattr(record, access.kind)(Block(at, lanes, access.size), access.phase, first)


@settings(max_examples=1500)
@given(accesses())
def test_the_first_race_is_found(program):
    record, firsts = AccessRecord(SIZE), {}
    for i, access in enumerate(program):
        first = firsts.setdefault(access.program, access.phase)
        race = reported(record, access, first)
        assert (race is not None) == shows_race(access, program[:i])
        if race is not None:
            assert 1 <= race.elements <= 3 * access.size
            assert race.first in {at for at, _ in access.bytes()}
            return


@pytest.mark.parametrize("kind", ["read", "write", "update"])
def test_the_oracle_tells_orders_apart(kind):
    """A write and another access are a race unless a barrier lies between them."""
    write = Access("write", 0, 0, 4, [(0, 0)])
    assert shows_race(Access(kind, 0, 0, 4, [(0, 1)]), [write])
    assert not shows_race(Access(kind, 0, 1, 4, [(0, 1)]), [write])
    assert shows_race(Access(kind, 1, 1, 4, [(0, 1)]), [write])
    assert not shows_race(Access(kind, 1, 1, 4, [(4, 1)]), [write])
