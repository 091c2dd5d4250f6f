"""Plans are data: printable, cached, equal on every process, cheap for one rank of many."""

import time
from itertools import product

import boxing_oracle as oracle
import numpy as np
import pytest
import torch

from onefold.distributed.world import virtual_world
from onefold.engine.boxing import axis_cost, path_search, plan
from onefold.engine.boxing.boxing_steps import AllGather, AllReduce, Exchange, Local
from onefold.engine.boxing.comm_cost import exchange
from onefold.engine.boxing.route_step import Route
from onefold.engine.meta import Meta
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse
from onefold.errors import ShapeError


def make(ranks, a, b, shape=(8, 8), dst_ranks=None):
    src = oracle.metas(shape, torch.float32, ranks, a)
    return plan(src, oracle.metas(shape, torch.float32, dst_ranks or ranks, b))


def mesh(*sizes):
    return np.arange(int(np.prod(sizes))).reshape(sizes).tolist()


def test_printing_shows_every_step():
    text = str(make([[0, 1], [2, 3]], "P P", "S0 B"))
    assert text.splitlines() == [
        'float32[8, 8] (P, P) on onefold.placement(type="cpu", ranks=[[0, 1], [2, 3]])',
        '-> float32[8, 8] (S0, B) on onefold.placement(type="cpu", ranks=[[0, 1], [2, 3]])',
        "step            layout              groups         received/rank  time",
        "reduce_scatter  (P, P) -> (S0, P)   [0, 2] [1, 3]  128 B          200.1 us",
        "all_reduce      (S0, P) -> (S0, B)  [0, 1] [2, 3]  128 B          240.1 us",
        "total                                                             440.3 us",
    ]


@pytest.mark.parametrize("shape", [(12, 12, 24), (7, 5, 11), (3, 2, 1)])
@pytest.mark.parametrize("sizes", [(4,), (4, 2), (2, 3, 2)])
def test_an_exchange_takes_as_long_as_its_busiest_rank(sizes, shape):
    kinds = product("B P S0 S1 S2".split(), repeat=len(sizes))
    layouts = [" ".join(each) for each in kinds][:: 1 + 6 * (len(sizes) == 3)]
    for a, b in product(layouts, layouts):
        for step in make(mesh(*sizes), a, b, shape).steps:
            if type(step) is Exchange:
                busiest = max(max(step.received(rank), step.sent(rank)) for rank in step.ranks)
                others = len(step.group(step.ranks[0])) - 1
                assert step.time == exchange(step.link, others, busiest)


def test_printing_of_short_and_wide_plans():
    same = make([0, 1], "S0", "S0")
    assert str(same).endswith("nothing to do")
    wide = str(make(mesh(16, 2), "S0 P", "S0 B"))
    assert "[0, 1] [2, 3] [4, 5] [6, 7] and 12 more" in wide
    assert "-> (S0)  -" in str(make([0, 1], "B", "S0"))


KINDS = [
    ("S0", "B", [AllGather]),
    ("S0", "S1", [Exchange]),
    ("P", "B", [AllReduce]),
    ("PMAX", "B", [AllReduce]),
    ("P", "S1", [Exchange]),
    ("B", "S1", [Local]),
    ("S0", "P", [Local]),
    ("B", "PMAX", [Local]),
    ("P", "PMAX", [Exchange, Local]),
    ("B S0", "S1 S0", [Local]),
    ("S0 S1", "B B", [AllGather]),
    ("P P", "B B", [AllReduce]),
    ("B B", "S0 S0", [Local]),
    ("S0 B", "S0 S0", [Local]),
    ("S0 B", "B S1", [Local, AllGather]),
    ("P S0", "S0 B", [Route]),
]


@pytest.mark.parametrize(("a", "b", "kinds"), KINDS, ids=[f"{a} to {b}" for a, b, _ in KINDS])
def test_steps_of_common_changes(a, b, kinds):
    ranks = mesh(4) if len(parse(a)) == 1 else mesh(2, 2)
    assert [type(step) for step in make(ranks, a, b).steps] == kinds


def test_an_axis_of_one_rank_costs_nothing():
    for a, b in product(("S0", "B", "P", "PMIN"), repeat=2):
        found = make([[0], [1]], f"S1 {a}", f"S1 {b}")
        assert all(isinstance(step, Local) for step in found.steps)


def test_empty_tensors_are_not_communicated():
    found = make([0, 1], "P", "B", shape=(0, 3))
    assert [type(step) for step in found.steps] == [Local]


