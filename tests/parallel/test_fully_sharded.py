"""fully_shard: torch's programs for it, with the numbers of one process and the whole batch."""

import copy

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed.device_mesh import init_device_mesh
from onefold.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
    register_fsdp_forward_method,
)
from onefold.distributed.tensor import Replicate, Shard
from onefold.errors import OnefoldTypeError, OnefoldValueError

S0 = flow.sbp.split(0)


def add_layers(model, lib):
    model.embedding = lib.Embedding(40, 32)
    model.blocks = lib.ModuleList([lib.Linear(32, 64), lib.Linear(64, 32)])
    model.head = lib.Linear(32, 40, bias=False)
    model.head.weight = model.embedding.weight


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        add_layers(self, nn)

    def forward(self, tokens):
        places = flow.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + flow.sin(places.double())[:, None]
        for block in self.blocks:
            x = block(x).tanh()
        return self.head(x)

    def loss(self, tokens):
        return self(tokens).square().mean()


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        add_layers(self, torch.nn)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1])
        x = self.embedding(tokens) + torch.sin(places.double())[:, None]
        for block in self.blocks:
            x = block(x).tanh()
        return self.head(x)


def net():
    flow.manual_seed(3)
    return Net().double()


def batches():
    draw = np.random.default_rng(0)
    return [draw.integers(0, 40, (8, 6)) for _ in range(3)]


def trained_by_torch():
    """The state after 3 updates on whole batches."""
    model = TorchNet().double()
    model.load_state_dict({k: torch.tensor(v.numpy()) for k, v in net().state_dict().items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    for tokens in batches():
        logits = model(torch.tensor(tokens[:, :-1]))
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), torch.tensor(tokens[:, 1:]).flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return {name: value.numpy() for name, value in model.state_dict().items()}


def train(model, make):
    """The same with our model, which gets what `make` makes of arrays."""
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    for tokens in batches():
        logits = model(make(tokens[:, :-1]))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), make(tokens[:, 1:]).flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


def assert_trained(found):
    wanted = trained_by_torch()
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-11, err_msg=name)


def sharded(mesh, **options):
    model = net()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def trained_on_local_batches(shape, options):
    """The state after training on this rank's parts, and how many results it then gets."""
    rank, ranks = flow.distributed.get_rank(), flow.distributed.get_world_size()
    size = 8 // ranks

    def mine(x):
        return flow.tensor(x[rank * size : (rank + 1) * size])

    mesh = None if shape is None else init_device_mesh("cpu", shape)
    model = sharded(mesh, **options)
    train(model, mine)
    state = {name: value.full_tensor().numpy() for name, value in model.state_dict().items()}
    logits = model(mine(batches()[0]))
    return state, logits.is_local, len(logits)


@pytest.mark.parametrize("options", [{}, {"reshard_after_forward": False}])
@pytest.mark.parametrize(("ranks", "shape"), [(2, (2,)), (2, None), (4, (2, 2))])
def test_local_batches_of_processes(ranks, shape, options):
    for state, is_local, size in run_ranks(ranks, trained_on_local_batches, shape, options):
        assert_trained(state)
        assert is_local and size == 8 // ranks


@pytest.mark.parametrize("options", [{}, {"reshard_after_forward": False}])
def test_global_batches(world, options):
    mesh = init_device_mesh("cpu", (2,))
    model = sharded(mesh, **options)
    assert isinstance(model, FSDPModule) and isinstance(model, Net)
    assert type(model).__name__ == "FSDPNet" and type(model.blocks[0]).__name__ == "FSDPLinear"
    assert model.blocks[0].weight.placements == (Shard(0),)
    assert model.blocks[0].bias.placements == (Replicate(),)  # too small for shards
    train(model, lambda x: flow.tensor(x, placement=mesh.placement, sbp=S0))
    assert model.blocks[0].weight.grad.placements == (Shard(0),)
    assert_trained({name: value.numpy() for name, value in model.state_dict().items()})


def test_a_replicated_axis_and_another_dim(world):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(
        net(),
        mesh=mesh,
        shard_placement_fn=lambda p: Shard(1) if p.ndim == 2 and p.shape[0] == 32 else None,
        ignored_params=None,
    )
    assert model.blocks[0].weight.placements == (Replicate(), Shard(0))
    assert model.blocks[1].weight.placements == (Replicate(), Shard(1))
    train(model, lambda x: flow.tensor(x, placement=mesh.placement, sbp=(S0, S0)))
    assert_trained({name: value.numpy() for name, value in model.state_dict().items()})


