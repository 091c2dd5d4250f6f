"""Finds offsets of a launch that do not fit the 32 bits in which a kernel computes them.

The sizes, strides and the grid of the launch give the range of every integer of its IR. Integers
that are read from memory, and what is computed of them, are not known, and not reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .triton_ir import Operation

_SAME = set(
    "tt.splat tt.broadcast tt.expand_dims tt.reshape tt.trans arith.extsi arith.bitcast tt.bitcast "
    "arith.index_cast".split()
)
_LOGIC = {"arith.andi", "arith.ori", "arith.xori"}
_ARITHMETIC = {"arith.addi", "arith.subi", "arith.muli"}
_CONSTANT = re.compile(r"^ (?:dense<)?(-?\d+|true|false)>? : ")
_ATTRIBUTE = re.compile(r"(end|start) = (\d+)")
_LOOP = re.compile(r"^ (%[\w$.\-]+) = (%[\w$.\-#]+) to (%[\w$.\-#]+) step (%[\w$.\-#]+)")
_CARRIED = re.compile(r"(%[\w$.\-]+) = (%[\w$.\-#]+)")


class Range(NamedTuple):
    """The least and the greatest value; `wrapped` says what of it did not fit, or is empty."""

    low: int
    high: int
    wrapped: str = ""


def wrapped_offsets(
    operations: Sequence[Operation], numbers: Mapping[str, int], grid: Sequence[Any]
) -> list[str]:
    """What is addressed with integers that overflow, in a launch with these numbers by name."""
    walk = _Walk(numbers, grid)
    return list(dict.fromkeys(walk.run(operations)))


def _addressing(operation: Operation) -> list[str]:
    """The operands that say which memory is read or written, or whether."""
    if operation.name in ("tt.addptr", "tt.load", "tt.descriptor_load", "tt.descriptor_gather"):
        return operation.operands[1:]
    if operation.name == "tt.store":
        return operation.operands[2:]
    if operation.name.startswith("tt.descriptor_"):
        return operation.operands[1:-1]
    return []


class _Walk:
    """Goes through the operations in order, and keeps the ranges of the values that are known."""

    def __init__(self, numbers: Mapping[str, int], grid: Sequence[Any]) -> None:
        self.grid = dict(zip("xyz", grid, strict=False))
        self.values = {f"%{name}": Range(number, number) for name, number in numbers.items()}
        self.makers: dict[str, Operation] = {}

    def run(self, operations: Sequence[Operation]) -> Iterator[str]:
        for operation in operations:
            if operation.name == "scf.for":
                yield from self.loop(operation)
                found = None
            else:
                for name in _addressing(operation):
                    if name in self.values and self.values[name].wrapped:
                        yield self.values[name].wrapped
                yield from self.run(operation.body)
                found = self.result(operation)
            for result in operation.results:
                self.makers[result] = operation
                self.values.pop(result, None)
            if found is not None and len(operation.results) == 1:
                self.values[operation.results[0]] = found

    def loop(self, operation: Operation) -> Iterator[str]:
        """A loop, for all values of its variable, and of the sums that it makes."""
        head = _LOOP.match(operation.text)
        assert head is not None, f"this is no loop: {operation.text}"
        low, high, step = (self.values.get(name) for name in head.groups()[1:])
        carried = operation.text.partition("iter_args(")[2].partition(") ->")[0]
        given = _CARRIED.findall(carried)
        for name in [head[1], *(name for name, _ in given)]:
            self.values.pop(name, None)
        trips = 0
        if low is not None and high is not None:
            last = max(high.high - 1, low.low)
            self.values[head[1]] = Range(low.low, last, low.wrapped or high.wrapped)
            if step is not None and step.low > 0:
                trips = max(-(-(high.high - low.low) // step.low), 0)
        if trips and given:
            list(self.run(operation.body))  # so that it is known what each trip adds
            ends = operation.body[-1].operands
            for (name, first), end in zip(given, ends, strict=True):
                self.sum_of_trips(name, self.values.get(first), self.makers.get(end), trips)
        yield from self.run(operation.body)

    def sum_of_trips(
        self, name: str, begin: Range | None, made: Operation | None, trips: int
    ) -> None:
        """Keep the range of what begins with a value, and to which each trip adds another."""
        if begin is None or made is None or made.name != "arith.addi" or name not in made.operands:
            return
        added = self.values.get(next((other for other in made.operands if other != name), name))
        if added is not None:
            low = begin.low + min(added.low, 0) * (trips - 1)
            high = begin.high + max(added.high, 0) * (trips - 1)
            self.values[name] = _fitted(made, low, high, begin.wrapped)

    def result(self, operation: Operation) -> Range | None:
        """The range of the result, if it is known."""
        name, text = operation.name, operation.text
        if name == "arith.constant":
            found = _CONSTANT.match(text)
            if found is None:
                return None
            constant = {"true": 1, "false": 0}.get(found[1])
            number = int(found[1]) if constant is None else constant
            return Range(number, number)
        if name == "tt.get_program_id":
            return Range(0, self.grid[text.split()[0]] - 1)
        if name == "tt.get_num_programs":
            programs = self.grid[text.split()[0]]
            return Range(programs, programs)
        if name == "tt.make_range":
            ends = {key: int(number) for key, number in _ATTRIBUTE.findall(text)}
            return Range(ends["start"], ends["end"] - 1)
        given = [self.values.get(operand) for operand in operation.operands]
        wrapped = next((x.wrapped for x in given if x is not None and x.wrapped), "")
        if name == "arith.cmpi" or (name in _LOGIC and operation.bits == 1):
            return Range(0, 1, wrapped)
        if name == "arith.select":
            given = given[1:]
        known = [x for x in given if x is not None]
        if len(known) < len(given) or not given:
            return Range(-(2**63), 2**63 - 1, wrapped) if wrapped else None
        if name in _SAME or (name == "arith.extui" and known[0].low >= 0):
            return known[0]
        if name == "arith.trunci":
            return _fitted(operation, *known[0])
        if name == "arith.select":
            return Range(min(x.low for x in known), max(x.high for x in known), wrapped)
        if name == "arith.subi" and self.divisor(operation).low > 0:
            return _of_two("arith.remsi", operation, known[0], self.divisor(operation), wrapped)
        return _of_two(name, operation, known[0], known[1], wrapped) if len(known) == 2 else None

    def divisor(self, operation: Operation) -> Range:
        """The n of a - a // n * n; zero where the operation is none."""
        product = self.makers.get(operation.operands[1])
        if product is not None and product.name == "arith.muli":
            for quotient, n in (product.operands, product.operands[::-1]):
                made = self.makers.get(quotient)
                wanted = ("arith.divsi", [operation.operands[0], n])
                if made is not None and (made.name, made.operands) == wanted:
                    return self.values.get(n, Range(0, 0))
        return Range(0, 0)


