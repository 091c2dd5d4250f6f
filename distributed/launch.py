"""`python -m onefold.distributed.launch`: start one process per rank, on one or more machines.

Takes OneFlow's options and runs on torch.distributed's elastic agent. The first rank that fails
stops all, after the others had a moment to say where they waited. Of an exception the traceback
is the last thing printed, with its rank before each line. Programs started by torchrun work as
well, with torchrun's own reports.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket
from types import FrameType

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous.api import RendezvousError

from ..env import TIMEOUT, TOKEN
from .agent import Agent
from .elastic_rendezvous import ElasticRendezvous
from .failure import FailureReport
from .launch_options import is_elastic, parse
from .launch_rendezvous import DEFAULT_PORT, FixedRendezvous, connect, launcher_keys, listen, serve
from .launchers import OtherLaunchers
from .rank_files import RankFiles
from .scratch_folder import scratch_folder

_SHUTDOWN_TIMEOUT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def _command(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The program of every process and its arguments."""
    arguments = ["-I", "-S", str(Path(__file__).with_name("parent_death.py")), str(os.getpid())]
    if options.no_python:
        arguments.append("keep")
    else:
        worker = f"{__package__ or 'onefold.distributed'}.worker"
        arguments += ["block", sys.executable, "-m", worker]
        if options.redirect_stdout_and_stderr:
            arguments.append("--also-print")
        if options.module:
            arguments.append("-m")
    arguments += [options.training_script, *options.training_script_args]
    return sys.executable, arguments


def _listen(options: argparse.Namespace) -> socket | None:
    """What this launcher listens on, if it serves the store of the job."""
    host, port, single = options.master_addr, options.master_port, options.nnodes[1] == 1
    if options.node_rank:
        return None
    # Launchers of an elastic job need no numbers: who has the address, and comes first, serves.
    certain = options.node_rank == 0 or not is_elastic(options)
    try:
        return listen(host, port or DEFAULT_PORT, remote=not single, here=certain)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        if not certain and (taken or error.errno == errno.EADDRNOTAVAIL):
            return None
        if not (single and taken):
            raise
    if port is not None:
        raise OSError(f"--master_port {port} is in use; leave it out to get a free one")
    return listen(host, 0, remote=False)


def _meet(options: argparse.Namespace) -> FixedRendezvous | ElasticRendezvous:
    """Where the launchers of the job meet."""
    host, node_rank, timeout = options.master_addr, options.node_rank, TIMEOUT.read()
    server = _listen(options)
    if server is None:
        store = connect(host, options.master_port or DEFAULT_PORT, timeout)
    else:
        store = serve(host, server, timeout)
    if not is_elastic(options):
        return FixedRendezvous(store, host, node_rank or 0, options.nnodes[1], timeout)
    last_call = options.last_call
    return ElasticRendezvous.on(store, host, options.nnodes, node_rank, timeout, last_call)


def _set_environment(options: argparse.Namespace) -> None:
    """What all processes inherit from this one."""
    # Ranks that wait for others cannot react to a polite signal; do not give them half a minute.
    os.environ.setdefault(_SHUTDOWN_TIMEOUT, "5")
    if options.nproc_per_node > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.nnodes[1] == 1:
        os.environ.setdefault(TOKEN.name, secrets.token_hex(16))
        # On one machine nothing should depend on how it resolves names: torch asks for the name
        # of every address that it connects to, and gloo for the address of the machine's name.
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _run(options: argparse.Namespace, scratch: str) -> FailureReport | None:
    """Run all processes of this machine; why the job failed, or None."""
    rendezvous = _meet(options)
    program, arguments = _command(options)
    spec = WorkerSpec(
        role="default_role",
        local_world_size=options.nproc_per_node,
        rdzv_handler=rendezvous,
        entrypoint=program,
        # The agent reads its arguments as string templates.
        args=tuple(text.replace("$", "$$") for text in arguments),
        max_restarts=options.max_restarts,
    )
    logdir = options.logdir if options.redirect_stdout_and_stderr else None
    files = RankFiles(scratch, options.nnodes[1] == 1, logdir)
    agent = Agent(spec, rendezvous, files, int(os.environ[_SHUTDOWN_TIMEOUT]))
    if options.nnodes[1] == 1:
        agent.run()
        return agent.report
    port = rendezvous.store.port
    others = OtherLaunchers(
        lambda: launcher_keys(connect(options.master_addr, port, TIMEOUT.read())),
        options.node_rank or 0,
        # The rendezvous of an elastic job notices by itself who has left.
        0 if is_elastic(options) else options.nnodes[1],
    )
    try:
        agent.run()
        report = agent.report
        if report is not None:
            report = report.because_of(others.report(report.failure))
        rendezvous.shutdown()
        return report
    except RendezvousError:
        # A launcher that fails for good closes the rendezvous.
        if failure := others.reported_failure():
            return FailureReport(failure, {})
        raise
    except SignalException:
        if others.failure is not None:
            return FailureReport(others.failure, {})
        if others.lost is not None:
            raise ConnectionError(
                f"the launcher of node {others.lost} has ended, or cannot be reached"
            ) from None
        raise
    finally:
        others.stop()


def end_children() -> None:
    """Kill what is left of this process's children.

    A signal that comes while the agent starts the ranks finds some that it has not noted yet, and
    that it therefore does not end.
    """
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _stop(number: int, frame: FrameType | None) -> None:
    """As the agent reacts to signals once it runs."""
    raise SignalException(f"got signal {number}", sigval=signal.Signals(number))


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Signals raise SignalException inside, also before the agent runs and after it."""
    before = {number: signal.signal(number, _stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _complain(text: str, status: int = 1) -> int:
    sys.stderr.write(f"launch: {text}\n")
    return status


def _launch(options: argparse.Namespace) -> int:
    with scratch_folder() as scratch:
        try:
            report = _run(options, scratch)
        except SignalException as stop:
            end_children()
            name = signal.Signals(stop.sigval).name
            return _complain(f"stopped by {name}", 128 + stop.sigval)
        except (RendezvousError, RuntimeError, OSError) as error:
            node, most = options.node_rank or 0, options.nnodes[1]
            where = f"{options.master_addr}:{options.master_port or DEFAULT_PORT}"
            return _complain(
                f"node {node} of {most} could not run {options.training_script!r} "
                f"(meeting point {where}): {error}"
            )
    if report is None:
        return 0
    sys.stdout.flush()
    sys.stderr.write(report.text() + "\n")
    sys.stderr.flush()
    return report.failure.status


def main(argv: Sequence[str] | None = None) -> int:
    """Launch, wait, report; returns the exit code: that of the rank that failed first, or 0."""
    options = parse(argv)
    # The agent logs each step of ending the other ranks; the report says what matters.
    logging.disable(logging.ERROR)
    _set_environment(options)
    with _stopped_by_signals():
        return _launch(options)


if __name__ == "__main__":
    sys.exit(main())
