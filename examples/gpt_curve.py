"""The loss curve of a training run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def save(
    losses: Sequence[float],
    path: str,
    title: str,
    ylabel: str = "loss (nats per byte)",
    validation: Mapping[int, float] | None = None,
    first: int = 1,
) -> None:
    """Draw the loss of every step, from step `first` on, and validation losses into a PNG file."""
    figure = Figure(figsize=(7, 4))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(range(first, first + len(losses)), losses, linewidth=1, label="training")
    if validation:
        axes.plot(*zip(*validation.items(), strict=True), marker=".", label="validation")
        axes.legend()
    axes.set(xlabel="step", ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
