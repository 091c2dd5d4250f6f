"""ONEFOLD_CHECK=1: ranks that are about to do different things all raise, and name both lines."""

import pytest
import torch
from launched import run_ranks

from onefold.distributed import collectives as c, current_op, posted_checksum, transfer
from onefold.distributed.rank_check import form
from onefold.distributed.world import world
from onefold.errors import RankMismatch

CPU = torch.device("cpu")
CHECK = {"ONEFOLD_CHECK": "1"}


def mismatch(action):
    try:
        action()
    except RankMismatch as error:
        return str(error)
    return None


def reduce(shape=(2,), dtype=torch.float32, op="sum"):
    c.all_reduce(torch.ones(shape, dtype=dtype), (0, 1, 2), op)


def test_equal_sequences_pass():
    def program():
        r = world().rank
        for _ in range(3):
            reduce()
            c.all_gather(torch.ones(r), (2, 0, 1), [(2,), (0,), (1,)])
            c.exchange([torch.ones(r, q) for q in range(3)], [(q, r) for q in range(3)], (0, 1, 2))
            c.broadcast(torch.ones(1) if r == 1 else None, (1,), torch.float32, CPU, 1, (0, 1, 2))
            c.barrier((0, 1, 2))
            ring = [((r + 1) % 3, torch.ones(r))]
            transfer(ring, [((r - 1) % 3, ((r - 1) % 3,), torch.float32, CPU)])
        return c.gather_objects(r, (0, 1, 2))

    assert run_ranks(3, program, env=CHECK) == [[0, 1, 2]] * 3


CASES = {
    "shape": (lambda: reduce((3,)), "all_reduce sum float32 (3,)"),
    "dtype": (lambda: reduce(dtype=torch.int32), "all_reduce sum int32 (2,)"),
    "reduction": (lambda: reduce(op="max"), "all_reduce max float32 (2,)"),
    "collective": (lambda: c.barrier((0, 1, 2)), "barrier"),
    "source": (
        lambda: c.broadcast(torch.ones(2), (2,), torch.float32, CPU, 2, (0, 1, 2)),
        "broadcast float32 (2,) from 2",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_rank_names_the_two_that_differ(case):
    other, said = CASES[case]

    def program():
        return mismatch(other if world().rank == 2 else reduce)

    for text in run_ranks(3, program, env=CHECK):
        assert text.startswith("ranks 0 and 2 met in one collective with different operations")
        assert "\n  rank 0: all_reduce sum float32 (2,) at test_rank_check.py:" in text
        assert f"\n  rank 2: {said} at test_rank_check.py:" in text
        assert "They differ in the collective." in text


def test_lines_and_ops_count():
    def program():
        first = mismatch(reduce)
        second = mismatch(reduce if world().rank == 0 else (lambda: c.barrier((0, 1, 2))))
        return first, second

    def lines():
        t = torch.ones(1)
        if world().rank == 0:
            return mismatch(lambda: c.all_reduce(t, (0, 1), "sum"))
        return mismatch(lambda: c.all_reduce(t, (0, 1), "sum"))

    def ops():
        current_op.name = "add" if world().rank == 0 else "sub"
        return mismatch(lambda: c.all_reduce(torch.ones(1), (0, 1), "sum"))

    for first, second in run_ranks(3, program, env=CHECK):
        assert first is None
        assert "ranks 0 and 1 met" in second
    for text in run_ranks(2, lines, env=CHECK):
        assert "They differ in the line." in text
    for text in run_ranks(2, ops, env=CHECK):
        assert "of op 'add' at" in text
        assert "of op 'sub' at" in text
        assert "They differ in the op." in text


def test_pieces_that_do_not_fit():
    def program():
        r = world().rank
        shapes = [(1,), (4,)] if r == 1 else [(1,), (2,)]
        return mismatch(lambda: c.exchange([torch.ones(1), torch.ones(3)], shapes, (0, 1)))

    for text in run_ranks(2, program, env=CHECK):
        assert "They differ in what rank 0 sends, ['float32 (3,)'], and rank 1 expects" in text


def test_messages_that_do_not_fit():
    def program():
        r = world().rank
        return mismatch(
            lambda: transfer(
                [(1, torch.ones(2))] if r == 0 else [],
                [(0, (2,), torch.float64, CPU)] if r == 1 else [],
            )
        )

    for text in run_ranks(2, program, env=CHECK):
        assert "what rank 0 sends, ['float32 (2,) on cpu']" in text
        assert "rank 1 expects, ['float64 (2,) on cpu']" in text


def test_form():
    assert form((2, 3), torch.bfloat16) == "bfloat16 (2, 3)"


@pytest.mark.parametrize("n", [2, 3])
def test_another_origin_after_many_that_were_equal(n):
    """Collectives that were expected are compared together, some later, and all ranks raise."""

    def program():
        ranks, begun = tuple(range(n)), 0
        try:
            for begun in range(200):
                current_op.origin = 7 + (begun == 70 and world().rank == 1)
                c.all_reduce(torch.ones(2), ranks, "sum")
        except RankMismatch as error:
            return str(error), begun
        return "", begun

    for text, begun in run_ranks(n, program, env=CHECK):
        assert text.startswith("ranks 0 and 1 met in one collective with different tensors")
        assert 70 < begun < 70 + 2 * 33


def test_a_difference_anywhere_in_a_group_that_is_compared_together(monkeypatch):
    monkeypatch.setattr(posted_checksum, "_PATIENCE", 0.05)

    def program():
        texts = []
        for place in (33, 66):
            text = ""
            try:
                for index in range(100):
                    other = index == place and world().rank == 1
                    reduce(op="max" if other else "sum")
            except RankMismatch as error:
                text = str(error)
            texts.append(text)
            c.barrier((0, 1, 2))
        return texts

    for texts in run_ranks(3, program, env=CHECK):
        for text in texts:
            assert "ranks 1 and " in text or "ranks 0 and 1 met" in text
            assert "all_reduce" in text
