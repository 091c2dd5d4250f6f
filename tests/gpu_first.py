"""The first minutes on a GPU, in the order in which results help most: `make gpu-first`.

    python tests/gpu_first.py --minutes 8 --results build/gpu

Each step is a command with a limit of its own, whose output goes to RESULTS/first-<step>.log. The
same command goes on with the steps that are left, and repeats those that failed with --again.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from onefold.kernels.tune.saved_rows import add_row, read_rows

ROOT = Path(__file__).resolve().parents[1]
PYTHON = [sys.executable]
TESTS = [*PYTHON, str(ROOT / "tests" / "gpu_tests.py"), "--again"]
TUNE = [*PYTHON, "-m", "onefold.kernels.tune"]
# memcheck sees each allocation only where torch does not keep memory for the next.
SANITIZER = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"]
CHECKED = (
    "test_many_blocks or test_runs_of_many_rows_are_sorted_by_radix or test_tiles_by_descriptors"
)


@dataclass(frozen=True)
class Step:
    """One command, the minutes that it may take, and the program that it needs."""

    name: str
    command: list[str]
    minutes: float
    saves: bool = True  # whether it takes --minutes and --results
    needs: str = ""


def tests(name, minutes, *paths):
    return Step(name, [*TESTS, *(str(ROOT / "tests" / path) for path in paths)], minutes)


def script(name):
    return [*PYTHON, str(ROOT / "benchmarks" / name)]


STEPS = [
    tests("launch", 3, "triton/test_launch.py", "triton/test_replay.py"),
    tests("matmul", 5, "triton/test_matmul.py", "triton/test_epilogue.py"),
    tests("attention", 6, "triton/test_attention.py"),
    Step("quick", [*script("kernels.py"), "--quick"], 6),
    Step(
        "sanitizer",
        [
            *SANITIZER, *PYTHON, "-m", "pytest", "-c", str(ROOT / "tests" / "gpu.ini"),
            "--rootdir", str(ROOT), "-q", "-p", "no:cacheprovider", "-k", CHECKED,
            *(str(ROOT / "tests" / "triton" / f"test_{name}.py")
              for name in ("radix", "gather_scatter", "matmul")),
        ],
        7, saves=False, needs="compute-sanitizer",
    ),
    Step("tune-attention", [*TUNE, "attention", "--dtype", "bfloat16"], 8),
    Step("tune-matmul", [*TUNE, "matmul", "--dtype", "bfloat16"], 8),
    tests("training", 6, "gpu/test_training.py", "gpu/test_cuda_graphs.py"),
    tests("nccl", 4, "gpu/test_nccl_capture.py"),
    Step("turns", [*script("steps_in_turns.py"), "--kernels"], 4),
    Step("whole-gpt2", [*script("whole_steps.py"), "--model", "gpt2"], 8),
    Step("whole-llama", [*script("whole_steps.py"), "--model", "llama"], 8),
]  # fmt: skip


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="when to stop")
    parser.add_argument("--results", type=Path, default=Path("build/gpu"), help="where they go")
    parser.add_argument("--again", action="store_true", help="repeat steps that failed")
    parser.add_argument("--only", nargs="+", choices=[step.name for step in STEPS])
    return parser.parse_args(arguments)


def command_of(step, options, minutes):
    """The command of a step that has these minutes."""
    if not step.saves:
        return step.command
    words = ["--minutes", f"{minutes:.2f}"]
    if step.command[1:3] == TUNE[1:3]:
        rows, table = options.results / "tune.jsonl", options.results / "configs.json"
        if not table.exists():
            shutil.copy(ROOT / "kernels" / "gpu" / "launch" / "configs.json", table)
        return [*step.command, *words, "--rows", str(rows), "--table", str(table)]
    return [*step.command, *words, "--results", str(options.results)]


def run_step(step, options, minutes):
    """Run a step: "passed", "failed", "cut off" or "skipped", and the seconds that it took."""
    log = options.results / f"first-{step.name}.log"
    began = time.monotonic()
    if step.needs and shutil.which(step.needs) is None:
        return f"skipped: no {step.needs} here", 0.0
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if step.needs:
        env["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    with log.open("ab") as file:
        popen = subprocess.Popen(
            command_of(step, options, minutes), stdout=file, stderr=file, env=env
        )
        try:
            # What ends by itself has a little time for its summary.
            code = popen.wait(60 * minutes + (10 if step.saves else 0))
        except subprocess.TimeoutExpired:
            popen.terminate()
            popen.wait()
            return "cut off", time.monotonic() - began
    seconds = time.monotonic() - began
    late = step.saves and seconds >= 60 * minutes
    return "passed" if code == 0 else "cut off" if late else "failed", seconds


def main(arguments=None):
    options = parse(arguments)
    options.results = options.results.resolve()
    options.results.mkdir(parents=True, exist_ok=True)
    rows = options.results / "first.jsonl"
    known = {row["step"]: row["outcome"] for row in read_rows(rows)}
    ends = time.monotonic() + 60 * options.minutes
    for step in STEPS:
        before = known.get(step.name, "")
        done = before == "passed" or before.startswith("skipped")
        if (options.only and step.name not in options.only) or done:
            continue
        if before == "failed" and not options.again:
            continue
        left = (ends - time.monotonic()) / 60
        if left < min(0.5, step.minutes / 2):
            print(f"{step.name}: is left; the same command goes on with it")
            break
        outcome, seconds = run_step(step, options, min(left, step.minutes))
        add_row(rows, {"step": step.name, "outcome": outcome, "seconds": round(seconds, 1)})
        known[step.name] = outcome
        print(f"{step.name}: {outcome}, {seconds:.0f} s", flush=True)
        if not outcome.startswith("skipped"):
            tail = (options.results / f"first-{step.name}.log").read_text(errors="replace")[-3000:]
            print("\n".join(f"    {line}" for line in tail.splitlines()[-12:]), flush=True)
    wanted = options.only or [step.name for step in STEPS]
    whole = all(known.get(name, "").startswith(("passed", "skipped")) for name in wanted)
    return int(not whole)


if __name__ == "__main__":
    sys.exit(main())
