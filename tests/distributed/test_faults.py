"""Faults of launched jobs: what is said, and when everything has ended."""

import contextlib
import fcntl
import os
import random
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from launched_jobs import Job, free_port, gone_within, listening
from torch.distributed import HashStore

from onefold.distributed.launchers import OtherLaunchers

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux's /proc")

TRAINING = """
import os, time
import torch
from onefold.distributed import collectives, current_op, topology

def step(ranks):
    current_op.name = "matmul"
    collectives.all_reduce(torch.ones(1), ranks, "sum")

everyone = tuple(range(topology.get_world_size()))
step(everyone)
print("ready", topology.get_rank(), os.getpid(), flush=True)
for _ in range(10000):
    step(everyone)
    time.sleep(0.01)
"""
LOOPBACK = "0100007F"  # 127.0.0.1
STEP = "all_reduce of op 'matmul' over ranks {}, at train.py:8 in step"


WAITING = """
import os, time
import torch
from onefold.distributed import collectives, current_op, topology, transfer

rank = topology.get_rank()
for ranks in ((0, 1, 2, 3), (1, 2)):
    if rank in ranks:
        collectives.barrier(ranks)
print("ready", rank, os.getpid(), flush=True)
current_op.name = "matmul"
if rank == 0:
    transfer([], [(2, (3,), torch.float32, torch.device("cpu"))])
if rank == 1:
    collectives.all_reduce(torch.ones(1), (1, 2), "sum")
time.sleep(100)
"""


def test_a_killed_rank(tmp_path):
    """The dead rank is named first, then in which op and line the others waited, or were."""
    with Job(tmp_path, WAITING, "--nproc_per_node", 4) as job:
        job.until_ready(4)
        time.sleep(0.5)
        os.kill(job.pids[2], signal.SIGKILL)
        killed = time.monotonic()
        status, lines = job.end()
        assert time.monotonic() - killed < 15
    assert status == 128 + signal.SIGKILL
    dead, *waited, busy = lines[-4:]
    assert dead == "[rank 2] killed by signal SIGKILL"
    for line, rank, where in zip(waited, (0, 1), ("transfer", "all_reduce"), strict=True):
        at = f"train.py:{13 + 2 * rank} in <module>"
        assert line.startswith(
            f"[rank {rank}] failed too: onefold.errors.PeerLost: {where} of op 'matmul' over ranks "
            f"({rank}, 2), at {at}, lost the connection to another rank (rank 2 killed by signal "
        )
    assert busy == "[rank 3] was at train.py:16 in <module>"


def stop_without_lock(job, rank):
    """Stop a rank at a moment at which it has not locked the file of the store."""
    (store,) = job.script.parent.glob("**/store")
    while True:
        os.kill(job.pids[rank], signal.SIGSTOP)
        time.sleep(0.05)  # another may have the lock now
        with store.open("rb") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        os.kill(job.pids[rank], signal.SIGCONT)


def test_a_stopped_rank(tmp_path):
    """The others warn, give up at the timeout, and the launcher names the stopped rank."""
    env = {"ONEFOLD_TIMEOUT": "5", "ONEFOLD_WARN_AFTER": "1"}
    with Job(tmp_path, TRAINING, "--nproc_per_node", 2, env=env) as job:
        job.until_ready(2)
        stop_without_lock(job, 1)
        stopped = time.monotonic()
        status, lines = job.end()
        assert 4 < time.monotonic() - stopped < 20
    assert status == 1
    stop = "stopped by a signal, such as SIGSTOP, or by a debugger"
    step = STEP.format((0, 1))
    # Waits at the start may be worth a warning, too.
    first, *lines = lines[-5:]
    assert re.fullmatch(
        re.escape(f"[rank 0] {step}, has waited ") + r"\d s for other ranks:", first
    )
    assert lines == [
        f"  rank 1 did not arrive: {stop}",
        "  It gives up after 5 s (ONEFOLD_TIMEOUT).",
        f"[rank 1] {stop}, while others waited for it",
        f"[rank 0] failed too: onefold.errors.CommTimeout: {step}, waited 5 s for other ranks "
        "(ONEFOLD_TIMEOUT).",
    ]


HOLDING = """
import fcntl, os, signal, time
import torch
from onefold.distributed import collectives, topology

collectives.all_reduce(torch.ones(1), (0, 1), "sum")
print("ready", topology.get_rank(), os.getpid(), flush=True)
if topology.get_rank() == 1:
    with open(os.environ["ONEFOLD_STORE"]) as store:
        fcntl.flock(store, fcntl.LOCK_EX)
        os.kill(os.getpid(), signal.SIGSTOP)
collectives.all_reduce(torch.ones(1), (0, 1), "sum")
"""


