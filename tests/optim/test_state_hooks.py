"""Hooks around an optimizer's state, in torch's order."""

import pytest
import torch

import onefold as flow


def events(lib):
    sgd = lib.optim.SGD([lib.nn.Parameter(lib.ones(2))], lr=1.0, momentum=0.9)
    seen = []

    def described(optimizer, state):
        seen.append("given")
        return {**state, "run": 3}

    def changed(optimizer, state):
        seen.append("load")
        state["param_groups"] = [{**state["param_groups"][0], "lr": 0.5}]
        return state

    handles = [
        sgd.register_state_dict_pre_hook(lambda optimizer: seen.append("before")),
        sgd.register_state_dict_pre_hook(lambda optimizer: seen.append("first"), prepend=True),
        sgd.register_state_dict_post_hook(described),
        sgd.register_load_state_dict_pre_hook(changed),
        sgd.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"])),
    ]
    state = sgd.state_dict()
    seen.append(state["run"])
    sgd.load_state_dict(state)
    seen.append(state["param_groups"][0]["lr"])  # hooks get a copy
    for handle in handles:
        handle.remove()
    seen.append("run" in sgd.state_dict())
    return seen


def test_hooks_of_an_optimizers_state():
    found = events(flow)
    assert found == events(torch)
    assert found == ["first", "before", "given", 3, "load", 0.5, 1.0, False]


def test_checkpoints_have_what_hooks_give(world, tmp_path):
    sgd = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
    sgd.register_state_dict_post_hook(lambda optimizer, state: {**state, "run": 3})
    flow.checkpoint.save(tmp_path, {"optimizer": sgd}, step=1)
    assert flow.checkpoint.load(tmp_path)["optimizer"]["run"] == 3


@pytest.mark.parametrize("lib", [flow, torch])
def test_modules_share_memory(lib):
    model = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.BatchNorm1d(2))
    assert model.share_memory() is model
    assert model[0].weight.is_shared() and model[1].running_mean.is_shared()
