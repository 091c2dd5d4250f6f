"""Modules that must be on one stage, and parameters that modules of several stages share."""

import copy
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from strategy_training import adamw, from_code, layouts, on_one_device, trained

import onefold as flow
from onefold import nn
from onefold.auto import estimates
from onefold.auto.choices import Choices
from onefold.auto.search_arguments import task_of
from onefold.auto.strategy_search import _Search
from onefold.auto.unit_links import blocks_of
from onefold.graph import hardware

pytestmark = pytest.mark.filterwarnings("ignore::onefold.PipelineWarning")

F = nn.functional
H100 = hardware.read("h100")
# Slow enough that small models are not launches alone, and all of its memory is theirs.
SLOW = replace(
    H100,
    peak={dtype: rate / 1e5 for dtype, rate in H100.peak.items()},
    memory_bandwidth=H100.memory_bandwidth / 1e5,
    launch=1e-7,
    context_bytes=0,
    communicator_bytes=0,
    links=tuple(replace(link, bandwidth=link.bandwidth / 1e6, launch=1e-7) for link in H100.links),
)
LAYERS = 6


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down_proj(F.gelu(self.up_proj(x)))


class GPT(nn.Module):
    """Tokens and places are added up by the model itself; the embedding is also the last layer."""

    def __init__(self, tied=True, width=8, vocabulary=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(6, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens, places):
        x = self.tokens(tokens) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Shortcut(GPT):
    """The model itself adds what its first layer made to what the second to last one makes."""

    def forward(self, tokens, places):
        first = x = self.layers[0](self.tokens(tokens) + self.places(places))
        for layer in self.layers[1:-1]:
            x = layer(x)
        return self.head(self.layers[-1](x + first))


class Scaled(GPT):
    """A parameter of the model itself is read at the end."""

    def __init__(self):
        super().__init__(tied=False)
        self.scale = nn.Parameter(flow.ones(64))

    def forward(self, tokens, places):
        return super().forward(tokens, places) * self.scale


class Start(Scaled):
    """A parameter of the model itself is read at the start."""

    def forward(self, tokens, places):
        x = (self.tokens(tokens) + self.places(places)) * self.scale[:8]
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(model, tokens, places, following):
    return F.cross_entropy(model(tokens, places).flatten(0, 1), following.flatten())


def loss_of_tokens(model, tokens, places, following):
    """Reads a batch where the first module does, besides what the last one makes."""
    return F.cross_entropy(model(tokens, places)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def batch_of(rows):
    return tuple(flow.empty(rows, 6, dtype=flow.int64, device="meta") for _ in range(3))


ENDS = [("tokens", "places"), *((f"layers.{i}",) for i in range(LAYERS)), ("head",)]
CASES = {
    "places": (GPT, loss_of, ENDS),
    "start": (Start, loss_of, ENDS),
    "shortcut": (
        Shortcut,
        loss_of,
        [
            ENDS[0],
            tuple(f"layers.{i}" for i in range(LAYERS - 1)),
            *ENDS[-2:],
        ],
    ),
    "scaled": (Scaled, loss_of, [tuple(name for block in ENDS for name in block)]),
    "loss": (GPT, loss_of_tokens, [tuple(name for block in ENDS for name in block)]),
}


def task(name, rows=8, device="cpu"):
    build, loss, _ = CASES[name]
    return task_of(build, batch_of(rows), loss, flow.optim.AdamW, None, device)


@pytest.mark.parametrize("name", CASES)
def test_stages_end_where_the_model_reads_nothing_across(name):
    choices = Choices(task(name), SLOW, 2**40, None, ("1f1b",))
    blocks = choices.estimator.costs(1, "table", 1).blocks
    assert list(blocks) == CASES[name][2]
    assert choices.blocks == len(blocks)


def priced_in_stages(of, size, schedules, every=1):
    """A search whose candidates with stages, or some of them, are priced."""
    search = _Search(of, size, SLOW, None, None, schedules, 1, False, 1e9)
    every_one = search.choices.estimates(search.choices.space(size))
    for each in [each for each in every_one if each.candidate.meshes > 1][::every]:
        search._price(each)
    return search


@pytest.mark.parametrize("name", CASES)
def test_stages_can_be_compiled(name):
    found = priced_in_stages(task(name), 4, ("1f1b", "interleaved"), every=7)
    assert not found.failed
    assert bool(found.priced) == (len(CASES[name][2]) > 1)


@pytest.mark.parametrize("name", ["places", "loss"])
def test_the_result_says_that_there_are_no_pipelines(name):
    build, loss, blocks = CASES[name]
    found = flow.auto.search(
        build, batch_of(8), loss=loss, size=2, hardware=SLOW, device="cpu", simulations=1
    )
    assert found.one_stage == (len(blocks) == 1) == ("no pipelines" in str(found))


@given(st.data(), st.integers(1, 7))
def test_blocks_are_the_smallest_that_links_allow(data, count):
    order = [str(n) for n in range(count)]
    links = data.draw(st.lists(st.tuples(st.sampled_from(order), st.sampled_from(order))))
    allowed = [
        cut
        for cut in range(1, count)
        if not any(min(int(a), int(b)) < cut <= max(int(a), int(b)) for a, b in links)
    ]
    ends = [0, *allowed, count]
    assert blocks_of(order, links) == tuple(tuple(order[a:b]) for a, b in pairwise(ends))


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1"])
def test_a_model_with_shared_parameters_trains_in_stages(schedule, world):
    found = [*priced_in_stages(task("places"), 4, (schedule,), every=5).priced]
    assert len(found) >= 2
    flow.manual_seed(3)
    model = GPT().double()
    tokens, following = (flow.randint(0, 64, (8, 6)) for _ in range(2))
    batch = tokens, flow.arange(6).expand(8, 6).clone(), following
    wanted = on_one_device(copy.deepcopy(model), batch, loss_of)
    for strategy in found[:3]:
        laid, again = copy.deepcopy(model), copy.deepcopy(model)
        strategy.apply(laid)
        losses = trained(strategy.graph(laid, loss_of, adamw(laid)), strategy.place(*batch))
        np.testing.assert_allclose(losses, wanted, rtol=1e-8)
        assert from_code(strategy, again, batch, loss_of) == (losses, layouts(laid))


def test_memory_counts_copies_of_shared_parameters(monkeypatch):
    """The stage of the last layer has a copy of the embedding, and its gradient."""
    large = task_of(
        lambda: GPT(width=64, vocabulary=4096), batch_of(64), loss_of, flow.optim.AdamW, None, "cpu"
    )
    search = _Search(large, 4, SLOW, None, None, ("1f1b",), 1, False, 1e9)

    def estimate():
        found = search.choices.estimates(search.choices.space(4))
        wanted = [
            each
            for each in found
            if each.candidate.meshes == 4 and each.candidate.micro_batches == 2
        ]
        assert len(wanted) == 1 and wanted[0].heavy[0] == 3
        return wanted[0]

    _, needed = search._price(estimate())
    assert estimate().memory == pytest.approx(needed, rel=0.02)
    assert estimate().least <= needed
    monkeypatch.setattr(estimates, "copied_bytes", lambda units: 0)
    with pytest.raises(AssertionError):
        assert estimate().memory == pytest.approx(needed, rel=0.02)


def test_pairs_are_told_apart():
    """The check of blocks by brute force fails for other blocks."""
    order = ("a", "b", "c", "d")
    found = {blocks_of(order, [pair]) for pair in combinations(order, 2)}
    assert len(found) == 6
