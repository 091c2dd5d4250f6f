"""The passes over boxing, before and after: bytes never grow, and results are those of eager."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold import nn, sbp
from onefold.distributed.world import virtual_world
from onefold.engine import boxing
from onefold.engine.sbp import parse
from onefold.graph.ir import verify
from onefold.graph.passes.boxing_chains import merge_boxings
from onefold.graph.passes.pass_utils import same_bits
from onefold.testing.manual_layouts import make_global
from onefold.testing.random_programs import onefold_tensors, programs, run_onefold
from onefold.testing.sample_checks import value_of
from onefold.testing.strategies import nd_sbps

B, P, S0, S1 = sbp.broadcast, sbp.partial_sum, sbp.split(0), sbp.split(1)
SIZE = 256 * 512  # elements, enough for bytes to count more than messages
MESHES = ([0, 1], [0, 1, 2, 3], [[0, 1], [2, 3]], [[0, 1, 2], [3, 4, 5]])


def names_of(program):
    return [step.name for step in program.steps]


def tensor(shape, nd_sbp, ranks=(0, 1, 2, 3), dtype=torch.float32, seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 8
    return make_global(values.to(dtype), flow.placement("cpu", list(ranks)), parse(nd_sbp), seed)


def both(function, *inputs, search=False):
    """What eager and the graph give, the bytes that each moves, and the graph's program."""
    with flow.profiler.comm() as eager:
        wanted = function(*inputs)
    graph = nn.Graph.trace(function)
    graph.config.enable_layout_search(search)
    graph(*inputs)
    with flow.profiler.comm() as log:
        found = graph(*inputs)
    return wanted, found, eager.total_bytes(), log.total_bytes(), graph.program


