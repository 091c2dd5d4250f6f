"""`x.device` of a global tensor means its placement wherever a device is asked for."""

import numpy as np
import pytest
import torch

import onefold as flow

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)


@pytest.fixture
def x(world):
    return flow.randn(6, 4, placement=flow.placement("cpu", [0, 1]), sbp=S0)


def test_it_compares_as_the_device_of_its_type(x):
    same = flow.zeros(2, device=x.device)
    assert x.device == torch.device("cpu") and torch.device("cpu") == x.device
    assert x.device == same.device and hash(x.device) == hash(torch.device("cpu"))
    assert x.device != torch.device("meta") and x.device != "cpu"
    elsewhere = flow.ones(2, placement=flow.placement("cpu", [1]), sbp=B)
    assert x.device != elsewhere.device
    assert (x.device.type, x.device.index, str(x.device)) == ("cpu", None, "cpu")
    assert repr(x.device) == f"device(type='cpu', placement={x.placement!r})"


@pytest.mark.parametrize(
    "make",
    [
        lambda device: flow.arange(6, device=device),
        lambda device: flow.zeros(6, 4, device=device),
        lambda device: flow.tensor([[1.0, 2.0]], device=device),
        lambda device: flow.randn(3, device=device),
        lambda device: flow.eye(3, device=device),
        lambda device: flow.full_like(flow.ones(2), 3, device=device),
        lambda device: flow.ones(2).new_zeros(3, device=device),
        lambda device: flow.nn.Linear(3, 2, device=device).weight,
        lambda device: flow.ones(3).to(device),
        lambda device: flow.nn.Linear(3, 2).to(device).weight,
    ],
)
def test_new_tensors_are_made_on_the_placement(x, make):
    made = make(x.device)
    assert made.placement is x.placement and made.sbp == (B,)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("LSTM", (2, 3)),
        ("GRUCell", (2, 3)),
        ("Conv2d", (2, 2, 2)),
        ("BatchNorm1d", (3,)),
        ("LayerNorm", (3,)),
        ("EmbeddingBag", (3, 4)),
        ("MultiheadAttention", (4, 2)),
        ("TransformerEncoderLayer", (4, 2)),
        ("AdaptiveLogSoftmaxWithLoss", (4, 10, [2])),
    ],
)
def test_layers_are_made_on_the_placement(x, name, sizes):
    layer = getattr(flow.nn, name)(*sizes, device=x.device)
    for made in (*layer.parameters(), *layer.buffers()):
        assert made.placement is x.placement and set(made.sbp) == {B}


def test_a_program_for_one_device_runs(x):
    def masked(x):
        places = torch.arange if isinstance(x, torch.Tensor) else flow.arange
        mask = places(x.shape[0], device=x.device) < 3
        return x * mask[:, None].to(x.device)

    np.testing.assert_array_equal(masked(x).numpy(), masked(x.to_torch()).numpy())
    assert flow.zeros(2, device=x.device, sbp=S0).sbp == (S0,)


def test_to(x):
    assert x.to(x.device) is x
    other = flow.ones(2, placement=flow.placement("cpu", [1, 2]), sbp=B)
    moved = x.to(other.device)
    assert moved.placement is other.placement and moved.sbp == (S0,)
    np.testing.assert_array_equal(moved.numpy(), x.numpy())
    mesh = flow.ones(2, placement=flow.placement("cpu", [[0, 1]]), sbp=(B, B))
    assert x.to(mesh).sbp == (B, B)


def test_both_a_device_and_a_placement(x):
    with pytest.raises(TypeError, match="got both device="):
        flow.zeros(2, device=x.device, placement=x.placement, sbp=B)
