"""Checkpointed modules of a graph: eager's bits, their activations recomputed instead of kept."""

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

import onefold as flow
from onefold import nn, profiler
from onefold.errors import OnefoldTypeError


def checkpoint_blocks(model):
    for block in model.blocks:
        block.to(nn.graph.GraphModule).activation_checkpointing = True
    return model


@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_is_eagers_bit_for_bit(layout, world):
    where, of_input = LAYOUTS[layout]
    inputs = [data(of_input, number) for number in range(3)]
    wanted = eager_training(made(where), inputs)
    assert graph_training(Train(made(where)), inputs) == wanted
    assert graph_training(Train(checkpoint_blocks(made(where))), inputs) == wanted


@pytest.mark.parametrize("layout", LAYOUTS)
def test_activations_are_recomputed_not_kept(layout, world):
    where, of_input = LAYOUTS[layout]
    x = data(of_input, 0)
    kept = []
    for model in (made(where), checkpoint_blocks(made(where))):
        graph = Train(model)
        graph(x)
        kept.append(bytes_kept(graph.program))
        again = [step for step in graph.program.steps if step.recomputation]
    assert kept[1] < kept[0] / 2
    assert {step.name for step in again} >= {"linear", "gelu", "layer_norm"}
    assert {step.scope for step in again} >= {"model.blocks.0.up", "model.blocks.2.norm"}
    assert all(step.backward for step in again)


def test_only_the_outermost_checkpoint_counts(world):
    x = data({}, 0)
    wanted = eager_training(made(), [x] * 2)
    model = checkpoint_blocks(made())
    model.to(nn.graph.GraphModule).activation_checkpointing = True
    graph = Train(model)
    assert graph_training(graph, [x] * 2) == wanted
    steps = graph.program.steps
    assert {step.recomputation for step in steps} == {0, 1}  # all in one recomputation
    assert sum(step.recomputation == 1 and step.name == "gelu" for step in steps) == 3


def test_a_buffer_that_forward_reads_and_changes_is_read_as_it_was(world):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.register_buffer("count", flow.ones(()))

        def forward(self, x):
            y = flow.tanh(self.linear(x) * self.count.clone())
            self.count.add_(1.0)
            return y

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Counting()

        def forward(self, x):
            return self.inner(self.inner(x))

    inputs = [data({}, number) for number in range(3)]
    found = []
    for mode in (None, False, True):
        flow.manual_seed(1)
        model = Twice()
        if mode is None:
            found.append(eager_training(model, inputs))
        else:
            model.inner.to(nn.graph.GraphModule).activation_checkpointing = mode
            found.append(graph_training(Train(model), inputs))
    assert found[0] == found[1] == found[2]


def test_the_setting_counts_from_the_next_call(world):
    x = data({}, 0)
    graph = Train(made())
    view = graph.model.to(nn.graph.GraphModule)
    found = []
    for mode in (False, True, False):
        view.activation_checkpointing = mode
        graph(x)
        found.append(any(step.recomputation for step in graph.program.steps))
    assert found == [False, True, False]
    assert view.activation_checkpointing is False


def test_eager_and_inference_are_untouched(world):
    x = data({}, 0)
    wanted, model = made(), checkpoint_blocks(made())
    flow.manual_seed(1)
    (wanted(x) ** 2).mean().backward()
    flow.manual_seed(1)
    with profiler.dispatch() as log:
        (model(x) ** 2).mean().backward()
    assert log.ops["gelu"].calls == 3  # none again
    for a, b in zip(model.parameters(), wanted.parameters(), strict=True):
        assert (a.grad.numpy() == b.grad.numpy()).all()

    class Predict(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x):
            with flow.no_grad():
                return self.model(x)

    model.eval()
    assert (Predict()(x).numpy() == model(x).numpy()).all()


def test_the_profiler_hands_module_calls_on(world):
    x = data({}, 0)

    class Watched(Train):
        def build(self, x):
            with profiler.dispatch():
                loss = (self.model(x) ** 2).mean()
            loss.backward()
            return loss

    graph = Watched(checkpoint_blocks(made()))
    assert graph_training(graph, [x]) == eager_training(made(), [x])
    assert any(step.recomputation for step in graph.program.steps)


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_only_a_bool_is_taken(value):
    view = nn.Linear(2, 2).to(nn.graph.GraphModule)
    with pytest.raises(OnefoldTypeError, match="activation_checkpointing must be True or False"):
        view.activation_checkpointing = value
    assert view.activation_checkpointing is False
