"""Whole training steps of several candidates on one GPU, in turns in one process.

    python benchmarks/steps_in_turns.py                  # writes results/steps_in_turns.json
    python benchmarks/steps_in_turns.py --model llama --batch 1 --only eager captured
    python benchmarks/steps_in_turns.py --kernels        # and the time of each kernel
    python benchmarks/steps_in_turns.py --dry            # a tiny model, also without a GPU

The steps are those of `whole_steps.py`, which runs each candidate in a process of its own. A hot
GPU lowers its clock, by 5% on an H200, so differences that small are seen only in turns. The ratios
are medians over rounds of the times of one round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import timing
import torch
import triton
import whole_steps
from step_models import Size
from whole_steps import CANDIDATES, CAPTURED, MODELS, OWN, STEPS, Step, warm_up

from onefold.kernels.tune.saved_rows import add_row

ROUNDS = 8
PROFILED = 3  # steps
SHOWN = 30  # kernels of a candidate
FIRST = {"gpt2": ("compile", "graph", "captured"), "llama": ("compile", "graph")}


def size_of(name: str, dry: bool) -> Size:
    """The sizes of a model."""
    return MODELS[name][2 if dry else 1]


def prepared(name: str, batch: int, candidate: str, dry: bool) -> tuple[Step, timing.Results]:
    """A step that is warm, and its row so far: its first losses, and its peak memory."""
    size = size_of(name, dry)
    make = whole_steps.onefold_step if candidate in OWN else whole_steps.torch_step
    on_gpu = whole_steps.DEVICE == "cuda"
    before = 0
    if on_gpu:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    step = make(name, size, batch, candidate)
    row: timing.Results = {"model": name, "batch": batch, "candidate": candidate, "dry": dry}
    row["losses"] = warm_up(step)
    row["peak"] = 0
    if on_gpu:
        torch.cuda.synchronize()
        if candidate not in CAPTURED:  # which takes its memory when it is captured
            torch.cuda.empty_cache()  # what was kept for the steps before the last one
            torch.cuda.reset_peak_memory_stats()
            step()
            torch.cuda.synchronize()
        row["peak"] = torch.cuda.max_memory_allocated() - before
    return step, row


def in_turns(
    steps: Mapping[str, Step], rounds: int, count: int, ends: float = float("inf")
) -> dict[str, list[float]]:
    """Milliseconds of a step of each candidate in each round, without the first step of a turn.

    No round begins after `ends`, a time of `time.monotonic`, but the first.
    """
    found: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(rounds):
        if index and time.monotonic() >= ends:
            break
        for name, step in steps.items():
            step()
            whole_steps.synchronize()
            began = time.perf_counter()
            for _ in range(count):
                step()
            whole_steps.synchronize()
            found[name].append(1e3 * (time.perf_counter() - began) / count)
    return found


def by_kernel(step: Step) -> list[tuple[str, float, float]]:
    """The kernels of a step on the GPU: name, milliseconds and launches, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            step()
        whole_steps.synchronize()
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for event in profile.events():
        if event.device_type.name == "CUDA":
            times[event.name] += event.self_device_time_total
            counts[event.name] += 1
    return [
        (name, us / 1e3 / PROFILED, counts[name] / PROFILED) for name, us in times.most_common()
    ]


def ratios(times: Mapping[str, list[float]]) -> list[str]:
    """The time of each candidate but the first, relative to the first."""
    first, *others = times
    lines = []
    for name in others:
        each = [b / a for a, b in zip(times[first], times[name], strict=True)]
        lines.append(
            f"{name} takes {statistics.median(each):.3f} [{min(each):.3f}-{max(each):.3f}] "
            f"of the time of {first}"
        )
    return lines


def kernels_text(row: timing.Results) -> str:
    """The longest kernels of a candidate, a line each."""
    rows = row["kernels"]
    head = f"{row['candidate']}: {sum(ms for _, ms, _ in rows):.2f} ms in kernels"
    lines = [f"  {ms:8.3f} ms {count:6.1f} x {name[:90]}" for name, ms, count in rows[:SHOWN]]
    return "\n".join([head, *lines])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = timing.options(__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--batch", type=int, help="the largest of whole_steps.py without it")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, help="these candidates")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=STEPS, help="in a round")
    parser.add_argument("--kernels", action="store_true", help="measure each kernel besides")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="when to stop")
    parser.add_argument("--results", type=Path, default=timing.RESULTS, help="where they are saved")
    parser.add_argument("--dry", action="store_true", help="a tiny model, with or without a GPU")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> list[timing.Results]:
    """The rows of all candidates, printed and saved one by one."""
    ends = time.monotonic() + 60 * options.minutes
    name, dry = options.model, options.dry
    batch = options.batch or size_of(name, dry)["most"]
    steps: dict[str, Step] = {}
    rows = []
    for candidate in options.only or FIRST[name]:
        steps[candidate], row = prepared(name, batch, candidate, dry)
        rows.append(row)
        print(f"{candidate} is ready, {row['peak'] / 2**30:.2f} GiB", flush=True)
    times = in_turns(steps, options.rounds, options.steps, ends)
    for row in rows:
        found = times[row["candidate"]]
        row["ms"] = [f(found) for f in (statistics.median, min, max)]
        row["rounds"] = found
        row["tokens_per_s"] = batch * size_of(name, dry)["length"] * 1e3 / row["ms"][0]
        print(whole_steps.text(row), flush=True)
    for line in ratios(times):
        print(line, flush=True)
    gpu = torch.cuda.get_device_name() if whole_steps.DEVICE == "cuda" else ""
    on = {"gpu": gpu, "torch": torch.__version__, "triton": triton.__version__}
    for row in rows:
        if options.kernels and whole_steps.DEVICE == "cuda":
            row["kernels"] = by_kernel(steps[row["candidate"]])
            print(kernels_text(row), flush=True)
        if not dry:
            add_row(options.results / "steps_in_turns.jsonl", {**row, "on": on})
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Measure and print. Returns the exit status: 1 where losses differ."""
    options = parse(arguments)
    if whole_steps.DEVICE == "cpu" and not options.dry:
        sys.exit("steps are measured on a GPU, and torch.cuda.is_available() is False")
    rows = measure(options)
    faults = whole_steps.apart(rows, to=rows[0]["candidate"])
    print(*faults, sep="\n")
    if not options.dry:
        timing.RESULTS = options.results
        print(f"written to {timing.save('steps_in_turns', rows)}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
