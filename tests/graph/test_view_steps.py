"""Writes to views in graphs: ordinary steps, whose results equal eager's bit for bit."""

import pytest
import torch
import view_programs
from hypothesis import given, settings
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.testing.sample_checks import value_of

PAIR = flow.placement("cpu", [0, 1])
S0, B = flow.sbp.split(0), flow.sbp.broadcast


def assert_same_bits(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours.meta is theirs.meta
            for a, b in zip(ours.shards, theirs.shards, strict=True):
                assert torch.equal(a, b)


@settings(max_examples=100)
@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(view_programs.cases())
def test_random_views_equal_eager(case):
    program, placement, _ = case

    def function(x):
        return view_programs.run(program, x.clone(), None, view_programs.maker(placement))

    x = view_programs.base_of_case(*case)
    assert_same_bits(nn.Graph.trace(function)(x), function(x))


@settings(max_examples=100)
@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(view_programs.cases(recorded=True))
def test_gradients_of_random_views_equal_eager(case):
    program, placement, _ = case

    def function(x, scale):
        leaf, scale = x.detach().requires_grad_(), scale.detach().requires_grad_()
        pool = view_programs.run(program, leaf * 1, scale, view_programs.maker(placement))
        total = (scale * 0).sum()
        for number, each in enumerate(pool):
            if each.requires_grad:
                total = total + (each * each * (number + 1)).sum()
        grads = flow.autograd.grad(total, [leaf, scale], allow_unused=True)
        return [grad for grad in grads if grad is not None]

    x, scale = view_programs.base_of_case(*case), view_programs.maker(placement)(3.0)
    assert_same_bits(nn.Graph.trace(function)(x, scale), function(x, scale))


class Holder(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.register_buffer("cache", flow.zeros(4, 3, placement=where, sbp=S0))

    def forward(self, x, row):
        self.cache[row].copy_(x)
        self.cache[:, 0].add_(1)
        return self.cache.sum(0)


def test_a_buffer_is_written_through_its_views(world):
    """What a program does to a view of a tensor from outside is there after the call."""
    x = flow.tensor([1.0, 2.0, 3.0], placement=PAIR, sbp=B)
    eager, graphed = Holder(PAIR), Holder(PAIR)
    graph = nn.Graph.trace(lambda x: graphed(x, 2))
    outside = graphed.cache.t()  # a view from outside
    for _ in range(3):
        assert torch.equal(value_of(graph(x)), value_of(eager(x, 2)))
        assert torch.equal(value_of(graphed.cache), value_of(eager.cache))
        assert torch.equal(value_of(outside), value_of(eager.cache).t())
    outside.zero_()
    assert not value_of(graphed.cache).any()
    assert value_of(graph(x)).tolist() == [5.0, 2.0, 3.0]


def test_a_view_from_outside_changes_its_base(world):
    w = flow.zeros(2, 2, placement=PAIR, sbp=S0)
    row = w[1]

    def build(x):
        row.add_(x)
        return w * 1

    graph = nn.Graph.trace(build)
    x = flow.tensor([1.0, 2.0], placement=PAIR, sbp=B)
    for count in (1, 2):
        assert value_of(graph(x)).tolist() == [[0, 0], [count, 2 * count]]
        assert value_of(w).tolist() == [[0, 0], [count, 2 * count]]
        assert value_of(row).tolist() == [count, 2 * count]
    w.zero_()
    assert value_of(graph(x)).tolist() == [[0, 0], [1, 2]]


def test_a_capture_leaves_no_write_behind(world):
    """After an error in build, all tensors and their views are as they were."""
    w = flow.zeros(2, 2)
    row = w[1]

    def build(x):
        row.add_(x)
        w.data.mul_(2)
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            nn.Graph.trace(build)(flow.ones(2))
        assert w.tolist() == [[0, 0], [0, 0]] and row.tolist() == [0, 0]
    row.add_(1)
    assert w.tolist() == [[0, 0], [1, 1]]


def test_views_in_graphs_of_a_launched_world():
    def program():
        where = flow.placement("cpu", [0, 1])
        x = flow.tensor([1.0, 2.0, 3.0], placement=where, sbp=B)
        holder = Holder(where)
        view = holder.cache.t()
        graph = nn.Graph.trace(lambda x: holder(x, 2))
        found = [value_of(graph(x)).tolist() for _ in range(3)]
        holder.cache[1].fill_(4)
        return [*found, value_of(graph(x)).tolist(), value_of(view).tolist()]

    wanted = program()
    assert run_ranks(2, program) == [wanted] * 2