def test_plans_are_cached_and_the_cache_is_bounded():
    first = make(mesh(4), "S0", "S1")
    assert make(mesh(4), "S0", "S1") is first
    assert plan.cache_info().maxsize
    assert path_search.find_path.cache_info().maxsize


def test_two_worlds_decide_alike():
    def describe():
        path_search.find_path.cache_clear()
        return [
            str(make(mesh(2, 4), a, b, (7, 6), dst))
            for a, b in product(("S0 S1", "P S0", "B P", "S0 S0"), ("S1 S0", "S0 B", "B B"))
            for dst in (None, [[9, 8], [7, 6]])
        ]

    with virtual_world():
        first = describe()
    with virtual_world():
        assert describe() == first


def test_wrong_questions_are_refused():
    src = oracle.metas((4, 4), torch.float32, [0, 1], "S0")
    for other in (
        src.like(shape=(4, 5)),
        src.like(dtype=torch.float64),
        Meta.of((4, 4), torch.float32, device=torch.device("cpu")),
    ):
        with pytest.raises(ShapeError, match="boxing"):
            plan(src, other)


def seconds(make_plan):
    """The best of some cold plans."""
    times = []
    for _ in range(5):
        path_search.find_path.cache_clear()
        plan.cache_clear()
        start = time.perf_counter()
        make_plan()
        times.append(time.perf_counter() - start)
    return min(times)


# The limits are ten times what one core of a laptop needs, so that a busy machine passes.
@pytest.mark.parametrize(
    ("sizes", "a", "b", "limit"),
    [
        ((2, 2, 2, 2), "B P S0 B", "B B S0 B", 0.003),
        ((2, 2, 2, 2), "S0 S1 S0 B", "S0 S1 B B", 0.003),
        ((2, 2, 2, 2), "S0 S1 P B", "S0 S1 S1 B", 0.003),
        ((8, 8), "P S0", "S0 S0", 0.05),
        ((8, 8), "S0 S0", "S1 S1", 0.05),
        ((8, 8), "P S0", "S1 S1", 0.05),
    ],
    ids=str,
)
def test_cold_plans_are_quick(sizes, a, b, limit):
    placement = Placement("cpu", mesh(*sizes))
    src = Meta.of((64, 64), torch.float32, placement, parse(a))
    dst = src.like(nd_sbp=parse(b))
    assert seconds(lambda: plan(src, dst)) < limit


def test_one_rank_of_thousands():
    ranks = mesh(64, 8, 8)
    for a, b in (("S0 B S1", "B B S1"), ("P S0 S1", "B S0 S1"), ("S0 B S1", "S1 B S1")):
        src = oracle.metas((4096, 4096), torch.float32, ranks, a)
        dst = src.like(nd_sbp=parse(b))
        start = time.perf_counter()
        found = plan(src, dst)
        assert found.received(4000) > 0
        assert found.time > 0
        assert time.perf_counter() - start < 0.5, found


def test_stages_of_thousands():
    """From one half of 2048 ranks to the other, shard by shard."""
    halves = np.arange(2048).reshape(2, 128, 8)
    src = oracle.metas((4096, 64), torch.float32, halves[0].tolist(), "S0 S1")
    dst = oracle.metas((4096, 64), torch.float32, halves[1].tolist(), "S0 S1")
    found = plan(src, dst)
    assert found.received(2000) == src.nbytes // 1024
    assert found.sent(2000) == 0


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_axis_cost(device_type):
    def price(a, b, parts=4, nbytes=2.0**20):
        return axis_cost(*parse(f"{a} {b}"), parts, nbytes, device_type)

    for a in ("S0", "B", "P"):
        assert price(a, a) == 0.0
    assert price("P", "B", parts=1) == 0.0
    for a, b in (("B", "S0"), ("B", "P"), ("S0", "P")):
        assert 0 < price(a, b) < 1e-8
    assert price("S0", "S1") < price("S0", "B") < price("P", "B")
    assert price("P", "S0") < price("P", "B")
    for a, b in (("S0", "B"), ("S0", "S1"), ("P", "B"), ("P", "S0")):
        assert price(a, b, nbytes=2.0**28) > price(a, b)


def test_axis_cost_agrees_with_plans():
    for a, b in (("S0", "B"), ("S0", "S1"), ("P", "B"), ("P", "S0"), ("B", "S0")):
        for parts in (2, 4, 8):
            found = make(mesh(parts), a, b, (64, 64))
            assert axis_cost(*parse(f"{a} {b}"), parts, 64 * 64 * 4, "cpu") == pytest.approx(
                found.time
            )
