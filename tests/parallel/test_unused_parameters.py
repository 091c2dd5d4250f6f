"""DistributedDataParallel of modules of which each rank uses its own part, against torch's."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.errors import OnefoldRuntimeError
from onefold.nn.parallel import DistributedDataParallel


def model_of(lib):
    class Experts(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = lib.nn.Linear(4, 6)
            self.norm = lib.nn.BatchNorm1d(6)
            self.experts = lib.nn.ModuleList([lib.nn.Linear(6, 3) for _ in range(3)])
            self.dropout = lib.nn.Dropout(0.5)

        def forward(self, x, expert, drops=0):
            y = self.experts[expert](lib.tanh(self.norm(self.first(x))))
            for _ in range(drops):
                y = self.dropout(y)
            return {"y": y, "loss": y.square().mean()}

    model = Experts()
    with lib.no_grad():
        for number, weight in enumerate(model.parameters(), 1):
            value = lib.sin(lib.arange(weight.numel()) * float(number)) * 0.5
            weight.copy_(value.reshape(weight.shape))
    return model


def batch(rank, step):
    """Of any size."""
    draw = np.random.default_rng(10 * step + rank)
    return draw.normal(size=(3 + rank + step % 2, 4)).astype(np.float32)


def values(tensors):
    return [None if x is None else (x.to_local() if x.is_global else x).tolist() for x in tensors]


def trained():
    """Losses, gradients and weights of three steps: ours and torch's."""
    rank = flow.env.get_rank()
    flow.comm.barrier()  # connects, so that torch has its process group
    found = []
    for lib, wrap in (
        (flow, DistributedDataParallel),
        (torch, torch.nn.parallel.DistributedDataParallel),
    ):
        model = wrap(model_of(lib), find_unused_parameters=True)
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(4):
            expert = (rank + step) % 2
            if step == 1:
                with model.no_sync():
                    model(lib.tensor(batch(rank, 9)), expert)["loss"].backward()
            made = model(lib.tensor(batch(rank, step)), expert)
            made["loss"].backward()
            grads = [weight.grad for weight in model.parameters()]
            found.append([made["loss"].item(), made["y"].shape[0]])
            if lib is flow:
                found.append(values(grads))
            else:
                found.append([None if x is None else x.tolist() for x in grads])
            optimizer.step()
            optimizer.zero_grad()
    half = len(found) // 2
    return found[:half], found[half:]


def test_each_rank_uses_its_own_expert():
    for ours, theirs in run_ranks(2, trained):
        for mine, wanted in zip(ours, theirs, strict=True):
            assert len(mine) == len(wanted)
            for x, y in zip(mine, wanted, strict=True):
                assert (x is None) == (y is None)
                if y is not None:
                    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def states():
    """What stays the same on all ranks, though they draw different numbers of times."""
    rank = flow.env.get_rank()
    model = DistributedDataParallel(model_of(flow), find_unused_parameters=True)
    model(flow.tensor(batch(rank, 0)), rank, drops=rank)["loss"].backward()
    drawn = flow.default_generator.get_state()
    flow.check_replicas(model)
    hooked = DistributedDataParallel(model_of(flow), find_unused_parameters=True)
    hooked.register_comm_hook(None, lambda state, bucket: None)
    with pytest.raises(OnefoldRuntimeError, match="find_unused_parameters: a module with a comm"):
        hooked(flow.tensor(batch(rank, 0)), 0)
    whole = flow.tensor(batch(0, 0)).to_global(flow.placement.all("cpu"), flow.sbp.broadcast)
    return drawn, model(whole, 2)["y"].is_global


def test_ranks_keep_one_state():
    first, second = run_ranks(2, states)
    assert first == second and first[1]
