"""Captures on the driver without a GPU: each way in which a replay would be wrong is found."""

import driver_models
import pytest
import torch
import triton.language as tl
from captured_updates import ON_THE_HOST, RECORDED, Fit, names

import onefold as flow
from onefold import nn
from onefold.graph.cuda_graphs.captured_calls import CapturedCalls
from onefold.graph.cuda_graphs.static_values import StaticValues
from onefold.kernels.gpu.launch.jit_kernel import Kernel
from onefold.kernels.staging import copied_later, to_device
from onefold.optim.rule_optimizer import updates_by_rule
from onefold.testing.gpu_driver import GpuDriver
from onefold.testing.gpu_driver.graph_capture import DriverCapturer, number_faults


@Kernel
def _scale(x, y, by: tl.int64, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * by)


def launch(x, y, by=2, programs=1):
    _scale.launch((programs,), (x, y, by), (16,))


def captured(function, static, warm=True):
    """The problems of a capture and a replay, and the graph."""
    with GpuDriver("none") as gpu:
        if warm:
            launch(torch.zeros(16), torch.zeros(16))
        replay, _ = DriverCapturer(gpu).capture(function, static)
        found = [problem.text for problem in gpu.problems]
        replay()
    return found, gpu.captures[0]


# What is compiled in for RAdam and ASGD depends on the step.
UPDATES = RECORDED + [row for row in ON_THE_HOST if row[0] not in ("RAdam", "ASGD")]
KEPT = "a replay reads memory that may be another's by then"
X = torch.zeros(16)
TABLE = torch.zeros(16)


def right():
    y = torch.empty(16)
    launch(X, y)
    launch(y, torch.empty_like(y))


def reads_a_table_that_nothing_keeps():
    launch(TABLE, torch.empty(16))


def waits():
    return torch.empty(16).sum().item()


def has_a_shape_that_depends_on_values():
    return X.nonzero()


def passes_numbers_of_the_host():
    launch(torch.tensor([1.0] * 16), torch.empty(16))


def copies_numbers_of_the_host():
    torch.empty(16)[0].copy_(torch.tensor(1.0))


def computes_with_a_table_of_the_host():
    launch(torch.cat([torch.tensor([1.0] * 8)] * 2), torch.empty(16))


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (right, []),
        (reads_a_table_that_nothing_keeps, [f"x: {KEPT}"]),
        (waits, ["_local_scalar_dense waits for the device in a capture"]),
        (has_a_shape_that_depends_on_values, ["nonzero waits for the device in a capture"]),
        (passes_numbers_of_the_host, [f"x: {KEPT}"]),
        (copies_numbers_of_the_host, ["copy_ copies from the host's memory in a capture"]),
        (computes_with_a_table_of_the_host, [f"x: {KEPT}"]),
    ],
)
def test_what_a_capture_must_not_do(function, texts):
    found, _ = captured(function, [X])
    assert found == texts


def test_what_is_copied_after_a_capture_is_not_in_its_memory():
    def function():
        launch(to_device(torch.tensor([1.0] * 16), X.device), torch.empty(16))

    with GpuDriver("none") as gpu:
        launch(X, torch.zeros(16))
        capturer = DriverCapturer(gpu)
        with copied_later(capturer.outside(X.device)):
            capturer.capture(function, [X])
        assert gpu.problems == []
        with copied_later():
            capturer.capture(function, [X])
    assert [problem.text for problem in gpu.problems] == [
        "a replay may write over what was copied from the host after the capture"
    ]


def test_kernels_are_compiled_before():
    found, _ = captured(right, [X], warm=False)
    assert found == ["is compiled and loaded in a capture"]


def test_memory_that_is_gone_at_a_replay():
    with GpuDriver("none") as gpu:
        launch(X, torch.zeros(16))
        x = [torch.zeros(16)]
        replay, _ = DriverCapturer(gpu).capture(lambda: launch(x[0], torch.empty(16)), x)
        replay()
        assert (gpu.problems, gpu.replays) == ([], 1)
        x[0].data = torch.zeros(16)
        replay()
    assert [problem.text for problem in gpu.problems] == [f"x: {KEPT}"]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (lambda y: launch(X, y, 3), "by: 2 is captured, and another step has 3"),
        (
            lambda y: launch(X, y, programs=2),
            "grid (1, 1, 1), and in another step _scale (2, 1, 1)",
        ),
        (
            lambda y: [launch(X, y), launch(X, y)],
            "1 launches and 1 operators of torch, and in another step 2 and 1",
        ),
        (lambda y: launch(X, y), None),
    ],
)
def test_numbers_of_the_host_that_change(other, text):
    _, first = captured(lambda: launch(X, torch.empty(16)), [X])
    _, second = captured(lambda: other(torch.empty(16)), [X])
    assert [found for _, found in number_faults(first, second)] == ([text] if text else [])


