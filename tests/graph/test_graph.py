"""nn.Graph as users see it: training steps equal eager's, sharing, micro-batches, errors."""

import warnings
from collections import OrderedDict, namedtuple
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks
from small_graphs import Predict

import onefold as flow
from onefold import nn, sbp
from onefold.errors import OnefoldError, OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError

B, S0 = sbp.broadcast, sbp.split(0)
PAIR = flow.placement("cpu", [0, 1])
OTHER = flow.placement("cpu", [2, 3])
OPTIMIZERS = {
    "sgd": lambda params: flow.optim.SGD(params, lr=0.1),
    "momentum": lambda params: flow.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda params: flow.optim.AdamW(params, lr=0.01),
}


class Net(nn.Module):
    """Two layers on different ranks, the first data-parallel and the second model-parallel."""

    def __init__(self, first=PAIR, second=OTHER):
        super().__init__()
        self.second = second
        self.hidden = nn.Linear(6, 8, placement=first, sbp=B)
        self.dropout = nn.Dropout(0.3)
        self.norm = nn.LayerNorm(8, placement=first, sbp=B)
        self.head = nn.Linear(8, 3, placement=second, sbp=S0)

    def forward(self, x):
        x = self.norm(self.dropout(flow.gelu(self.hidden(x))))
        return self.head(x.to_global(self.second, B))


class Train(nn.Graph):
    def __init__(self, model, optimizer=None):
        super().__init__()
        self.model = model
        if optimizer is not None:
            self.add_optimizer(optimizer)

    def build(self, x, labels):
        loss = flow.nn.functional.cross_entropy(self.model(x), labels)
        loss.backward()
        return loss


def batch(number, first=PAIR, second=OTHER, rows=8):
    random = np.random.default_rng(number)
    images = random.standard_normal((rows, 6)).astype(np.float32)
    labels = random.integers(0, 3, rows)
    return (
        flow.tensor(images, placement=first, sbp=S0),
        flow.tensor(labels, placement=second, sbp=B),
    )


def state_of(model):
    return [t.numpy() for t in [*model.parameters(), *model.buffers()]]


def train_both(optimizer, steps, places=(PAIR, OTHER)):
    """Losses and final parameters of the same training, eager and by a graph."""
    found = []
    for graph in (False, True):
        flow.manual_seed(0)
        model = Net(*places)
        optim = OPTIMIZERS[optimizer](model.parameters())
        train = Train(model, optim) if graph else None
        losses = []
        for number in range(steps):
            x, labels = batch(number, *places)
            if train is not None:
                loss = train(x, labels)
            else:
                loss = flow.nn.functional.cross_entropy(model(x), labels)
                loss.backward()
                optim.step()
                optim.zero_grad()
            losses.append(loss.item())
        found.append((losses, state_of(model)))
    return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_equals_eager_bit_for_bit(optimizer, world):
    (eager, eager_state), (graph, graph_state) = train_both(optimizer, 5)
    assert graph == eager
    for ours, theirs in zip(graph_state, eager_state, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_learning_rates_follow_their_schedule(world):
    found = []
    for graph in (False, True):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        optimizer = flow.optim.SGD(model.parameters(), lr=1.0)
        schedule = flow.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

        def forward_and_backward(m, x):
            loss = m(x).sum()
            loss.backward()
            return loss

        train = Body(model, forward_and_backward, train=False)
        if graph:
            train.add_optimizer(optimizer, lr_sch=schedule)
        weights = []
        for _ in range(5):
            if graph:
                train(flow.ones(1, 1))
            else:
                forward_and_backward(model, flow.ones(1, 1))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            weights.append(model.weight.item())
        found.append(weights)
    assert found[0] == found[1] == [-1.0, -2.0, -2.5, -3.0, -3.25]


def test_training_on_processes_equals_one_process(world):
    wanted = train_both("momentum", 4)[0][0]

    def program():
        places = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])
        return [losses for losses, _ in train_both("momentum", 4, places)]

    for eager, graph in run_ranks(4, program, timeout=120):
        assert graph == eager
        np.testing.assert_allclose(graph, wanted, rtol=1e-5)


