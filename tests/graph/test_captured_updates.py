"""Updates as CUDA graphs, on the CPU: rates, steps and scales of each call, and what is noticed."""

import captured_updates
import pytest
import torch
from captured_updates import ON_THE_HOST, RECORDED, Fit, assert_same, inputs, names
from recorded_ops import recording

import onefold as flow
from onefold import nn
from onefold.kernels.staging import copied_later, fill, is_copied_later, to_device

ALL = RECORDED + ON_THE_HOST
EAGER = "the update runs without a CUDA graph: "


@pytest.fixture
def recorder(monkeypatch):
    recorder = recording(monkeypatch)
    yield recorder
    assert recorder.faults == []


def both(name, options, change=None, count=9, skipped=(), **more):
    """The results of steps without and with CUDA graphs, and the graph."""
    graphs = [Fit(name, options, cuda_graph=on, **more) for on in (False, True)]
    given = inputs(count, skipped)
    return [captured_updates.run(graph, given, change) for graph in graphs], graphs[1]


@pytest.mark.parametrize(("name", "options"), ALL, ids=names(ALL))
def test_rates_and_steps_change(name, options, recorder):
    (wanted, found), graph = both(name, options)
    assert_same(found, wanted)
    assert graph.cuda_graph_reason == ""
    captures = 4 if name == "RAdam" else 3 if name == "ASGD" else 2
    assert recorder.captures <= captures


@pytest.mark.parametrize(("name", "options"), ALL, ids=names(ALL))
def test_updates_in_backward(name, options, recorder):
    def run(**modes):
        graph = Fit(name, options, clip=None, **modes)
        return captured_updates.run(graph, inputs(9)), graph

    wanted, _ = run(cuda_graph=False)
    found, graph = run(in_backward=True)
    assert_same(found, wanted)
    assert graph.cuda_graph_reason == ""
    assert graph.plan(0).count(f"\n{name.lower()}(") == 3


@pytest.mark.parametrize(("name", "options"), RECORDED, ids=names(RECORDED))
@pytest.mark.parametrize("skipped", [(), (0, 5)], ids=["all", "some"])
def test_scales_change_and_steps_are_skipped(name, options, skipped, recorder):
    (wanted, found), graph = both(name, options, scaled=True, skipped=skipped)
    assert_same(found, wanted)
    assert (graph.cuda_graph_reason, recorder.captures) == ("", 2)
    assert "# between: adapt_scale: changes numbers that the host keeps" in graph.plan(0)


class Own(flow.optim.AdamW):
    pass


WHY_NOT = [
    ("LAMB", {}, {}, "the update of LAMB is computed by the host"),
    ("LARS", {}, {}, "the update of LARS is computed by the host"),
    ("", {}, {"make": Own}, "the update of Own is computed by the host"),
    (
        "NAdam", {}, {"scaled": True},
        "NAdam needs the number of steps on the host, and a scaler may skip some",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "more", "why"), WHY_NOT)
def test_what_is_not_captured(name, options, more, why, recorder):
    (wanted, found), graph = both(name, options, **more)
    assert_same(found, wanted)
    assert (graph.cuda_graph_reason, recorder.captures) == (EAGER + why, 1)
    assert graph.plan(0).endswith(f": {why}")


# What is noticed.


def betas(graph):
    graph.optimizer.param_groups[0]["betas"] = (0.8, 0.99)


def decay(graph):
    graph.optimizer.param_groups[1]["weight_decay"] = 0.3


def maximize(graph):
    graph.optimizer.param_groups[1]["maximize"] = True


def limit(graph):
    graph.optimizer.param_groups[1]["clip_grad_max_norm"] = 0.01


def loaded(graph):
    graph.optimizer.load_state_dict(graph.optimizer.state_dict())


def steps(graph):
    for state in graph.optimizer.state.values():
        state["step"] = 40


