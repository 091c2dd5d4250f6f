"""Random calls of a program: eager's numbers at every run, in checkpoints and micro-batches too."""

import pytest

import onefold as flow
from onefold import nn, profiler
from onefold.errors import OnefoldRuntimeError


def model():
    flow.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))


class Train(nn.Graph):
    def __init__(self, module, inside=None):
        super().__init__()
        self.m = module
        self.inside = inside
        self.add_optimizer(flow.optim.SGD(module.parameters(), lr=0.5))

    def build(self, x):
        if self.inside is not None:
            self.inside()
        loss = (flow.checkpoint.checkpoint(self.m, x) ** 2).sum()
        loss.backward()
        return loss


def eager_losses(x, steps):
    module = model()
    optimizer = flow.optim.SGD(module.parameters(), lr=0.5)
    found = []
    for _ in range(steps):
        loss = (flow.checkpoint.checkpoint(module, x) ** 2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_a_checkpoint_repeats_its_masks():
    x = flow.ones(3, 4)
    wanted = eager_losses(x, 3)
    graph = Train(model())
    assert [graph(x).item() for _ in range(3)] == wanted


def test_what_a_checkpoint_runs_again_is_not_shared_with_the_forward_pass():
    graph = Train(model())
    graph(flow.ones(3, 4))
    names = [step.name for step in graph.program.steps]
    assert names.count("linear") == 3  # two forward, the first one again for the backward pass
    dropouts = [name for name in names if name.startswith("dropout")]  # forward, again, gradient
    assert dropouts == ["dropout", "dropout_with_mask", "dropout_by_mask"]


def test_the_generator_moves_as_far_as_eagerly():
    x = flow.ones(3, 4)
    eager_losses(x, 2)
    wanted = flow.default_generator.get_state()
    graph = Train(model())
    for _ in range(2):
        graph(x)
    assert flow.default_generator.get_state() == wanted


def test_seeding_inside_build_is_an_error():
    graph = Train(model(), inside=lambda: (flow.rand(1), flow.manual_seed(9)))
    with pytest.raises(OnefoldRuntimeError, match="a generator was seeded inside build"):
        graph(flow.ones(3, 4))
    assert not graph.is_compiled


def test_the_profiler_may_look_on_inside_build():
    counted = []

    class Watched(nn.Graph):
        def build(self, x):
            with profiler.dispatch() as log:
                y = flow.tanh(x)
            counted.append(log.calls)
            return y

    x = flow.ones(2)
    assert (Watched()(x).numpy() == flow.tanh(x).numpy()).all()
    assert counted == [1]
