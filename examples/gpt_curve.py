"""The loss curve of a training run as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def save(
    losses: Sequence[float], path: str, title: str, ylabel: str = "loss (nats per byte)"
) -> None:
    """Draw the loss of every step into a PNG file."""
    figure = Figure(figsize=(7, 4))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(range(1, len(losses) + 1), losses, linewidth=1)
    axes.set(xlabel="step", ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