def test_parameters_that_are_ignored_stay_whole(world):
    model = net()
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(model, mesh=mesh, ignored_params={model.blocks[0].weight})
    assert model.blocks[0].weight.placements == (Replicate(),)
    assert model.blocks[1].weight.placements == (Shard(0),)


@pytest.mark.parametrize("reduce_dtype", [None, flow.float32])
def test_mixed_precision(world, reduce_dtype):
    mesh = init_device_mesh("cpu", (2,))
    policy = MixedPrecisionPolicy(flow.bfloat16, reduce_dtype, output_dtype=flow.float32)
    seen = []

    class Layer(nn.Linear):
        def forward(self, x):
            seen.append((x.dtype, self.weight.dtype, self.bias.dtype))
            return super().forward(x)

    layer = Layer(64, 64)
    plain = copy.deepcopy(layer)
    fully_shard(layer, mesh=mesh, mp_policy=policy)
    x = flow.randn(4, 64, placement=mesh.placement, sbp=S0, requires_grad=True)
    with flow.profiler.comm() as log:
        y = layer(x)
        y.square().sum().backward()
    assert seen == [(flow.bfloat16,) * 3] and y.dtype == flow.float32
    assert layer.weight.dtype == layer.weight.grad.dtype == flow.float32
    # The other half of the weight, in forward and in backward, and of its gradient.
    half = 64 * 32
    wide = 2 if reduce_dtype is None else 4
    assert log.total_bytes(rank=0) == pytest.approx(half * (2 + 2 + wide), rel=0.05)
    x = flow.tensor(x.detach().numpy())
    low = nn.functional.linear(x.bfloat16(), plain.weight.bfloat16(), plain.bias.bfloat16())
    low.float().square().sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), low.detach().float().numpy())
    np.testing.assert_allclose(
        layer.weight.grad.numpy(), plain.weight.grad.numpy(), rtol=0.02, atol=0.1
    )


def gradients_of_loss():
    """Those of a method, for this rank's half of a batch."""
    model = sharded(None)
    register_fsdp_forward_method(model, "loss")
    loss = model.loss(flow.tensor(batches()[0][4 * flow.distributed.get_rank() :][:4]))
    loss.backward()
    found = {name: p.grad.full_tensor().numpy() for name, p in model.named_parameters()}
    return loss.is_local, found


def test_a_method_takes_local_batches_too():
    model = net()
    model.loss(flow.tensor(batches()[0])).backward()
    wanted = {name: param.grad.numpy() for name, param in model.named_parameters()}
    for is_local, found in run_ranks(2, gradients_of_loss):
        assert is_local and found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-12, err_msg=name)


def divided_gradients(shape):
    """Of two backward passes: with factors that differ from module to module, and reset."""
    mesh = init_device_mesh("cpu", shape)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64, bias=False)).double()
    with flow.no_grad():
        for weight in model.parameters():
            weight.copy_(flow.linspace(-0.1, 0.2, weight.numel()).reshape(weight.shape))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    x = flow.cos(flow.arange(4.0 * 64).reshape(4, 64).double() + flow.distributed.get_rank())

    def gradients():
        model(x).square().mean().backward()
        found = [weight.grad.full_tensor().numpy() for weight in model.parameters()]
        model.zero_grad()
        return found

    usual = gradients()
    model[0].set_gradient_divide_factor(1.0)
    model.set_gradient_divide_factor(8.0)
    other = gradients()
    model(x).square().mean().backward()
    twice = gradients()
    whole = x.to_global(mesh.placement, [flow.sbp.broadcast] * len(shape))
    model(whole).square().mean().backward()
    one = model[0].bias.grad.full_tensor().numpy()
    model.zero_grad()
    for each in (model[0], model):
        each.set_gradient_divide_factor(4.0)
    return usual, other, twice, gradients(), one


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_gradients_are_sums_divided_by_a_factor(shape):
    for usual, other, twice, again, one in run_ranks(4, divided_gradients, shape):
        for weight, (a, b, c, d) in enumerate(zip(usual, other, twice, again, strict=True)):
            factor = 4.0 if weight < 2 else 0.5
            np.testing.assert_allclose(b, a * factor, rtol=1e-9)
            np.testing.assert_allclose(c, 2 * b, rtol=1e-9)
            np.testing.assert_allclose(d, a, rtol=1e-9)
        assert np.abs(one).max() < 3 * np.abs(usual[1]).max()  # of global batches, not scaled


