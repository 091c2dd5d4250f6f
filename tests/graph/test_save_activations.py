"""Selective checkpointing: eager's bits whatever is saved, and what is saved is not recomputed."""

import pytest
from block_training import (
    LAYOUTS,
    Train,
    bytes_kept,
    data,
    eager_training,
    graph_training,
    made,
)
from hypothesis import given, settings, strategies as st

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldTypeError, OnefoldValueError
from onefold.graph.saved_activations import ActivationNames

# What a block makes in forward, in order; model-parallel it sums the result of `down`, too.
NAMES = (
    "norm.layer_norm", "up.linear", "gelu", "down.linear", "dropout.dropout", "mul", "add",
)  # fmt: skip
NEEDED = ("norm.layer_norm", "up.linear", "gelu")  # by backward


def saving(model, names):
    for block in model.blocks:
        view = block.to(nn.graph.GraphModule)
        view.activation_checkpointing = True
        view.saved_activations = names
    return model


def steps_of(graph, block):
    return [step for step in graph.program.steps if step.scope.startswith(f"model.blocks.{block}")]


def recomputed(graph, block=1):
    names = ActivationNames(f"model.blocks.{block}")
    return [
        names.name(step.scope, step.name) for step in steps_of(graph, block) if step.recomputation
    ]


@settings(max_examples=25)
@given(st.sampled_from(sorted(LAYOUTS)), st.sets(st.sampled_from(NAMES)))
def test_training_is_eagers_bit_for_bit(layout, names):
    where, of_input = LAYOUTS[layout]
    inputs = [data(of_input, number) for number in range(2)]
    graph = Train(saving(made(where), sorted(names)))
    assert graph_training(graph, inputs) == eager_training(made(where), inputs)
    assert names.isdisjoint(recomputed(graph))


def test_what_is_saved_is_kept_and_what_it_was_made_of_is_not_recomputed(world):
    x = data({}, 0)
    found = {}
    for names in [(), ("norm.layer_norm",), ("up.linear",), ("*.linear", "gelu"), NEEDED]:
        graph = Train(saving(made(), names))
        graph(x)
        found[names] = bytes_kept(graph.program), recomputed(graph)
    plain = Train(made())
    plain(x)
    assert found[()][1] == list(NEEDED)
    assert found["norm.layer_norm",][1] == ["up.linear", "gelu"]
    assert found["up.linear",][1] == ["norm.layer_norm", "gelu"]
    assert found["*.linear", "gelu"][1] == ["norm.layer_norm"]
    masks = [s.outputs[1].meta for s in plain.program.steps if s.name == "dropout_with_mask"]
    assert len(masks) == 3  # which only modules that are not checkpointed keep
    assert found[NEEDED] == (bytes_kept(plain.program) - sum(m.numel for m in masks), [])
    kept = [found[names][0] for names in [(), ("norm.layer_norm",), ("up.linear",), NEEDED]]
    assert kept == sorted(kept) and kept[0] < kept[1] < kept[2] < kept[3]


def test_a_pattern_stands_for_all_that_it_matches(world):
    graph = Train(saving(made(), ["*linear"]))
    graph(data({}, 0))
    saved = [step for step in steps_of(graph, 0) if step.saved]
    assert [step.scope for step in saved] == ["model.blocks.0.up", "model.blocks.0.down"]
    assert str(graph).count(", saved)") == 3 * 2


def test_a_module_that_is_called_twice_saves_in_both_calls(world):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(made().blocks[:1])

        def forward(self, x):
            (block,) = self.blocks
            return block(block(x))

    x = data({}, 0)
    flow.manual_seed(2)
    wanted = eager_training(Twice(), [x] * 2)
    flow.manual_seed(2)
    graph = Train(saving(Twice(), ["up.linear", "dropout*"]))
    assert graph_training(graph, [x] * 2) == wanted
    assert sum(step.name == "gelu" for step in steps_of(graph, 0) if step.recomputation) == 2
    assert not any(step.name == "linear" for step in steps_of(graph, 0) if step.recomputation)


def test_several_results_of_one_name_are_numbered(world):
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(flow.ones(8))

        def forward(self, x):
            return ((x * self.scale) * (x * 2.0)).exp() * self.scale

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Sums()])

        def forward(self, x):
            return self.blocks[0](x)

    x = 0.1 * data({}, 0)
    wanted = eager_training(Model(), [x])
    made = {
        (): ["mul", "mul", "mul", "exp"],
        ("mul",): ["mul", "mul", "exp"],
        ("mul_1",): ["mul", "mul", "exp"],
        ("mul_2",): ["mul", "exp"],
        ("mul_[12]", "exp"): [],
    }
    for names, again in made.items():
        graph = Train(saving(Model(), names))
        assert graph_training(graph, [x]) == wanted
        assert [step.name for step in steps_of(graph, 0) if step.recomputation] == again


def test_names_that_stand_for_nothing():
    x = data({}, 0)
    graph = Train(saving(made(), ["up.linear", "attention", "gelu_1"]))
    message = (
        r"saved_activations of model.blocks.0 has 'attention', 'gelu_1', which is nothing that it "
        r"makes in forward; it makes norm.layer_norm, up.linear, gelu, down.linear, "
        r"dropout.dropout, mul, add. Write such names, or patterns of them"
    )
    with pytest.raises(OnefoldValueError, match=message):
        graph(x)
    saving(graph.model, ["up.linear"])
    assert graph_training(graph, [x]) == eager_training(made(), [x])


def test_without_a_checkpoint_or_inside_another_one_it_changes_nothing(world):
    x = data({}, 0)
    model = saving(made(), ["no such thing"])
    for block in model.blocks:
        block.to(nn.graph.GraphModule).activation_checkpointing = False
    graph = Train(model)
    graph(x)
    assert not any(step.saved or step.recomputation for step in graph.program.steps)
    saving(model, ["up.linear"])
    model.to(nn.graph.GraphModule).activation_checkpointing = True
    graph(x)
    assert not any(step.saved for step in graph.program.steps)


def test_the_setting_counts_from_the_next_call(world):
    graph = Train(saving(made(), []))
    found = []
    for names in ([], ["up.linear"], ["gelu"], []):
        saving(graph.model, names)
        graph(data({}, 0))
        found.append([step.name for step in steps_of(graph, 0) if step.saved])
    assert found == [[], ["linear"], ["gelu"], []]
    assert "saved_activations" not in str(graph)
    saving(graph.model, ["gelu"])
    assert "activation_checkpointing=True, saved_activations=('gelu',)" in str(graph)


@pytest.mark.parametrize("value", ["linear", None, [1], {"linear"}])
def test_only_lists_of_names_are_taken(value):
    view = nn.Linear(2, 2).to(nn.graph.GraphModule)
    with pytest.raises(OnefoldTypeError, match="saved_activations must be a tuple of names"):
        view.saved_activations = value
    assert view.saved_activations == ()
