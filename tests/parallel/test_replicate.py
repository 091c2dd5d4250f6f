"""replicate (torch.distributed._composable): against torch on one device with the whole batch."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
import onefold.distributed as dist
from onefold import nn
from onefold.distributed._composable.replicate import replicate
from onefold.distributed.device_mesh import init_device_mesh
from onefold.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
from onefold.errors import OnefoldTypeError, OnefoldValueError

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


def model_of(lib):
    model = lib.nn.Sequential(lib.nn.Linear(4, 6), lib.nn.Tanh(), lib.nn.Linear(6, 2))
    with lib.no_grad():
        for weight in model.parameters():
            weight.copy_(lib.linspace(-0.2, 0.3, weight.numel()).reshape(weight.shape))
    return model


def losses(lib, model, x):
    optimizer = lib.optim.SGD(model.parameters(), lr=0.5)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def train(kind):
    rank, model = dist.get_rank(), model_of(flow)
    if kind == "parts":
        replicate(model[0])
    options = {"device_mesh": init_device_mesh("cpu", (2,)), "bucket_cap_mb": 100}
    if kind == "group":
        options = {"process_group": dist.group.WORLD}
    made = replicate(model, **options)
    assert made is model and isinstance(model, nn.Sequential)
    assert all(weight.placements[0].is_replicate() for weight in model.parameters())
    found = losses(flow, model, flow.tensor(X[4 * rank :][:4]))
    return found, [name for name, _ in model.named_parameters()], model(flow.tensor(X)).tolist()


@pytest.mark.parametrize("kind", ["mesh", "group", "parts"])
def test_as_one_process_with_the_whole_batch(kind):
    theirs = model_of(torch)
    wanted = losses(torch, theirs, torch.tensor(X))
    both = run_ranks(2, train, kind)
    assert both[0][1] == [name for name, _ in theirs.named_parameters()]
    np.testing.assert_allclose(np.mean([each[0] for each in both], 0), wanted, rtol=1e-5)
    with torch.no_grad():
        np.testing.assert_allclose(both[0][2], theirs(torch.tensor(X)).numpy(), rtol=1e-4)


def test_lower_precision(world):
    policy = MixedPrecisionPolicy(param_dtype=flow.bfloat16, reduce_dtype=flow.float32)
    model = replicate(model_of(flow), mesh=init_device_mesh("cpu", (2,)), mp_policy=policy)
    y = model(flow.tensor(X))
    y.float().sum().backward()
    assert y.dtype is flow.bfloat16 and model[0].weight.dtype is flow.float32
    assert model[0].weight.grad.dtype is flow.float32


def test_what_is_refused(world):
    with pytest.raises(OnefoldTypeError, match="replicate needs an onefold Module"):
        replicate(torch.nn.Linear(2, 2))
    with pytest.raises(OnefoldValueError, match="replicate: CPUOffloadPolicy is not supported"):
        replicate(nn.Linear(2, 2), offload_policy=CPUOffloadPolicy())