def test_methods_about_time_change_nothing(world):
    model = sharded(init_device_mesh("cpu", (2,)))
    assert model.unshard() is None
    model.unshard(async_op=True).wait()
    model.reshard()
    model.set_requires_gradient_sync(False)
    model.set_is_last_backward(True)
    model.set_modules_to_forward_prefetch([model.blocks[0]])
    model.set_reshard_after_forward(False)
    assert not any(gather.reshard_after_forward for gather in model.blocks[0]._weight_gathers)
    model.set_force_sum_reduction_for_comms(True)
    with pytest.raises(OnefoldTypeError, match="FSDP does not support deepcopy"):
        copy.deepcopy(model)


def test_what_cannot_be_sharded(world):
    with pytest.raises(OnefoldTypeError, match="needs an onefold Module, but got Linear"):
        fully_shard(torch.nn.Linear(2, 2))
    with pytest.raises(OnefoldValueError, match="CPUOffloadPolicy is not supported"):
        fully_shard(net(), offload_policy=CPUOffloadPolicy())
    with pytest.raises(OnefoldValueError, match="expects a 1D or 2D DeviceMesh"):
        fully_shard(net(), mesh=init_device_mesh("cpu", (1, 2, 1)))
    with pytest.raises(OnefoldTypeError, match="mesh must be a DeviceMesh"):
        fully_shard(net(), mesh=flow.placement("cpu", [0, 1]))


# The older wrapper.


@pytest.mark.parametrize(
    ("strategy", "placement"),
    [(None, Shard(0)), (ShardingStrategy.SHARD_GRAD_OP, Shard(0)),
     (ShardingStrategy.NO_SHARD, Replicate())],
)  # fmt: skip
def test_wrapped_modules(world, strategy, placement):
    mesh = init_device_mesh("cpu", (2,))
    model = FullyShardedDataParallel(net(), sharding_strategy=strategy, device_mesh=mesh)
    assert isinstance(model.module, Net) and model.blocks is model.module.blocks
    assert model.blocks[0].weight.placements == (placement,)
    train(model, lambda x: flow.tensor(x, placement=mesh.placement, sbp=S0))
    assert_trained({name: value.numpy() for name, value in model.state_dict().items()})
    again = FullyShardedDataParallel(net(), device_mesh=mesh)
    again.load_state_dict(model.state_dict())
    assert_trained({name: value.numpy() for name, value in again.state_dict().items()})
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = model.missing


def test_state_dicts_of_wrapped_modules(world):
    mesh = init_device_mesh("cpu", (2,))
    model = net()
    model.blocks[0] = FullyShardedDataParallel(model.blocks[0], device_mesh=mesh)
    model = FullyShardedDataParallel(model, device_mesh=mesh)
    assert len(FullyShardedDataParallel.fsdp_modules(model)) == 2
    assert all(x.is_local for x in model.state_dict().values())
    assert list(model.state_dict()) == list(net().state_dict())
    block = FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    with block:
        found = model.state_dict()
        assert found["blocks.0.weight"].placements == (Shard(0),)
        model.load_state_dict(found)
    whole = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):
        assert model.state_dict()["head.weight"].is_local
    local = FullyShardedDataParallel.state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
    with pytest.raises(OnefoldValueError, match="LOCAL_STATE_DICT is not supported"), local:
        pass


def test_wrapped_modules_in_low_precision(world):
    mesh = init_device_mesh("cpu", (2,))
    low = MixedPrecision(param_dtype=flow.bfloat16, reduce_dtype=flow.float32)
    model = FullyShardedDataParallel(nn.Linear(64, 64), device_mesh=mesh, mixed_precision=low)
    y = model(flow.randn(4, 64, placement=mesh.placement, sbp=S0))
    assert y.dtype == flow.bfloat16
    y.float().sum().backward()
    assert model.weight.grad.dtype == flow.float32
    assert float(model.clip_grad_norm_(1.0)) > 1
