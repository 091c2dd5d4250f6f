"""A picture of which rank holds which part of each parameter."""

from __future__ import annotations

from math import prod

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import onefold as flow


def save(model: flow.nn.Module, path: str, title: str) -> None:
    """Draw each parameter as a rectangle (dim 0 down, the other dims across), a colour a rank.

    A part that several ranks hold is grey and names them.
    """
    parameters = list(model.named_parameters())
    ranks = sorted({rank for _, p in parameters for rank in p.placement.flat_ranks})
    colours = colormaps["tab10"]
    columns = 4
    rows = -(-len(parameters) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.6 * rows))
    FigureCanvasAgg(figure)  # draws without a display
    axes = figure.subplots(rows, columns, squeeze=False)
    for cell in axes.flat:
        cell.axis("off")
    for cell, (name, parameter) in zip(axes.flat, parameters, strict=False):
        for (top, left, height, width), holders in _parts(parameter).items():
            alone = len(holders) == 1
            face = colours(holders[0] % 10) if alone else "#dddddd"
            cell.add_patch(Rectangle((left, top), width, height, facecolor=face, edgecolor="w"))
            text = f"rank {holders[0]}" if alone else f"ranks {', '.join(map(str, holders))}"
            place = (left + width / 2, top + height / 2)
            cell.text(*place, text, ha="center", va="center", fontsize=7)
        shape = "x".join(map(str, parameter.shape))
        sbp = ", ".join(entry.short for entry in parameter.sbp)
        ranks_here = list(parameter.placement.flat_ranks)
        cell.set_title(f"{name}\n{shape}, ({sbp}) on {ranks_here}", fontsize=8)
        cell.set_xlim(0, 1)
        cell.set_ylim(1, 0)
    handles = [Rectangle((0, 0), 1, 1, facecolor=colours(r % 10), label=f"rank {r}") for r in ranks]
    figure.legend(handles=handles, loc="lower center", ncols=max(len(ranks), 1), frameon=False)
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=120)


def _parts(parameter: flow.Tensor) -> dict[tuple[float, float, float, float], list[int]]:
    """(top, left, height, width) of each part, as fractions of the parameter -> its ranks."""
    meta = parameter.meta
    rows = meta.shape[0] if meta.ndim else 1
    across = prod(meta.shape[1:]) or 1
    parts: dict[tuple[float, float, float, float], list[int]] = {}
    for position, rank in enumerate(parameter.placement.flat_ranks):
        offset, size = meta.box(position)
        left, width = 0.0, float(across)
        if meta.ndim > 1:
            inner = prod(meta.shape[2:])
            left, width = float(offset[1] * inner), float(size[1] * inner)
        top = offset[0] / rows if offset else 0.0
        height = size[0] / rows if size else 1.0
        parts.setdefault((top, left / across, height, width / across), []).append(rank)
    return parts
