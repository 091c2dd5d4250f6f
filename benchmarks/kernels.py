"""Each kernel against plain torch, cuDNN, torch.compile and Liger, on one GPU.

    python benchmarks/kernels.py                # prints the table, writes results/kernels.json
    python benchmarks/kernels.py --group rows --minutes 8
    python benchmarks/kernels.py --only matmul norm
    python benchmarks/kernels.py --quick        # fewer rounds, without torch.compile
    python benchmarks/kernels.py --dry --quick  # that all of it runs, also without a GPU

Each row is saved when it is measured, and the same command goes on where the last one ended;
--fresh measures again. python benchmarks/roofline.py draws the results.

Candidates take turns; each call gets inputs that are no longer in the GPU's cache; times are
medians of CUDA events, and the GPU waits until the host has queued a call. A kernel that moves
memory is measured by the share it reaches of the bandwidth of a copy, one that multiplies by the
share of torch's rate for 8192 x 8192 x 8192 products in bfloat16. Rows that have a target on an
H200 print it, and whether it was reached; so does the time that the host takes for an eager op.
Every row's numbers are compared with torch in float64, from which they may be twice as far as
torch's own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import kernel_rows_rest
import timing
import torch
import triton
from kernel_row import DEVICE, Maker, Row

import onefold as flow
from onefold.kernels.tune import gpu_timer
from onefold.kernels.tune.saved_rows import add_row, read_rows

CACHE = 256 << 20  # bytes of inputs in use before the first are used again
MAX_COPIES = 8
ROUNDS, QUICK_ROUNDS = 30, 8
HOST_CALLS = 2000
ROUNDING = 2**-8  # of bfloat16, in which most rows are
HOST_TARGET = 8e-6  # seconds of the host for an eager op
HOST_TITLE = "host: eager add, 8x8"
# Families that are measured together, each group within about eight minutes.
GROUPS = {
    "products": "host matmul accumulate grouped epilogue float8 linear_cross_entropy".split(),
    "attention": "attention paged_attention rotary gated".split(),
    "rows": "norm norm_chain channel_chain softmax cross_entropy reduce".split(),
    "elements": "pointwise pointwise_chain random dropout_chain optim update_rule".split(),
    "memory": """
        gather_scatter sort search conv pool lp_pool batch_norm group_norm interpolate fold
        """.split(),
}
Call = Callable[..., object]


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
    target: str = ""
    reached: float | None = None  # the share of the target; None where it has none, or did not run
    errors: dict[str, float] | None = None  # of torch and onefold, against torch in float64

    def share(self, name: str, ceilings: Ceilings) -> float:
        """How much of the ceiling above this kernel a candidate reaches."""
        least = max(self.bytes / ceilings.bandwidth, self.flops / ceilings.rate)
        return least / self.seconds[name]


def candidates(
    row: Row, backend: str = "inductor", quick: bool = False
) -> Iterator[tuple[str, Call]]:
    """The ways to compute a row that are installed."""
    yield "torch", row.torch
    yield "onefold", row.ours
    if row.compiled and not quick:
        yield "compile", torch.compile(row.torch, backend=backend, dynamic=False)
    if row.cudnn is not None:
        yield "cudnn", row.cudnn
    if row.liger is not None and find_spec("liger_kernel") is not None:
        name, call = row.liger
        function = getattr(import_module("liger_kernel.transformers.functional"), name)
        yield "liger", lambda *args: call(function, *args)


def measure(row: Row, quick: bool = False, dry: bool = False) -> Result:
    """Time the candidates of a row in turn, and compare their numbers; `dry`: at a tiny size."""
    torch._dynamo.reset()
    if dry:
        row = tiny(row)
    size = max(row.bytes(row.sizes), 1)
    copies = 2 if dry else min(max(2, -(-CACHE // size)), MAX_COPIES)
    make = Maker(row.dtype, DEVICE)
    inputs = [row.inputs(make, *row.sizes) for _ in range(copies)]
    calls: dict[str, Call] = {}
    failed: dict[str, str] = {}
    for name, call in candidates(row, quick=quick):
        try:
            for args in inputs[:2]:
                call(*args)
            synchronize()
            calls[name] = call
        except Exception as error:  # noqa: BLE001 - a failure is reported, the others go on
            failed[name] = f"{type(error).__name__}: {error}".split("\n")[0][:200]
    times: dict[str, list[float]] = {name: [] for name in calls}
    for index in range(2 if dry else QUICK_ROUNDS if quick else ROUNDS):
        for name, call in calls.items():
            times[name].append(_event_seconds(call, inputs[index % copies]))
    seconds = {name: statistics.median(found) for name, found in times.items()}
    del inputs
    errors = errors_of(row) if {"onefold", "torch"} <= calls.keys() else None
    return result_of(row, seconds, failed, errors)


def tiny(row: Row) -> Row:
    """The row at its tiny size."""
    return replace(row, sizes=row.tiny, target=None)


def errors_of(row: Row) -> dict[str, float] | None:
    """How far torch and onefold are from torch in float64, relative to the largest number there.

    None where numbers are random, or are no floats.
    """
    if row.random:
        return None

    def run(call: Call, held: torch.dtype | None = None) -> torch.Tensor:
        torch.manual_seed(0)
        result: torch.Tensor = call(*row.inputs(Maker(row.dtype, DEVICE, held), *row.checked))
        return result.detach()

    exact = run(row.torch, torch.float64)
    if not exact.dtype.is_floating_point:
        return None
    size = max(float(exact.abs().max()), 1e-30)
    found = {"torch": run(row.torch), "onefold": run(row.ours)}
    return {name: float((y.double() - exact).abs().max()) / size for name, y in found.items()}


def result_of(
    row: Row, seconds: dict[str, float], failed: dict[str, str],
    errors: dict[str, float] | None = None,
) -> Result:  # fmt: skip
    """What was measured of a row, next to its target."""
    moved, flops = row.bytes(row.sizes), row.flops(*row.sizes)
    reached = None
    if row.target is not None and {"onefold", "torch"} <= seconds.keys():
        reached = row.target.reached(seconds, moved, flops)
    return Result(row.title, moved, flops, seconds, failed, str(row.target or ""), reached, errors)


def host_result(seconds: float) -> Result:
    """The time of the host, as a row of the table."""
    target = f"at most {HOST_TARGET * 1e6:g} us"
    share = HOST_TARGET / seconds
    return Result(HOST_TITLE, 0, 0, {"onefold": seconds}, {}, target, share)


def host_seconds(device: str, calls: int = HOST_CALLS) -> float:
    """What the host needs to start an eager op; the device is waited for before and after."""
    x = flow.ones(8, 8, device=device)
    times = []
    for _ in range(5):
        flow.add(x, x).numpy()
        start = time.perf_counter()
        for _ in range(calls):
            flow.add(x, x)
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _event_seconds(call: Call, args: Sequence[object]) -> float:
    if DEVICE == "cpu":  # a dry run
        began = time.perf_counter()
        call(*args)
        return time.perf_counter() - began
    return gpu_timer.once(lambda: call(*args))


def ceilings(side: int = 8192) -> Ceilings:
    """Measured by torch: a copy of 1 GiB, and a large product; less for a smaller side."""
    source = torch.randn(8 * side * side, device=DEVICE).to(torch.bfloat16)
    target = torch.empty_like(source)
    a, b = (torch.randn(side, side, device=DEVICE).to(torch.bfloat16) for _ in range(2))
    found = []
    for call, args in ((target.copy_, (source,)), (torch.mm, (a, b))):
        call(*args)
        found.append(statistics.median(_event_seconds(call, args) for _ in range(ROUNDS)))
    return Ceilings(2 * source.numel() * source.itemsize / found[0], 2 * side**3 / found[1])


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
        share = f"{result.share(name, limits):6.1%}" if result.bytes else ""
        speed = speed if result.bytes else ""
        lines.append(f"  {name:8} {seconds * 1e6:10.1f} us {speed:>16} {share:6}  {ratio}".rstrip())
    lines += verdict(result)
    lines += [f"  {name:8} did not run: {why}" for name, why in result.failed.items()]
    return "\n".join(lines)


def exact_enough(result: Result) -> bool:
    """Whether onefold is at most twice as far from float64 as torch, or as a rounding."""
    assert result.errors is not None
    return result.errors["onefold"] <= 2 * result.errors["torch"] + 2 * ROUNDING


def verdict(result: Result) -> list[str]:
    """The lines on its numbers, if they were compared, and on its target, if it has one."""
    lines = []
    if result.errors is not None:
        word = "within twice torch's" if exact_enough(result) else "TOO LARGE"
        mine, plain = result.errors["onefold"], result.errors["torch"]
        lines = [f"  error: {mine:.1e}, torch {plain:.1e}: {word}"]
    return lines + _aim(result)


def _aim(result: Result) -> list[str]:
    if not result.target:
        return []
    if result.reached is None:
        return [f"  target: {result.target}: did not run"]
    word = "reached" if result.reached >= 1 else "MISSED"
    return [f"  target: {result.target}: {word} ({result.reached:.0%} of it)"]


def summary(results: Sequence[Result]) -> str:
    """The targets alone, one line each."""
    aimed = [result for result in results if result.target]
    met = sum(result.reached is not None and result.reached >= 1 for result in aimed)
    compared = [result for result in results if result.errors is not None]
    far = [result for result in compared if not exact_enough(result)]
    lines = [f"{met} of {len(aimed)} targets reached"]
    lines += [f"{result.title}:{line}" for result in aimed for line in _aim(result)]
    lines += [f"{len(compared) - len(far)} of {len(compared)} rows within twice torch's error"]
    lines += [f"{result.title}:{verdict(result)[0]}" for result in far]
    return "\n".join(lines)


def driver() -> str:
    """The version of the GPU's driver, or "" where its tool is not there."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.split("\n")[0].strip()


