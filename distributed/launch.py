"""`python -m onefold.distributed.launch`: start one process per rank, on one or more machines.

Takes OneFlow's options and runs on torch.distributed's elastic agent with static rendezvous. The
first rank that fails stops all; its traceback is the last thing printed, with its rank before
each line. Programs started by torchrun work as well, with torchrun's own reports.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from ..env import TIMEOUT
from .failure import Failure, ended, first, found
from .launchers import OtherLaunchers

_DEFAULT_PORT = 29500
_TAKEN = re.compile("EADDRINUSE|already in use", re.IGNORECASE)


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
        f"a free port on machine 0 (default {_DEFAULT_PORT}; on a single "
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


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
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


class _Logs(LogsSpecs):
    """Where each process's output goes: the terminal, or files in OneFlow's layout."""

    def __init__(self, scratch: str, logdir: str | None) -> None:
        super().__init__(log_dir=scratch)
        self._scratch = scratch
        self._logdir = logdir

    @property
    def root_log_dir(self) -> str:
        return self._scratch

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The files of each process, by local rank; an empty name is the terminal."""
        outs, errs, errors = dict.fromkeys(envs, ""), dict.fromkeys(envs, ""), {}
        for local, variables in envs.items():
            errors[local] = str(Path(self._scratch, f"agent{local}.json"))
            variables["TORCHELASTIC_ERROR_FILE"] = errors[local]
            if self._logdir is not None:
                folder = Path(self._logdir, f"local_rank_{local}")
                folder.mkdir(parents=True, exist_ok=True)
                outs[local], errs[local] = str(folder / "stdout"), str(folder / "stderr")
        return LogsDest(stdouts=outs, stderrs=errs, error_files=errors)


def _command(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The program of every process and its arguments."""
    rest = [options.training_script, *options.training_script_args]
    if options.no_python:
        return rest[0], rest[1:]
    arguments = ["-m", f"{__package__ or 'onefold.distributed'}.worker"]
    if options.redirect_stdout_and_stderr:
        arguments.append("--also-print")
    if options.module:
        arguments.append("-m")
    return sys.executable, arguments + rest


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _set_environment(options: argparse.Namespace, scratch: str) -> None:
    """What all processes inherit from this one."""
    os.environ["ONEFOLD_ERROR_DIR"] = scratch
    # Ranks that wait for others cannot react to a polite signal; do not give them half a minute.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5")
    if options.nproc_per_node > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.nnodes == 1:
        # On one machine nothing should depend on how it resolves names: torch asks for the name
        # of every address that it connects to, and gloo for the address of the machine's name.
        os.environ["ONEFOLD_STORE"] = str(Path(scratch, "store"))
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _run(options: argparse.Namespace, port: int, scratch: str) -> Failure | None:
    """Run all processes of this machine; the failure that the job ended with, or None."""
    config = LaunchConfig(
        min_nodes=options.nnodes,
        max_nodes=options.nnodes,
        nproc_per_node=options.nproc_per_node,
        run_id="onefold",
        rdzv_backend="static",
        rdzv_endpoint=f"{options.master_addr}:{port}",
        rdzv_configs={"rank": options.node_rank, "timeout": max(1, round(TIMEOUT.read()))},
        max_restarts=0,
        logs_specs=_Logs(scratch, options.logdir if options.redirect_stdout_and_stderr else None),
    )
    program, arguments = _command(options)
    others = None
    if options.nnodes > 1:
        others = OtherLaunchers(options.master_addr, port, options.node_rank, TIMEOUT.read())
    try:
        # The agent reads its arguments as string templates.
        elastic_launch(config, program)(*(text.replace("$", "$$") for text in arguments))
        return None
    except ChildFailedError as error:
        failure = _first_failure(error, scratch)
        if others is not None:
            others.tell(failure)
        return failure
    except SignalException:
        if others is not None and others.failure is not None:
            return others.failure
        if others is not None and others.gone:
            raise ConnectionError("the launcher of node 0 has ended") from None
        raise
    finally:
        if others is not None:
            others.stop()


def _first_failure(error: ChildFailedError, scratch: str) -> Failure:
    """The failure to report last; one line about each other rank that left a traceback."""
    left = {failure.rank: failure for failure in found(scratch)}
    # The agent only knows full seconds, and notices later.
    silent = [
        ended(rank, end.exitcode, end.timestamp + 1.0)
        for rank, end in error.failures.items()
        if rank not in left
    ]
    failure = first([*left.values(), *silent])
    for other in left.values():
        if other.rank != failure.rank:
            sys.stderr.write(f"[rank {other.rank}] failed too: {other.summary()}\n")
    return failure


def end_children() -> None:
    """Kill what is left of this process's children.

    A signal that comes while the agent starts the ranks finds some that it has not noted yet, and
    that it therefore does not end.
    """
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _report(failure: Failure) -> int:
    sys.stdout.flush()
    sys.stderr.write(failure.prefixed() + "\n")
    sys.stderr.flush()
    return failure.status


def _complain(text: str, status: int = 1) -> int:
    sys.stderr.write(f"launch: {text}\n")
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Launch, wait, report; returns the exit code: that of the rank that failed first, or 0."""
    options = _parse(argv)
    # The agent logs each step of ending the other ranks; the report says what matters.
    logging.disable(logging.ERROR)
    single = options.nnodes == 1
    port = options.master_port or _DEFAULT_PORT
    if single and not _is_free(port):
        if options.master_port is not None:
            return _complain(f"--master_port {port} is in use; leave it out to get a free one")
        port = _any_port()
    with tempfile.TemporaryDirectory(prefix="onefold-launch-") as scratch:
        _set_environment(options, scratch)
        while True:
            try:
                failure = _run(options, port, scratch)
                return 0 if failure is None else _report(failure)
            except SignalException as stop:
                end_children()
                name = signal.Signals(stop.sigval).name
                return _complain(f"stopped by {name}", 128 + stop.sigval)
            except (RuntimeError, OSError) as error:
                # Two launchers that started together may both have found the port free.
                if single and options.master_port is None and _TAKEN.search(str(error)):
                    port = _any_port()
                    continue
                where = f"{options.master_addr}:{port}"
                return _complain(
                    f"node {options.node_rank} of {options.nnodes} could not run "
                    f"{options.training_script!r} (meeting point {where}): {error}"
                )


if __name__ == "__main__":
    sys.exit(main())