def test_a_model_is_shared_by_eager_and_several_graphs(world):
    flow.manual_seed(0)
    model = Net()
    train = Train(model, OPTIMIZERS["momentum"](model.parameters()))
    predict = Predict(model)
    for number in range(3):
        x, labels = batch(number)
        train(x, labels)
        model.eval()
        np.testing.assert_array_equal(predict(x).numpy(), model(x).numpy())
        model.train()
    assert all(param.grad is None for param in model.parameters())


def test_gradients_of_eager_code_are_left_alone(world):
    model = Net()
    x, labels = batch(0)
    flow.nn.functional.cross_entropy(model(x), labels).backward()
    before = [param.grad for param in model.parameters()]
    Train(model, OPTIMIZERS["sgd"](model.parameters()))(x, labels)
    after = [param.grad for param in model.parameters()]
    assert all(a is b for a, b in zip(after, before, strict=True))


@given(st.integers(1, 4), st.integers(1, 3))
def test_micro_batches_give_the_mean_of_their_gradients(count, rows):
    flow.manual_seed(0)
    model = nn.Linear(6, 3, placement=PAIR, sbp=B)
    before = state_of(model)
    train = Train(model, flow.optim.SGD(model.parameters(), lr=1.0))
    train.config.set_gradient_accumulation_steps(count)
    x, labels = batch(1, PAIR, PAIR, rows * count)
    losses = train(x, labels)
    weight, bias = (torch.tensor(value, requires_grad=True) for value in before)
    scores = torch.nn.functional.linear(torch.from_numpy(x.numpy()), weight, bias)
    each = torch.nn.functional.cross_entropy(
        scores, torch.from_numpy(labels.numpy()), reduction="none"
    ).view(count, rows)
    each.mean().backward()
    assert tuple(losses.shape) == ((count,) if count > 1 else ())
    np.testing.assert_allclose(losses.numpy().ravel(), each.mean(1).detach(), rtol=1e-5)
    for ours, theirs in zip(state_of(model), (weight, bias), strict=True):
        np.testing.assert_allclose(ours, theirs.detach() - theirs.grad, rtol=1e-5, atol=1e-6)


class OnEdges(nn.Graph):
    """A step whose edges are no batch."""

    def __init__(self, model, places=None):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))
        for stage, place in enumerate(places or ()):
            model[stage].to(nn.graph.GraphModule).set_stage(stage, place)

    def build(self, x, *, edges):
        y = self.model[1](self.model[0](x).to_global(self.model[1].weight.placement))
        edges = edges.to_global(y.placement)
        loss = (y[:, edges[0]] * y[:, edges[1]]).mean()
        loss.backward()
        return loss


