"""Generates the Triton source of a pointwise kernel for an expression and a pattern of strides.

The source is text that can be printed. It is compiled once for each pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import torch

from ..launch.jit_kernel import Kernel
from .expression import Expression, short
from .scalar_functions import cast
from .strided_layout import Pattern
from .triton_functions import from_text

_LONGEST = 60  # letters of a kernel's name


@lru_cache(maxsize=4096)
def generate(expression: Expression, pattern: Pattern) -> Kernel:
    """The kernel that computes an expression over tensors with this pattern of strides.

    Parameters: the tensors among the inputs, the outputs, the numbers among the inputs, the sizes
    of the layout, its open strides; then the constants ROWS and COLUMNS. Strides belong to the
    inputs that are no numbers and to the outputs, in this order.
    """
    text = source(expression, pattern)
    return Kernel(from_text(text, _name(expression), __name__=__name__, cast=cast))


def _name(expression: Expression) -> str:
    """What the kernel is called in profiles; no name of a function that it calls."""
    return "_".join(["pointwise", *[step.function for step in expression.steps]])[:_LONGEST]


def source(expression: Expression, pattern: Pattern) -> str:
    """The text of the kernel."""
    return "\n".join(_Text(expression, pattern).lines()) + "\n"


class _Text:
    def __init__(self, expression: Expression, pattern: Pattern) -> None:
        self.expression = expression
        self.pattern = pattern
        self.dims = pattern.batch + pattern.rows + 1
        # What has strides: inputs that are no numbers, then outputs.
        self.strided = [
            f"x{i}" for i, given in enumerate(expression.inputs) if given.kind != "number"
        ] + [f"y{i}" for i in range(len(expression.outputs))]
        self.flat = pattern.rows == 0

    # Names.

    def _stride(self, tensor: int, dim: int) -> int | str:
        known = self.pattern.strides[tensor][dim]
        return f"{self.strided[tensor]}_s{dim}" if known is None else known

    def _parameters(self) -> Iterator[str]:
        inputs = self.expression.inputs
        yield from (f"x{i}" for i, given in enumerate(inputs) if given.kind == "tensor")
        yield from (f"y{i}" for i in range(len(self.expression.outputs)))
        for i, given in enumerate(inputs):
            if given.kind == "number":
                yield f"x{i}: tl.{short(given.dtype)}"
        yield from (f"size{dim}" for dim in range(self.dims))
        for tensor in range(len(self.strided)):
            steps = [self._stride(tensor, dim) for dim in range(self.dims)]
            yield from (step for step in steps if isinstance(step, str))
        yield from ("ROWS: tl.constexpr", "COLUMNS: tl.constexpr")

    # The whole.

    def lines(self) -> Iterator[str]:
        yield f"def {_name(self.expression)}({', '.join(self._parameters())}):"
        yield from _indent(self._body())

    def _body(self) -> Iterator[str]:
        yield from self._numbers()
        yield from self._places()
        full = "column + COLUMNS <= width"
        if not self.flat:
            full += " and row + ROWS <= height"
        yield f"if {full}:"
        yield from _indent(self._work(masked=False))
        yield "else:"
        yield from _indent(self._inside())
        yield from _indent(self._work(masked=True))

    def _numbers(self) -> Iterator[str]:
        """Integers that are 1 are constants of the compiler: this makes them values again."""
        for i, given in enumerate(self.expression.inputs):
            if given.kind == "number":
                yield f"v{i} = tl.full((), x{i}, tl.{short(given.dtype)})"

    def _places(self) -> Iterator[str]:
        """Where the tile lies: `row`, `column`, and the tensors moved to its batch."""
        yield f"width = size{self.dims - 1}"
        yield "rest = tl.program_id(0)"
        yield "across = (width - 1) // COLUMNS + 1"  # width + COLUMNS may be more than int32 holds
        yield "column = (rest % across).to(tl.int64) * COLUMNS"
        if self.flat:
            yield "columns = tl.arange(0, COLUMNS)"
            yield from self._bases()
            return
        rows = range(self.pattern.batch, self.dims - 1)
        yield "height = " + (" * ".join(f"size{dim}" for dim in rows) or "1")
        if self.pattern.batch:
            yield "rest = rest // across"
            yield "down = tl.cdiv(height, ROWS)"
            yield "row = rest % down * ROWS"
            yield "rest = rest // down"
            for dim in reversed(range(self.pattern.batch)):
                yield f"b{dim} = (rest % size{dim}).to(tl.int64)"
                yield f"rest = rest // size{dim}"
        else:
            yield "row = rest // across * ROWS"
        yield "rows = row + tl.arange(0, ROWS)"
        yield "left = rows"
        for dim in reversed(rows):
            first = dim == self.pattern.batch
            yield f"r{dim} = left" + ("" if first else f" % size{dim}")
            if not first:
                yield f"left = left // size{dim}"
        yield "columns = tl.arange(0, COLUMNS)"
        yield from self._bases()

    def _bases(self) -> Iterator[str]:
        """For each tensor an offset of the tile (scalar), of its rows, and of its columns."""
        for tensor, name in enumerate(self.strided):
            last = self._stride(tensor, self.dims - 1)
            terms = [
                _times(f"b{dim}", self._stride(tensor, dim)) for dim in range(self.pattern.batch)
            ]
            base = _sum([*terms, _times("column", last)])
            wide = [
                _times(f"r{dim}.to(tl.int64)", self._stride(tensor, dim))
                for dim in range(self.pattern.batch, self.dims - 1)
            ]
            yield f"base_{name} = {base or 'tl.full((), 0, tl.int64)'}"
            if _sum(wide):
                yield f"rows_{name} = ({_sum(wide)})[:, None]"

    # One tile.

    def _at(self, tensor: int) -> tuple[str, str]:
        """The offset of a tensor's part of the tile, and the mask that it needs."""
        name, last = self.strided[tensor], self._stride(tensor, self.dims - 1)
        row_steps = self.pattern.strides[tensor][self.pattern.batch : -1]
        by_row = any(step != 0 for step in row_steps)
        columns = _times("columns" if last == 1 else "columns.to(tl.int64)", last)
        if columns and not self.flat:
            columns = f"({columns})[None, :]"
        rows = f"rows_{name}" if by_row else ""
        masks = ["in_rows" if by_row else "", "in_columns" if columns else ""]
        return _sum([f"base_{name}", rows, columns]), " & ".join(filter(None, masks))

    def _inside(self) -> Iterator[str]:
        if self.flat:
            yield "in_columns = column + columns < width"
            return
        yield "in_rows = (rows < height)[:, None]"
        yield "in_columns = (column + columns < width)[None, :]"

    def _loads(self, masked: bool) -> Iterator[str]:
        tensor = 0
        for i, given in enumerate(self.expression.inputs):
            if given.kind == "number":
                continue
            at, mask = self._at(tensor)
            tensor += 1
            if given.kind == "index":
                yield f"v{i} = {at}"
            else:
                masking = f", mask={mask}" if masked and mask else ""
                yield f"v{i} = tl.load(x{i} + {at}{masking})"

    def _work(self, masked: bool) -> Iterator[str]:
        yield from self._loads(masked)
        yield from steps_of(self.expression)
        first = len(self.strided) - len(self.expression.outputs)
        for i, value in enumerate(self.expression.outputs):
            at, mask = self._at(first + i)
            masking = f", mask={mask}" if masked and mask else ""
            stored = f"cast(v{value}, {kind_of(self.expression.dtype(value))})"
            yield f"tl.store(y{i} + {at}, {stored}{masking})"


def steps_of(expression: Expression) -> Iterator[str]:
    """The lines that compute the steps' values v<number> from those of the inputs."""
    for number, step in enumerate(expression.steps, len(expression.inputs)):
        arguments = ", ".join(
            f"cast(v{value}, {kind_of(wanted)})"
            for value, wanted in zip(step.arguments, step.types, strict=True)
        )
        yield f"v{number} = cast({step.function}({arguments}), {kind_of(step.dtype)})"


def kind_of(dtype: torch.dtype) -> str:
    """Triton's name of a dtype."""
    return "tl.int1" if dtype is torch.bool else f"tl.{short(dtype)}"


def _times(value: str, stride: int | str) -> str:
    """The product, as text; empty where it is zero."""
    if stride == 0:
        return ""
    return value if stride == 1 else f"{value} * {stride}"


def _sum(terms: Sequence[str]) -> str:
    return " + ".join(filter(None, terms))


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
