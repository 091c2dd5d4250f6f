"""Compiles the forms that a program launches into Triton's cache, without a GPU.

    python -m onefold.testing.form_cache --processes 4 train.py --steps 2

The program runs on a driver without a GPU, so it computes nothing. Then its forms are compiled by
several processes. `python -m onefold.kernels.aot --cache` does this for a folder that can be
carried to a machine with a GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import runpy
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from triton import knobs
from triton.compiler import ASTSource

from ..kernels.aot.cache_folder import compile_and_keep
from ..kernels.aot.compile_kernel import GPUS
from ..kernels.aot.progress import Progress
from .gpu_driver import GpuDriver
from .gpu_driver.driver import ARCHITECTURE

Source = tuple[ASTSource, dict[str, Any]]  # a form before it is compiled, and its options
_sources: list[Source] = []  # what the processes that are forked from this one compile


def forms_of(run: Callable[[], object]) -> list[Source]:
    """The forms that a function launches; it runs on a driver without a GPU."""
    with GpuDriver("none") as gpu:
        run()
    return gpu.sources


def compile_forms(sources: Sequence[Source], processes: int) -> tuple[int, list[str]]:
    """Compile forms in parallel: how many were not in Triton's cache, and the errors of others.

    Raises BrokenProcessPool if the compiler ends its process.
    """
    _sources[:] = sources
    new, errors = 0, []
    bar = Progress(max(len(sources), 1), "forms compiled")
    # Forked, since the functions of kernels that are generated cannot be sent to another process.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context) as pool:
        for ended in as_completed([pool.submit(_compile, index) for index in range(len(sources))]):
            name, found = ended.result()
            bar.step(name)
            if isinstance(found, str):
                errors.append(f"{name}: {found}")
            else:
                new += found
    return new, errors


def _compile(index: int) -> tuple[str, bool | str]:
    source, options = _sources[index]
    try:
        return source.name, compile_and_keep(source, GPUS[ARCHITECTURE], options)
    except Exception as error:  # noqa: BLE001 - a compiler may raise anything
        return source.name, f"{type(error).__name__}: {error}"


def main(arguments: list[str] | None = None) -> int:
    """Run a program for its forms, and compile them. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m onefold.testing.form_cache",
        description="Compile the forms that a program launches into Triton's cache, without a GPU.",
    )
    parser.add_argument("--processes", type=int, default=2, help="that compile")
    parser.add_argument("--cache", type=Path, help="this folder instead of Triton's, without IR")
    parser.add_argument("program", type=Path, help="a Python file")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)

    def run() -> None:
        sys.argv = [str(options.program), *options.words]
        sys.path.insert(0, str(options.program.resolve().parent))
        try:
            runpy.run_path(str(options.program), run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise

    if options.cache:
        knobs.cache.dir = str(options.cache.resolve())
        knobs.compilation.store_binary_only = True  # all that a launch needs
    sources = forms_of(run)
    new, errors = compile_forms(sources, options.processes)
    lines = [*errors, f"{len(sources)} forms, {new} compiled, {len(errors)} failed"]
    if options.cache:
        size = sum(path.stat().st_size for path in options.cache.rglob("*") if path.is_file())
        lines.append(f"{size / 2**20:.1f} MiB in {options.cache}")
    sys.stdout.write("\n".join([*lines, ""]))
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
