"""Whole training steps on one GPU: GPT-2 124M and a Llama of 1.2 billion parameters, in bfloat16.

    python benchmarks/whole_steps.py                 # writes results/whole_steps.json
    python benchmarks/whole_steps.py --model gpt2 --minutes 8
    python benchmarks/whole_steps.py --dry           # tiny models, also without a GPU

Onefold, eager, as a graph and as CUDA graphs (with updates after backward, and in it), against
torch eager, torch.compile and Liger (if it is installed): forward, backward and AdamW, with the
same weights and tokens, at batch 1 and at the largest power of two that fits. Each candidate runs
in a process of its own, which finds its peak memory. Each result is saved when it is there, and the
same command goes on where the last one ended. GPT-2 has 50304 tokens in its vocabulary, a multiple
of 64, as in nanoGPT.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import step_models
import timing
import torch
import triton
from step_models import Library, Model, Size

import onefold as flow
from onefold.kernels.gpu.launch.trace_cache import TRACED_AFTER
from onefold.kernels.tune.saved_rows import add_row, read_rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MODELS: dict[str, tuple[Callable[[Library, Size], Model], Size, Size]] = {
    "gpt2": (
        step_models.gpt2,
        {"layers": 12, "width": 768, "heads": 12, "length": 1024, "vocabulary": 50304, "most": 64},
        {"layers": 2, "width": 32, "heads": 2, "length": 16, "vocabulary": 96, "most": 2},
    ),
    "llama": (
        step_models.llama,
        {"layers": 16, "width": 2048, "heads": 32, "kv_heads": 8, "hidden": 8192, "length": 2048,
         "vocabulary": 128256, "most": 16},
        {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 64, "length": 16,
         "vocabulary": 96, "most": 2},
    ),
}  # fmt: skip
CAPTURED = ["captured", "captured_in_backward"]  # as CUDA graphs; see `Training`
OWN = ["eager", "graph", *CAPTURED]
CANDIDATES = ["torch", "compile", "liger", *OWN]
CHECKED = 3  # steps whose losses are compared
WARM_SECONDS = 2.0  # at most, of the steps after them
STEPS, ROUNDS = 5, 5  # steps in a round
AGREE = 0.005  # the relative difference of losses in bfloat16
RATE = 1e-4
FORMS_LAYERS = 2  # the most in --forms; all layers launch the same forms
LIMIT = 300.0  # seconds for one candidate
MEMORY = ("OutOfMemoryError", "out of memory")
Step = Callable[[], Any]


class Training(flow.nn.Graph):
    """One training step as a graph."""

    def __init__(
        self, model: flow.nn.Module, optimizer: flow.optim.Optimizer, candidate: str
    ) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.enable_amp(True, dtype=torch.bfloat16)
        self.config.enable_cuda_graph(candidate in CAPTURED)
        self.config.enable_optimizer_in_backward(candidate == "captured_in_backward")

    def build(self, tokens: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        loss = self.model(tokens, following)
        loss.backward()
        return loss


def torch_step(name: str, size: Size, batch: int, candidate: str) -> Step:
    """A step of torch, eager or compiled, or with Liger's functions."""
    make = step_models.liger_library if candidate == "liger" else step_models.torch_library
    model = MODELS[name][0](make(DEVICE), size)
    model.load_state_dict(step_models.weights(model, DEVICE), strict=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    data = [part.to(DEVICE) for part in step_models.batch_of(size, batch)]
    call = torch.compile(model, dynamic=False) if candidate == "compile" else model

    def step() -> torch.Tensor:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = call(*data)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def onefold_step(name: str, size: Size, batch: int, candidate: str, drawn: bool = True) -> Step:
    """A step of Onefold, eager or as a graph; `drawn`: with the weights of the others."""
    lib = step_models.onefold_library(flow, DEVICE)
    model = MODELS[name][0](lib, size)
    if drawn:
        found = step_models.weights(model, DEVICE)
        for key, parameter in model.named_parameters():
            if key in found:
                value = flow.tensor(found.pop(key), **lib.where)
                with flow.no_grad():
                    parameter.copy_(value)
    optimizer = flow.optim.AdamW(model.parameters(), lr=RATE)
    data = [flow.tensor(part, **lib.where) for part in step_models.batch_of(size, batch)]
    if candidate != "eager":
        return partial(Training(model, optimizer, candidate), *data)

    def step() -> flow.Tensor:
        with flow.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(*data)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def warm_up(step: Step) -> list[float]:
    """The losses of the first steps; then steps until functions around kernels are replayed."""
    losses = [float(step()) for _ in range(CHECKED)]
    ends = time.monotonic() + WARM_SECONDS
    for _ in range(TRACED_AFTER):
        if time.monotonic() >= ends:
            break
        step()
    synchronize()
    return losses


def measure(name: str, size: Size, batch: int, candidate: str) -> timing.Results:
    """The losses, times and peak memory of one candidate. Runs in a process of its own."""
    make = onefold_step if candidate in OWN else torch_step
    step = make(name, size, batch, candidate)
    losses = warm_up(step)
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        synchronize()
        times.append((time.perf_counter() - began) / STEPS)
    return {
        "losses": losses,
        "ms": [1e3 * f(times) for f in (statistics.median, min, max)],
        "tokens_per_s": batch * size["length"] / statistics.median(times),
        "peak": torch.cuda.max_memory_allocated() if DEVICE == "cuda" else 0,
    }


def launch_forms(name: str, size: Size) -> None:
    """Run Onefold's steps for the forms that they launch; see `onefold.testing.form_cache`.

    At all batches of which one may be the largest that fits.
    """
    size = {**size, "layers": min(size["layers"], FORMS_LAYERS)}
    for power in range(size["most"].bit_length()):
        batch = size["most"] >> power
        for candidate in OWN:
            step = onefold_step(name, size, batch, candidate, drawn=False)
            for _ in range(3):  # CUDA graphs are captured in the third
                step()
            del step
            gc.collect()  # steps are cycles, and hold parameters and optimizer states


class Run:
    """The candidates of one command, in processes of their own, with rows that are saved."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.ends = time.monotonic() + 60 * options.minutes
        self.path = options.results / "whole_steps.jsonl"
        gpu = torch.cuda.get_device_name() if DEVICE == "cuda" else ""
        self.on = {"gpu": gpu, "torch": torch.__version__, "triton": triton.__version__,
                   "dry": options.dry}  # fmt: skip
        rows = [row for row in read_rows(self.path) if row["on"] == self.on]
        self.rows = [] if options.fresh else rows

    def known(self, **wanted: object) -> timing.Results | None:
        """The row with these values, if there is one."""
        found = [row for row in self.rows if wanted.items() <= row.items()]
        return found[-1] if found else None

    def result(self, name: str, batch: int, candidate: str) -> timing.Results | None:
        """The row of a candidate, measured if it is not known; None if the time is over."""
        wanted = {"model": name, "batch": batch, "candidate": candidate}
        row = self.known(**wanted)
        if row is None:
            left = self.ends - time.monotonic()
            if left <= 0:
                return None
            row = {**wanted, **self.measured(wanted, min(left, LIMIT))}
            if row.get("failed") == "":
                if left < LIMIT:
                    return None  # it had less time than it may need
                row["failed"] = f"took more than {LIMIT:g} seconds"
            self.rows.append(row)
            add_row(self.path, {**row, "on": self.on})
            print(text(row), flush=True)
        return row

    def measured(self, wanted: timing.Results, limit: float) -> timing.Results:
        """What a process says of a candidate, or why it failed; "" where its time was over."""
        if wanted["candidate"] == "liger" and find_spec("liger_kernel") is None:
            return {"failed": "Liger is not installed"}
        words = ["--worker", json.dumps(wanted), *(["--dry"] if self.options.dry else [])]
        command = [sys.executable, str(Path(__file__).resolve()), *words]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": ""}
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                found: timing.Results = json.loads(line.removeprefix("RESULT "))
                return found
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"failed": lines[-1][:300]}

    def largest(self, name: str, most: int, candidate: str) -> bool:
        """Measure a candidate at the largest batch that fits; whether the time sufficed."""
        batch = most
        while True:
            row = self.result(name, batch, candidate)
            if row is None:
                return False
            if batch == 1 or not any(word in row.get("failed", "") for word in MEMORY):
                return True
            batch //= 2

    def model(self, name: str) -> bool:
        """Measure all candidates of a model; whether the time sufficed."""
        size = MODELS[name][2 if self.options.dry else 1]
        for candidate in self.options.only or CANDIDATES:
            alone = self.result(name, 1, candidate)
            if alone is None or not self.largest(name, size["most"], candidate):
                return False
        return True


def text(row: timing.Results) -> str:
    """One line for a row."""
    head = f"{row['model']:6} batch {row['batch']:3} {row['candidate']:8}"
    if "failed" in row:
        return f"{head} did not run: {row['failed']}"
    return (
        f"{head} {row['ms'][0]:9.2f} ms [{row['ms'][1]:.2f}-{row['ms'][2]:.2f}] "
        f"{row['tokens_per_s']:10.0f} tokens/s {row['peak'] / 2**30:6.2f} GiB"
    )


def apart(rows: list[timing.Results], to: str = "torch") -> list[str]:
    """The rows whose losses are not those of the candidate `to` for the same model and batch."""
    ran = [row for row in rows if "failed" not in row]
    plain = {(row["model"], row["batch"]): row["losses"] for row in ran if row["candidate"] == to}
    return [
        f"the losses of {row['candidate']} ({row['model']}, batch {row['batch']}) are "
        f"{row['losses']}, and those of {to} {wanted}"
        for row in ran
        if (wanted := plain.get((row["model"], row["batch"]))) is not None
        and any(abs(a - b) > AGREE * abs(b) for a, b in zip(row["losses"], wanted, strict=True))
    ]


def summary(rows: list[timing.Results], name: str) -> list[str]:
    """The graph's speed and memory against torch.compile, and at batch 1 against eager."""
    ran = [row for row in rows if row["model"] == name and "failed" not in row]
    best = {
        c: max(mine, key=lambda row: row["batch"])
        for c in CANDIDATES
        if (mine := [row for row in ran if row["candidate"] == c])
    }
    one = {row["candidate"]: row["ms"][0] for row in ran if row["batch"] == 1}
    lines = []
    if {"graph", "compile"} <= best.keys():
        graph, compiled = best["graph"], best["compile"]
        speed = graph["tokens_per_s"] / compiled["tokens_per_s"]
        line = f"{name}: {speed:.3f} x the speed of torch.compile"
        if graph["batch"] == compiled["batch"] and compiled["peak"]:
            line += f", {graph['peak'] / compiled['peak']:.3f} of its peak memory"
        lines.append(f"{line} (batch {graph['batch']}, its {compiled['batch']})")
    for own in OWN[1:]:
        if {own, "eager"} <= one.keys():
            share = one[own] / one["eager"]
            lines.append(f"{name}: batch 1 takes {share:.3f} of eager's time as {own}")
    return lines


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = timing.options(__doc__)
    parser.add_argument("--model", choices=MODELS, help="only this one")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, help="only these candidates")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="when to stop")
    parser.add_argument("--results", type=Path, default=timing.RESULTS, help="where they are saved")
    parser.add_argument("--fresh", action="store_true", help="measure again what is saved")
    parser.add_argument("--dry", action="store_true", help="tiny models, with or without a GPU")
    parser.add_argument("--forms", action="store_true", help="only launch what steps launch")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print. Returns the exit status: 1 where something is left or differs."""
    options = parse(arguments)
    names = [options.model] if options.model else list(MODELS)
    if options.worker:
        row = options.worker
        size = MODELS[row["model"]][2 if options.dry else 1]
        timing.print_results(measure(row["model"], size, row["batch"], row["candidate"]))
        return 0
    if options.forms:
        for name in names:
            launch_forms(name, MODELS[name][2 if options.dry else 1])
        return 0
    if DEVICE == "cpu" and not options.dry:
        sys.exit("steps are measured on a GPU, and torch.cuda.is_available() is False")
    run = Run(options)
    whole = all(run.model(name) for name in names)
    faults = apart(run.rows)
    print(*faults, *(line for name in names for line in summary(run.rows, name)), sep="\n")
    if not whole:
        print("some are left; the same command goes on with them")
    elif not options.dry:
        timing.RESULTS = options.results
        print(f"written to {timing.save('whole_steps', {'on': run.on, 'rows': run.rows})}")
    return int(bool(faults) or not whole)


if __name__ == "__main__":
    sys.exit(main())