def test_numbers_of_torch_that_change():
    graphs = [captured(lambda by=by: X.mul(by), [X])[1] for by in (2.5, 3.5)]
    (found,) = number_faults(*graphs)
    assert found == ("mul", "[2.5] are captured, and another step has [3.5]")


# Steps of training.


class Step(nn.Graph):
    """A step that draws, on a few rows."""

    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 16))
        optimizer = flow.optim.AdamW(self.model.parameters(), lr=0.1)
        self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
        self.config.enable_cuda_graph()

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def problems_of(graph, x, change=lambda: None):
    """What is found in the steps of a graph, between two of which something changes."""
    with GpuDriver("none") as gpu:
        for _ in range(4):
            graph(x)
        kept = change()
        for _ in range(3):
            graph(x)
        del kept
    assert gpu.captures
    pairs = zip(gpu.captures, gpu.captures[len(gpu.captures) // 2 :], strict=False)
    return {problem.text for problem in gpu.problems} | {
        text for pair in pairs for _, text in number_faults(*pair)
    }


def move(graph):
    return driver_models.move(graph.model[0].weight)


def test_a_step_is_right():
    graph = Step()
    assert problems_of(graph, flow.ones(16, 16), lambda: move(graph)) == set()


def test_a_parameter_that_moves_unnoticed(monkeypatch):
    monkeypatch.setattr(CapturedCalls, "_state", lambda self, places: "the same")
    graph = Step()
    found = problems_of(graph, flow.ones(16, 16), lambda: move(graph) and None)
    assert any(text.endswith(KEPT) for text in found)


def test_draws_that_the_host_numbers(monkeypatch):
    """As where a kernel takes the seed and the call id as numbers."""
    monkeypatch.setattr("onefold.engine.generator.Draw.key", property(lambda x: (x.seed, x.call)))
    graph = Step()
    found = problems_of(graph, flow.ones(16, 16), lambda: move(graph))
    assert any(text.startswith("call: ") for text in found), found


def test_inputs_that_are_not_copied(monkeypatch):
    monkeypatch.setattr(StaticValues, "fill", lambda self, place, places: None)
    graph = Step()
    with GpuDriver("none") as gpu:
        for _ in range(4):
            graph(flow.ones(16, 16))
    assert any(problem.text.endswith(KEPT) for problem in gpu.problems)


@pytest.mark.parametrize(("name", "options"), UPDATES, ids=names(UPDATES))
def test_an_update_is_right(name, options):
    scaled = (name, options) in RECORDED
    graph = Fit(name, options, scaled=scaled)
    weight = graph.model[0].weight
    assert problems_of(graph, flow.ones(6, 5), lambda: driver_models.move(weight)) == set()
    assert graph.cuda_graph_reason == ""


def test_a_rate_that_the_host_keeps(monkeypatch):
    """As where an update is launched with numbers of its own."""
    monkeypatch.setattr("onefold.optim.rule_optimizer.updates_by_rule", without_memory)
    graph = Fit("AdamW", {})
    found = problems_of(graph, flow.ones(6, 5), lambda: driver_models.move(graph.model[0].weight))
    assert any("are copied once, and another step has" in text for text in found), found


def without_memory(*given, **options):
    return updates_by_rule(*given, **{**options, "memory": None})


def test_a_step_of_a_model():
    """`make kernels` has the other models and modes, and compiles them."""
    with GpuDriver("none") as gpu:
        step = driver_models.training_step("gpt", "captured scaled")
        assert driver_models.capture_faults(gpu, step) == []
    assert gpu.problems == []
    assert (len(gpu.captures), gpu.replays) == (4, 8)  # half of them are the update