def parse(arguments: list[str] | None, families: Sequence[str]) -> argparse.Namespace:
    """The options; `--help` says what each does."""
    parser = timing.options(__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--only", nargs="+", metavar="FAMILY", choices=families, default=list(families),
        help=f"of {', '.join(families)}",
    )  # fmt: skip
    chosen.add_argument("--group", choices=GROUPS, help="families that are measured together")
    parser.add_argument(
        "--dry", action="store_true", help="everything once at tiny sizes, with or without a GPU"
    )
    parser.add_argument("--quick", action="store_true", help="a look: fewer rounds, no compile")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="when to stop")
    parser.add_argument("--results", type=Path, default=timing.RESULTS, help="where they are saved")
    parser.add_argument("--fresh", action="store_true", help="measure again what is saved")
    options = parser.parse_args(arguments)
    if options.group:
        options.only = GROUPS[options.group]
    return options


class Saved:
    """The rows that were measured before, on the same machine in the same way, and those now."""

    def __init__(self, path: Path, quick: bool, fresh: bool) -> None:
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
        self.path = path
        self.on = {"gpu": gpu, "torch": torch.__version__, "triton": triton.__version__,
                   "quick": quick}  # fmt: skip
        mine = [row for row in read_rows(path) if row.pop("on") == self.on]
        self.ceilings = [Ceilings(**row["ceilings"]) for row in mine if "ceilings" in row][-1:]
        found = {row["title"]: Result(**row) for row in mine if "title" in row}
        self.known = {} if fresh else found

    def add(self, row: Ceilings | Result) -> None:
        """Keep one row."""
        words = {"ceilings": asdict(row)} if isinstance(row, Ceilings) else asdict(row)
        add_row(self.path, {**words, "on": self.on})
        if isinstance(row, Result):
            self.known[row.title] = row


