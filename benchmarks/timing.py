"""Side-by-side timing: candidates take turns in one run, medians with spread, ratios by round."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import torch

# What a benchmark saves, by the names of its rows or columns: numbers, texts, and more of these.
Results: TypeAlias = dict[str, Any]
Ratio: TypeAlias = Callable[[str, str], float]  # of the times of two candidates

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Case = TypeVar("Case", bound="DataclassInstance")
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Timing:
    """Microseconds per call: the median over rounds, and the lowest and highest round."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:8.2f} [{self.low:.2f}-{self.high:.2f}]"


def options(text: str | None) -> argparse.ArgumentParser:
    """A command line without options yet, whose help is the docstring of a benchmark."""
    as_it_is = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, formatter_class=as_it_is)


def compare(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int = 15,
    seconds: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, Timing], Ratio]:
    """Time each candidate `rounds` times in turn, about `seconds` each.

    Returns the timings, and a function giving the median over rounds of time(a) / time(b): paired
    by round, so that a machine whose speed drifts slows both sides of a ratio. `clock` may be
    `time.process_time`, for long calls of one thread while other programs run.
    """
    counts: dict[str, int] = {}
    for name, function in candidates.items():
        function()
        start = clock()
        calls = 0
        while clock() - start < seconds:
            function()
            calls += 1
        counts[name] = max(1, calls)
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, function in candidates.items():
            repeat = range(counts[name])
            start = clock()
            for _ in repeat:
                function()
            times[name].append((clock() - start) / counts[name] * 1e6)

    def ratio(a: str, b: str) -> float:
        return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))

    found = {name: Timing(statistics.median(t), min(t), max(t)) for name, t in times.items()}
    return found, ratio


def print_results(results: object) -> None:
    """Print the results of a worker of `launched`, which reads them from its output."""
    print("RESULT " + json.dumps(results))


def launched(script: str, words: Sequence[str], timeout: float) -> Results:
    """The results of rank 0 of two workers of a benchmark, started with these arguments."""
    command = [sys.executable, "-m", "onefold.distributed.launch", "--nproc_per_node", "2"]
    command += [str(Path(script).resolve()), "--worker", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, env=env
    )
    return _results_of(done)


def apart(script: str, words: Sequence[str], timeout: float) -> Results:
    """The results of a benchmark in a separate process, started with these arguments."""
    command = [sys.executable, str(Path(script).resolve()), *words]
    return _results_of(
        subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    )


def cases(
    script: str,
    text: str | None,
    known: Mapping[str, Case],
    measure: Callable[[Case], Results],
    columns: Sequence[str],
    timeout: float,
) -> None:
    """The command line of a benchmark that measures each case in a process of its own.

    It prints a table with these columns, and saves it under the name of the script.
    """
    parser = options(text)
    parser.add_argument("--case", choices=tuple(known), help="measure this one, in this process")
    asked = parser.parse_args().case
    if asked is not None:
        print_results(measure(known[asked]))
        return
    rows: list[Results] = []
    print(f"{'case':>20} " + " ".join(f"{name:>10}" for name in columns))
    for name, case in known.items():
        row = apart(script, ["--case", name], timeout)
        rows.append({"case": name, **asdict(case), **row})
        print(f"{name:>20} " + " ".join(f"{row[column]:10.4g}" for column in columns), flush=True)
    print(f"\nwritten to {save(Path(script).stem, rows)}")


def _results_of(done: subprocess.CompletedProcess[str]) -> Results:
    lines = [line for line in done.stdout.splitlines() if "RESULT " in line]
    if done.returncode or not lines:
        raise SystemExit(f"the measurement failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    found: Results = json.loads(lines[0].split("RESULT ", 1)[1])
    return found


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((ln.split(":")[1].strip() for ln in lines if "model name" in ln), model)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def save(name: str, results: object) -> Path:
    """Write results with the machine they come from to benchmarks/results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {"machine": machine(), "results": results}
    path.write_text(json.dumps(content, indent=1, default=asdict) + "\n")
    return path
