"""The command `python -m onefold.graph.calibrate`: measures this machine, and writes its file.

Two processes measure at once, since the processors share memory and links: matrix products and
memory-bound ops by size, the launch of an op, what ops take beside that, and Gloo's collectives.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from ...distributed import collectives
from ...distributed.world import world
from ...errors import OnefoldError, OnefoldRuntimeError
from ...kernels.aot.progress import Progress
from ..hardware import Hardware, read
from ..hardware.hardware_files import this_machine
from ..hardware.hardware_text import as_toml
from . import compute_rates, link_rates
from .stopwatch import Budget

_SECONDS = 120.0
_START = 40.0  # more than that for two processes to start and end
_QUIET = 0.7  # of processes that ran in the last minute
_STEPS = 7  # what is told
_PARTS = 19  # of the time, for each measurement: enough are left for what takes longer


def measure(budget: Budget, spend: float, device_bytes: int) -> Hardware:
    """The record of this machine, from `spend` seconds for each measurement; both ranks call it."""
    bar = Progress(_STEPS, "measured")

    def tell(text: str) -> None:
        budget.check()
        collectives.barrier(link_rates.PAIR)
        if world().rank == 0:
            bar.step(text)

    peak = {}
    for dtype in compute_rates.DTYPES:
        peak[dtype], curve = compute_rates.products(dtype, spend)
        if dtype is torch.float32:
            matmul = curve
            narrow = compute_rates.narrow(peak[dtype], curve, spend)
        tell(f"matrix products of {dtype}")
    bandwidth, memory = compute_rates.memory(spend)
    tell("memory")
    attention = compute_rates.attention(peak[torch.float32], spend)
    link = link_rates.link(2 * spend)
    tell("collectives")
    contention = link_rates.beside(spend).contention
    launch, inside = compute_rates.launch(spend)
    found = Hardware(
        name=platform.node() or "this machine",
        peak=peak,
        memory_bytes=device_bytes,
        memory_bandwidth=bandwidth,
        launch=launch,
        launches_ahead=False,
        contention=contention,
        matmul=matmul,
        narrow=narrow,
        host_bandwidth=bandwidth,
        attention=attention,
        memory=memory,
        links=(link,),
    )
    tell("contention and launch")
    return replace(found, ops=compute_rates.ops(found, inside, spend, tell))


def _worker(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    world().ensure(link_rates.PAIR)
    share = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(link_rates.PAIR)
    spend = options.seconds / _PARTS
    found = measure(Budget(options.seconds), spend, share)
    measured, simulated = compute_rates.whole_step(found, spend)
    if world().rank == 0:
        taken = time.strftime("%Y-%m-%d")
        comment = f"Measured by `python -m onefold.graph.calibrate` on {taken}: two processes with"
        comment += "\none thread each, collectives by Gloo. `bytes` is half of the memory."
        check = f"A small transformer's step takes {1e3 * measured:.2f} ms, "
        check += f"and {1e3 * simulated:.2f} ms as simulated with this file."
        print(check)
        comment += f"\n{check}"
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(as_toml(found, comment))
    collectives.barrier(link_rates.PAIR)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options; `--help` says what each does."""
    parser = argparse.ArgumentParser(
        prog="python -m onefold.graph.calibrate", description=__doc__.partition(":")[2].strip()
    )
    parser.add_argument(
        "--output", type=Path, default=this_machine(), help="the file (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS, help="that it may take (default: %(default)g)"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.output.suffix != ".toml":
        parser.error(f"--output must be a file that ends in .toml, but is {options.output}")
    if not options.seconds > 0:
        parser.error(f"--seconds must be more than 0, but is {options.seconds:g}")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Measure, write the file and print what it says."""
    options = parse(arguments)
    if options.worker:
        _worker(options)
        return
    load, _, _ = os.getloadavg()
    if load > _QUIET:
        print(f"warning: other programs run (load {load:.1f}), which the times will include")
    output = options.output.resolve()
    command = [sys.executable, "-m", f"{__package__.split('.')[0]}.distributed.launch"]
    command += ["--nproc_per_node", str(len(link_rates.PAIR)), "-m", __package__, "--worker"]
    command += ["--output", str(output), "--seconds", str(options.seconds)]
    try:
        done = subprocess.run(command, timeout=options.seconds + _START, check=False)
    except subprocess.TimeoutExpired as error:
        raise OnefoldRuntimeError(
            f"the calibration did not end in {options.seconds + _START:g} seconds; run it when "
            "nothing else runs on this machine, or give it more with --seconds"
        ) from error
    if done.returncode:
        raise OnefoldRuntimeError("the calibration failed, for the reason above")
    print(f"{read(output)}\nwritten to {output}")


if __name__ == "__main__":
    try:
        main()
    except OnefoldError as error:
        sys.exit(f"error: {error}")
