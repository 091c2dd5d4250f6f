"""Modules and tensors on the meta device: torch's meaning, and data given shard by shard."""

import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldNotImplementedError, OnefoldRuntimeError
from onefold.nn import utils

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


def test_tensors_are_as_torch_has_them():
    ours, theirs = (lib.empty(3, 4, dtype=torch.bfloat16, device="meta") for lib in (flow, torch))
    assert repr(ours) == repr(theirs)
    assert ours.is_meta and ours.device == theirs.device
    for function in (
        lambda x: (x @ x.T).sum(0),
        lambda x: x[1:, 2] * 3,
        lambda x: x.float().softmax(1),
        lambda x: x.reshape(2, 6).t(),
    ):
        mine, wanted = function(ours), function(theirs)
        assert (mine.shape, mine.dtype, mine.is_meta) == (wanted.shape, wanted.dtype, True)
    assert ours.to("meta") is ours and flow.ones(2).to("meta").is_meta
    assert ours.to_torch().is_meta
    for make in (flow.randn, flow.rand, flow.zeros, flow.ones):
        assert make(2, 3, device="meta").is_meta
    assert flow.arange(10**12, device="meta").shape == (10**12,)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.numpy(),
        lambda x: x.tolist(),
        lambda x: bool(x.sum()),
        lambda x: x.to_torch().numpy(),
    ],
)
def test_values_are_not_read(read):
    with pytest.raises((RuntimeError, NotImplementedError, TypeError), match=r"meta|data"):
        read(flow.ones(3, device="meta"))


def test_data_does_not_come_by_moving():
    layer = nn.Linear(2, 2, device="meta")
    for move in (lambda: layer.to("cpu"), layer.weight.cpu):
        with pytest.raises(OnefoldNotImplementedError, match=r"no data.*to_empty"):
            move()
    with pytest.raises(OnefoldRuntimeError, match=r"no data.*to_empty"):
        flow.save(layer.state_dict(), "never")


def test_a_module_is_made_without_data_and_then_given_some():
    layer = nn.Linear(4, 3, device="meta")
    assert layer.weight.is_meta and layer.bias.is_meta
    layer.reset_parameters()
    assert layer.weight.is_meta  # as torch's
    assert layer.to_empty(device="cpu") is layer and not layer.weight.is_meta
    flow.manual_seed(5)
    layer.reset_parameters()
    flow.manual_seed(5)
    assert layer.weight.tolist() == nn.Linear(4, 3).weight.tolist()
    skipped = utils.skip_init(nn.Linear, 4, 3, device="meta")
    assert skipped.weight.is_meta


def test_a_block_of_torch_gives_the_device():
    with torch.device("meta"):
        layer = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.LSTM(3, 2), nn.Dropout())
        assert all(x.is_meta for x in layer.state_dict().values())
        for make in (flow.tensor([1.0]), flow.randn(2), flow.arange(3), flow.zeros(2), flow.eye(2)):
            assert make.is_meta
        with torch.device("cpu"):
            assert not flow.randn(2).is_meta
    assert not flow.zeros(2).is_meta and not nn.Linear(2, 2).weight.is_meta
    flow.manual_seed(5)
    layer[0].to_empty(device="cpu").reset_parameters()
    flow.manual_seed(5)
    assert layer[0].weight.tolist() == nn.Linear(4, 3).weight.tolist()


@pytest.mark.parametrize("where", ["device", "placement"])
def test_values_in_such_a_block_are_those_outside(where, world):
    p = flow.placement("cpu", [0, 1])
    how = {"device": "cpu"} if where == "device" else {"placement": p, "sbp": B}
    makes = [
        lambda: flow.randn(5, **how),
        lambda: flow.rand(5, **how),
        lambda: flow.randint(3, 9, (5,), **how),
        lambda: flow.randperm(5, **how),
        lambda: flow.tensor([1.0, 2.0], **how),
        lambda: flow.tensor(torch.tensor([1.0, 2.0], device="cpu"), **how),
        lambda: nn.Linear(3, 2, **how).weight,
        lambda: nn.Linear(3, 2, **how)(flow.ones(2, 3, **how)).softmax(1),
        lambda: nn.Dropout(0.5)(flow.ones(9, **how)),
        lambda: nn.init.trunc_normal_(flow.empty(3, 3, **how)),
    ]
    for make in makes:
        flow.manual_seed(2)
        expected = make()
        flow.manual_seed(2)
        with torch.device("meta"):
            found = make()
        assert found.numpy().tolist() == expected.numpy().tolist()
        assert found.sbp == expected.sbp if found.is_global else found.device == expected.device


def test_a_state_dict_gives_data_by_assignment():
    layer, other = nn.Linear(4, 3, device="meta"), nn.Linear(4, 3)
    layer.load_state_dict(other.state_dict())
    assert layer.weight.is_meta  # nothing to copy into
    layer.load_state_dict(other.state_dict(), assign=True)
    assert layer.weight.tolist() == other.weight.tolist()


RULES = {"weight": S0, "bias": S0}


def laid_out(place):
    """A layer without data, whose shards are to be split over the ranks of a placement."""
    layer = nn.Linear(6, 5, device="meta").to_global(place, B)
    assert layer.weight.is_meta and layer.weight.shape == (5, 6)
    layer.to_global(sbp=RULES)
    assert layer.weight.is_meta and layer.weight.sbp == (S0,)
    return layer


def given_data():
    """The values of a layer on two ranks that was given data shard by shard, in several ways."""
    place = flow.placement("cpu", [0, 1])
    flow.manual_seed(1)
    reset = laid_out(place)
    reset.reset_parameters()
    empty = laid_out(place).to_empty(device="cpu")
    assert not empty.weight.is_meta and empty.weight.sbp == (S0,)
    loaded = laid_out(place)
    loaded.load_state_dict(reset.state_dict())
    filled = laid_out(place)
    flow.checkpoint.load_weights(filled, {k: v.to_torch() for k, v in reset.state_dict().items()})
    with pytest.raises(OnefoldRuntimeError, match="no data"):
        laid_out(place).weight.numpy()
    trained = laid_out(place)
    trained.reset_parameters()
    x = flow.ones(2, 6, placement=place, sbp=B)
    trained(x).sum().backward()
    return [layer.weight.numpy() for layer in (reset, loaded, filled)], trained.weight.grad.numpy()


def test_shards_get_data_one_by_one(world):
    values, gradient = given_data()
    flow.manual_seed(1)
    wanted = nn.Linear(6, 5).weight.numpy()
    assert all((value == wanted).all() for value in values)
    assert (gradient == 2).all()


def test_processes_give_their_own_shards_data(world):
    wanted, gradient = given_data()
    for values, grad in run_ranks(2, given_data):
        assert all((a == b).all() for a, b in zip(values, wanted, strict=True))
        assert (grad == gradient).all()


def test_a_global_tensor_stays_on_its_ranks(world):
    layer = nn.Linear(2, 3).to_global(flow.placement("cpu", [0, 1]), flow.sbp.broadcast)
    with pytest.raises(RuntimeError, match=r"to\('meta'\): a global tensor .* to_local\(\), or"):
        layer.to("meta")
    assert layer.weight.to_local().to("meta").is_meta
