"""Wrapped modules and optimizers of torch.distributed: activations again, states in shards."""

from functools import partial

import numpy as np
import pytest
import torch
from launched import run_ranks
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as torch_wrapper

import onefold as flow
from onefold.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapper
from onefold.distributed.fsdp.wrap import transformer_auto_wrap_policy
from onefold.distributed.optim import ZeroRedundancyOptimizer
from onefold.errors import OnefoldTypeError, OnefoldValueError


def net(lib):
    """A model that counts the calls of its blocks."""
    calls = []

    class Block(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = lib.nn.Linear(4, 8), lib.nn.Linear(8, 4)

        def forward(self, x, *, scale):
            calls.append(len(x))
            return x + self.second(lib.tanh(self.first(x))) * scale

    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = lib.nn.ModuleList([Block(), Block()])
            self.head = lib.nn.Linear(4, 2)

        def forward(self, x):
            for block in self.blocks:
                x = block(x, scale=2.0)
            return self.head(x)

    model = Net().double()
    with lib.no_grad():
        for number, weight in enumerate(model.parameters(), 1):
            places = lib.arange(weight.numel()).double()
            weight.copy_(lib.sin(places * number).reshape(weight.shape))
    return model, Block, calls


@pytest.mark.parametrize("how", ["check_fn", "policy"])
def test_activations_are_computed_again(how):
    found = []
    for lib, tools in (flow, wrapper), (torch, torch_wrapper):
        model, block, calls = net(lib)
        names = [*model.state_dict()]
        make = partial(tools.checkpoint_wrapper, checkpoint_impl=tools.CheckpointImpl.NO_REENTRANT)
        if how == "check_fn":
            chosen = {"check_fn": lambda module, block=block: isinstance(module, block)}
        else:
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={block})
            chosen = {"auto_wrap_policy": policy}
        tools.apply_activation_checkpointing(model, checkpoint_wrapper_fn=make, **chosen)
        assert isinstance(model.blocks[1], tools.CheckpointWrapper)
        assert [*model.state_dict()] == names
        model.load_state_dict(net(lib)[0].state_dict())
        x = lib.arange(12).double().reshape(3, 4) / 12
        model(x).square().sum().backward()
        assert len(calls) == 4  # each block twice
        assert model.blocks[0].first.in_features == 4
        found.append([p.grad.numpy() for p in model.parameters()])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    with pytest.raises(OnefoldTypeError, match="needs an onefold Module"):
        wrapper.offload_wrapper(torch.nn.Linear(2, 2))


def trained(lib, model, optimizer, part=slice(None)):
    for step in range(3):
        x = lib.cos(lib.arange(8 * 64).double().reshape(8, 64) * (step + 1))[part]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def layer(lib):
    model = lib.nn.Linear(64, 64).double()
    with lib.no_grad():
        model.weight.copy_(lib.sin(lib.arange(4096).double()).reshape(64, 64))
        model.bias.zero_()
    return model


def with_zero():
    model = flow.nn.parallel.DistributedDataParallel(layer(flow))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=flow.optim.AdamW, lr=0.01, weight_decay=0.1
    )
    rank = flow.distributed.get_rank()
    trained(flow, model, optimizer, slice(4 * rank, 4 * rank + 4))
    split = optimizer.state_dict()["state"][0]["exp_avg"].sbp
    optimizer.consolidate_state_dict(to=0)
    state = optimizer.state_dict()["state"]
    return (
        model.module.weight.detach().numpy(),
        split[0].short,
        {key: state[0][key].numpy() for key in ("exp_avg", "exp_avg_sq")},
    )


def test_an_optimizer_with_its_state_in_shards():
    model = layer(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    trained(torch, model, optimizer)
    state = optimizer.state_dict()["state"][0]
    for weight, split, entry in run_ranks(2, with_zero):
        assert split == "S0"
        np.testing.assert_allclose(weight, model.weight.detach().numpy(), rtol=1e-9)
        for key, value in entry.items():
            np.testing.assert_allclose(value, state[key].numpy(), rtol=1e-9, atol=1e-15)


def test_errors_of_the_optimizer():
    params = layer(flow).parameters()
    with pytest.raises(OnefoldTypeError, match=r"must be a class of onefold\.optim"):
        ZeroRedundancyOptimizer(params, torch.optim.Adam)
    with pytest.raises(OnefoldValueError, match="overlap_with_ddp is not supported"):
        ZeroRedundancyOptimizer(params, flow.optim.Adam, overlap_with_ddp=True)