def _of_two(name: str, operation: Operation, a: Range, b: Range, wrapped: str) -> Range | None:
    """The range of an operation on two ranges."""
    if name in _ARITHMETIC:
        if name == "arith.addi":
            low, high = a.low + b.low, a.high + b.high
        elif name == "arith.subi":
            low, high = a.low - b.high, a.high - b.low
        else:
            corners = [x * y for x in a[:2] for y in b[:2]]
            low, high = min(corners), max(corners)
        return _fitted(operation, low, high, wrapped)
    positive = b.low > 0
    if name == "arith.divsi" and positive:
        corners = [int(x / y) if abs(x) < 2**52 else x // y for x in a[:2] for y in b[:2]]
        return Range(min(corners), max(corners), wrapped)
    if name == "arith.remsi" and positive:
        most = b.high - 1
        return Range(0 if a.low >= 0 else -most, min(most, max(a.high, 0)), wrapped)
    if name == "arith.minsi":
        return Range(min(a.low, b.low), min(a.high, b.high), wrapped)
    if name == "arith.maxsi":
        return Range(max(a.low, b.low), max(a.high, b.high), wrapped)
    if name == "arith.andi" and (a.low >= 0 or b.low >= 0):
        return Range(0, min(x.high for x in (a, b) if x.low >= 0), wrapped)
    if name == "arith.shrsi" and a.low >= 0 and b.low >= 0:
        return Range(a.low >> b.high, a.high >> b.low, wrapped)
    return None


def _fitted(operation: Operation, low: int, high: int, wrapped: str) -> Range:
    """A range that the type of the result may not hold."""
    bits = operation.bits
    if bits in (32, 64) and not (-(2 ** (bits - 1)) <= low and high < 2 ** (bits - 1)):
        shown = f"{operation.results[0]} = {operation.name.removeprefix('arith.')}"
        wrapped = wrapped or (
            f"{shown} reaches {high if high > -low else low}, which is not in the range of "
            f"i{bits}, and memory is addressed with it"
        )
    return Range(low, high, wrapped)
