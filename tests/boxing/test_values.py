"""Boxing keeps the value: every pair of layouts on small meshes, against nested tensor_split."""

from dataclasses import replace
from itertools import product

import boxing_oracle as oracle
import pytest
import torch
from hypothesis import given, strategies as st

from onefold.engine.boxing import boxes, lower_bound, plan, plan as plan_of, run
from onefold.engine.sbp import broadcast, parse, partial_max, partial_min, partial_sum, split

EVEN, UNEVEN, EMPTY_SHARDS, EMPTY = (12, 6), (5, 7), (1, 3), (0, 3)


def check_all(src_ranks, dst_ranks, kinds, shapes, every=1):
    """Value, bytes >= the bound, and received == sent, for all pairs of nd_sbps (or some)."""
    pairs = product(
        oracle.all_nd_sbps(kinds, torch.tensor(src_ranks).ndim),
        oracle.all_nd_sbps(kinds, torch.tensor(dst_ranks).ndim),
    )
    for number, (a, b) in enumerate(pairs):
        if number % every:
            continue
        for shape in shapes:
            src = oracle.metas(shape, torch.int64, src_ranks, a)
            dst = oracle.metas(shape, torch.int64, dst_ranks, b)
            oracle.check(src, dst)
            found = plan(src, dst)
            ranks = {*src.placement.flat_ranks, *dst.placement.flat_ranks}
            received = {rank: found.received(rank) for rank in ranks}
            assert sum(received.values()) == sum(found.sent(rank) for rank in ranks), found
            for rank, least in lower_bound(src, dst).items():
                assert received[rank] >= least, f"rank {rank}\n{found}"


@pytest.mark.parametrize("ranks", [[0, 1], [0, 1, 2], [3, 1, 0, 2]], ids=str)
def test_all_pairs_on_one_axis(ranks):
    kinds = "S0 S1 B P PMAX PMIN"
    check_all(ranks, ranks, kinds, [EVEN, UNEVEN, EMPTY_SHARDS, EMPTY])


@pytest.mark.parametrize("ranks", [[[0, 1], [2, 3]], [[0, 1, 2], [3, 4, 5]]], ids=str)
def test_all_pairs_on_two_axes(ranks):
    check_all(ranks, ranks, "S0 S1 B P PMAX", [EVEN, UNEVEN, EMPTY_SHARDS])


def test_pairs_on_three_axes():
    check_all(
        [[[0, 1], [2, 3]], [[4, 5], [6, 7]]],
        [[[0, 1], [2, 3]], [[4, 5], [6, 7]]],
        "S0 S1 B P",
        [(5, 7)],
        every=11,
    )


ACROSS = [
    ([0, 1], [2, 3]),
    ([0, 1], [1, 2]),
    ([0, 1, 2], [2, 1, 0]),
    ([0], [0, 1, 2]),
    ([0, 1], [2, 3, 4, 5]),
    ([0, 1], [[2, 3], [4, 5]]),
    ([0, 1, 2, 3], [[0, 1], [2, 3]]),
    ([[0, 1], [2, 3]], [1, 3]),
    ([[0, 1], [2, 3]], [0, 1, 2, 3]),
    ([[1], [0]], [0]),
]


@pytest.mark.parametrize(("src", "dst"), ACROSS, ids=str)
def test_all_pairs_between_placements(src, dst):
    check_all(src, dst, "S0 S1 B P PMAX", [(8, 4), UNEVEN, EMPTY_SHARDS])


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ([[0, 1], [2, 3]], [[0, 2], [1, 3]]),
        ([[0, 1], [2, 3]], [[4, 5, 6], [7, 8, 9]]),
        ([[0, 1, 2], [3, 4, 5]], [[1, 0], [5, 3], [2, 7]]),
    ],
    ids=str,
)
def test_pairs_between_meshes(src, dst):
    check_all(src, dst, "S0 S1 B P PMAX", [(6, 4), UNEVEN], every=3)


def test_pairs_between_meshes_with_axes_of_one_rank():
    check_all([[0], [1]], [[[2, 1]]], "S0 S1 B P PMAX", [UNEVEN], every=7)


def test_scalars():
    check_all([0, 1, 2], [0, 1, 2], "B P PMAX", [()])
    check_all([[0, 1], [2, 3]], [4, 3], "B P PMAX", [()])


