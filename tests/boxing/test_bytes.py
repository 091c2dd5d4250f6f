"""Bytes: what plans move, against the published minimum and against a count by element."""

from itertools import product

import boxing_oracle as oracle
import pytest
import torch

from onefold.engine.boxing import lower_bound, plan
from onefold.engine.sbp import parse

# Mean bytes that each of 4 ranks must receive for float32[8, 8]; on the mesh [4], then on [2, 2].
ONE_AXIS = {
    "S0 -> S1": 48,
    "S0 -> B": 192,
    "P -> B": 384,
    "P -> S0": 192,
    "P -> S1": 192,
    "B -> S0": 0,
    "B -> P": 0,
    "S0 -> P": 0,
}
TWO_AXES = {
    "S0 S1 -> S1 S0": 32,
    "S0 B -> B S0": 64,
    "B S0 -> S0 S0": 32,
    "B S0 -> S0 S1": 32,
    "B S0 -> S0 B": 64,
    "S0 S0 -> B S0": 96,
    "S0 S0 -> S0 B": 64,
    "S0 S1 -> B S1": 64,
    "S0 S0 -> B B": 192,
    "S0 S1 -> B B": 192,
    "S0 S0 -> S1 S1": 48,
    "S0 S0 -> S1 S0": 48,
    "S0 S0 -> S0 S1": 32,
    "S0 S1 -> S0 S0": 32,
    "P P -> B B": 384,
    "P P -> S0 S0": 192,
    "P P -> S0 S1": 192,
    "P P -> S0 B": 256,
    "P S0 -> S0 B": 128,
    "P S0 -> B B": 256,
    "P S0 -> S0 S0": 96,
    "P S0 -> S1 S0": 64,
    "P B -> B S0": 128,
    "P B -> S0 S0": 64,
    "P B -> B B": 256,
    "B P -> S0 B": 128,
}
ROWS = [([0, 1, 2, 3], *row) for row in ONE_AXIS.items()]
ROWS += [([[0, 1], [2, 3]], *row) for row in TWO_AXES.items()]


def pair(ranks, row, shape):
    a, b = row.split(" -> ")
    src = oracle.metas(shape, torch.float32, ranks, a)
    return src, src.like(nd_sbp=parse(b))


@pytest.mark.parametrize(("ranks", "row", "mean"), ROWS, ids=[row for _, row, _ in ROWS])
def test_published_minimum(ranks, row, mean):
    src, dst = pair(ranks, row, (8, 8))
    found = plan(src, dst)
    assert sum(found.received(rank) for rank in range(4)) == 4 * mean, found
    assert sum(found.sent(rank) for rank in range(4)) == 4 * mean, found
    if "P" not in row:
        assert {rank: found.received(rank) for rank in range(4)} == lower_bound(src, dst)


@pytest.mark.parametrize("shape", [(7, 6), (5, 3), (1, 2)], ids=str)
def test_no_padding_on_uneven_shapes(shape):
    for ranks, row, _ in ROWS:
        if not row.endswith("P"):
            src, dst = pair(ranks, row, shape)
            found = plan(src, dst)
            received = sum(found.received(rank) for rank in range(4))
            assert received == oracle.least_bytes(src, dst), found


MESHES = [
    ([0, 1, 2], [0, 1, 2]),
    ([[0, 1, 2], [3, 4, 5]], [[0, 1, 2], [3, 4, 5]]),
    ([0, 1], [[2, 3], [4, 5]]),
    ([0, 1, 2], [2, 1, 0]),
    ([[0, 1], [2, 3]], [1, 3]),
    ([0], [0, 1, 2, 3]),
    ([0, 1], [1, 2]),
    ([0, 1, 2, 3], [4, 5, 6, 7]),
]


@pytest.mark.parametrize(("src_ranks", "dst_ranks"), MESHES, ids=str)
def test_all_pairs_move_the_least(src_ranks, dst_ranks):
    """Exactly the least bytes, but for sums that replicas of a whole axis repeat side by side.

    `P` over three ranks next to an axis that stays broadcast is summed by one plain collective
    per replica, although one of the replicas could do it for all in two steps.
    """
    ndims = [torch.tensor(ranks).ndim for ranks in (src_ranks, dst_ranks)]
    repeated = [tuple(parse(text)) for text in ("B P", "P B")]
    for a, b in product(
        oracle.all_nd_sbps("S0 S1 B P", ndims[0]), oracle.all_nd_sbps("S0 S1 B", ndims[1])
    ):
        src = oracle.metas((5, 3), torch.float32, src_ranks, a)
        dst = oracle.metas((5, 3), torch.float32, dst_ranks, b)
        found = plan(src, dst)
        ranks = {*src.placement.flat_ranks, *dst.placement.flat_ranks}
        received = sum(found.received(rank) for rank in ranks)
        least = oracle.least_bytes(src, dst)
        side_by_side = a in repeated and src.placement is dst.placement
        assert received >= least, found
        assert received == least or side_by_side, found


def test_one_holder_does_not_send_to_each_of_many():
    """Its bytes leave it once; the takers pass them on."""
    for ranks in ([1, 2, 3, 4], [0, 1, 2, 3, 4]):
        src = oracle.metas((32, 32), torch.float32, [0], "B")
        dst = oracle.metas((32, 32), torch.float32, ranks, "B")
        found = plan(src, dst)
        assert found.sent(0) == src.nbytes, found
        assert all(found.received(rank) == src.nbytes for rank in (1, 2, 3, 4))


def test_replicas_share_the_sending():
    src = oracle.metas((32, 32), torch.float32, [[0, 1, 2, 3], [4, 5, 6, 7]], "S0 B")
    dst = oracle.metas((32, 32), torch.float32, [8, 9, 10, 11, 12, 13, 14, 15], "S1")
    found = plan(src, dst)
    assert {found.sent(rank) for rank in range(8)} == {src.nbytes // 8}


def test_the_bound_of_one_rank():
    whole = oracle.metas((6, 4), torch.float32, [0, 1], "B")
    rows, columns, partial = (whole.like(nd_sbp=parse(text)) for text in ("S0", "S1", "P"))
    assert lower_bound(rows, whole) == {0: 48, 1: 48}
    assert lower_bound(rows, columns) == {0: 24, 1: 24}
    assert lower_bound(partial, columns) == {0: 48, 1: 48}
    assert lower_bound(rows, partial) == {0: 0, 1: 0}
    assert lower_bound(partial, partial) == {0: 0, 1: 0}
    other = oracle.metas((6, 4), torch.float32, [2, 1], "S0")
    assert lower_bound(rows, other) == {2: 48, 1: 0}


def test_the_count_by_element():
    """The oracle itself, on cases worked out by hand."""
    whole = oracle.metas((4,), torch.int8, [0, 1, 2], "B")
    assert oracle.least_bytes(whole.like(nd_sbp=parse("P")), whole) == 4 * (2 + 3 - 1)
    rows = whole.like(nd_sbp=parse("S0"))
    assert oracle.least_bytes(rows, whole) == 8
    assert oracle.least_bytes(whole, rows) == 0
    apart = oracle.metas((4,), torch.int8, [5], "B")
    assert oracle.least_bytes(whole.like(nd_sbp=parse("P")), apart) == 4 * (2 + 1)
