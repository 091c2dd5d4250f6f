"""Boxing among real processes gives the bits and the log of the virtual world."""

import random
from itertools import product

import boxing_oracle as oracle
import pytest
import torch
from launched import RankFailed, run_ranks

import onefold as flow
from onefold.distributed.comm_log import comm
from onefold.distributed.world import virtual_world, world
from onefold.engine.boxing import launched_steps, plan, run

MESHES = {
    2: [[0], [1, 0], [0, 1], [[0], [1]]],
    4: [[0, 1, 2, 3], [[0, 1], [2, 3]], [[3, 1], [0, 2]], [2, 0, 1], [3, 2], [0]],
}
DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.float64, torch.complex64]
KINDS = "S0 S1 B P PMAX"
SHAPES = [(8, 4), (5, 3), (1, 2)]


def cases(size, per_mesh):
    """(source ranks, target ranks, shape, dtype, source nd_sbp, target nd_sbp), a fixed choice."""
    chosen = random.Random(size)
    for src, dst in product(MESHES[size], repeat=2):
        sides = (oracle.all_nd_sbps(KINDS, torch.tensor(ranks).ndim) for ranks in (src, dst))
        pairs = list(product(*sides))
        for a, b in chosen.sample(pairs, min(len(pairs), per_mesh)):
            dtype = chosen.choice(DTYPES)
            if dtype.is_complex and any(sbp.short == "PMAX" for sbp in (*a, *b)):
                dtype = torch.float32
            yield src, dst, chosen.choice(SHAPES), dtype, a, b


def carry(case, seed):
    """What this process has after boxing, by rank, and the log of it."""
    src_ranks, dst_ranks, shape, dtype, a, b = case
    src = oracle.metas(shape, dtype, src_ranks, a)
    dst = oracle.metas(shape, dtype, dst_ranks, b)
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(shape, generator=generator).mul(10).to(dtype)
    given = list(oracle.shards_of(src, whole, seed, rough=True).values())
    with comm() as log:
        made = run(plan(src, dst), tuple(given[i] for i in src.placement.owned), op="test")
    ranks = [dst.placement.flat_ranks[i] for i in dst.placement.owned]
    return dict(zip(ranks, made, strict=True)), log.records


def same_bits(one, other):
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.contiguous().view(torch.uint8).equal(other.contiguous().view(torch.uint8))
    )


def program(size, per_mesh):
    """Runs all cases in both worlds; AssertionError where they differ."""
    chosen = list(cases(size, per_mesh))
    with virtual_world():
        expected = [carry(case, seed) for seed, case in enumerate(chosen)]
    for seed, (case, (shards, records)) in enumerate(zip(chosen, expected, strict=True)):
        made, log = carry(case, seed)
        assert set(made) == {world().rank} & set(shards), case
        for rank, shard in made.items():
            assert same_bits(shard, shards[rank]), f"{case}: {shard} is not {shards[rank]}"
        assert log == records, case
    return len(chosen)


@pytest.mark.parametrize(("size", "per_mesh"), [(2, 36), (4, 16)])
def test_same_bits_and_log_as_the_virtual_world(size, per_mesh):
    counts = run_ranks(size, program, size, per_mesh, timeout=90.0)
    assert len(set(counts)) == 1
    assert counts[0] > 100


def test_the_comparison_sees_a_difference():
    """With addends summed in another order on one rank, the bits differ."""

    def wrong():
        if world().rank == 2:
            honest = launched_steps.reduce
            launched_steps.reduce = lambda addends, kind: honest(addends[::-1], kind)
        program(4, 16)

    with pytest.raises(RankFailed, match="is not"):
        run_ranks(4, wrong, timeout=90.0)


@pytest.mark.parametrize("ranks", [(0, 1, 2), (2, 0, 1)])
def test_what_is_gathered_in_its_place_is_not_copied(ranks):
    def program():
        p = flow.placement("cpu", ranks)
        found = []
        for rows, dim in ((6, 0), (7, 0), (6, 1)):
            x = flow.arange(rows * 3.0).reshape(rows, 3)
            y = x.to_global(p, flow.sbp.broadcast).to_global(sbp=flow.sbp.split(dim))
            (whole,) = y.to_global(sbp=flow.sbp.broadcast).shards
            assert torch.equal(whole, x.to_torch())
            assert whole.is_contiguous()
            found.append(whole._base is not None)  # a view of what the back end wrote
        return found

    in_place = ranks == (0, 1, 2)
    assert run_ranks(3, program) == [[in_place, False, False]] * 3