def stepped(graph):
    """An eager step of the optimizer, between those of the graph."""
    loss = graph.model(inputs(1)[0]).square().mean()
    loss.backward()
    graph.optimizer.step()
    graph.optimizer.zero_grad()


def rate(graph):
    for group in graph.optimizer.param_groups:
        group["lr"] = 0.5


CHANGES = [betas, decay, maximize, limit, loaded, steps, stepped, rate]


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_noticed(change, scaled, recorder):
    (wanted, found), graph = both("AdamW", {}, change, scaled=scaled)
    assert_same(found, wanted)
    assert graph.cuda_graph_reason == ""
    assert recorder.captures <= 4


class Pieces(nn.Graph):
    """Moves five parameters of one size towards its input."""

    def __init__(self, cuda_graph):
        super().__init__()
        flow.manual_seed(0)
        self.pieces = nn.ParameterList([nn.Parameter(flow.randn(4)) for _ in range(5)])
        self.optimizer = flow.optim.AdamW(self.pieces.parameters(), lr=0.1)
        self.add_optimizer(self.optimizer)
        self.config.enable_cuda_graph(cuda_graph)

    def build(self, x):
        loss = sum((piece - x).square().sum() for piece in self.pieces)
        loss.backward()
        return loss


def test_parameters_that_change_their_steps_with_each_other(recorder):
    def run(cuda_graph):
        graph = Pieces(cuda_graph)
        states, pieces = graph.optimizer.state, [*graph.pieces]
        losses = []
        for number, x in enumerate(inputs(10)):
            if number == 1:
                states[pieces[2]]["step"] = states[pieces[4]]["step"] = 100
            elif number == 6:
                one, two = (states[pieces[at]] for at in (3, 4))
                one["step"], two["step"] = two["step"], one["step"]
            losses.append(graph(x[0, :4]))
        return [value.tolist() for value in losses + pieces]

    assert run(True) == run(False)
    assert recorder.captures == 3


class Head(nn.Graph):
    """Trains the second layer of a model, or both."""

    def __init__(self, model, optimizer, scaler, both, cuda_graph):
        super().__init__()
        self.model, self.both = model, both
        self.add_optimizer(optimizer)
        self.set_grad_scaler(scaler)
        self.config.enable_cuda_graph(cuda_graph)

    def build(self, x):
        hidden = self.model[0](x)
        loss = self.model[1](hidden if self.both else hidden.detach()).square().mean()
        loss.backward()
        return loss


def test_graphs_that_share_an_optimizer_count_steps_of_their_own(recorder):
    def run(cuda_graph):
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)
        scaler = flow.amp.GradScaler(init_scale=8.0, growth_interval=100)
        head, whole = (Head(model, optimizer, scaler, both, cuda_graph) for both in (False, True))
        flow.manual_seed(7)
        found = []
        for number, graph in enumerate([whole, head, head, whole, *[head] * 4, whole, whole]):
            if number == 1:
                saved = optimizer.state_dict()
            elif number == 3:
                optimizer.load_state_dict(saved)
            found.append(graph(flow.randn(5, 4)).item())
            found += [int(optimizer.state[layer.weight]["step"]) for layer in model]
        return found + [weight.tolist() for weight in model.parameters()]

    assert run(True) == run(False)
    assert recorder.captures > 0


def test_options_that_change_from_call_to_call(recorder):
    """Torch's functions on the CPU keep them; kernels read them from memory."""

    def run(cuda_graph):
        graph = Fit("AdamW", {}, cuda_graph=cuda_graph)
        for number, x in enumerate(inputs(16)):
            graph.optimizer.param_groups[0]["betas"] = (0.5 + number / 100, 0.9)
            graph(x)
        return captured_updates.left(graph), graph.cuda_graph_reason

    (wanted, _), (found, why) = run(False), run(True)
    assert_same(found, wanted)
    assert why == EAGER + "options of an optimizer change from call to call"


