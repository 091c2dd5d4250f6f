"""The helper that runs ranks in processes: it must return, blame the right rank, and end."""

import os
import signal
import sys
import time

import pytest
import torch
from launched import RankFailed, run_ranks

from onefold.distributed.collectives import barrier
from onefold.distributed.world import virtual_world, world


def test_results_in_rank_order():
    offset = torch.tensor([10.0])  # closures reach the ranks without pickling
    results = run_ranks(3, lambda factor: (world().rank, world().size, offset * factor), 2)
    assert [r[:2] for r in results] == [(0, 3), (1, 3), (2, 3)]
    assert all(torch.equal(r[2], torch.tensor([20.0])) for r in results)


def test_the_parents_world_is_not_inherited():
    with virtual_world(7) as mine:
        assert run_ranks(2, lambda: world().size) == [2, 2]
        assert world() is mine


def test_environment_of_the_ranks():
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "ONEFOLD_CHECK")
    results = run_ranks(2, lambda: [os.environ[n] for n in names], env={"ONEFOLD_CHECK": "1"})
    assert results == [["0", "0", "2", "1"], ["1", "1", "2", "1"]]
    assert "RANK" not in os.environ


def test_a_script_gets_arguments_and_returns_what_it_printed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, os\nprint(os.environ['RANK'], sys.argv[1:], __name__)\n")
    assert run_ranks(2, script, "a", 1) == ["0 ['a', '1'] __main__\n", "1 ['a', '1'] __main__\n"]


def test_the_rank_that_failed_first_is_blamed():
    def program():
        barrier((0, 1, 2))
        if world().rank == 1:
            raise KeyError("the cause")
        barrier((0, 1, 2))

    with pytest.raises(RankFailed, match=r"rank 1 failed:\n(.|\n)*KeyError: 'the cause'"):
        run_ranks(3, program)


def test_a_killed_rank():
    def program():
        if world().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RankFailed, match="rank 1 ended without a result: killed by SIGKILL"):
        run_ranks(2, program)


def test_a_rank_that_leaves():
    def program():
        if world().rank == 0:
            os._exit(3)

    with pytest.raises(RankFailed, match="rank 0 ended without a result: exit code 3"):
        run_ranks(2, program)


def test_exit_is_a_failure_too():
    with pytest.raises(RankFailed, match="SystemExit: 4"):
        run_ranks(2, lambda: sys.exit(4))


def test_a_result_that_cannot_travel():
    with pytest.raises(RankFailed, match="rank 0 failed"):
        run_ranks(1, lambda: lambda: None)


def test_a_rank_that_hangs_is_shown_and_ended():
    def program():
        if world().rank == 1:
            time.sleep(60)  # the line to be shown
        return os.getpid()

    start = time.monotonic()
    with pytest.raises(
        RankFailed, match=r"after 1 s .*\nrank 1:\n(.|\n)*test_launched.py.* in program"
    ):
        run_ranks(2, program, timeout=1)
    assert time.monotonic() - start < 15
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_large_results():
    results = run_ranks(2, lambda: torch.full((1 << 20,), float(world().rank)))
    assert [float(r.mean()) for r in results] == [0.0, 1.0]
