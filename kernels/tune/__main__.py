"""The command `python -m onefold.kernels.tune`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import triton
from triton.runtime.errors import TritonError

from ...errors import OnefoldError, OnefoldRuntimeError, OnefoldValueError
from ..aot.progress import Progress
from ..gpu.launch import configs
from ..gpu.launch.registry import all_tuned
from . import config_pruning, gpu_timer
from .config_search import WRONG, Found, Outcome, Timer, form_of, search
from .saved_rows import Rows

ROWS = Path("build/gpu/tune.jsonl")
Entry = tuple[configs.Tuned, torch.dtype, str]  # a kernel, a dtype and a shape class


class _OutOfTime(Exception):
    """Ends the compilation of configurations."""


@dataclass
class Session:
    """One run of the tuner: what it measures with, what it knows, and when it ends."""

    arch: str
    table: Path
    rows: Rows
    timer: Timer
    processes: int = 0  # that compile; 0: configurations are compiled as they are measured
    ends: float = float("inf")  # of time.monotonic()
    faults: list[str] = field(default_factory=list)
    left: int = 0  # entries for which the time did not suffice

    def expired(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.ends

    def name(self, entry: Entry) -> str:
        """The name of the table's entry."""
        tuned, dtype, shape_class = entry
        return configs.key(tuned.kernel, tuned.name(dtype), shape_class, self.arch)


def tune(session: Session, entries: Sequence[Entry]) -> None:
    """Search the configuration of each entry, and write the table after each.

    An entry is kept only if it is better than the rule. So the table stays short, and old entries
    do not hide an improved rule. Raises OnefoldValueError if the file is no table, before it
    measures anything; a new file is made.
    """
    _entries(session.table)
    for kernel in dict.fromkeys(entry[0].kernel for entry in entries):
        mine = [entry for entry in entries if entry[0].kernel == kernel]
        if session.processes and config_pruning.can_compile(session.arch):
            _compile(session, mine)
        for entry in mine:
            if session.expired():
                session.left += 1
            else:
                _tune_entry(session, entry)


def _compile(session: Session, entries: Sequence[Entry]) -> None:
    """Compile in parallel what is not known, and keep rows of what is not worth measuring."""
    tasks: list[config_pruning.Task] = []
    names: dict[config_pruning.Task, str] = {}
    for tuned, dtype, shape_class in entries:
        name = session.name((tuned, dtype, shape_class))
        _, *others = tuned.allowed(dtype, tuned.shapes[shape_class])
        new = [config for config in others if form_of(config) not in session.rows.known[name]]
        found = config_pruning.tasks_of(tuned, dtype, shape_class, new, session.arch)
        names |= dict.fromkeys(found, name)
        tasks += found
    bar = Progress(len(tasks), "configurations compiled")

    def done(task: config_pruning.Task, why: str) -> None:
        bar.step(names[task])
        if why:
            session.rows.add(names[task], dict(task[3]), why)
        if session.expired():
            raise _OutOfTime

    with suppress(_OutOfTime):
        if tasks:
            config_pruning.compile_all(tasks, session.processes, done)


def _tune_entry(session: Session, entry: Entry) -> None:
    tuned, dtype, shape_class = entry
    name = session.name(entry)
    keep = partial(_keep, session, name)
    try:
        found = search(
            tuned, dtype, shape_class, session.timer, session.rows.known[name], keep,
            session.expired,
        )  # fmt: skip
    except OnefoldError:
        raise
    except (RuntimeError, TritonError) as error:
        session.faults.append(f"{name}: {error}")
        print(session.faults[-1], flush=True)
        return
    _report(name, found)
    session.faults += [f"{name}: {WRONG}: {dict(c)}" for c, why in found.tried if why == WRONG]
    if not found.complete:
        session.left += 1
        return
    table = _entries(session.table)
    table.pop(name, None)
    if found.seconds < found.rule_seconds:
        table[name] = dict(found.config)
    configs.write(session.table, table)


def _entries(path: Path) -> dict[str, configs.Config]:
    """The entries of a table, none if there is no file yet."""
    return dict(configs.read(path)) if path.exists() else {}


