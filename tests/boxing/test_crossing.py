"""A plan cut where it leaves one placement for another gives what the whole plan gives."""

import random
from dataclasses import replace
from importlib import import_module
from itertools import product

import boxing_oracle as oracle
import pytest
import torch
from hypothesis import given, strategies as st
from launched import RankFailed, run_ranks

from onefold.distributed.comm_log import comm
from onefold.distributed.world import virtual_world, world
from onefold.engine.boxing import disjoint_boxing, plan, run

PAIRS = [
    ([0], [1]),
    ([0, 1], [2, 3]),
    ([2, 3], [0]),
    ([0], [1, 2, 3]),
    ([[0, 1], [2, 3]], [4, 5, 6]),
    ([5, 4], [[0, 1], [2, 3]]),
]
KINDS = "S0 S1 B P PMAX"


@st.composite
def cases(draw):
    ranks = draw(st.sampled_from(PAIRS))
    nd_sbps = [
        draw(st.sampled_from(oracle.all_nd_sbps(KINDS, torch.tensor(each).ndim))) for each in ranks
    ]
    shape = draw(st.sampled_from([(8, 4), (5, 3), (1, 2), (0, 3)]))
    return ranks, nd_sbps, shape, draw(st.integers(0, 99))


def given_shards(src, shape, seed):
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(shape, generator=generator)
    return list(oracle.shards_of(src, whole, seed, rough=True).values())


def metas(ranks, nd_sbps, shape):
    return [
        oracle.metas(shape, torch.float32, each, nd)
        for each, nd in zip(ranks, nd_sbps, strict=True)
    ]


def without_lines(log):
    return [replace(record, line="") for record in log.records]


@given(cases())
def test_the_halves_give_what_the_whole_plan_gives(case):
    ranks, nd_sbps, shape, seed = case
    with virtual_world():
        src, dst = metas(ranks, nd_sbps, shape)
        shards = tuple(given_shards(src, shape, seed))
        with comm() as whole:
            wanted = run(plan(src, dst), shards, op="test")
        between = disjoint_boxing(src, dst)
        with comm() as halves:
            found = between.arrive(between.carry(shards, "test"), "test")
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert without_lines(halves) == without_lines(whole)


def carry(case, seed):
    """This rank's part of a crossing, with both ends in an order in which nobody waits long."""
    (src_ranks, dst_ranks), nd_sbps, shape = case
    src, dst = metas((src_ranks, dst_ranks), nd_sbps, shape)
    rank, between = world().rank, disjoint_boxing(src, dst)
    shards = given_shards(src, shape, seed)
    if rank in src.placement.position:
        sent = between.send(rank, (shards[src.placement.position[rank]],), "test")
        sent.wait()
        return None
    if rank in dst.placement.position:
        posted = between.expect(rank, "test")
        return between.arrive(between.receive(rank, posted, "test"), "test")[0]
    return None


def program(count):
    """Runs cases in both worlds; AssertionError where they differ."""
    chosen = random.Random(count)
    every = [
        (pair, nd_sbps, shape)
        for pair in PAIRS
        if all(torch.tensor(ranks).max() < 4 for ranks in pair)
        for nd_sbps in product(
            *(oracle.all_nd_sbps(KINDS, torch.tensor(ranks).ndim) for ranks in pair)
        )
        for shape in [(8, 4), (5, 3)]
    ]
    done = 0
    for seed, case in enumerate(chosen.sample(every, count)):
        with virtual_world():
            src, dst = metas(*case)
            wanted = run(plan(src, dst), tuple(given_shards(src, case[2], seed)))
            position = dst.placement.position
        rank = world().rank
        found = carry(case, seed)
        assert (found is not None) == (rank in position), case
        if found is not None:
            assert torch.equal(found, wanted[position[rank]]), f"{case}: {found} is not right"
            done += 1
    return done


def test_processes_give_what_one_process_gives():
    assert sum(run_ranks(4, program, 60, timeout=90.0)) > 60


def test_the_comparison_sees_a_difference():
    def wrong():
        if world().rank == 2:
            module = import_module("onefold.engine.boxing.route_end")
            honest = module.take
            module.take = lambda shard, cut: honest(shard, cut) + 1
        program(60)

    with pytest.raises(RankFailed, match="is not right"):
        run_ranks(4, wrong, timeout=90.0)
