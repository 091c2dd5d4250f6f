"""The command `python -m onefold.kernels.aot`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ...errors import OnefoldError, OnefoldValueError
from ..gpu.launch import configs
from ..gpu.launch.aot_cases import TARGETS
from ..gpu.launch.jit_kernel import INTERPRETED
from . import budget, cache_folder, compile_kernel, fill_cache, workers
from .facts import Facts
from .progress import Progress

_LIMIT = 120.0  # seconds for one compilation


def main(arguments: list[str] | None = None) -> int:
    """Compile, then compare or write. Returns the exit status."""
    options = _parse(arguments)
    if options.install:
        print(f"{cache_folder.install(options.install)} forms installed")
        return 0
    if options.cache:
        return fill_cache.fill(options.cache, options.programs, options.processes)
    if INTERPRETED:
        raise OnefoldValueError(
            "TRITON_INTERPRET=1 is set, so kernels are interpreted and cannot be compiled. "
            "Unset it for this command."
        )
    wanted = [
        (key, target, options.table)
        for key, case in compile_kernel.all_cases(options.table).items()
        for target in case.targets
        if target in options.targets and options.match in key
    ]
    found: dict[str, Facts] = {}
    failed: list[str] = []
    progress = Progress(len(wanted), "compiled")

    def done(task: tuple[str, str, Path], facts: Facts | None, error: str) -> None:
        name = " ".join(task[:2])
        progress.step(name)
        if facts is None:
            failed.append(f"{name}: {error}")
        else:
            found[name] = facts

    workers.run(compile_kernel.work, wanted, options.processes, _LIMIT, done)
    others = {name.split()[-1] for name in configs.read(options.table)} - set(TARGETS)
    if others:
        print(f"The table's entries for {', '.join(sorted(others))} are not compiled here.")
    whole = len(options.targets) == len(TARGETS) and not options.match
    if options.write:
        return _write(found, failed, whole)
    return _compare(found, failed, whole)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m onefold.kernels.aot",
        description="Compile every Triton kernel for every target and compare with the budget. "
        "With --cache or --install: carry compiled forms to a machine with a GPU.",
    )
    parser.add_argument("--write", action="store_true", help="make what is found the budget")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--match", default="", help="only cases whose name holds this")
    parser.add_argument(
        "--table", type=Path, default=configs.PATH, help="configurations to compile besides"
    )
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="fill this folder with what programs launch"
    )
    parser.add_argument(
        "--programs", nargs="+", default=[], metavar="PROGRAM",
        help='for --cache: files with their arguments, such as "train.py --steps 2"; whole '
        "training steps of benchmarks/ where none is named",
    )  # fmt: skip
    parser.add_argument(
        "--install", type=Path, metavar="FOLDER", help="copy such a folder into Triton's cache"
    )
    parser.add_argument("--processes", type=int, default=max(2, (os.cpu_count() or 2) // 2))
    return parser.parse_args(arguments)


def _write(found: dict[str, Facts], failed: list[str], whole: bool) -> int:
    kept: dict[str, Facts] = {}
    if not whole and budget.PATH.exists():
        kept, _ = budget.read(budget.PATH)
    limits = budget.limits(found)
    for line in (*failed, *limits):
        print(line)
    if not failed:
        budget.write(budget.PATH, {**kept, **found}, compile_kernel.COMPILER)
        print(f"{len(found)} forms written to {budget.PATH.name}; read its diff.")
    return 1 if failed or limits else 0


def _compare(found: dict[str, Facts], failed: list[str], whole: bool) -> int:
    then, compiler = budget.read(budget.PATH)
    if not whole:
        then = {key: facts for key, facts in then.items() if key in found}
    if compiler != compile_kernel.COMPILER:
        return _report(found, failed, compiler)
    gone = [name for name in then if any(line.startswith(f"{name}: ") for line in failed)]
    result = budget.compare({key: then[key] for key in then if key not in gone}, found)
    for line in (*result.better, *failed, *result.failed):
        print(line)
    if failed or result.failed:
        print(f"\n{len(failed) + len(result.failed)} of {len(found) + len(failed)} forms failed.")
        print("Where the change is meant: python -m onefold.kernels.aot --write")
        return 1
    print(f"{len(found)} forms within the budget.")
    return 0


def _report(found: dict[str, Facts], failed: list[str], budgeted: str) -> int:
    """Report with another compiler than the budget's: failures, limits and spills."""
    failed += budget.limits(found)
    spilled = {key: facts.spills for key, facts in found.items() if facts.spills}
    for key in sorted(spilled):
        print(f"{key}: spills {spilled[key]}")
    for key in sorted(key for key, facts in found.items() if facts.serialized):
        print(f"{key}: wgmma is serialized")
    for line in failed:
        print(line)
    compiler = compile_kernel.COMPILER
    print(f"\n{len(found)} forms compile with {compiler}; {len(spilled)} of them spill.")
    print(f"The budget is of {budgeted}: nothing is compared with it.")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OnefoldError as error:
        sys.exit(f"error: {error}")
