"""The launcher, as a user starts it: environment, failures, several machines, signals, options."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onefold.distributed.failure import Failure, ended, first, found, leave
from onefold.distributed.launch import main

LAUNCH = [sys.executable, "-m", "onefold.distributed.launch"]
LIMIT = 100


def launch(*arguments, cwd):
    return subprocess.run(
        [*LAUNCH, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=cwd,
        check=False,
    )


def start(*arguments, cwd):
    return subprocess.Popen(
        [*LAUNCH, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        # Jobs that a shell runs in the background ignore SIGINT, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  (no threads here)
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def test_programs_without_python_and_files_for_their_output(tmp_path):
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR OMP_NUM_THREADS"
    script = f"for name in {names}; do printenv $name; done; echo $0; exit $((3 * RANK))"
    result = launch(
        "--nproc_per_node=2",
        "--no_python",
        "--redirect_stdout_and_stderr",
        "--logdir=logs",
        *("sh", "-c", script, "${rank} $$"),
        cwd=tmp_path,
    )
    for rank in (0, 1):
        lines = (tmp_path / "logs" / f"local_rank_{rank}" / "stdout").read_text().split()
        assert lines[:6] == [str(rank), str(rank), "2", "2", "0", "127.0.0.1"]
        assert lines[6].isdigit()
        assert lines[7:] == ["${rank}", "$$"]
        assert (tmp_path / "logs" / f"local_rank_{rank}" / "stderr").read_text() == ""
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr == "[rank 1] ended with exit code 3\n"


FAILING = """
import sys
from onefold.distributed import world
from onefold.distributed.collectives import all_reduce
from onefold.distributed.topology import get_rank
import torch

print("rank", get_rank(), sys.argv[1:], __name__, sys.path[0], flush=True)
world().ensure((0, 1))
all_reduce(torch.ones(1), (0, 1), "sum")
if get_rank() == 1:
    raise KeyError("the cause")
all_reduce(torch.ones(1), (0, 1), "sum")
"""


def test_the_first_failures_traceback_comes_last(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(FAILING)
    result = launch("--nproc_per_node", 2, script, "--lr", 1, cwd=tmp_path)
    assert result.returncode == 1
    lines = sorted(result.stdout.splitlines())
    assert lines == [f"rank {r} ['--lr', '1'] __main__ {tmp_path}" for r in (0, 1)]
    errors = result.stderr.splitlines()
    assert errors[-4:] == [
        "[rank 1] Traceback (most recent call last):",
        f'[rank 1]   File "{script}", line 12, in <module>',
        '[rank 1]     raise KeyError("the cause")',
        "[rank 1] KeyError: 'the cause'",
    ]
    assert len(errors) == 5
    assert errors[0].startswith("[rank 0] failed too: onefold.errors.PeerLost: all_reduce over")


WAITING = """
import os, time

names = "RANK LOCAL_RANK WORLD_SIZE GROUP_RANK MASTER_PORT".split()
print(*(os.environ[name] for name in names), flush=True)
if os.environ["RANK"] == "1":
    for _ in range(600):  # until the other one has printed
        if os.path.exists("printed"):
            break
        time.sleep(0.1)
    raise ValueError("node 1 gave up")
open("printed", "w").close()
time.sleep(100)
"""


BAD_DATA = """
import onefold as flow

