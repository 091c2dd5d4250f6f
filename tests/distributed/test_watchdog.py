"""Waits that fail: the error names the op, the user's line, and who arrived and who did not."""

import os
import signal
import time

import pytest
import torch
from launched import RankFailed, run_ranks

from onefold.distributed import collectives as c, current_op, transfer
from onefold.distributed.watchdog import Pending
from onefold.distributed.world import world
from onefold.errors import CommError, CommTimeout, PeerLost

CPU = torch.device("cpu")
SHORT = {"ONEFOLD_TIMEOUT": "1"}
# Ranks that did not fail themselves stay this long, so that those that did can ask them.
STAY = 1.5


def failing(action):
    """The error that `action` raises on this rank, as (type, text), after STAY seconds."""
    try:
        action()
        found = None
    except CommError as error:
        found = (type(error).__name__, str(error))
    time.sleep(STAY)
    return found


def test_a_late_rank_is_named_with_its_line():
    def program():
        if world().rank == 2:
            time.sleep(2 * STAY)
            return None
        current_op.name = "matmul"
        return failing(lambda: c.all_reduce(torch.ones(3), (0, 1, 2), "sum"))

    zero, one, two = run_ranks(3, program, env=SHORT)
    assert two is None
    for me, (kind, text) in enumerate((zero, one)):
        assert kind == CommTimeout.__name__
        first, *_ = text.splitlines()
        assert first.startswith(
            "all_reduce of op 'matmul' over ranks (0, 1, 2), at test_watchdog.py:"
        )
        assert first.endswith("waited 1 s for other ranks (ONEFOLD_TIMEOUT).")
        assert f"rank {me} arrived: at test_watchdog.py:" in text
        assert f"rank {1 - me} arrived: in all_reduce of op 'matmul'" in text
        assert "rank 2 did not arrive: at test_watchdog.py:" in text
        assert "in program" in text


def test_a_rank_in_another_collective_is_named_with_it():
    def program():
        if world().rank:
            c.all_reduce(torch.ones(1), (1, 2), "sum")
        c.barrier((0, 1, 2))  # connecting takes a while
        if world().rank == 2:
            return failing(lambda: c.all_gather(torch.ones(3), (1, 2), [(3,), (3,)]))
        return failing(lambda: c.barrier((0, 1, 2)))

    for rank, (kind, text) in enumerate(run_ranks(3, program, env=SHORT)):
        assert kind == CommTimeout.__name__
        if rank == 2:
            assert "rank 1 did not arrive: in barrier over ranks (0, 1, 2), at test_w" in text
        else:
            assert f"rank {1 - rank} arrived: in barrier" in text
            assert "rank 2 did not arrive: in all_gather over ranks (1, 2), at test_w" in text


def test_a_group_whose_other_members_do_not_come():
    def program():
        if world().rank == 1:
            time.sleep(2 * STAY)
            return None
        return failing(lambda: c.broadcast(torch.ones(1), (1,), torch.float32, CPU, 0, (0, 1)))

    (kind, text), _, _ = run_ranks(3, lambda: program() if world().rank < 2 else None, env=SHORT)
    assert kind == CommTimeout.__name__
    assert text.startswith("connecting over ranks (0, 1), at test_watchdog.py:")
    assert "rank 1 did not arrive: at test_watchdog.py:" in text


def test_messages_are_counted_per_pair():
    def pass_on(rank, whole):
        recv = [(2, (1,), torch.float32, CPU)]
        if rank == 0:
            transfer([(1, torch.ones(1))], recv)
        elif rank == 1:
            transfer([], [(0, (1,), torch.float32, CPU)])
        elif whole:
            transfer([(0, torch.ones(1))], [])

    def program():
        rank = world().rank
        for _ in range(3):
            pass_on(rank, whole=True)  # then it is expected, and ranks do not agree before it
        if rank == 0:
            return failing(lambda: pass_on(rank, whole=False))
        pass_on(rank, whole=False)
        time.sleep(2 * STAY)
        return None

    (kind, text), _, _ = run_ranks(3, program, env=SHORT)
    assert kind == CommTimeout.__name__
    assert "rank 1 arrived: at test_watchdog.py" in text
    assert "rank 2 did not arrive: at test_watchdog.py" in text


def test_a_rank_that_never_joins_the_world():
    with pytest.raises(RankFailed) as caught:
        run_ranks(2, lambda: None, env={**SHORT, "WORLD_SIZE": "3"})
    text = str(caught.value)
    assert "CommTimeout: connecting over ranks (0, 1, 2)" in text
    assert "rank 2 did not arrive: no answer" in text


@pytest.mark.parametrize(
    ("end", "blamed", "said"),
    [
        ("raise", "KeyError: 'bad'", "rank 2 did not arrive: failed, KeyError: 'bad', at test_w"),
        ("kill", "killed by SIGKILL", "rank 2 did not arrive: no answer: its process was killed"),
        ("leave", "exit code 0", "rank 2 did not arrive: ended without an error"),
    ],
)
def test_a_lost_rank(tmp_path, end, blamed, said):
    def program():
        rank = world().rank
        c.barrier((0, 1, 2))
        if rank == 2:
            if end == "raise":
                raise KeyError("bad")
            if end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            world().disconnect()
            os._exit(0)
        found = failing(lambda: c.all_reduce(torch.ones(1 << 20), (0, 1, 2), "sum"))
        (tmp_path / str(rank)).write_text("\n".join(found))

    with pytest.raises(RankFailed, match=f"rank 2 (.|\n)*{blamed}"):
        run_ranks(3, program)
    for rank in (0, 1):
        kind, first, *rest = (tmp_path / str(rank)).read_text().splitlines()
        assert kind == PeerLost.__name__
        assert "lost the connection to another rank" in first
        assert any(said in line for line in rest), rest


def test_an_error_of_our_own_making_is_not_blamed_on_others():
    def program():
        watch = world().connection().watch
        pending = Pending("all_reduce", "add", ())
        error = watch.explain(pending, RuntimeError("Invalid scalar type"))
        return type(error), str(error)

    ((kind, text),) = run_ranks(1, program)
    assert kind is CommError
    assert text.startswith("all_reduce of op 'add' over ranks (), at test_watchdog.py:")
    assert text.endswith("failed: Invalid scalar type")