def gpu_is_lost() -> bool:
    """Whether the GPU no longer answers in this process, as after a wrong address."""
    try:
        synchronize()
    except RuntimeError:
        return True
    return False


def report(results: Sequence[Result], limits: Ceilings, name: str = "kernels") -> Path:
    """Write the JSON."""
    on_gpu = torch.cuda.is_available()
    return timing.save(
        name,
        {
            "gpu": torch.cuda.get_device_name() if on_gpu else "",
            "driver": driver() if on_gpu else "",
            "torch": torch.__version__,
            "triton": triton.__version__,
            "ceilings": asdict(limits),
            "rows": [asdict(result) for result in results],
        },
    )


def measure_all(rows: Sequence[Row], options: argparse.Namespace, saved: Saved) -> bool:
    """Measure the rows that are not saved, and save each; whether all of them were."""
    ends = time.monotonic() + 60 * options.minutes
    limits = saved.ceilings[0] if saved.ceilings else ceilings(64 if options.dry else 8192)
    if not saved.ceilings:
        saved.ceilings.append(limits)
        saved.add(limits)
    print(f"copy {limits.bandwidth / 1e12:.2f} TB/s, product {limits.rate / 1e12:.0f} TFLOP/s")
    if "host" in options.only and HOST_TITLE not in saved.known:
        saved.add(host_result(host_seconds(DEVICE, 2 if options.dry else HOST_CALLS)))
        print(text(saved.known[HOST_TITLE], limits))
    left = [row for row in rows if row.title not in saved.known]
    for index, row in enumerate(left, 1):
        if time.monotonic() >= ends:
            print(f"{len(left) - index + 1} rows are left; the same command goes on with them")
            return False
        print(f"[{index}/{len(left)}]", end=" ")
        saved.add(measure(row, options.quick, options.dry))
        print(text(saved.known[row.title], limits), flush=True)
        if gpu_is_lost():
            print("the GPU no longer answers; the same command goes on after this row")
            return False
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    return True


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write. Returns the exit status: 1 where some rows are left."""
    rows = kernel_rows_rest.all_rows()
    families = ["host", *dict.fromkeys(row.family for row in rows)]
    options = parse(arguments, families)
    if DEVICE == "cpu" and not options.dry:
        sys.exit("kernels are measured on a GPU, and torch.cuda.is_available() is False")
    wanted = [tiny(row) if options.dry else row for row in rows if row.family in options.only]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) if options.dry else options.results
        saved = Saved(results / "kernel_rows.jsonl", options.quick, options.fresh)
        whole = measure_all(wanted, options, saved)
    print(summary(list(saved.known.values())))
    if not options.dry:
        timing.RESULTS = options.results
        print(f"written to {report(list(saved.known.values()), saved.ceilings[0])}")
    return int(not whole)


if __name__ == "__main__":
    sys.exit(main())