@st.composite
def layouts(draw, shape):
    """A placement of at most 8 ranks on 1 to 3 axes, and an nd_sbp for it."""
    mesh = draw(
        st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(
            lambda m: torch.Size(m).numel() <= 8
        )
    )
    ranks = draw(st.permutations(range(8)))[: torch.Size(mesh).numel()]
    kinds = [broadcast, partial_sum, partial_max, partial_min, *map(split, range(len(shape)))]
    nd_sbp = tuple(draw(st.sampled_from(kinds)) for _ in mesh)
    return oracle.metas(shape, torch.int64, torch.tensor(ranks).reshape(mesh).tolist(), nd_sbp)


@given(st.data())
def test_random_layouts(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 7), max_size=3)))
    src, dst = data.draw(layouts(shape)), data.draw(layouts(shape))
    if data.draw(st.booleans()):
        sbps = st.sampled_from([*parse("B P PMAX"), *map(split, range(len(shape)))])
        dst = src.like(nd_sbp=tuple(data.draw(sbps) for _ in src.nd_sbp))
    oracle.check(src, dst)


class TestTheCheckItself:
    """A check that cannot fail proves nothing."""

    def given(self, sbps):
        meta = oracle.metas((4, 4), torch.int64, [[0, 1], [2, 3]], sbps)
        return meta, oracle.shards_of(meta, oracle.whole_of(meta))

    @pytest.mark.parametrize("sbps", ["S0 S1", "B S0", "P B", "PMAX S1"])
    def test_reads_what_it_makes(self, sbps):
        meta, shards = self.given(sbps)
        assert torch.equal(oracle.value_of(meta, shards), oracle.whole_of(meta))

    def test_sees_a_wrong_value(self):
        meta, shards = self.given("S0 S1")
        shards[2][0, 0] += 1
        assert not torch.equal(oracle.value_of(meta, shards), oracle.whole_of(meta))

    def test_sees_replicas_that_differ(self):
        meta, shards = self.given("P B")
        shards[1][0, 0] += 1
        with pytest.raises(AssertionError, match="replicas differ along axis 1"):
            oracle.value_of(meta, shards)

    def test_sees_a_wrong_shape(self):
        meta, shards = self.given("S0 S1")
        shards[3] = shards[3][:1]
        with pytest.raises(AssertionError, match="rank 3: shape"):
            oracle.value_of(meta, shards)

    def test_sees_a_plan_that_goes_elsewhere(self, monkeypatch):
        src = oracle.metas((4, 4), torch.int64, [0, 1], "S0")
        dst, other = src.like(nd_sbp=parse("S1")), src.like(nd_sbp=parse("B"))
        wrong = replace(plan_of(src, other), dst=dst)
        monkeypatch.setattr(oracle, "plan", lambda *_: wrong)
        with pytest.raises(AssertionError, match="shape"):
            oracle.check(src, dst)


def test_replicas_are_one_tensor_in_a_virtual_world():
    for sbps in ("S0 S1", "P S0", "P P"):
        src = oracle.metas((4, 4), torch.float32, [[0, 1], [2, 3]], sbps)
        made = oracle.carry(src, src.like(nd_sbp=parse("B B")), oracle.whole_of(src))
        assert len(set(map(id, made.values()))) == 1


@pytest.mark.parametrize("across", [False, True])
def test_a_plan_that_does_not_alias_returns_new_memory(across):
    ranks = [[0, 1], [2, 3]]
    for a, b in product(oracle.all_nd_sbps("S0 S1 B P", 2), repeat=2):
        for shape in ((4, 4), (1, 2)):
            src = oracle.metas(shape, torch.float32, ranks, a)
            dst = oracle.metas(shape, torch.float32, [0, 4] if across else ranks, b[: 2 - across])
            given = oracle.shards_of(src, oracle.whole_of(src))
            found = plan(src, dst)
            made = run(found, tuple(given.values()))
            memory = {shard.untyped_storage().data_ptr() for shard in given.values()}
            if not found.aliases:
                shared = [s for s in made if s.numel() and s.untyped_storage().data_ptr() in memory]
                assert not shared, found


def test_boxes_meet_and_are_cut():
    assert boxes.intersect(((0, 2), (4, 4)), ((3, 0), (4, 3))) == ((3, 2), (1, 1))
    assert boxes.volume(boxes.intersect(((0,), (2,)), ((2,), (2,)))) == 0
    shard = torch.arange(16).reshape(4, 4)
    cut = boxes.cut_out(((3, 2), (1, 2)), ((2, 0), (4, 4)))
    assert torch.equal(boxes.take(shard, cut), shard[1:2, 2:4])
