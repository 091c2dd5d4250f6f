"""torch.distributed.checkpoint's functions: states of models and optimizers, and their folders."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
import onefold.distributed.checkpoint as dcp
from onefold import nn
from onefold.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from onefold.distributed.device_mesh import init_device_mesh
from onefold.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
    fully_shard,
)
from onefold.distributed.tensor import Shard
from onefold.errors import CheckpointError, OnefoldTypeError, OnefoldValueError, RankMismatch


def net(lib, wrap=lambda model: model):
    model = lib.nn.Sequential(lib.nn.Linear(32, 64), lib.nn.GELU(), lib.nn.Linear(64, 32)).double()
    with lib.no_grad():
        for number, weight in enumerate(model.parameters(), 1):
            value = lib.sin(lib.arange(weight.numel()).double() * number)
            weight.copy_(value.reshape(weight.shape) * 0.1)
    return wrap(model)


def adamw(lib, model):
    return lib.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def train(lib, model, optimizer, steps, part=slice(None)):
    for step in steps:
        x = lib.cos(lib.arange(8 * 32).double().reshape(8, 32) * (step + 1))[part]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def sharded(model):
    for layer in model[0], model[2]:
        fully_shard(layer)
    return fully_shard(model)


def own_part():
    rank, ranks = flow.distributed.get_rank(), flow.distributed.get_world_size()
    return slice(8 // ranks * rank, 8 // ranks * (rank + 1))


def whole_tensor(x):
    return x.full_tensor() if x.is_global else x


def whole(x):
    return whole_tensor(x).numpy()


@pytest.fixture(scope="module")
def wanted():
    """What torch has after 4 steps on whole batches."""
    model = net(torch)
    train(torch, model, adamw(torch, model), range(4))
    return {name: x.numpy() for name, x in model.state_dict().items()}


def assert_trained(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-11, err_msg=name)


class AppState(dcp.Stateful):
    """The class of torch's tutorial."""

    def __init__(self, model, optimizer=None):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model_state_dict, optimizer_state_dict = get_state_dict(self.model, self.optimizer)
        return {"model": model_state_dict, "optim": optimizer_state_dict}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )


def save_trained(folder, how):
    model = net(flow, sharded)
    optimizer = adamw(flow, model)
    train(flow, model, optimizer, range(2), own_part())
    if how == "object":
        state = {"app": AppState(model, optimizer), "epoch": 2}
    else:
        options = StateDictOptions(flatten_optimizer_state_dict=how == "flat")
        model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
        state = {"model": model_state, "optim": optimizer_state, "epoch": 2}
    if how == "flat":
        saving = dcp.async_save(state, checkpoint_id=folder)
        train(flow, model, optimizer, range(2, 3), own_part())  # what is written stays as it was
        saving.result()
    else:
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))


def load_and_train(folder, how):
    """The state after two more steps, in this world's layout."""
    model = net(flow, sharded)
    optimizer = adamw(flow, model)
    if how == "object":
        state = {"app": AppState(model, optimizer), "epoch": 0}
        dcp.load(state, checkpoint_id=folder)
    else:
        options = StateDictOptions(flatten_optimizer_state_dict=how == "flat")
        model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
        assert optimizer.state_dict()["state"] == {}  # as it was
        state = {"model": model_state, "optim": optimizer_state, "epoch": 0}
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
        set_model_state_dict(model, state["model"])
        set_optimizer_state_dict(model, optimizer, state["optim"])
    train(flow, model, optimizer, range(2, 4), own_part())
    layouts = optimizer.state[model[0].weight]["exp_avg"].placements
    return {name: whole(x) for name, x in model.state_dict().items()}, state["epoch"], layouts


@pytest.mark.parametrize("how", ["object", "dicts", "flat"])
def test_saved_by_four_ranks_and_loaded_by_two(tmp_path, wanted, how):
    folder = str(tmp_path / "steps" / "2")
    run_ranks(4, save_trained, folder, how)
    for state, epoch, layouts in run_ranks(2, load_and_train, folder, how):
        assert_trained(state, wanted)
        assert epoch == 2 and layouts == (Shard(0),)