def test_a_rank_that_is_stopped_while_it_has_the_lock_of_the_store(tmp_path):
    """Until it ends the others cannot say anything, nor read what the launcher says."""
    env = {"ONEFOLD_TIMEOUT": "3", "ONEFOLD_WARN_AFTER": "1"}
    with Job(tmp_path, HOLDING, "--nproc_per_node", 2, env=env) as job:
        job.until_ready(2)
        status, lines = job.end(timeout=30)
    assert status == 1
    stop = "stopped by a signal, such as SIGSTOP, or by a debugger, while others waited for it"
    assert f"[rank 1] {stop}" in lines
    assert any(line.startswith("[rank 0] failed too: ") and "train.py:12" in line for line in lines)


def test_a_killed_launcher(tmp_path):
    """Its ranks end, even a stopped one, and its temporary folder is removed.

    Until then nothing of the job listens to other machines, and a stranger's bytes do no harm.
    """
    with Job(tmp_path, TRAINING, "--nproc_per_node", 2) as job:
        job.until_ready(2)
        addresses = listening(job.process.pid, *job.pids.values())
        assert len(addresses) >= 3
        assert {address.partition(":")[0] for address in addresses} == {LOOPBACK}
        (mine,) = listening(job.process.pid)
        with socket.create_connection(("127.0.0.1", int(mine.partition(":")[2], 16))) as stranger:
            stranger.sendall(random.Random(0).randbytes(4096))
        time.sleep(0.5)
        assert job.process.poll() is None
        assert list(tmp_path.glob("onefold-launch-*"))
        os.kill(job.pids[1], signal.SIGSTOP)
        job.process.kill()
        assert gone_within(job.pids.values(), 5)
    deadline = time.monotonic() + 5
    while list(tmp_path.glob("onefold-launch-*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_launcher_of_another_machine(tmp_path):
    """Node 1 notices that the launcher of node 0 is gone, though their ranks never communicate.

    Node 0 listens on the named address alone, and node 1 not at all.
    """
    port = free_port()
    both = ("--nnodes", 2, "--no_python", "--master_port", port, "--node_rank")
    script = "echo ready $RANK $$; exec sleep 100"
    with (
        Job(tmp_path, "", *both, 0, program=("sh", "-c", script)) as zero,
        Job(tmp_path, "", *both, 1, program=("sh", "-c", script)) as one,
    ):
        zero.until_ready(1)
        one.until_ready(1)
        assert listening(zero.process.pid) == {f"{LOOPBACK}:{port:04X}"}
        assert listening(one.process.pid) == set()
        zero.process.kill()
        killed = time.monotonic()
        status, lines = one.end()
        assert time.monotonic() - killed < 30
        assert gone_within([*zero.pids.values(), *one.pids.values()], 5)
    assert status == 1
    assert lines[-1].endswith("the launcher of node 0 has ended, or cannot be reached")


def test_a_launcher_that_falls_silent(monkeypatch):
    """The first launcher, which serves the store, notices the others' end by their silence."""
    store = HashStore()
    signals = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    watch = OtherLaunchers(lambda: store, 0, 3, silence=1.0)
    for beat in range(4):
        store.set("beat/1", str(beat))
        store.set("beat/2", str(min(beat, 1)))
        time.sleep(0.6)
    watch.stop()
    assert watch.lost == 2
    assert signals == [(os.getpid(), signal.SIGTERM)]


FORKING = """
import multiprocessing, os, sys
import onefold as flow

def total():
    place = flow.placement("cpu", [0, 1])
    return flow.ones(4, placement=place, sbp=flow.sbp.split(0)).sum().item()

def ask(ends):
    try:
        print("child of", flow.env.get_rank(), flow.ones(3).sum().item(), total())
    except flow.OnefoldError as error:
        print("child of", flow.env.get_rank(), error)
    ends()

def fork(ends):
    child = os.fork()
    if not child:
        ask(ends)
    assert os.waitpid(child, 0)[1] == 0

fork(sys.exit)
assert total() == 4
fork(sys.exit)
fork(lambda: os._exit(0))
worker = multiprocessing.get_context("fork").Process(target=ask, args=(sys.exit,))
worker.start()
worker.join()
assert worker.exitcode == 0
print("total", total())
"""


def test_a_forked_child_of_a_rank(tmp_path):
    """It may use local tensors; communication is an error, not a hang, and the rank goes on."""
    with Job(tmp_path, FORKING, "--nproc_per_node", 2) as job:
        status, lines = job.end()
    # From Python 3.12 on a process with threads warns when it forks.
    assert (status, [line for line in lines if "fork()" not in line]) == (0, [])
    assert job.printed.count("total 4.0") == 2
    for rank in (0, 1):
        children = [line for line in job.printed if line.startswith(f"child of {rank} ")]
        assert len(children) == 4
        says = r"child of \d (\w+: )?a collective was asked for in a process that was forked from"
        assert all(re.match(f"{says} rank {rank} and has no", line) for line in children)


def test_an_interrupt_in_the_first_seconds(tmp_path):
    """Ctrl-C prints one line, also while the launcher or its ranks still import the package."""
    jobs = []
    for delay in (0.3, 1.0, 2.0, 3.0):
        with Job(tmp_path, TRAINING, "--nproc_per_node", 2) as job:
            time.sleep(delay)
            job.process.send_signal(signal.SIGINT)
            jobs.append(job.end())
    assert jobs == [(128 + signal.SIGINT, ["launch: stopped by SIGINT"])] * 4


# A training loop with a file of its own as its checkpoint. What it holds at the end does not
# depend on how often it was started, nor with how many ranks.
RESUMING = """
import json, os, time
import onefold as flow

rank, size = flow.env.get_rank(), flow.env.get_world_size()
everyone = flow.placement("cpu", list(range(size)))
state = {"step": 0, "w": 1.0}
if os.path.exists("state.json"):
    state = json.load(open("state.json"))
start = os.environ["TORCHELASTIC_RESTART_COUNT"]
print("start", start, "rank", rank, "of", size, "step", state["step"], flush=True)
x = flow.arange(12, dtype=flow.float64).to_global(everyone, flow.sbp.broadcast)
x = x.to_global(sbp=flow.sbp.split(0))
while state["step"] < int(os.environ["STEPS"]):
    state["w"] = state["w"] / 2 + (x * state["w"]).max().item() / 64
    state["step"] += 1
    if rank == 0:
        json.dump(state, open("new.json", "w"))
        os.replace("new.json", "state.json")
    if state["step"] == 3:
        print("ready", rank, os.getpid(), flush=True)
    time.sleep(float(os.environ["PAUSE"]))
print("end", rank, state["w"])
"""


def trained(steps):
    w = 1.0
    for _ in range(steps):
        w = w / 2 + 11 * w / 64
    return w


def test_ranks_start_again(tmp_path):
    """After each kill on one machine, until the restarts are used up."""
    env = {"STEPS": "40", "PAUSE": "0.05"}
    with Job(tmp_path, RESUMING, "--nproc_per_node", 2, "--max_restarts", 2, env=env) as job:
        job.until_ready(2)
        os.kill(job.pids[1], signal.SIGKILL)
        status, lines = job.end()
    assert status == 0
    assert lines[0] == "[rank 1] killed by signal SIGKILL"
    assert lines[1].startswith("[rank 0] failed too: onefold.errors.PeerLost: ")
    assert lines[2:] == [
        "launch: starts again (1 restarts left)",
        "launch: start 2, here with ranks [0, 1] of 2",
    ]
    starts = [line.split() for line in job.printed if line.startswith("start")]
    assert sorted(words[:6] for words in starts) == [
        ["start", str(start), "rank", str(rank), "of", "2"] for start in (0, 1) for rank in (0, 1)
    ]
    assert all(int(words[-1]) >= 3 * int(words[1]) for words in starts)
    ends = sorted(line for line in job.printed if line.startswith("end"))
    assert ends == [f"end {rank} {trained(40)}" for rank in (0, 1)]


@pytest.mark.slow
def test_an_elastic_job(tmp_path):
    """Another machine joins, and is lost: the job goes on with two ranks, and then with one."""
    options = ("--nnodes", "1:2", "--master_port", free_port(), "--last_call", 1)
    # Compared collectives wait in the store, where only a launcher can notice the loss.
    env = {"STEPS": "8000", "PAUSE": "0.02", "ONEFOLD_CHECK": "1"}
    with Job(tmp_path, RESUMING, *options, "--max_restarts", 1, env=env) as one:
        one.until_ready(1)
        with Job(tmp_path, RESUMING, *options, env=env) as two:
            two.until("start 1 rank . of 2")
            one.until("start 1 rank . of 2")
            two.process.kill()
        one.until("start 2 rank 0 of 1")
        one.process.terminate()
        status, lines = one.end()
    assert status == 128 + signal.SIGTERM
    assert lines[0] == "launch: starts again, since machines wait to join"
    assert lines[1].startswith("launch: start 2, here with ranks [")
    assert lines[-3:] == [
        "launch: starts again (0 restarts left)",
        "launch: start 3, here with ranks [0] of 1",
        "launch: stopped by SIGTERM",
    ]
    steps = [int(line.split()[-1]) for line in one.printed if line.startswith("start")]
    assert steps == sorted(steps)
    assert steps[1] >= 3
