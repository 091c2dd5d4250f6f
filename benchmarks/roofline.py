"""The roofline of benchmarks/kernels.py: each kernel's rate over its arithmetic for each byte.

python benchmarks/roofline.py                 # draws results/kernels.png
python benchmarks/roofline.py build/gpu/kernels.json
"""

from __future__ import annotations

import json
from pathlib import Path

import timing
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

MARKS = {"torch": "x", "compile": "+", "liger": "^", "onefold": "o"}


def draw(results: timing.Results, path: Path) -> None:
    """Draw the rows that move memory; those without products count a quarter of their bytes."""
    figure = Figure(figsize=(9, 6))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    limits = results["ceilings"]
    knee = limits["rate"] / limits["bandwidth"]
    reach = [0.1, knee, 100 * knee]
    axes.loglog(reach, [min(x * limits["bandwidth"], limits["rate"]) / 1e12 for x in reach], "k-")
    for name, mark in MARKS.items():
        points = []
        for row in results["rows"]:
            if row["bytes"] and name in row["seconds"]:
                work = max(row["flops"], row["bytes"] / 4)
                points.append((work / row["bytes"], work / row["seconds"][name] / 1e12))
        if points:
            axes.plot(*zip(*points, strict=True), mark, label=name, alpha=0.7)
    axes.set_xlabel("operations for each byte (kernels without products: 1/4)")
    axes.set_ylabel("TFLOP/s")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = timing.options(__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=timing.RESULTS / "kernels.json")
    path = parser.parse_args().file
    draw(json.loads(path.read_text())["results"], path.with_suffix(".png"))
    print(f"drawn in {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