def whole_states(folder):
    """Whole states on rank 0, and loading what only rank 0 has."""
    model = net(flow, sharded)
    optimizer = adamw(flow, model)
    train(flow, model, optimizer, range(2), own_part())
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    if flow.distributed.get_rank() == 0:
        flow.save({"model": model_state, "optim": optimizer_state}, folder, format="torch")
        torch.load(folder)
    new = net(flow, sharded)
    with flow.no_grad():
        for weight in new.parameters():
            weight.zero_()
    other = adamw(flow, new)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_state_dict(
        new, other, model_state_dict=model_state, optim_state_dict=optimizer_state, options=options
    )
    train(flow, new, other, range(2, 4), own_part())
    found = {name: whole(x) for name, x in new.state_dict().items()}
    return found, len(model_state), len(optimizer_state)


def test_whole_states_of_rank_0(tmp_path, wanted):
    file = str(tmp_path / "whole.pt")
    found = run_ranks(2, whole_states, file)
    for state, *_ in found:
        assert_trained(state, wanted)
    assert [sizes for _, *sizes in found] == [[4, 2], [0, 0]]
    model = net(torch)
    read = torch.load(file)
    model.load_state_dict(read["model"])
    optimizer = adamw(torch, model)
    names = [name for name, _ in model.named_parameters()]
    state = {number: read["optim"]["state"][name] for number, name in enumerate(names)}
    for entry in state.values():
        entry["step"] = torch.tensor(float(entry["step"]))
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    train(torch, model, optimizer, range(2, 4))
    assert_trained({name: x.numpy() for name, x in model.state_dict().items()}, wanted)


def with_wrappers(kind):
    model = FullyShardedDataParallel(net(flow))
    optimizer = adamw(flow, model)
    train(flow, model, optimizer, range(2), own_part())
    full = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    rank0 = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=kind == "rank 0")
    chosen = (
        StateDictType.SHARDED_STATE_DICT if kind == "sharded" else StateDictType.FULL_STATE_DICT
    )
    new = FullyShardedDataParallel(net(flow))
    other = adamw(flow, new)
    if kind == "older":
        state = FullyShardedDataParallel.full_optim_state_dict(model, optimizer)
        other.load_state_dict(
            FullyShardedDataParallel.scatter_full_optim_state_dict(state, new, optim=other)
        )
        state = FullyShardedDataParallel.full_optim_state_dict(model, optimizer, rank0_only=False)
        other.load_state_dict(
            FullyShardedDataParallel.shard_full_optim_state_dict(state, new, optim=other)
        )
    else:
        with FullyShardedDataParallel.state_dict_type(model, chosen, full, rank0):
            assert FullyShardedDataParallel.get_state_dict_type(model).state_dict_type is chosen
            state = FullyShardedDataParallel.optim_state_dict(model, optimizer)
            other.load_state_dict(
                FullyShardedDataParallel.optim_state_dict_to_load(new, other, state)
            )
    new.load_state_dict(model.state_dict())
    train(flow, new, other, range(2, 4), own_part())
    known = sorted(state["state"]) if state else []
    return {name: whole(x) for name, x in new.state_dict().items()}, known


@pytest.mark.parametrize("kind", ["full", "rank 0", "sharded", "older"])
def test_states_of_wrapped_modules(wanted, kind):
    found = run_ranks(2, with_wrappers, kind)
    for state, _ in found:
        assert_trained(state, wanted)
    assert found[0][1] == sorted(wanted)
    assert found[1][1] == ([] if kind == "rank 0" else sorted(wanted))


def test_a_module_is_saved_as_it_is(world, tmp_path):
    mesh = init_device_mesh("cpu", (2,))
    model = fully_shard(net(flow), mesh=mesh)
    optimizer = adamw(flow, model)
    states = {"model": model, "optimizer": optimizer, "names": ["a"], "scale": flow.ones(3)}
    for _ in range(2):  # the second replaces the first
        dcp.save(states, checkpoint_id=tmp_path / "last")
    other = net(flow)
    with flow.no_grad():
        other[0].weight.zero_()
    scale = flow.zeros(3)
    new = {"model": other, "names": [], "scale": scale}
    dcp.load(new, checkpoint_id=tmp_path / "last")
    np.testing.assert_array_equal(
        other[0].weight.detach().numpy(), model[0].weight.detach().numpy()
    )
    assert new["names"] == ["a"] and new["scale"] is scale and scale.tolist() == [1.0] * 3
    dcp.dcp_to_torch_save(tmp_path / "last", tmp_path / "file.pt")
    read = torch.load(tmp_path / "file.pt")
    assert read["names"] == ["a"] and read["model"]["0.weight"].shape == (64, 32)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.pt", "last"]


