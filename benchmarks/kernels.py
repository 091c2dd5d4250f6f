"""Each kernel against plain torch, torch.compile and Liger, on one GPU.

    python benchmarks/kernels.py                     # prints the table, writes results/kernels.json
    python benchmarks/kernels.py --family matmul norm

Candidates take turns; each call gets inputs that are no longer in the GPU's cache; times are
medians of CUDA events. A kernel that moves memory is measured by the share it reaches of the
bandwidth of a copy, one that multiplies by the share of torch's rate for 8192 x 8192 x 8192
products in bfloat16.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import kernel_rows
import matplotlib.pyplot as plt
import timing
import torch
import triton
from kernel_rows import Maker, Row

CACHE = 256 << 20  # bytes of inputs in use before the first are used again
MOST_COPIES = 8
ROUNDS = 30
Call = Callable[..., Any]


@dataclass(frozen=True)
class Ceilings:
    """What the GPU reaches at most: bytes and floating-point operations a second."""

    bandwidth: float
    rate: float


@dataclass(frozen=True)
class Result:
    """One row, measured: seconds of each candidate, or why it did not run."""

    title: str
    bytes: int
    flops: int
    seconds: dict[str, float]
    failed: dict[str, str]

    def share(self, name: str, ceilings: Ceilings) -> float:
        """How much of the ceiling above this kernel a candidate reaches."""
        least = max(self.bytes / ceilings.bandwidth, self.flops / ceilings.rate)
        return least / self.seconds[name]


def candidates(row: Row, backend: str = "inductor") -> Iterator[tuple[str, Call]]:
    """The ways to compute a row that are installed."""
    yield "torch", row.torch
    yield "onefold", row.ours
    if row.compiled:
        yield "compile", torch.compile(row.torch, backend=backend, dynamic=False)
    if row.liger is not None and find_spec("liger_kernel") is not None:
        name, call = row.liger
        function = getattr(import_module("liger_kernel.transformers.functional"), name)
        yield "liger", lambda *args: call(function, *args)


def measure(row: Row) -> Result:
    """Time the candidates of a row in turn."""
    torch._dynamo.reset()
    size = max(row.bytes(row.sizes), 1)
    copies = min(max(2, -(-CACHE // size)), MOST_COPIES)
    make = Maker(row.dtype, "cuda")
    inputs = [row.inputs(make, *row.sizes) for _ in range(copies)]
    calls: dict[str, Call] = {}
    failed: dict[str, str] = {}
    for name, call in candidates(row):
        try:
            for args in inputs[:2]:
                call(*args)
            torch.cuda.synchronize()
            calls[name] = call
        except Exception as error:  # noqa: BLE001 - one that fails is told of, the others go on
            failed[name] = f"{type(error).__name__}: {error}".split("\n")[0][:200]
    times: dict[str, list[float]] = {name: [] for name in calls}
    for index in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(_event_seconds(call, inputs[index % copies]))
    seconds = {name: statistics.median(found) for name, found in times.items()}
    return Result(row.title, row.bytes(row.sizes), row.flops(*row.sizes), seconds, failed)


def _event_seconds(call: Call, args: Sequence[Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call(*args)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def ceilings() -> Ceilings:
    """Measured by torch: a copy of 1 GiB, and a large product."""
    source = torch.randn(1 << 29, device="cuda").to(torch.bfloat16)
    target = torch.empty_like(source)
    a, b = (torch.randn(8192, 8192, device="cuda").to(torch.bfloat16) for _ in range(2))
    found = []
    for call, args in ((target.copy_, (source,)), (torch.mm, (a, b))):
        call(*args)
        found.append(statistics.median(_event_seconds(call, args) for _ in range(ROUNDS)))
    return Ceilings(2 * source.numel() * source.itemsize / found[0], 2 * 8192**3 / found[1])


def text(result: Result, limits: Ceilings) -> str:
    """One line for each candidate."""
    lines = [result.title]
    plain = result.seconds.get("torch")
    for name, seconds in result.seconds.items():
        speed = (
            f"{result.flops / seconds / 1e12:7.1f} TFLOP/s"
            if result.flops
            else f"{result.bytes / seconds / 1e12:7.2f} TB/s"
        )
        ratio = f"{plain / seconds:5.2f} x torch" if plain else ""
        share = result.share(name, limits)
        lines.append(f"  {name:8} {seconds * 1e6:10.1f} us {speed:>16} {share:6.1%}  {ratio}")
    lines += [f"  {name:8} did not run: {why}" for name, why in result.failed.items()]
    return "\n".join(lines)


def draw(results: Sequence[Result], limits: Ceilings, path: Path) -> None:
    """The roofline: each kernel's rate over its arithmetic for each byte."""
    figure, axes = plt.subplots(figsize=(9, 6))
    knee = limits.rate / limits.bandwidth
    reach = [0.1, knee, 100 * knee]
    axes.loglog(reach, [min(x * limits.bandwidth, limits.rate) / 1e12 for x in reach], "k-")
    for name, mark in (("torch", "x"), ("compile", "+"), ("liger", "^"), ("onefold", "o")):
        points = [
            (
                max(r.flops, r.bytes / 4) / r.bytes,
                max(r.flops, r.bytes / 4) / r.seconds[name] / 1e12,
            )
            for r in results
            if name in r.seconds
        ]
        if points:
            axes.plot(*zip(*points, strict=True), mark, label=name, alpha=0.7)
    axes.set_xlabel("operations for each byte (kernels without products: 1/4)")
    axes.set_ylabel("TFLOP/s")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    rows = kernel_rows.all_rows()
    families = list(dict.fromkeys(row.family for row in rows))
    parser.add_argument("--family", nargs="+", choices=families, default=families)
    chosen = parser.parse_args().family
    if not torch.cuda.is_available():
        sys.exit("kernels are measured on a GPU, and torch.cuda.is_available() is False")
    limits = ceilings()
    print(f"copy {limits.bandwidth / 1e12:.2f} TB/s, product {limits.rate / 1e12:.0f} TFLOP/s")
    results = []
    for row in rows:
        if row.family in chosen:
            results.append(measure(row))
            print(text(results[-1], limits), flush=True)
            torch.cuda.empty_cache()
    timing.save(
        "kernels",
        {
            "gpu": torch.cuda.get_device_name(),
            "triton": triton.__version__,
            "ceilings": asdict(limits),
            "rows": [asdict(result) for result in results],
        },
    )
    draw(results, limits, timing.RESULTS / "kernels.png")


if __name__ == "__main__":
    main()