@pytest.mark.parametrize("staged", [False, True])
def test_inputs_that_are_no_batch(staged, world):
    places = [flow.placement("cpu", [rank]) for rank in (0, int(staged))]
    flow.manual_seed(0)
    models = [
        nn.Sequential(*[nn.Linear(6, 6, placement=place, sbp=B) for place in places])
        for _ in range(2)
    ]
    models[1].load_state_dict(models[0].state_dict())
    x = flow.randn(4, 6, placement=places[0], sbp=B)
    edges = flow.tensor([[0, 2, 5], [1, 1, 3]], placement=places[0], sbp=B)
    whole, cut = (OnEdges(model, places if staged else None) for model in models)
    cut.config.set_gradient_accumulation_steps(4, whole=("edges",))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one micro-batch and two stages
        loss = whole(x, edges=edges)
    losses = cut(x, edges=edges)
    np.testing.assert_allclose(losses.numpy().mean(), loss.numpy(), rtol=1e-5)
    for mine, other in zip(*map(state_of, models), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_inputs_that_are_no_batch_after_any_number_that_are(world):
    class Picked(nn.Graph):
        def build(self, *batch, columns):
            return sum(batch)[:, columns]

    x, columns = flow.arange(12).reshape(4, 3), flow.tensor([2, 0, 2])
    graph = Picked()
    graph.config.set_gradient_accumulation_steps(2, whole=("columns",))
    np.testing.assert_array_equal(graph(x, x, columns=columns).numpy(), 2 * x.numpy()[:, [2, 0, 2]])


def test_whole_inputs_by_wrong_names(world):
    graph = OnEdges(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    with pytest.raises(TypeError, match="must be a tuple of names"):
        graph.config.set_gradient_accumulation_steps(2, whole="edges")
    graph.config.set_gradient_accumulation_steps(2, whole=("vertices",))
    with pytest.raises(ValueError, match=r"whole names 'vertices', but build was called with x, e"):
        graph(flow.ones(2, 2), edges=flow.ones(3))
    graph.config.set_gradient_accumulation_steps(2)
    with pytest.raises(ValueError, match=r"input 1 .* or name the parameter of build in its whole"):
        graph(flow.ones(2, 2), edges=flow.ones(3))


@pytest.mark.parametrize("sequence_first", [False, True])
def test_dropout_does_not_depend_on_micro_batches(sequence_first, world):
    class Drop(nn.Graph):
        def build(self, x):
            f = flow.nn.functional.dropout
            y = f(x.reshape(-1, 5), 0.5).view(*x.shape)  # (batch * length, 5)
            if sequence_first:
                return f(y.transpose(0, 1), 0.5).transpose(0, 1)
            return f(y, 0.5)

    x = flow.ones(6, 4, 5, placement=PAIR, sbp=S0)
    found = []
    for count in (1, 2, 3, 6):
        flow.manual_seed(2)
        graph = Drop()
        graph.config.set_gradient_accumulation_steps(count)
        found.append([graph(x).numpy() for _ in range(2)])
        assert not np.array_equal(*found[-1])
        np.testing.assert_array_equal(found[-1], found[0])


def test_random_sources_in_micro_batches_differ(world):
    class Draws(nn.Graph):
        def build(self, x):
            return x + flow.rand(())

    graph = Draws()
    graph.config.set_gradient_accumulation_steps(3)
    drawn = [*graph(flow.zeros(3)).tolist(), *graph(flow.zeros(3)).tolist()]
    assert len(set(drawn)) == 6


def test_buffers_changed_in_build_change_at_every_call(world):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", flow.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return x * self.calls

    model = Counting()
    predict = Predict(model)
    assert [predict(flow.ones(())).item() for _ in range(3)] == [1, 2, 3]
    assert model.calls.item() == 3


def test_nested_inputs_and_outputs(world):
    class Nest(nn.Graph):
        def build(self, pair, *, more):
            return {"sum": pair[0] + pair[1], "rest": [more["x"], None]}

    graph = Nest()
    for value in (1.0, 2.0):
        found = graph((flow.ones(2), flow.full((2,), value)), more={"x": flow.zeros(1)})
        assert found["sum"].tolist() == [1 + value] * 2
        assert found["rest"][0].tolist() == [0.0]
        assert found["rest"][1] is None


def test_the_order_of_a_dict_and_of_keywords_says_nothing(world):
    graph = nn.Graph.trace(lambda given, **more: {"b": given["x"] - more["y"], "a": given})
    x, y = flow.ones(2), flow.zeros(2)
    for nest, more in (({"x": x, "w": y}, {"y": y, "z": x}), ({"w": y, "x": x}, {"z": x, "y": y})):
        found = graph(nest, **more)
        assert list(found) == ["b", "a"]
        assert found["b"].tolist() == found["a"]["x"].tolist() == [1.0, 1.0]
    assert len(graph._compiled) == 1


def test_dicts_and_tuples_come_back_as_what_they_were(world):
    pair = namedtuple("pair", "first second")
    graph = nn.Graph.trace(lambda given: OrderedDict(a=given, b=pair(given["x"], None)))
    found = graph({"x": flow.ones(2)})
    assert type(found) is OrderedDict
    assert type(found["a"]) is dict
    assert type(found["b"]) is pair


@pytest.mark.parametrize("kind", ["module", "method", "partial", "lambda"])
def test_what_can_be_traced(kind, world):
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    given = {
        "module": model,
        "method": model.forward,
        "partial": partial(nn.functional.linear, weight=model[0].weight),
        "lambda": lambda x: model(x) * 2,
    }[kind]
    before = list(model.named_modules())
    graph, x = nn.Graph.trace(given), flow.randn(4, 2)
    for _ in range(2):
        assert graph(x).tolist() == given(x).tolist()
    assert [*model.named_modules()] == before
    assert graph.name in repr(graph)
    with pytest.raises(OnefoldError, match="trace needs a function or a module, but got 3"):
        nn.Graph.trace(3)


def test_each_signature_is_captured_once(world):
    captured = []

    class Noting(nn.Graph):
        def build(self, x):
            captured.append(tuple(x.shape))
            return x + 1

    graph = Noting()
    for size in (2, 3, 2, 3):
        assert graph(flow.zeros(size)).tolist() == [1.0] * size
    assert captured == [(2,), (3,)]


def test_the_oldest_signature_is_forgotten(world):
    captured = []

    @nn.Graph.with_dynamic_input_shape(size=2)
    class Noting(nn.Graph):
        def build(self, x):
            captured.append(len(x))
            return x + 1

    graph = Noting()
    for size in (1, 2, 1, 3, 1, 2):
        assert graph(flow.zeros(size)).tolist() == [1.0] * size
    assert captured == [1, 2, 3, 2]
    with pytest.raises(OnefoldValueError, match="size must be at least 1, but got 0"):
        nn.Graph.with_dynamic_input_shape(size=0)


def test_random_numbers_go_on_as_in_eager(world):
    class Draws(nn.Graph):
        def build(self):
            return flow.rand(3), flow.randn(2)

    flow.manual_seed(4)
    eager = [[x.tolist() for x in (flow.rand(3), flow.randn(2))] for _ in range(3)]
    flow.manual_seed(4)
    graph = Draws()
    assert [[x.tolist() for x in graph()] for _ in range(3)] == eager


def test_an_output_that_is_a_parameter_keeps_its_value(world):
    class Twice(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return self.model.weight, self.model.weight.view(-1)

    model = nn.Linear(2, 2, bias=False)
    before = model.weight.numpy().copy()
    weight, flat = Twice(model)(flow.ones(1, 2))
    np.testing.assert_array_equal(weight.numpy(), before)
    np.testing.assert_array_equal(flat.numpy(), before.ravel())
    np.testing.assert_array_equal(model.weight.numpy(), before - 1)


def test_an_output_that_is_an_input_keeps_its_value(world):
    graph = nn.Graph.trace(lambda x: (x, x.view(-1)))
    x = flow.ones(2, 2)
    same, flat = graph(x)
    x.add_(1)
    assert same.tolist() == [[1, 1], [1, 1]]
    assert flat.tolist() == [1] * 4


def test_a_parameter_that_changed_after_the_capture(world):
    model = nn.Linear(2, 3)
    predict = Predict(model)
    predict(flow.ones(1, 2))
    model.double()
    with pytest.raises(OnefoldRuntimeError, match=r"model\.weight was float32.*is float64"):
        predict(flow.ones(1, 2))


def test_a_traced_function_runs_as_a_graph(world):
    @nn.Graph.trace
    def double(x):
        """Twice x."""
        return x + x

    assert double(flow.ones(2)).tolist() == [2, 2]
    assert double.__doc__ == "Twice x."
    assert double.is_compiled


@pytest.mark.filterwarnings("ignore::onefold.PipelineWarning")
def test_a_stage_gets_its_inputs_on_its_ranks(world):
    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 8, placement=PAIR, sbp=B)
            self.second = nn.Linear(8, 3, placement=OTHER, sbp=B)

        def forward(self, x):
            return self.second(self.first(x))

    model = Body()
    model.first.to(nn.graph.GraphModule).set_stage(0, PAIR)
    model.second.to(nn.graph.GraphModule).set_stage(1, OTHER)
    x, _ = batch(0)
    y = Predict(model)(x)
    assert y.placement is OTHER
    assert y.sbp == (S0,)
    wanted = model.second(model.first(x).to_global(OTHER, S0))
    np.testing.assert_array_equal(y.numpy(), wanted.numpy())


class Residual(nn.Module):
    """One layer's output has two uses, and the other layer's parameters have."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        h = self.first(x)
        return self.second(self.second(h)) + h


def test_gradients_are_added_in_the_module_that_they_belong_to(world):
    def build(model, x):
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        (loss * 2).backward()  # adds to what the parameters got

    graph = Body(Residual(), build)
    graph(flow.ones(2, 3))
    added = [step for step in graph.program.steps if step.name == "add"]
    forward, *backward = [(step.scope, step.backward) for step in added]
    assert forward == ("model", False)
    h, first = [("model.first", True)], [("model.first", True)] * 2  # two: weight and bias
    second = [("model.second", True)] * 2
    assert backward == [*h, *second, *second, *h, *second, *first]


# Errors, after which everything is as it was.


def same_after(model, action, error, text):
    before = [(t.shards, t.shared, t.version, t.grad) for t in model.parameters()]
    state = flow.get_rng_state()
    with pytest.raises(error, match=text):
        action()
    assert flow.get_rng_state() == state
    for tensor, kept in zip(model.parameters(), before, strict=True):
        now = (tensor.shards, tensor.shared, tensor.version, tensor.grad)
        assert all(a is b or a == b for a, b in zip(now, kept, strict=True))


class Body(nn.Graph):
    def __init__(self, model, build, train=True):
        super().__init__()
        self.model = model
        self.function = build
        if train:
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

    def build(self, *args):
        return self.function(self.model, *args)


def reads_a_value(model, x):
    model.weight.data.mul_(0.0)
    return x if float(model(x).sum()) > 0 else -x


ERRORS = {
    "value": (reads_a_value, OnefoldRuntimeError, "value of a tensor was asked for.*test_graph.py"),
    "branch": (lambda m, x: x if m(x).sum() else -x, OnefoldRuntimeError, "was asked for"),
    "no backward": (lambda m, x: m(x), OnefoldRuntimeError, "made no gradients; call loss.back"),
    "number": (lambda m, x: 3, OnefoldTypeError, r"the result of build\(\).*but got int"),
    "to_local": (lambda m, x: m(x).to_local(), OnefoldRuntimeError, "to_local: the tensor is loc"),
    "nested": (lambda m, x: Predict(m)(x), OnefoldRuntimeError, "inside another graph's build"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_bad_build_changes_nothing(name, world):
    build, error, text = ERRORS[name]
    model = nn.Linear(3, 3)
    graph = Body(model, build)
    same_after(model, lambda: graph(flow.ones(2, 3)), error, text)
    assert not graph.is_compiled


def test_backward_without_an_optimizer(world):
    model = nn.Linear(3, 3)
    graph = Body(model, lambda m, x: m(x).sum().backward(), train=False)
    same_after(model, lambda: graph(flow.ones(2, 3)), OnefoldRuntimeError, "has no optimizer")


def test_an_optimizer_of_strangers(world):
    model = nn.Linear(3, 3)
    train = Train(model, flow.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1))
    with pytest.raises(OnefoldRuntimeError, match="2 of the optimizers' 2 parameters belong to no"):
        train(flow.ones(2, 3), flow.zeros(2, dtype=torch.int64))


def test_inputs_unlike_the_first(world):
    graph = Body(nn.Linear(3, 3), lambda m, x: m(x), train=False)
    graph(flow.ones(2, 3))
    with pytest.raises(OnefoldTypeError, match=r"input 0 of dtype torch.float32.*float64"):
        graph(flow.ones(2, 3, dtype=torch.float64))
    with pytest.raises(OnefoldTypeError, match="was compiled for inputs nested as"):
        graph([flow.ones(2, 3)])
    with pytest.raises(OnefoldTypeError, match=r"an input of a graph must be a Tensor.*got int"):
        graph(3)


def test_a_batch_that_cannot_be_cut(world):
    graph = Body(nn.Linear(3, 3), lambda m, x: m(x), train=False)
    graph.config.set_gradient_accumulation_steps(2)
    with pytest.raises(OnefoldValueError, match=r"\(3, 3\), whose dim 0 cannot be cut into 2"):
        graph(flow.ones(3, 3))
    with pytest.raises(OnefoldValueError, match="steps: value must be at least 1, but got 0"):
        graph.config.set_gradient_accumulation_steps(0)
    with pytest.raises(OnefoldTypeError, match=r"must be an integer, but got 1\.5"):
        graph.config.set_gradient_accumulation_steps(1.5)


def test_properties_of_a_graph(world):
    """They are set as those of other classes, and a name is not assigned in vain."""

    class Rated(Predict):
        @property
        def rate(self):
            return 2 * self.half

        @rate.setter
        def rate(self, value):
            self.half = value / 2

    graph = Rated(nn.Linear(1, 1))
    graph.rate = 3.0
    assert (graph.rate, graph.half) == (3.0, 1.5) and "rate" not in vars(graph)
    for name in ("name", "program", "training"):
        with pytest.raises(AttributeError, match=name):
            setattr(graph, name, "other")
    graph.model = None
    assert graph.model is None and "model" not in graph.state_dict()


def test_bad_settings(world):
    class Early(nn.Graph):
        def __init__(self):
            self.model = nn.Linear(1, 1)

    with pytest.raises(OnefoldRuntimeError, match=r"'model' before Graph.__init__\(\) call"):
        Early()
    graph = Predict(nn.Linear(1, 1))
    with pytest.raises(OnefoldTypeError, match="graphs cannot be nested"):
        graph.other = Predict(nn.Linear(1, 1))
    with pytest.raises(OnefoldTypeError, match="add_optimizer needs an onefold optimizer, but"):
        graph.add_optimizer(torch.optim.SGD)
    optimizer = flow.optim.SGD(graph.model.parameters(), lr=0.1)
    plateau = flow.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(OnefoldTypeError, match="step alone, but got ReduceLROnPlateau"):
        graph.add_optimizer(optimizer, lr_sch=plateau)
    view = graph.model.to(nn.graph.GraphModule)
    assert view.to(nn.Module) is graph.model
    with pytest.raises(OnefoldValueError, match="needs a stage_id, a placement, or both"):
        view.set_stage()
    with pytest.raises(OnefoldValueError, match="stage_id must be at least 0, but got -1"):
        view.set_stage(-1)
    with pytest.raises(OnefoldTypeError, match=r"must be an onefold\.placement"):
        view.set_stage(0, "cpu")
    with pytest.raises(NotImplementedError, match='missing the required "build"'):
        nn.Graph()()


def test_micro_batches_are_in_the_program(world):
    """Cutting, adding up and joining are steps, each micro-batch's its own."""
    graph = Train(model := Net(), OPTIMIZERS["sgd"](model.parameters()))
    graph.config.set_gradient_accumulation_steps(4)
    graph(*batch(0))
    steps = graph.program.steps
    assert graph.program.micro_batches == 4
    assert [v.meta.shape for v in graph.program.inputs] == [(8, 6), (8,)]
    names = [step.name for step in steps]
    assert names.count("add") >= 3 * len(graph.program.gradients)
    assert names.count("stack") == 1
    of = [step.micro_batch for step in steps if step.micro_batch is not None]
    assert of == sorted(of) and set(of) == {0, 1, 2, 3}
    for number in range(4):
        assert f"micro-batch {number}" in str(graph.program)