place = flow.placement("cpu", [0, 1])
ids = flow.tensor([1, 9 * flow.env.get_rank()]).to_global(place, flow.sbp.split(0))
rows = flow.nn.functional.embedding(ids, flow.ones(8, 3, placement=place, sbp=flow.sbp.broadcast))
print(rows.sum().item())
"""


def test_an_error_of_one_ranks_data_is_reported_as_its_own(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(BAD_DATA)
    result = launch("--nproc_per_node", 2, script, cwd=tmp_path)
    assert result.returncode == 1
    text = "OutOfRangeError: embedding: index out of range: got 9, but the weight has 8 rows"
    first, *rest = result.stderr.splitlines()
    assert first.startswith("[rank 0] failed too: ")
    assert first.endswith(text.replace("embedding:", "rank 1: embedding:"))
    assert all(line.startswith("[rank 1]") for line in rest)
    assert any(line.endswith(text) for line in rest)
    assert result.stdout == ""


def test_two_machines_stop_together(tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    port = free_port()
    both = ("--nnodes", 2, "--master_port", port, "--node_rank")
    with (
        start(*both, 0, "-m", "waiting", cwd=tmp_path) as zero,
        start(*both, 1, "-m", "waiting", cwd=tmp_path) as one,
    ):
        nodes = (zero, one)
        try:
            outputs = [node.communicate(timeout=LIMIT) for node in nodes]
        finally:
            for node in nodes:
                node.kill()
    for rank, (out, err) in enumerate(outputs):
        assert out == f"{rank} 0 2 {rank} {port}\n"
        assert err.splitlines()[-1] == "[rank 1] ValueError: node 1 gave up"
        assert "Traceback" in err
    assert [node.returncode for node in nodes] == [1, 1]


def test_interrupt_stops_all(tmp_path):
    command = ("--nproc_per_node", 2, "--no_python", "sh", "-c", "echo $$; exec sleep 100")
    with start(*command, cwd=tmp_path) as node:
        try:
            workers = [int(node.stdout.readline()) for _ in range(2)]
            node.send_signal(signal.SIGINT)
            _, err = node.communicate(timeout=LIMIT)
        finally:
            node.kill()
    assert node.returncode == 128 + signal.SIGINT
    assert err.splitlines()[-1] == "launch: stopped by SIGINT"
    deadline = time.monotonic() + 10
    while any(_runs(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(worker) for worker in workers)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_ranks_that_the_agent_does_not_know_are_ended():
    program = (
        "import subprocess\n"
        "from onefold.distributed.launch import end_children\n"
        "child = subprocess.Popen(['sleep', '100'])\n"
        "end_children()\n"
        "print(child.wait(timeout=20))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert done.stdout.split() == [str(-signal.SIGKILL)]


def _runs(pid):
    try:
        # The state follows the program's name, which is in brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "script"),
        (["nowhere.py"], "there is no script 'nowhere.py' here; use -m for a module"),
        (["--nnodes", "0", "x"], "--nnodes must be 1 or more, not 0"),
        (["--nnodes", "2", "--node_rank", "2", "x"], "--node_rank must be 0 to 1"),
        (["--nnodes", "2:1", "x"], "--nnodes MIN:MAX needs MIN <= MAX, not 2:1"),
        (["--nnodes", "1:", "x"], "'1:' is neither N nor MIN:MAX"),
        (["--nnodes", "1:2", "--node_rank", "2", "x"], "--node_rank must be 0 to 1"),
        (["--max_restarts", "-1", "x"], "--max_restarts must be 0 or more, not -1"),
        (["--last_call", "0", "x"], "--last_call must be more than 0, not 0"),
        (["--nproc_per_node", "0", "x"], "--nproc_per_node must be 1 or more"),
        (["--nproc_per_node", "two", "x"], "invalid int value: 'two'"),
        (["--master_port", "70000", "x"], "--master_port must be 1 to 65535, not 70000"),
        (["--no_python", "-m", "x"], "--module and --no_python exclude each other"),
        (["--nonsense", "x"], "unrecognized arguments: --nonsense"),
    ],
)
def test_bad_options(capsys, arguments, said):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for option in (
        *("--nnodes", "--node_rank", "--nproc_per_node", "--master_addr", "--master_port"),
        *("--max_restarts", "--last_call", "MIN:MAX", "TORCHELASTIC_RESTART_COUNT"),
        *(
            "ONEFOLD_TOKEN",
            "-m",
            "--module",
            "--no_python",
            "--redirect_stdout_and_stderr",
            "--logdir",
        ),
    ):
        assert option in text


def test_a_port_in_use(capsys):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--master_port", str(port), "-m", "this"]) == 1
    assert f"--master_port {port} is in use" in capsys.readouterr().err


def test_failures_travel_by_file(tmp_path):
    early = Failure(2, 5.0, False, "Traceback (most recent call last):\n  File\nValueError: é")
    late = Failure(0, 6.0, False, "x")
    lost = Failure(1, 1.0, True, "y")
    for failure in (late, lost, early):
        leave(str(tmp_path), failure)
    assert found(str(tmp_path)) == [late, lost, early]
    assert first([late, lost, early]) == early
    assert first([lost]) == lost
    assert early.summary() == "ValueError: é"
    assert early.prefixed().splitlines()[-1] == "[rank 2] ValueError: é"


@pytest.mark.parametrize(
    ("code", "text", "status", "secondary"),
    [
        (7, "ended with exit code 7", 7, False),
        (-signal.SIGKILL, "killed by signal SIGKILL", 137, False),
        (-signal.SIGTERM, "killed by signal SIGTERM", 143, False),
    ],
)
def test_failures_known_by_exit_code(code, text, status, secondary):
    failure = ended(3, code, 1.0)
    assert (failure.text, failure.status, failure.secondary) == (text, status, secondary)
