"""The options of the launcher: `python -m onefold.distributed.launch --help`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from .launch_rendezvous import DEFAULT_PORT


def _nodes(text: str) -> tuple[int, int]:
    """`N` or `MIN:MAX`."""
    fewest, colon, most = text.partition(":")
    try:
        return int(fewest), int(most if colon else fewest)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither N nor MIN:MAX") from None


def is_elastic(options: argparse.Namespace) -> bool:
    """Whether machines may come and go, or must meet again."""
    fewest: int
    most: int
    fewest, most = options.nnodes
    return bool(most > 1 and (fewest != most or options.max_restarts > 0))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m onefold.distributed.launch",
        description="Start one process per rank of a distributed program.",
        epilog="Each process finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, "
        "MASTER_ADDR, MASTER_PORT and TORCHELASTIC_RESTART_COUNT in its environment. On several "
        "machines, run the same command on each, with its own --node_rank and the --master_addr "
        "of node 0, and with one secret text in ONEFOLD_TOKEN. The launcher listens on "
        "--master_addr alone.",
    )

    def option(name: str, kind: Callable[[str], object], default: object, text: str) -> None:
        names = (f"--{name}", f"--{name.replace('_', '-')}")
        parser.add_argument(*dict.fromkeys(names), dest=name, type=kind, default=default, help=text)

    def flag(name: str, text: str, *short: str) -> None:
        names = (*short, f"--{name}", f"--{name.replace('_', '-')}")
        parser.add_argument(*dict.fromkeys(names), dest=name, action="store_true", help=text)

    option(
        "nnodes",
        _nodes,
        (1, 1),
        "number of machines (default 1), or MIN:MAX for an elastic job, which starts again when "
        "machines join it or, with --max_restarts, leave it",
    )
    option(
        "node_rank",
        int,
        None,
        "number of this machine, 0 to nnodes - 1 (default 0); an elastic job numbers its machines "
        "in this order, and does not need it",
    )
    option("nproc_per_node", int, 1, "processes on each machine, one per device (default 1)")
    option("master_addr", str, "127.0.0.1", "address of machine 0 (default 127.0.0.1)")
    option(
        "master_port",
        int,
        None,
        f"a free port on machine 0 (default {DEFAULT_PORT}; on a single "
        "machine another one is taken when that is in use)",
    )
    option(
        "max_restarts",
        int,
        0,
        "how often the ranks may start again after one has failed (default 0); they find the "
        "number of the start in TORCHELASTIC_RESTART_COUNT",
    )
    option(
        "last_call",
        float,
        30.0,
        "seconds that an elastic job waits for more machines once MIN are there (default 30)",
    )
    flag("module", "the script is the name of a module, as in `python -m`", "-m")
    flag("no_python", "run the script as a program of its own, without Python")
    flag(
        "redirect_stdout_and_stderr",
        "write what each process prints to the files stdout and stderr in LOGDIR/local_rank_N, "
        "and after a restart in its folder startK",
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
    fewest, most = options.nnodes
    if fewest < 1:
        parser.error(f"--nnodes must be 1 or more, not {fewest}")
    if most < fewest:
        parser.error(f"--nnodes MIN:MAX needs MIN <= MAX, not {fewest}:{most}")
    if options.node_rank is not None and not 0 <= options.node_rank < most:
        parser.error(
            f"--node_rank must be 0 to {most - 1} (--nnodes {most}), not {options.node_rank}"
        )
    if options.max_restarts < 0:
        parser.error(f"--max_restarts must be 0 or more, not {options.max_restarts}")
    if not options.last_call > 0:
        parser.error(f"--last_call must be more than 0, not {options.last_call:g}")
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