def test_a_models_own_state_dict(world, tmp_path):
    saved = net(flow)
    dcp.save(saved.state_dict(), checkpoint_id=tmp_path / "weights")
    new = net(flow)
    with flow.no_grad():
        new[0].weight.zero_()
    state = new.state_dict()
    del state["2.bias"]
    dcp.load(state, checkpoint_id=tmp_path / "weights")
    assert flow.equal(new[0].weight, saved[0].weight)
    state["3.weight"] = flow.ones(2)
    with pytest.raises(CheckpointError, match=r"nothing for values\.3\.weight"):
        dcp.load(state, checkpoint_id=tmp_path / "weights")
    partly = dcp.DefaultLoadPlanner(allow_partial_load=True)
    dcp.load({**state, "more": {"a": 1}}, checkpoint_id=tmp_path / "weights", planner=partly)
    with pytest.raises(CheckpointError, match=r"Missing key in checkpoint.*: values\.lr"):
        dcp.load({"0.weight": state["0.weight"], "lr": 0.1}, checkpoint_id=tmp_path / "weights")


def test_states_of_wrapped_and_frozen_parameters(world):
    model = nn.parallel.DistributedDataParallel(net(flow))
    model.module[0].weight.requires_grad_(False)
    options = StateDictOptions(ignore_frozen_params=True)
    assert [*get_model_state_dict(model)] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [*get_model_state_dict(model, options=options)] == ["0.bias", "2.weight", "2.bias"]
    optimizer = flow.optim.SGD(
        [{"params": [model.module[2].weight], "lr": 0.5}, {"params": [model.module[2].bias]}],
        lr=0.1, momentum=0.9,
    )  # fmt: skip
    state = get_optimizer_state_dict(model, optimizer)
    assert [group["params"] for group in state["param_groups"]] == [["2.weight"], ["2.bias"]]
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    state = get_optimizer_state_dict(model, optimizer, options=flat)
    state["param_groups.2.weight.lr"] = 0.25
    set_optimizer_state_dict(model, optimizer, state)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.1]


def test_errors(world, tmp_path):
    model = net(flow)
    with pytest.raises(OnefoldTypeError, match="must be an onefold Module, but is Sequ"):
        get_model_state_dict(net(torch))
    with pytest.raises(OnefoldValueError, match="with the submodule as the model"):
        get_model_state_dict(model, submodules={model[0]})
    with pytest.raises(OnefoldValueError, match="full_state_dict must be True"):
        set_model_state_dict(model, {}, options=StateDictOptions(broadcast_from_rank0=True))
    with pytest.raises(OnefoldTypeError, match="must be onefold optimizers"):
        get_optimizer_state_dict(model, [torch.optim.SGD(net(torch).parameters())])
    with pytest.raises(OnefoldValueError, match="none of the model's"):
        get_optimizer_state_dict(model, adamw(flow, net(flow)))
    optimizer = adamw(flow, model)
    with pytest.raises(OnefoldValueError, match=r"no group of the state has '0\.weight'"):
        set_optimizer_state_dict(model, optimizer, {"state": {}, "param_groups": []})
    with pytest.raises(OnefoldTypeError, match="takes a dict from names"):
        dcp.save([1], checkpoint_id=tmp_path / "a")
    with pytest.raises(OnefoldValueError, match="pass checkpoint_id="):
        dcp.save({"model": model})
    with pytest.raises(OnefoldTypeError, match="FileSystemReader of onefold, but got str"):
        dcp.load({"model": model}, storage_reader="folder")
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(OnefoldValueError, match="holds other files"):
        dcp.save({"model": model}, checkpoint_id=tmp_path)
    (tmp_path / ".metadata").write_text("")
    with pytest.raises(CheckpointError, match="was written by torch; convert it"):
        dcp.load({"model": model}, checkpoint_id=tmp_path)


