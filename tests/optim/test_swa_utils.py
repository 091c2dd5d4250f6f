"""Averages of models against torch's, in several layouts."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldValueError
from onefold.optim.swa_utils import AveragedModel, update_bn

ours, theirs = flow.optim.swa_utils, torch.optim.swa_utils
AVERAGES = {
    "mean": lambda lib: {},
    "ema": lambda lib: {"avg_fn": lib.get_ema_avg_fn(0.9)},
    "swa": lambda lib: {"avg_fn": lib.get_swa_avg_fn()},
    "several": lambda lib: {"multi_avg_fn": lib.get_ema_multi_avg_fn(0.8)},
    "several means": lambda lib: {"multi_avg_fn": lib.get_swa_multi_avg_fn()},
    "own": lambda lib: {"avg_fn": lambda a, b, n: 0.1 * a + 0.9 * b, "use_buffers": True},
}


class Model(flow.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = flow.nn.Linear(3, 2)
        self.register_buffer("seen", flow.zeros(2))

    def forward(self, x):
        return self.linear(x) + self.seen


class TorchModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(2))


@pytest.mark.parametrize("layout", ["local", "split", "mesh"])
@pytest.mark.parametrize("how", AVERAGES)
def test_the_averages_are_torchs(how, layout, world):
    model, right = Model(), TorchModel()
    if layout == "split":
        place = flow.placement("cpu", [0, 1])
        model.to_global(place, flow.sbp.broadcast).to_global(place, flow.sbp.split(0))
    elif layout == "mesh":
        place = flow.placement("cpu", [[0, 1], [2, 3]])
        model.to_global(place, (flow.sbp.broadcast,) * 2)
        model.to_global(place, (flow.sbp.split(0), flow.sbp.broadcast))
    averaged = AveragedModel(model, **AVERAGES[how](ours))
    wanted = theirs.AveragedModel(right, **AVERAGES[how](theirs))
    for seed in range(4):
        random = np.random.default_rng(seed)
        with torch.no_grad():
            for tensor in (*right.parameters(), *right.buffers()):
                tensor.copy_(torch.from_numpy(random.standard_normal(tensor.shape)))
        model.load_state_dict({k: v.numpy() for k, v in right.state_dict().items()})
        averaged.update_parameters(model)
        wanted.update_parameters(right)
    found, state = averaged.state_dict(), wanted.state_dict()
    assert list(found) == list(state)
    for key, value in state.items():
        np.testing.assert_allclose(found[key].numpy(), value.numpy(), rtol=1e-6, atol=1e-7)
    for mine, other in zip(averaged.module.parameters(), model.parameters(), strict=True):
        assert mine.meta is other.meta and mine.requires_grad
    again = AveragedModel(model)
    again.load_state_dict(state)
    assert again.n_averaged.item() == 4


def test_it_runs_as_the_model_does(world):
    model = Model()
    averaged = AveragedModel(model)
    averaged.update_parameters(model)
    x = flow.ones(2, 3)
    np.testing.assert_array_equal(averaged(x).numpy(), model(x).numpy())
    model.linear.weight.data.zero_()
    assert averaged.module.linear.weight.numpy().any()


def test_bad_arguments(world):
    with pytest.raises(OnefoldValueError, match="Only one of avg_fn and multi_avg_fn"):
        AveragedModel(Model(), avg_fn=ours.get_swa_avg_fn(), multi_avg_fn=lambda *_: None)
    for make in (ours.get_ema_avg_fn, ours.get_ema_multi_avg_fn):
        with pytest.raises(OnefoldValueError, match=r"value in \[0,1\] range"):
            make(1.5)


def test_update_bn(world):
    layer = flow.nn.BatchNorm1d(3)
    model = flow.nn.Sequential(layer).eval()
    batches = [flow.full((4, 3), float(value)) for value in (1, 2, 6)]
    update_bn([(batches[0], "label"), [batches[1]], batches[2]], model)
    np.testing.assert_allclose(layer.running_mean.numpy(), 3.0)
    assert layer.momentum == 0.1 and not model.training and layer.num_batches_tracked.item() == 3
    update_bn(None, flow.nn.Linear(1, 1))  # nothing to do, so no batch is asked for


def test_update_bn_that_fails_leaves_the_model_as_it_was(world):
    layer = flow.nn.BatchNorm1d(3)
    model = flow.nn.Sequential(layer).eval()
    with pytest.raises(KeyError):
        update_bn(({}["batch"] for _ in range(1)), model)
    assert layer.momentum == 0.1 and not model.training