def test_a_norm_that_build_returns(recorder):
    class Clipped(Fit):
        def build(self, x):
            self.model(x).square().mean().backward()
            return flow.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1, **self.asked)

    def run(cuda_graph, **asked):
        graph = Clipped("SGD", {"momentum": 0.9}, cuda_graph=cuda_graph, clip=None, scaled=True)
        graph.asked = asked
        return captured_updates.run(graph, inputs(6, (4,) if not asked else ())), graph

    (wanted, _), (found, graph) = run(False), run(True)
    assert_same(found, wanted)
    assert (graph.cuda_graph_reason, recorder.captures) == ("", 2)
    (wanted, _), (found, graph) = (run(on, error_if_nonfinite=True) for on in (False, True))
    assert_same(found, wanted)
    assert "# between: clip_grad_norm_: reads the norm of gradients" in graph.plan(0)
    assert graph.cuda_graph_reason.startswith(EAGER)


def test_two_shapes_share_an_optimizer(recorder):
    def run(cuda_graph):
        graph = Fit("AdamW", {}, cuda_graph=cuda_graph, scaled=True)
        given = [y for x in inputs(12) for y in (x, x[:4])]
        return captured_updates.run(graph, given), graph

    (wanted, _), (found, graph) = run(False), run(True)
    assert_same(found, wanted)
    assert graph.cuda_graph_reason == ""


@pytest.mark.parametrize("name", ["AdamW", "NAdam", "RAdam", "ASGD"])
def test_a_rate_that_is_a_tensor_of_the_host(name, recorder):
    def change(graph):
        with flow.no_grad():
            graph.optimizer.param_groups[0]["lr"].mul_(0.5)

    def make(groups, lr):
        groups = [{**groups[0], "lr": flow.tensor(0.1)}, groups[1]]
        return getattr(flow.optim, name)(groups, lr=lr)

    (wanted, found), graph = both("", {}, change, make=make)
    assert_same(found, wanted)
    assert graph.cuda_graph_reason == ""
    assert recorder.captures <= (4 if name == "RAdam" else 3 if name == "ASGD" else 2)


def test_a_capture_that_fails(recorder, monkeypatch):
    """The update of that call, and later ones, are made one by one."""
    capture = recorder.capture

    def failing(function, static):
        if recorder.captures:
            raise RuntimeError("not permitted")
        return capture(function, static)

    monkeypatch.setattr(recorder, "capture", failing)
    (wanted, found), graph = both("AdamW", {})
    assert_same(found, wanted)
    assert graph.cuda_graph_reason == f"{EAGER}the capture of the update failed: not permitted"
    assert recorder.replays == 7


def test_an_error_of_the_host_changes_nothing(recorder):
    graph = Fit("AdamW", {})
    given = inputs(5)
    for x in given[:4]:
        graph(x)
    before = captured_updates.left(graph)
    graph.optimizer.param_groups[0]["betas"] = None
    with pytest.raises(TypeError, match="adamw of update"):
        graph(given[4])
    assert_same(captured_updates.left(graph), before)


def test_states_stay_where_they_are(recorder):
    graph = Fit("AdamW", {}, scaled=True)
    given = inputs(8)
    for x in given[:4]:
        graph(x)
    state = graph.optimizer.state[graph.model[0].weight]
    shards = [state[key].shards[0].data_ptr() for key in ("exp_avg", "exp_avg_sq")]
    for x in given[4:]:
        graph(x)
    assert [state[key].shards[0].data_ptr() for key in ("exp_avg", "exp_avg_sq")] == shards
    assert int(state["step"]) == 8
    assert graph.optimizer.state_dict()["state"][0]["step"] == 8


def test_memory_that_is_filled_after_a_capture():
    cpu = torch.device("cpu")
    x = torch.tensor([1.0, 2.0])
    assert to_device(x, cpu) is x and not is_copied_later()
    with copied_later() as later:
        assert is_copied_later()
        there = to_device(x, cpu, torch.float64)
    assert there is not x and not is_copied_later()
    fill(later)
    assert there.tolist() == [1.0, 2.0] and there.dtype is torch.float64
