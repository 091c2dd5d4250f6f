"""The update is in the program: what it writes, what it must not, and nothing is dispatched."""

import numpy as np
import pytest

import onefold as flow
from onefold import nn, sbp

B, S0 = sbp.broadcast, sbp.split(0)
PAIR = flow.placement("cpu", [0, 1])
LAYOUTS = {"local": {}, "broadcast": {"placement": PAIR, "sbp": B}}


class Pair(nn.Module):
    """Two parameters of one shape."""

    def __init__(self, **layout):
        super().__init__()
        start = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
        self.a = nn.Parameter(flow.tensor(start, **layout))
        self.b = nn.Parameter(flow.tensor(start[::-1].copy(), **layout))


class Train(nn.Graph):
    def __init__(self, act, optimizer, micro_batches=1, **layout):
        super().__init__()
        self.model = Pair(**layout)
        self.act = act
        self.optimizer = optimizer(self.model.parameters())
        self.add_optimizer(self.optimizer)
        self.config.set_gradient_accumulation_steps(micro_batches)

    def build(self, x):
        return self.act(self.model, x)

    def eagerly(self, x):
        """What a call does, in eager code: the numbers of its results, as before the update."""
        found = numbers(self.act(self.model, x))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return found


def momentum(params):
    return flow.optim.SGD(params, lr=0.1, momentum=0.5)


def adamw(params):
    return flow.optim.AdamW(params, lr=0.1)


def loss_of(model, x):
    loss = ((model.a * x - model.b) ** 2).sum()
    loss.backward()
    return loss


def gives_its_parameter(model, x):
    loss_of(model, x)
    return model.a.detach(), model.b.detach().reshape(3, 4)


def gradient_is_a_parameter(model, x):
    (model.a + x).backward(model.b.detach())
    (model.b * 2).sum().backward()
    return x * 2


def changes_it_first(model, x):
    with flow.no_grad():
        model.a.clamp_(-0.5, 0.5)
    return loss_of(model, x)


ACTS = [loss_of, gives_its_parameter, gradient_is_a_parameter, changes_it_first]


def batch(number, layout):
    x = np.random.default_rng(number).standard_normal((4, 3)).astype(np.float32)
    return flow.tensor(x, **layout)


def numbers(result):
    return [x.numpy().copy() for x in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("optimizer", [momentum, adamw])
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("act", ACTS)
def test_an_update_writes_into_nothing_that_is_read_later(act, name, optimizer, world):
    """Outputs, gradients and changed values may be the parameters' memory."""
    layout = LAYOUTS[name]
    graph, eager = Train(act, optimizer, **layout), Train(act, optimizer, **layout)
    kept = []
    for number in range(3):
        found, wanted = graph(batch(number, layout)), eager.eagerly(batch(number, layout))
        kept.append((found, numbers(found)))
        for mine, right in zip(numbers(found), wanted, strict=True):
            np.testing.assert_array_equal(mine, right)
        for mine, right in zip(graph.model.parameters(), eager.model.parameters(), strict=True):
            np.testing.assert_array_equal(mine.numpy(), right.numpy())
    for found, before in kept:  # also after the calls that follow
        for mine, right in zip(numbers(found), before, strict=True):
            np.testing.assert_array_equal(mine, right)


def test_a_parameter_that_is_an_input_too(world):
    graph = Train(lambda m, x: (loss_of(m, x), x)[1], momentum)
    before = graph.model.a.numpy().copy()
    found = graph(graph.model.a)
    np.testing.assert_array_equal(found.numpy(), before)
    assert not np.array_equal(graph.model.a.numpy(), before)


def test_a_tensor_that_shares_a_parameters_memory_keeps_its_value(world):
    """Unless it is a view, as what `detach` gives."""
    graph = Train(loss_of, momentum)
    for number in range(3):
        kept, before = nn.Parameter(graph.model.a), graph.model.a.numpy().copy()
        graph(batch(number, {}))
        np.testing.assert_array_equal(kept.numpy(), before)


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_call_dispatches_nothing(name, micro_batches, world):
    layout = LAYOUTS[name]
    graph = Train(loss_of, adamw, micro_batches, **layout)
    graph.model.a = nn.Parameter(flow.ones(1, 3, **layout))
    graph.model.b = nn.Parameter(flow.ones(1, 3, **layout))
    graph.optimizer.param_groups[0]["params"] = list(graph.model.parameters())
    x = batch(0, {**layout, **({"sbp": S0} if layout else {})})
    graph(x)
    with flow.profiler.dispatch() as log:
        graph(x)
    assert log.calls == 0


def test_rates_and_steps_change_without_compiling_anew(world):
    graph = Train(loss_of, adamw)
    x = batch(0, {})
    graph(x)
    program = graph.program
    for rate in (0.05, 0.0):
        graph.optimizer.param_groups[0]["lr"] = rate
        before = graph.model.a.numpy().copy()
        graph(x)
        assert graph.program is program
        assert np.array_equal(graph.model.a.numpy(), before) is (rate == 0.0)
    state = graph.optimizer.state_dict()
    assert [entry["step"] for entry in state["state"].values()] == [3, 3]
    graph.optimizer.load_state_dict({**state, "state": {}})  # as before the first call
    graph(x)
    assert graph.program is program
    assert [e["step"] for e in graph.optimizer.state_dict()["state"].values()] == [1, 1]


def test_the_program_says_what_is_written_and_kept(world):
    graph = Train(loss_of, adamw)
    graph._compile(batch(0, {}))
    (update,) = [step for step in graph.program.steps if step.name == "adamw"]
    names = [value.name for value in update.writes]
    kept = [f"model.{p}-{key}" for p in "ab" for key in ("exp_avg", "exp_avg_sq")]
    assert names == ["model.a", "model.b", *kept]
    assert [value.name for value in graph.program.states] == kept
    assert "adamw(" in graph.plan(0) and "learning_rate()" in graph.plan(0)
    assert graph.memory(0).persistent == 3 * 2 * 4 * 12  # parameters, and two moments of each
    assert not graph.optimizer.state  # nothing is made before the first call


def test_a_call_that_fails_updates_nothing(world):
    graph = Train(lambda m, x: (loss_of(m, x), x.log())[0], momentum)
    before = [p.numpy().copy() for p in graph.model.parameters()]
    graph._compile(batch(0, {}))
    step = graph._latest("test").executable

    def fail(*_):
        raise RuntimeError("on purpose")

    (calls, steps) = step.call_lists()[0]
    index = next(i for i, each in enumerate(steps) if each.name == "learning_rate")
    calls[index] = (fail, *calls[index][1:])
    with pytest.raises(RuntimeError, match="on purpose"):
        graph(batch(0, {}))
    for mine, right in zip(graph.model.parameters(), before, strict=True):
        np.testing.assert_array_equal(mine.numpy(), right)
    assert graph._steps == 0 and not graph.optimizer.state
