"""The command `python -m onefold.graph.calibrate`: measures this machine, and writes its file.

Two processes measure at once, since the processors share memory and links: matrix products and
memory-bound ops by size, the steps of small transformers, and Gloo's collectives between products.
All take turns until the time is over.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from ...distributed import collectives
from ...distributed.world import world
from ...errors import OnefoldError, OnefoldRuntimeError
from ...kernels.aot.progress import Progress
from ..hardware import read
from ..hardware.hardware_files import this_machine
from ..hardware.hardware_text import as_toml
from .calibration import Calibration
from .turns import PAIR, Budget, take

_SECONDS = 100.0
_START = 60.0  # more than that for two processes to start and end
_QUIET = 0.7  # of processes that ran in the last minute
_TENTHS = 10  # parts of the time


def device_bytes() -> int:
    """The memory of one rank: half of this machine's."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(PAIR)


def _worker(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    world().ensure(PAIR)
    budget = Budget(options.seconds)
    calibration = Calibration()
    bar = Progress(_TENTHS, "tenths of the time")

    def show(share: float) -> None:
        while world().rank == 0 and bar.ended < int(_TENTHS * share):
            bar.step("the probes take turns")

    take(calibration.probes, budget, show)
    found = calibration.hardware(device_bytes())
    measured, simulated = calibration.whole_step(found)
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
    collectives.barrier(PAIR)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options; `--help` says what each does."""
    parser = argparse.ArgumentParser(
        prog="python -m onefold.graph.calibrate", description=__doc__.partition(":")[2].strip()
    )
    parser.add_argument(
        "--output", type=Path, default=this_machine(), help="the file (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=_SECONDS, help="that it takes (default: %(default)g)"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.output.suffix != ".toml":
        parser.error(f"--output must be a file that ends in .toml, but is {options.output}")
    if not options.seconds > 0:
        parser.error(f"--seconds must be more than 0, but is {options.seconds:g}")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Measure, write the file and print its content."""
    options = parse(arguments)
    if options.worker:
        _worker(options)
        return
    load, _, _ = os.getloadavg()
    if load > _QUIET:
        print(f"warning: other programs run (load {load:.1f}), which the times will include")
    output = options.output.resolve()
    command = [sys.executable, "-m", f"{__package__.split('.')[0]}.distributed.launch"]
    command += ["--nproc_per_node", str(len(PAIR)), "-m", __package__, "--worker"]
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
