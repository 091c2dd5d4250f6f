"""Which rank holds which part of a tensor, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from .meta import Meta
from .names import names, register_function
from .placement import Placement
from .sbp import broadcast, short
from .tensor import Tensor

Interval: TypeAlias = tuple[int, int]  # from, to

# Backgrounds by rank: numbers of xterm's 256 colors, and the same for HTML and pictures.
_TERMINAL = (75, 215, 114, 210, 183, 180, 218, 248, 186, 116)
COLORS = (
    "#5fafff", "#ffaf5f", "#87d787", "#ff8787", "#d7afff",
    "#d7af87", "#ffafd7", "#a8a8a8", "#d7d787", "#87d7d7",
)  # fmt: skip
SHARED = "#dddddd"  # of a part that several ranks hold
_TERMINAL_SHARED = 253


@dataclass(frozen=True)
class Cell:
    """A part of a tensor: its position in the grid of parts, and the ranks that hold it.

    Every group of ranks in `holders` holds the part; the ranks of a group hold addends of it.
    """

    row: int
    column: int
    holders: tuple[tuple[int, ...], ...]

    @property
    def label(self) -> str:
        """The ranks: replicas with a comma between them, addends with a plus."""
        return ", ".join("+".join(map(str, group)) for group in self.holders)

    @property
    def rank(self) -> int | None:
        """The only rank that holds the part, if there is one."""
        alone = len(self.holders) == 1 and len(self.holders[0]) == 1
        return self.holders[0][0] if alone else None


@dataclass(frozen=True)
class Grid:
    """The parts of a tensor: the first dim that is split goes down, the others across."""

    down: int | None  # the dim; None: no dim is split
    across: tuple[int, ...]
    rows: tuple[Interval, ...]
    columns: tuple[tuple[Interval, ...], ...]  # an interval for each dim of `across`
    cells: tuple[Cell, ...]


def grid_of(meta: Meta) -> Grid:
    """The parts of a global tensor; those without elements are left out where others have some."""
    assert meta.placement is not None
    dims = sorted({sbp.dim for sbp in meta.nd_sbp if sbp.is_split})
    parts: dict[tuple[tuple[Interval, ...], tuple[Interval, ...]], list[int]] = {}
    for position in range(meta.placement.num_ranks):
        offset, size = meta.box(position)
        intervals = tuple((offset[dim], offset[dim] + size[dim]) for dim in dims)
        if all(end > start for start, end in intervals) or not meta.numel:
            parts.setdefault((intervals[:1], intervals[1:]), []).append(position)
    rows = sorted({row for row, _ in parts})
    columns = sorted({column for _, column in parts})
    cells = tuple(
        Cell(rows.index(row), columns.index(column), _holders(meta, meta.placement, positions))
        for (row, column), positions in sorted(parts.items())
    )
    return Grid(
        dims[0] if dims else None,
        tuple(dims[1:]),
        tuple(row[0] for row in rows if row),
        tuple(columns),
        cells,
    )


def _holders(
    meta: Meta, placement: Placement, positions: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for position in positions:
        coordinate = placement.coordinate(position)
        replica = tuple(
            index for index, sbp in zip(coordinate, meta.nd_sbp, strict=True) if sbp is broadcast
        )
        groups.setdefault(replica, []).append(placement.flat_ranks[position])
    return tuple(map(tuple, groups.values()))


def title_of(name: str, meta: Meta) -> str:
    """A tensor's name, dtype, shape and layout in one line."""
    where = "local" if meta.placement is None else f"{short(meta.nd_sbp)} on {_ranks(meta)}"
    dtype = str(meta.dtype).removeprefix("torch.")
    return f"{name}{': ' * bool(name)}{dtype}{list(meta.shape)} {where}"


def _ranks(meta: Meta) -> str:
    assert meta.placement is not None
    return f"{meta.placement.type} {meta.placement.ranks.tolist()}"


def as_text(name: str, meta: Meta, color: bool) -> str:
    r"""The title of a tensor, and a line for each row of its parts.

    >>> p = onefold.placement("cpu", [[0, 1], [2, 3]])
    >>> x = onefold.zeros(5, 6, placement=p, sbp=[onefold.sbp.split(0), onefold.sbp.split(1)])
    >>> print(as_text("x", x.meta, color=False))
    x: float32[5, 6] (S0, S1) on cpu [[0, 1], [2, 3]]
      dim 0 \ 1  0:3     3:6
      0:3        rank 0  rank 1
      3:5        rank 2  rank 3
    """
    lines = [title_of(name, meta)]
    if meta.placement is None:
        return lines[0]
    grid = grid_of(meta)
    corner = "" if grid.down is None else f"dim {grid.down}"
    head: list[str] = []
    if grid.across:
        corner += f" \\ {', '.join(map(str, grid.across))}"
        head = [", ".join(map(_interval, column)) for column in grid.columns]
    first = [corner, *map(_interval, grid.rows)] if head else [*map(_interval, grid.rows)]
    body = [
        [cell for cell in grid.cells if cell.row == row] for row in range(max(len(grid.rows), 1))
    ]
    labels = [[_label(cell) for cell in row] for row in body]
    left = max(map(len, first), default=0)
    width = max(map(len, [*head, *(label for row in labels for label in row)]))
    if head:
        columns = "  ".join(text.ljust(width) for text in head)
        lines.append(f"  {corner.ljust(left)}  {columns}".rstrip())
    for index, row in enumerate(labels):
        texts = [label.ljust(width) for label in row]
        if color:
            texts = [_colored(text, cell) for text, cell in zip(texts, body[index], strict=True)]
        begin = f"{first[index + bool(head)].ljust(left)}  " if grid.rows else ""
        lines.append(f"  {begin}{'  '.join(texts)}".rstrip())
    return "\n".join(lines)


def as_html(named: Iterable[tuple[str, Meta]]) -> str:
    """A table with a row for each tensor: its title, and the grid of its parts in colors."""
    rows = []
    for name, meta in named:
        cells = "" if meta.placement is None else _html_grid(grid_of(meta))
        rows.append(
            f"<tr><td style='text-align:left'>{escape(title_of(name, meta))}</td>"
            f"<td>{cells}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def _html_grid(grid: Grid) -> str:
    rows: dict[int, list[str]] = {}
    for cell in grid.cells:
        color = SHARED if cell.rank is None else COLORS[cell.rank % len(COLORS)]
        rows.setdefault(cell.row, []).append(
            f"<td style='background:{color};color:black'>{escape(_label(cell))}</td>"
        )
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in rows.values())
    return f"<table>{lines}</table>"


@register_function
def tensor_html(x: Tensor) -> str | None:
    """A global tensor in a notebook: its values, and the ranks that hold them."""
    if x.is_local:
        return None  # then they show its text
    return f"<pre>{escape(names.describe(x))}</pre>{as_html([('', x.meta)])}"


def _label(cell: Cell) -> str:
    return f"rank{'s' * (cell.rank is None)} {cell.label}"


def _interval(interval: Interval) -> str:
    return f"{interval[0]}:{interval[1]}"


def _colored(text: str, cell: Cell) -> str:
    """The text on the background of its rank, in black."""
    color = _TERMINAL_SHARED if cell.rank is None else _TERMINAL[cell.rank % len(_TERMINAL)]
    return f"\x1b[48;5;{color}m\x1b[30m{text}\x1b[0m"
