"""Layouts by exact search inside a stage: their rules, and that they are better than a table's."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from transformer_models import LanguageModel, LlamaBlock, loss_of

import onefold as flow
from onefold import nn
from onefold.auto import measuring
from onefold.auto.choices import Choices
from onefold.auto.measuring import Measuring
from onefold.auto.model_units import Units, shortened, units_of
from onefold.auto.search_arguments import task_of
from onefold.auto.searched_layouts import rules_of
from onefold.auto.strategy import style_named, style_of
from onefold.auto.strategy_search import _Search
from onefold.errors import OnefoldValueError
from onefold.graph import hardware
from onefold.graph.layouts import best_layouts
from onefold.graph.simulator import HardwareCosts
from onefold.parallel import REPLICATE, Plan

H100 = hardware.read("h100")
B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


def mlp():
    """Two pairs of layers for a table, between layers that it does not know."""
    sizes = [1024, 4096, 1024, 4096, 1024]
    layers = [nn.Linear(*pair) for pair in pairwise(sizes)]
    return nn.Sequential(*[each for layer in layers for each in (layer, nn.Softmax(-1))])


def squares(model, x):
    return (model(x) ** 2).mean()


def task(rows, model=mlp):
    return task_of(
        model, flow.empty(rows, 1024, device="meta"), squares, flow.optim.AdamW, None, "cuda"
    )


def searching(rows, size, memory=None):
    return _Search(task(rows), size, H100, memory, None, ("1f1b",), 4, False, 1e9)


def modeled(found, strategy, rows):
    """Seconds and bytes of a mesh with a strategy's parameters, by the costs of the search."""
    with flow.planning(strategy.size):
        strategy = replace(strategy, layout_search=False)
        compiled = Measuring(found.task, H100)._compiled(strategy, rows, found.task.build_model())
        choice = best_layouts(
            compiled.captured, cost=HardwareCosts(H100), parameters=(), inputs=False
        )
    return choice.seconds, choice.bytes, choice.start


@pytest.mark.parametrize("rows", [2**14, 2**16])
def test_many_rows_are_split_where_a_table_splits_weights(rows):
    found = searching(rows, 4)
    by_table = found.choices.layout(4, "table", rows, size=4)
    strategy = found.choices.searched(4, rows)
    assert strategy is not None and strategy.layout_search
    table_seconds, _, start = modeled(found, by_table, rows)
    seconds, nbytes, _ = modeled(found, strategy, rows)
    assert seconds < table_seconds <= start
    assert nbytes <= modeled(found, by_table, rows)[1] * 1.01


def test_what_gains_nothing_is_no_candidate():
    """A Llama on few tokens is split as Megatron-LM does."""
    tokens = flow.empty(2, 2048, dtype=flow.int64, device="meta")
    llama = task_of(
        lambda: LanguageModel(LlamaBlock, vocabulary=32000, width=4096),
        (tokens, tokens),
        loss_of,
        flow.optim.AdamW,
        flow.bfloat16,
        "cuda",
    )
    found = _Search(llama, 4, H100, None, None, ("1f1b",), 4, False, 1e9)
    assert found.choices.searched(4, 2) is None
    estimates = found.choices.estimates(found.choices.space(4))
    assert {e.candidate.layouts for e in estimates if e.candidate.tensor > 1} == {"sequence"}
    some = [each for each in estimates if each.candidate.rows == 2]
    assert found.choices.searched_estimates(some) == []


def test_the_search_is_never_slower_with_them(monkeypatch):
    def found(**more):
        x = flow.empty(2**15, 1024, device="meta")
        return flow.auto.search(mlp, x, loss=squares, size=4, thorough=True, schedules=(), **more)

    both = found()
    monkeypatch.setattr(Choices, "searched_estimates", lambda self, by_table, most: [])
    table = found()
    assert both.seconds < table.seconds
    assert both.strategy.layout_search and "layouts searched" in str(both)
    assert both.lower_bound <= both.seconds


def test_layouts_that_cannot_be_found_are_no_candidates(monkeypatch):
    def fails(*given):
        raise OnefoldValueError("no layouts need so little memory")

    monkeypatch.setattr(measuring, "choose_layouts", fails)
    assert searching(2**16, 4).choices.searched(4, 2**16) is None


def test_a_plan_that_was_asked_for_is_taken():
    found = _Search(task(64), 4, H100, None, Plan({"*": REPLICATE}), ("1f1b",), 4, False, 1e9)
    assert found.choices.searched_estimates(found.choices.estimates(found.choices.space(4))) == []


# Rules.

LAYERS = st.lists(
    st.sampled_from(["a.weight", "b.c.weight", "bias", "c.weight"]), min_size=1, unique=True
)


@given(st.data(), LAYERS, st.integers(1, 5))
def test_rules_say_of_each_parameter_what_was_found(data, inner, count):
    like = {f"layers.{i}": f"layers.{min(i, 1)}" for i in range(count)} | {"head": "head"}
    units = Units(tuple(like), like, "layers", ("layers.0", "layers.1", "head"))
    small = [f"layers.{i}.{name}" for i in range(min(count, 2)) for name in inner]
    small += ["head.weight", "scale"]
    found = {name: (data.draw(st.sampled_from([B, S0, S1])),) for name in small}
    names = [f"layers.{i}.{name}" for i in range(count) for name in inner] + [
        "head.weight",
        "scale",
    ]
    rules = rules_of(found, names, units)
    plan = Plan({pattern: style_named(style) for pattern, style in rules})
    styles = plan.styles({name: flow.empty(2, 2) for name in names})
    for name in names:
        parts = name.split(".")
        if parts[0] == "layers":
            parts[1] = str(min(int(parts[1]), 1))
        assert styles[name].name == style_of(found[".".join(parts)][0])


def test_layers_that_are_alike_share_their_rules():
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(9)])
    names = [name for name, _ in model.named_parameters()]
    units = shortened(model, units_of(model))
    found = {name: (B if "bias" in name else S0,) for name, _ in model.named_parameters()}
    assert rules_of(found, names, units) == (("*.weight", "S0"), ("*.bias", "replicate"))
