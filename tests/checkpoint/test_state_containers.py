"""Checkpoints of a program's own classes: optimizers that hold optimizers, and bytes in memory."""

import copy
import functools
from io import BytesIO

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
import onefold.distributed.checkpoint as dcp
from onefold import nn
from onefold.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from onefold.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from onefold.distributed.fsdp import fully_shard
from onefold.errors import OnefoldValueError, ShapeError
from onefold.optim import Optimizer

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


class Optimizers(Optimizer):
    """One optimizer for each part of a model, as programs for torch write it."""

    def __init__(self, model, parts):
        self.model = model
        self.optimizers = [flow.optim.AdamW(part.parameters(), lr=0.1) for part in parts]
        super().__init__(list(model.parameters()), {"lr": 0.1})

    def step(self):
        for each in self.optimizers:
            each.step()

    def zero_grad(self):
        for each in self.optimizers:
            each.zero_grad()

    def state_dict(self):
        of = functools.partial(get_optimizer_state_dict, self.model, options=FLAT)
        return {k: v for each in map(of, self.optimizers) for k, v in each.items()}

    def load_state_dict(self, state_dict):
        for each in self.optimizers:
            set_optimizer_state_dict(self.model, each, state_dict, options=FLAT)


class Rates:
    def __init__(self, optimizers):
        self.schedulers = [
            flow.optim.lr_scheduler.LambdaLR(each, lambda step: 1.0 / (step + 1))
            for each in optimizers.optimizers
        ]

    def step(self):
        for each in self.schedulers:
            each.step()

    def state_dict(self):
        return self.schedulers[0].state_dict()

    def load_state_dict(self, state_dict):
        for each in self.schedulers:
            each.load_state_dict(copy.deepcopy(state_dict))


class Losses:
    def __init__(self):
        self.values = []

    def state_dict(self):
        data = BytesIO()
        flow.save(self.values, data)
        return {"count": flow.tensor(len(self.values)), "values": data}

    def load_state_dict(self, state_dict):
        state_dict["values"].seek(0)
        self.values = flow.load(state_dict["values"])
        assert len(self.values) == state_dict["count"].item()


class Weights:
    def __init__(self, model):
        self.model = model

    def state_dict(self):
        return get_model_state_dict(self.model)

    def load_state_dict(self, state_dict):
        set_model_state_dict(self.model, state_dict, options=StateDictOptions(strict=False))


def state_of(start):
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    with flow.no_grad():
        for weight in model.parameters():
            weight.copy_(flow.linspace(start, 0.1, weight.numel()).reshape(weight.shape))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizers = Optimizers(model, [model[0], model[2]])
    return {
        "model": Weights(model),
        "optimizer": optimizers,
        "rates": Rates(optimizers),
        "losses": Losses(),
    }


def train(state, steps):
    rank = flow.distributed.get_rank()
    model, optimizers = state["model"].model, state["optimizer"]
    for step in steps:
        x = flow.cos(flow.arange(4.0 * 64).reshape(4, 64) + step + rank)
        loss = model(x).square().mean()
        loss.backward()
        optimizers.step()
        optimizers.zero_grad()
        state["rates"].step()
        mean = loss.detach()
        flow.comm.all_reduce(mean, "mean")
        state["losses"].values.append(mean.item())
    return state["losses"].values


def interrupted(folder):
    state = state_of(-0.1)
    train(state, range(2))
    dcp.save(state, checkpoint_id=folder)
    again = state_of(0.05)
    dcp.load(again, checkpoint_id=folder)
    rates = [each.param_groups[0]["lr"] for each in again["optimizer"].optimizers]
    return train(state, range(2, 4)), train(again, range(2, 4)), rates


def test_training_goes_on_with_optimizers_in_an_optimizer(tmp_path):
    for plain, again, rates in run_ranks(2, interrupted, str(tmp_path / "last")):
        assert again == plain and len(again) == 4 and len(set(again)) == 4
        assert rates == pytest.approx([0.1 / 3] * 2)


def test_a_checkpoint_that_does_not_fit_says_which_tensor(tmp_path):
    dcp.save({"a": flow.ones(2), "part": {"b": flow.ones(8, 2)}}, checkpoint_id=tmp_path / "last")
    state = {"a": flow.zeros(2), "part": {"b": flow.zeros(4, 2)}}
    with pytest.raises(ShapeError, match=r"^part\.b: size mismatch: the tensor has \(4, 2\)"):
        dcp.load(state, checkpoint_id=tmp_path / "last")
    assert state["a"].tolist() == [0, 0]


def test_a_file_of_torch_becomes_a_folder(tmp_path):
    values = torch.arange(6.0).reshape(2, 3)
    torch.save({"model": {"w": values}, "epoch": 3}, tmp_path / "file.pt")
    torch_save_to_dcp(tmp_path / "file.pt", tmp_path / "folder")
    state = {"model": {"w": flow.zeros(2, 3)}, "epoch": 0}
    dcp.load(state, checkpoint_id=tmp_path / "folder")
    np.testing.assert_array_equal(state["model"]["w"].numpy(), values.numpy())
    assert state["epoch"] == 3


def by_one_rank(folder):
    """What programs of torch do on rank 0 alone, to hold the values once."""
    rank = flow.distributed.get_rank()
    layer = fully_shard(nn.Linear(64, 64))
    dcp.save({"model": layer.state_dict(), "epoch": 3}, checkpoint_id=f"{folder}/all")
    found = None
    if rank == 1:
        dcp_to_torch_save(f"{folder}/all", f"{folder}/file.pt")
        torch_save_to_dcp(f"{folder}/file.pt", f"{folder}/again")
        state = {"model": {"bias": flow.zeros(64)}, "epoch": 0}
        dcp.load(state, checkpoint_id=f"{folder}/again", no_dist=True)
        dcp.save({"x": state["model"]["bias"]}, checkpoint_id=f"{folder}/own", no_dist=True)
        with pytest.raises(OnefoldValueError, match=r"save: model\.weight is a global tensor"):
            dcp.save({"model": layer.state_dict()}, checkpoint_id=f"{folder}/no", no_dist=True)
        found = torch.load(f"{folder}/file.pt")["model"]["bias"].tolist(), state["epoch"]
        assert state["model"]["bias"].tolist() == found[0]
    flow.comm.barrier()
    state = {"x": flow.zeros(64)}
    dcp.load({"model": layer.state_dict()}, checkpoint_id=f"{folder}/again")
    dcp.load(state, checkpoint_id=f"{folder}/own")
    return found, layer.bias.full_tensor().tolist(), state["x"].tolist()


def test_one_rank_converts_alone(tmp_path):
    (_, *first), (found, *second) = run_ranks(2, by_one_rank, str(tmp_path))
    assert first == second == [found[0]] * 2 and found[1] == 3
