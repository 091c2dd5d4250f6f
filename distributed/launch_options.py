"""The options of the launcher: `python -m onefold.distributed.launch --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .launch_rendezvous import DEFAULT_PORT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m onefold.distributed.launch",
        description="Start one process per rank of a distributed program.",
        epilog="Each process finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, "
        "MASTER_ADDR and MASTER_PORT in its environment. On several machines, run the same "
        "command on each, with its own --node_rank and the --master_addr of node 0.",
    )

    def option(name: str, kind: type, default: object, text: str) -> None:
        names = (f"--{name}", f"--{name.replace('_', '-')}")
        parser.add_argument(*dict.fromkeys(names), dest=name, type=kind, default=default, help=text)

    def flag(name: str, text: str, *short: str) -> None:
        names = (*short, f"--{name}", f"--{name.replace('_', '-')}")
        parser.add_argument(*dict.fromkeys(names), dest=name, action="store_true", help=text)

    option("nnodes", int, 1, "number of machines (default 1)")
    option("node_rank", int, 0, "number of this machine, 0 to nnodes - 1 (default 0)")
    option("nproc_per_node", int, 1, "processes on each machine, one per device (default 1)")
    option("master_addr", str, "127.0.0.1", "address of machine 0 (default 127.0.0.1)")
    option(
        "master_port",
        int,
        None,
        f"a free port on machine 0 (default {DEFAULT_PORT}; on a single "
        "machine another one is taken when that is in use)",
    )
    flag("module", "the script is the name of a module, as in `python -m`", "-m")
    flag("no_python", "run the script as a program of its own, without Python")
    flag(
        "redirect_stdout_and_stderr",
        "write what each process prints to the files stdout and stderr in LOGDIR/local_rank_N",
    )
    option("logdir", str, "log", "folder for --redirect_stdout_and_stderr (default log)")
    parser.add_argument("training_script", metavar="script", help="the program of every rank")
    parser.add_argument(
        "training_script_args", metavar="args", nargs=argparse.REMAINDER, help="its arguments"
    )
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; ends the process with exit code 2 and a message when they make no sense."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.nnodes < 1:
        parser.error(f"--nnodes must be 1 or more, not {options.nnodes}")
    if not 0 <= options.node_rank < options.nnodes:
        parser.error(
            f"--node_rank must be 0 to {options.nnodes - 1} (--nnodes {options.nnodes}), "
            f"not {options.node_rank}"
        )
    if options.nproc_per_node < 1:
        parser.error(f"--nproc_per_node must be 1 or more, not {options.nproc_per_node}")
    if options.master_port is not None and not 0 < options.master_port < 65536:
        parser.error(f"--master_port must be 1 to 65535, not {options.master_port}")
    if options.module and options.no_python:
        parser.error("--module and --no_python exclude each other")
    script = options.training_script
    if not options.module and not options.no_python and not Path(script).is_file():
        parser.error(f"there is no script {script!r} here; use -m for a module")
    return options
