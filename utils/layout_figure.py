"""A picture of which rank holds which part of each tensor; only loaded when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil, prod
from pathlib import Path

from ..engine.layout_view import COLORS, SHARED, Grid, grid_of, title_of
from ..engine.meta import Meta

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "pictures of layouts need matplotlib; install it with: pip install matplotlib",
        name=error.name,
    ) from error

_COLUMNS = 4


def save(named: Sequence[tuple[str, Meta]], path: str | Path, title: str) -> None:
    """Draw each tensor as a rectangle of its parts, with a color for each rank.

    The first dim that is split goes down, the others across. Raises OSError when the file cannot
    be written.
    """
    columns = max(min(_COLUMNS, len(named)), 1)
    rows = max(ceil(len(named) / columns), 1)
    figure = Figure(figsize=(3.2 * columns, 2.6 * rows))
    FigureCanvasAgg(figure)  # draws without a display
    axes = figure.subplots(rows, columns, squeeze=False)
    for cell in axes.flat:
        cell.axis("off")
    for cell, (name, meta) in zip(axes.flat, named, strict=False):
        cell.set_title(title_of(name, meta).replace(" on ", "\non "), fontsize=8)
        cell.set_xlim(0, 1)
        cell.set_ylim(1, 0)
        grid = None if meta.placement is None else grid_of(meta)
        for left, top, width, height, color, text in _rectangles(grid, meta):
            cell.add_patch(Rectangle((left, top), width, height, facecolor=color, edgecolor="w"))
            middle = (left + width / 2, top + height / 2)
            cell.text(*middle, text, ha="center", va="center", fontsize=7)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _rectangles(grid: Grid | None, meta: Meta) -> list[tuple[float, float, float, float, str, str]]:
    """Left, top, width, height (of 1), color and label of each part."""
    if grid is None:
        return [(0.0, 0.0, 1.0, 1.0, SHARED, "local")]
    heights = [1.0]
    if grid.down is not None:
        size = meta.shape[grid.down] or 1
        heights = [(end - start) / size for start, end in grid.rows]
    widths = [
        prod(
            (end - start) / (meta.shape[dim] or 1)
            for dim, (start, end) in zip(grid.across, column, strict=True)
        )
        for column in grid.columns
    ]
    tops, lefts = [0.0, *accumulate(heights)], [0.0, *accumulate(widths)]
    return [
        (
            lefts[cell.column],
            tops[cell.row],
            widths[cell.column],
            heights[cell.row],
            SHARED if cell.rank is None else COLORS[cell.rank % len(COLORS)],
            f"rank{'s' * (cell.rank is None)} {cell.label}",
        )
        for cell in grid.cells
    ]