def stage_of(rank, seed=0):
    """A stage of a pipeline, whose names no other rank has."""
    flow.manual_seed(seed + rank)
    model = nn.Sequential()
    model.add_module(f"layer{rank}", nn.Linear(4, 4))
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)
    model(flow.ones(2, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def save_stages(folder):
    model, optimizer = stage_of(flow.env.get_rank())
    state, of_optimizer = get_state_dict(model, optimizer, options=FLAT)
    shared = {"weight": flow.arange(3), "epoch": 4}
    dcp.save({"model": state, "optimizer": of_optimizer, "shared": shared}, checkpoint_id=folder)
    halves = nn.Linear(64, 64)
    if flow.env.get_rank() < 2:  # a stage on two ranks, and one on the others
        fully_shard(halves, mesh=flow.distributed.DeviceMesh("cpu", [0, 1]))
        dcp.save({"model": halves.state_dict()}, checkpoint_id=f"{folder}-halves")
        return halves.weight.placements
    dcp.save({"model": {"other": flow.ones(2)}}, checkpoint_id=f"{folder}-halves")
    return None


def load_stages(folder):
    rank = flow.env.get_rank()
    (model, optimizer), (trained, _) = stage_of(rank, seed=9), stage_of(rank)
    state, of_optimizer = get_state_dict(model, optimizer, options=FLAT)
    epoch = {"model": state, "optimizer": of_optimizer, "shared": {"epoch": 0}}
    dcp.load(epoch, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=state, optim_state_dict=of_optimizer, options=FLAT
    )
    name = f"layer{rank}.weight"
    return epoch["shared"]["epoch"], flow.equal(state[name], trained.state_dict()[name])


def test_states_of_stages(tmp_path, world):
    """Each rank has tensors of its own; any number of ranks reads them."""
    folder = str(tmp_path / "stages")
    found = run_ranks(3, save_stages, folder)
    assert found[0] == found[1] == (Shard(0),)
    assert run_ranks(3, load_stages, folder) == [(4, True)] * 3
    models = [stage_of(rank)[0].state_dict() for rank in range(3)]
    names = {name: value for model in models for name, value in model.items()}
    state = {name: flow.zeros_like(value) for name, value in names.items()}
    dcp.load({"model": state}, checkpoint_id=folder)
    assert all(flow.equal(state[name], value) for name, value in names.items())
    halves = {"weight": flow.zeros(64, 64), "bias": flow.zeros(64), "other": flow.zeros(2)}
    dcp.load({"model": halves}, checkpoint_id=f"{folder}-halves")
    assert halves["weight"].abs().sum() > 0 and halves["other"].sum() == 2


@pytest.mark.parametrize("turned", [False, True])
def test_an_empty_dict_of_one_rank_hides_nothing_of_the_others(tmp_path, world, turned):
    def program():
        full = {"state": {"a": flow.arange(3), "lr": 0.1}, "best": float("nan")}
        empty = {"state": {}, "best": float("nan"), "own": flow.ones(2)}
        dcp.save({"optim": empty if flow.env.get_rank() != turned else full}, checkpoint_id=folder)

    folder = str(tmp_path / "joined")
    run_ranks(2, program)
    state = {"state": {"a": flow.zeros(3).long(), "lr": 0.0}, "best": 0.0, "own": flow.zeros(2)}
    dcp.load({"optim": state}, checkpoint_id=folder)
    assert state["state"]["a"].tolist() == [0, 1, 2] and state["state"]["lr"] == 0.1
    assert state["best"] != state["best"] and state["own"].tolist() == [1.0, 1.0]


def test_a_value_in_the_place_of_a_dict(tmp_path):
    def program():
        rank = flow.env.get_rank()
        state = {"x": {"y": flow.ones(2)} if rank else 3.0, f"own{rank}": flow.ones(1)}
        with pytest.raises(RankMismatch, match=r"rank 0 has a value at 'm\.x', 3\.0, but other"):
            dcp.save({"m": state}, checkpoint_id=str(tmp_path / "no"))

    run_ranks(2, program)


def test_states_that_cannot_be_joined(tmp_path):
    def program():
        model, optimizer = stage_of(flow.env.get_rank())
        state, of_optimizer = get_state_dict(model, optimizer)
        rows = 2 + flow.env.get_rank()
        for each in ({"model": state, "optimizer": of_optimizer}, {"x": flow.ones(rows)}):
            with pytest.raises(RankMismatch, match="ranks 0 and 1 have different") as caught:
                dcp.save(each, checkpoint_id=str(tmp_path / "no"))
            found.append(str(caught.value))
        return found

    found = []
    groups, sizes = run_ranks(2, program)[0]
    assert "'optimizer.param_groups'" in groups
    assert "StateDictOptions(flatten_optimizer_state_dict=True)" in groups
    assert "'values.x'" in sizes