def _keep(session: Session, name: str, config: configs.Config, outcome: Outcome) -> None:
    """Write a row. Raises OnefoldRuntimeError if the GPU no longer answers."""
    session.rows.add(name, config, outcome)
    if isinstance(outcome, str) and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise OnefoldRuntimeError(
                f"the GPU no longer answers after {name} {dict(config)}: {error}. Run the same "
                "command again; it goes on after this configuration."
            ) from error


def _report(name: str, found: Found) -> None:
    gain = found.rule_seconds / found.seconds
    text = ", ".join(f"{key} {value}" for key, value in found.config.items())
    print(f"{name}: {found.seconds * 1e6:.1f} us, {gain:.2f} x the rule: {text}", flush=True)
    for config, why in found.tried:
        if isinstance(why, str):
            print(f"  not used: {dict(config)}: {why}")


def chosen(words: Sequence[str], dtypes: Sequence[str], shapes: Sequence[str]) -> Iterator[Entry]:
    """The entries of families, dtypes and shape classes; an empty list means all of them.

    A family is the name of a kernel, or its beginning: "attention" is all of attention. A shape is
    a part of the name of a shape class. Raises OnefoldValueError for a family that does not exist.
    """
    known = all_tuned()

    def matches(word: str, kernel: str) -> bool:
        return kernel == word or kernel.startswith(f"{word}_")

    if unknown := [word for word in words if not any(matches(word, name) for name in known)]:
        raise OnefoldValueError(
            f"no kernel to tune is called {', '.join(unknown)}; there are {', '.join(known)}"
        )
    for name, tuned in known.items():
        if words and not any(matches(word, name) for word in words):
            continue
        for dtype in tuned.dtypes:
            for shape_class in tuned.shapes:
                right = not dtypes or str(dtype).removeprefix("torch.") in dtypes
                if right and (not shapes or any(shape in shape_class for shape in shapes)):
                    yield tuned, dtype, shape_class


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options; `--help` says what each does."""
    parser = argparse.ArgumentParser(
        prog="python -m onefold.kernels.tune",
        description="Find the fastest configurations of kernels on this GPU, and write the table.",
        epilog="Each outcome is written when it is there. The same command goes on where the last "
        "one ended.",
    )
    parser.add_argument("kernels", nargs="*", help="families, such as attention or matmul")
    parser.add_argument(
        "--dtype", nargs="+", default=[], choices=["bfloat16", "float32"], help="only these"
    )
    parser.add_argument("--shape", nargs="+", default=[], help="only shape classes that hold this")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="when to stop")
    parser.add_argument(
        "--processes", type=int, default=max(2, (os.cpu_count() or 2) // 2),
        help="that compile; 0: compile as needed, and leave nothing out by what was compiled",
    )  # fmt: skip
    parser.add_argument(
        "--table", type=Path, default=configs.PATH, help="the table to write, old or new"
    )
    parser.add_argument("--rows", type=Path, default=ROWS, help="the file of all outcomes")
    parser.add_argument("--list", action="store_true", help="print what would be tuned, and stop")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Tune what was chosen. Returns the exit status: 1 where some of it failed or is left."""
    began = time.monotonic()
    options = parse(arguments)
    entries = list(chosen(options.kernels, options.dtype, options.shape))
    if options.list:
        for tuned, dtype, shape_class in entries:
            count = len(tuned.allowed(dtype, tuned.shapes[shape_class]))
            print(f"{tuned.kernel} {tuned.name(dtype)} {shape_class}: {count} configurations")
        return 0
    if not torch.cuda.is_available():
        raise OnefoldRuntimeError(
            "kernels are tuned on a GPU, and torch.cuda.is_available() is False. On a machine with "
            "a GPU, the same command rewrites kernels/gpu/launch/configs.json; commit what changed."
        )
    machine = f"{torch.cuda.get_device_name()}, triton {triton.__version__}"
    session = Session(
        configs.architecture(), options.table, Rows(options.rows, machine), gpu_timer.seconds,
        options.processes, began + 60 * options.minutes,
    )  # fmt: skip
    tune(session, entries)
    for line in session.faults:
        print(f"FAILED {line}")
    if session.left:
        print(f"{session.left} of {len(entries)} entries are left; run the same command again")
    return int(bool(session.faults or session.left))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OnefoldError as error:
        sys.exit(f"error: {error}")
