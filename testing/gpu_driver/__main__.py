"""The command `python -m onefold.testing.gpu_driver program.py [its arguments]`."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from .driver import GpuDriver


def main(arguments: list[str] | None = None) -> int:
    """Run the program, print its problems, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m onefold.testing.gpu_driver",
        description="Run a program as on a GPU, without one: compile its kernels for sm_90 and "
        "check each launch.",
    )
    parser.add_argument(
        "--depth", choices=("binary", "ir", "none"), default="binary",
        help="how far kernels are compiled",
    )  # fmt: skip
    parser.add_argument("program", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    sys.argv = [str(options.program), *options.arguments]
    sys.path.insert(0, str(options.program.resolve().parent))
    with GpuDriver(options.depth) as gpu:
        try:
            runpy.run_path(str(options.program), run_name="__main__")
        except SystemExit as end:  # a program that ends by sys.exit() has its launches checked
            if end.code:
                raise
    print(gpu)
    return 1 if gpu.problems else 0


if __name__ == "__main__":
    sys.exit(main())