def assert_same_shards(found, wanted):
    assert found.meta is wanted.meta
    for ours, theirs in zip(found.shards, wanted.shards, strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(torch.signbit(ours), torch.signbit(theirs))


def chain(*layouts):
    def function(x):
        for layout in layouts:
            x = x.to_global(sbp=parse(layout))
        return x + 1

    return function


# Boxing of boxing.


@pytest.mark.parametrize(
    ("start", "layouts", "boxings", "bytes_"),
    [
        ("(S0)", ("(B)", "(S0)"), 0, 0),
        ("(B)", ("(S1)", "(B)"), 0, 0),
        ("(S0)", ("(B)", "(S1)"), 1, 4 * SIZE * 4 * 3 // 16),  # an exchange, not a gather
        ("(P)", ("(B)", "(S0)"), 1, 4 * SIZE * 3),  # half of an all-reduce
        ("(S0)", ("(S1)", "(B)", "(S0)"), 0, 0),
    ],
)
def test_a_boxing_of_a_boxing_is_one(start, layouts, boxings, bytes_, world):
    x = tensor((256, 512), start)
    wanted, found, before, after, program = both(chain(*layouts), x)
    assert_same_shards(found, wanted)
    assert names_of(program).count("boxing") == boxings
    assert after == bytes_ <= before


def test_a_value_in_between_that_is_used_stays(world):
    def function(x):
        whole = x.to_global(sbp=B)
        return flow.exp(whole), whole.to_global(sbp=S1), whole.to_global(sbp=S0)

    x = tensor((8, 8), "(S0)")
    wanted, found, before, after, program = both(function, x)
    for ours, theirs in zip(found, wanted, strict=True):
        assert_same_shards(ours, theirs)
    assert names_of(program) == ["boxing", "exp", "boxing"]  # a gather, and a slice of it
    assert after == before == 4 * 8 * 8 * 3
    assert found[2].shards[0] is x.shards[0]


def test_an_exchange_that_costs_more_than_a_slice_is_not_made(world):
    def function(x):
        whole = x.to_global(sbp=B)
        return flow.exp(whole), whole.to_global(sbp=S1) + 1

    program = both(function, tensor((8, 8), "(S0)"))[-1]
    gather, slice_ = [step for step in program.steps if step.name == "boxing"]
    assert slice_.inputs[0] is gather.outputs[0]


def test_addends_travel_as_they_are_when_asked(world):
    """With the search on, a sum over ranks whose addends are wanted again is not made."""
    x = tensor((8, 8), "(P)")
    wanted, found, before, after, program = both(chain("(B)", "(P)", "(B)"), x, search=True)
    torch.testing.assert_close(value_of(found), value_of(wanted), rtol=1e-6, atol=1e-6)
    assert names_of(program) == ["boxing", "add"]
    assert after < before + 1


def test_boxing_between_placements_is_merged(world):
    there = flow.placement("cpu", [4, 5])

    def function(x):
        return x.to_global(sbp=B).to_global(there, B).to_global(sbp=S0) + 1

    x = tensor((8, 8), "(S0)")
    wanted, found, before, after, program = both(function, x)
    assert_same_shards(found, wanted)
    assert names_of(program) == ["boxing", "add"]
    assert after == 4 * 64 < before


@st.composite
def chains(draw):
    shape = draw(st.sampled_from([(), (6,), (5, 4), (4, 3, 6)]))
    ranks = draw(st.sampled_from(MESHES))
    ndim = 1 if isinstance(ranks[0], int) else 2
    kinds = nd_sbps(shape, ndim, True)
    return shape, ranks, draw(st.lists(kinds, min_size=3, max_size=6)), draw(st.integers(0, 5))


@given(chains(), st.booleans())
def test_any_chain_keeps_every_bit(drawn, kept):
    """Also the addends of partial results, the signs of zeros and a value used in between."""
    shape, ranks, layouts, seed = drawn
    with virtual_world():
        value = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        value = value.where(value > -0.5, -0.0)
        x = make_global(value, flow.placement("cpu", ranks), layouts[0], seed)

        def function(x):
            middle = x
            for index, nd_sbp in enumerate(layouts[1:]):
                x = x.to_global(sbp=nd_sbp)
                if index == 0:
                    middle = x
            return (x, flow.neg(middle)) if kept else x

        wanted, found, _, _, program = both(function, x)
        for ours, theirs in zip(nest(found), nest(wanted), strict=True):
            assert_same_shards(ours, theirs)
        assert seconds_of(program) <= seconds(x.meta, layouts)


@given(chains())
def test_any_chain_keeps_its_value(drawn):
    shape, ranks, layouts, seed = drawn
    with virtual_world():
        value = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        x = make_global(value, flow.placement("cpu", ranks), layouts[0], seed)

        def function(x):
            for nd_sbp in layouts[1:]:
                x = x.to_global(sbp=nd_sbp)
            return x

        wanted, found, _, _, program = both(function, x, search=True)
        assert found.meta is wanted.meta
        torch.testing.assert_close(value_of(found), value_of(wanted), rtol=1e-5, atol=1e-5)
        assert seconds_of(program) <= seconds(x.meta, layouts)


def seconds(meta, layouts):
    """Modeled seconds of boxing one by one."""
    metas = [meta.like(nd_sbp=nd_sbp) for nd_sbp in layouts]
    return sum(boxing.plan(a, b).time for a, b in pairwise(metas))


def seconds_of(program):
    steps = [step for step in program.steps if step.name == "boxing"]
    return sum(boxing.plan(s.inputs[0].meta, s.outputs[0].meta).time for s in steps)


def nest(found):
    return found if isinstance(found, tuple) else (found,)


def test_the_rule_of_same_bits():
    with virtual_world():
        placement = flow.placement("cpu", [[0, 1], [2, 3]])
        meta = flow.zeros(8, 8, placement=placement, sbp=(B, B)).meta

        def rule(*layouts, dtype=torch.float32):
            return same_bits(*[meta.like(dtype=dtype, nd_sbp=parse(text)) for text in layouts])

        assert rule("(S0, B)", "(B, B)", "(S1, S0)")
        assert rule("(P, B)", "(B, B)", "(S1, S0)")
        assert rule("(P, P)", "(P, B)", "(P, S0)")
        assert not rule("(P, P)", "(P, B)", "(B, B)")  # two sums, in an order of their own
        assert rule("(P, P)", "(P, B)", "(B, B)", dtype=torch.int64)
        assert not rule("(B, B)", "(P, B)", "(B, B)")  # -0.0 + 0.0 is 0.0
        assert not rule("(P, B)", "(B, B)", "(P, B)")


def test_merging_is_idempotent(world):
    def function(x):
        whole = x.to_global(sbp=B)
        return flow.exp(whole), whole.to_global(sbp=S1).to_global(sbp=S0), x.to_global(sbp=S1)

    program = both(function, tensor((8, 8), "(S0)"))[-1]
    again = merge_boxings(program)
    verify(again)
    assert str(again) == str(program)


# Sums over ranks put off.


def added(x, y):
    return x.to_global(sbp=B) + y.to_global(sbp=B)


def test_two_sums_are_added_before_one_reduction(world):
    x, y = tensor((8, 8), "(P)"), tensor((8, 8), "(P)", seed=1)
    wanted, found, before, after, program = both(added, x, y, search=True)
    assert names_of(program) == ["add", "boxing"]
    assert found.meta is wanted.meta and 2 * after == before
    torch.testing.assert_close(value_of(found), value_of(wanted), rtol=1e-6, atol=1e-6)


def test_two_sums_of_integers_need_no_setting(world):
    x, y = (tensor((8, 8), "(P)", dtype=torch.int64, seed=seed) for seed in (0, 1))
    wanted, found, before, after, program = both(added, x, y)
    assert names_of(program) == ["add", "boxing"]
    assert_same_shards(found, wanted)
    assert 2 * after == before


@pytest.mark.parametrize(
    ("function", "saves"),
    [
        (lambda x: x.to_global(sbp=B)[:, 0], 8),
        (lambda x: x.to_global(sbp=S1).transpose(0, 1)[:, :2], 4),
        (lambda x: x.to_global(sbp=B).view(4, 16).narrow(0, 1, 1), 4),
    ],
)
def test_a_part_of_a_sum_is_taken_before_it(function, saves, world):
    wanted, found, before, after, program = both(function, tensor((8, 8), "(P)"))
    assert_same_shards(found, wanted)
    assert names_of(program)[-1] == "boxing"
    assert after * saves == before


def test_linear_ops_pass_on_the_way(world):
    def function(x):
        return flow.sum(-(x.to_global(sbp=B)) * 2.0, 1)

    x = tensor((8, 64), "(P)")
    wanted, found, before, after, program = both(function, x, search=True)
    assert names_of(program) == ["neg", "mul", "sum", "boxing"]
    assert found.meta is wanted.meta and 64 * after == before
    torch.testing.assert_close(value_of(found), value_of(wanted), rtol=1e-5, atol=1e-4)
    assert both(function, x)[3] == before  # without the search every bit stays


@pytest.mark.parametrize(
    "function",
    [
        lambda x: flow.exp(x.to_global(sbp=B)).sum(1),
        lambda x: (x.to_global(sbp=B) + 1).sum(1),
        lambda x: x.to_global(sbp=B).half().sum(1),
        lambda x: flow.dropout(x.to_global(sbp=B), 0.5).sum(1),
        lambda x: -(x.to_global(sbp=B)),  # saves nothing
        lambda x: [f(x.to_global(sbp=B), 1) for f in (flow.sum, flow.amax)],  # needed anyway
    ],
)
def test_nothing_else_is_passed(function, world):
    flow.manual_seed(1)
    program = both(function, tensor((8, 8), "(P)"), search=True)[-1]
    assert names_of(program)[0] == "boxing"


# Programs of all kinds.


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(programs(), st.integers(0, 9))
def test_random_programs_with_the_search(program, seed):
    wanted = run_onefold(program, seed)
    graph = nn.Graph.trace(lambda: onefold_tensors(program, seed))
    graph.config.enable_layout_search()
    found = graph()
    for ours, theirs in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(value_of(ours), theirs, rtol=1e-6, atol=1e-6, equal_nan=True)
