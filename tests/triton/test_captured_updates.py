"""Updates as CUDA graphs by Triton's kernels: the bits of eager updates in each step."""

import captured_updates
import pytest
from captured_updates import Fit, assert_same, cycled, inputs
from device_checks import DEVICE
from recorded_graphs import recording

import onefold as flow

pytestmark = pytest.mark.skipif(DEVICE == "cuda", reason="tests/gpu has CUDA's own captures")


@pytest.fixture
def recorder(monkeypatch):
    return recording(monkeypatch)


def results(name, options, cuda_graph, count, **more):
    graph = Fit(name, options, cuda_graph=cuda_graph, **more)
    skipped = (4,) if more.get("scaled") else ()
    return captured_updates.run(graph, inputs(count, skipped)), graph.cuda_graph_reason


ADAMW, SGD = (
    ("AdamW", {"weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
)


@pytest.mark.parametrize(
    ("name", "options"), [ADAMW, SGD, ("Adam", {"amsgrad": True}), ("NAdam", {})]
)
def test_rates_and_steps_change(name, options, recorder):
    (wanted, _), (found, why) = (results(name, options, on, 6) for on in (False, True))
    assert_same(found, wanted)
    assert (why, recorder.captures >= 2) == ("", True)


@pytest.mark.parametrize(("name", "options"), [ADAMW, SGD])
def test_scales_change_and_a_step_is_skipped(name, options, recorder):
    run = [results(name, options, on, 6, scaled=True) for on in (False, True)]
    (wanted, _), (found, why) = run
    assert_same(found, wanted)
    assert (why, recorder.captures) == ("", 2)


def test_options_are_read_from_memory(recorder):
    """No kernel is captured again."""
    (wanted, _), (found, why) = (cycled(on) for on in (False, True))
    assert_same(found, wanted)
    assert (why, recorder.captures) == ("", 2)


def test_copies_in_half_precision(recorder):
    """With autocast updates write the copies that products read, too."""

    class Low(Fit):
        def __init__(self, **options):
            super().__init__("AdamW", {}, clip=None, **options)
            self.config.enable_amp(dtype=flow.bfloat16)

    wanted, found = (captured_updates.run(Low(cuda_graph=on), inputs(6)) for on in (False, True))
    assert_same(found, wanted)
    assert recorder.captures == 2
