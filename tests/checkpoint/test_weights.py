"""Weights of torch, safetensors and Hugging Face's sharded format, into any layout and out."""

import json

import numpy as np
import pytest
import torch
from launched import run_ranks
from safetensors.torch import load_file, save_file

import onefold as flow
from onefold.errors import CheckpointError

B, S = flow.sbp.broadcast, flow.sbp.split
LAYOUTS = {
    "local": None,
    "B": ([0, 1], B),
    "S0": ([0, 1, 2], S(0)),
    "S0,S0": ([[0, 1], [2, 3]], (S(0), S(0))),
}


def net(lib=flow):
    return lib.nn.Sequential(lib.nn.Linear(3, 5), lib.nn.BatchNorm1d(5), lib.nn.Linear(5, 2))


def laid(layout, seed=2):
    flow.manual_seed(seed)
    model = net()
    if LAYOUTS[layout] is not None:
        ranks, sbp = LAYOUTS[layout]
        p = flow.placement("cpu", ranks)
        model.to_global(p, (B,) * p.ndim)
        for module in model:
            for name, x in module.named_parameters():
                getattr(module, name).data = x.data.to_global(sbp=sbp)
    return model


def sharded(state, folder):
    """Hugging Face's sharded format, written by the library."""
    folder.mkdir()
    names = list(state)
    places = {}
    for number, part in enumerate((names[:3], names[3:]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: state[name] for name in part}, folder / file)
        places |= dict.fromkeys(part, file)
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": places})
    (folder / "model.safetensors.index.json").write_text(text)
    return folder


def sources(state, folder):
    save_file(state, folder / "one.safetensors")
    torch.save(state, folder / "one.pth")
    whole = folder / "whole"
    whole.mkdir()
    save_file(state, whole / "model.safetensors")
    return [
        *(state, {name: x.numpy() for name, x in state.items()}, folder / "one.safetensors"),
        *(folder / "one.pth", whole, sharded(state, folder / "shards")),
    ]


def assert_equal(model, state):
    for name, x in model.state_dict().items():
        np.testing.assert_array_equal(x.numpy(), state[name].numpy(), err_msg=name)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_source_into_every_layout(world, tmp_path, layout):
    state = net(torch).state_dict()
    for source in sources(state, tmp_path):
        model = laid(layout)
        metas = [p.meta for p in model.parameters()]
        keys = flow.checkpoint.load_weights(model, source)
        assert repr(keys) == "<All keys matched successfully>"
        assert_equal(model, state)
        assert [p.meta for p in model.parameters()] == metas


def test_renaming(world, tmp_path):
    state = net(torch).state_dict()
    theirs = {f"model.layer{name.replace('.', '_', 1)}": x for name, x in state.items()}
    table = {r"^model\.": "", r"^layer(\d)_": r"\1."}
    model = laid("S0")
    flow.checkpoint.load_weights(model, sharded(theirs, tmp_path / "theirs"), rename=table)
    assert_equal(model, state)
    with pytest.raises(ValueError, match="both become"):
        flow.checkpoint.load_weights(model, theirs, rename={r"_.*": ""})
    with pytest.raises(ValueError, match="is not a regular expression"):
        flow.checkpoint.load_weights(model, theirs, rename={"(": ""})
    back = {r"^(\d)\.": r"model.layer\1_"}
    folder = flow.checkpoint.save_weights(model, tmp_path / "ours", rename=back)
    assert load_file(folder / "model-00001-of-00001.safetensors").keys() == theirs.keys()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_written_is_read_by_the_library(world, tmp_path, layout):
    model = laid(layout)
    folder = flow.checkpoint.save_weights(model, tmp_path / "out", max_shard_size=80)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    found = {}
    for name, file in index["weight_map"].items():
        found[name] = load_file(folder / file)[name]
    assert_equal(model, found)
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in found.values())
    again = laid("S0,S0", seed=8)
    flow.checkpoint.load_weights(again, folder)
    assert_equal(again, found)
    with pytest.raises(CheckpointError, match="already exists"):
        flow.checkpoint.save_weights(model, folder)


def test_what_does_not_fit_changes_nothing(world, tmp_path):
    model = laid("S0")
    before = {name: x.numpy() for name, x in model.state_dict().items()}
    good = net(torch).state_dict()
    nan = good["2.weight"].clone()
    nan[1, 4] = float("nan")
    cases = [
        ({"2.weight": nan}, r"'2.weight' has NaN"),
        ({"2.weight": good["2.weight"].long()}, r"'2.weight' is torch\.int64.* torch\.float32"),
        ({"2.weight": good["2.weight"].double()}, r"is torch\.float64"),
        ({"2.weight": good["2.weight"].T.contiguous()}, r"'2.weight' has shape \(5, 2\)"),
        ({"2.weight": None}, "Missing key"),
        ({"2.weights": good["2.weight"].clone()}, "Unexpected key"),
    ]
    for number, (change, word) in enumerate(cases):
        state = {k: x for k, x in {**good, **change}.items() if x is not None}
        for source in (state, sharded(state, tmp_path / str(number))):
            with pytest.raises(RuntimeError, match=word):
                flow.checkpoint.load_weights(model, source)
            for name, x in model.state_dict().items():
                np.testing.assert_array_equal(x.numpy(), before[name])
    with pytest.raises(CheckpointError, match="'step' is a int"):
        flow.checkpoint.load_weights(model, {**good, "step": 3})
    with pytest.raises(TypeError, match="needs a Module"):
        flow.checkpoint.load_weights({}, good)


def test_what_is_allowed(world):
    good = net(torch).state_dict()
    model = laid("S0")
    narrow = {k: x.bfloat16() if x.is_floating_point() else x for k, x in good.items()}
    flow.checkpoint.load_weights(model, narrow)
    assert_equal(model, {k: x.float() for k, x in narrow.items()})
    wide = {k: x.double() if x.is_floating_point() else x for k, x in good.items()}
    flow.checkpoint.load_weights(model, wide, cast=True)
    assert_equal(model, good)
    part = {k: x for k, x in good.items() if k.startswith("2")} | {"more": torch.ones(1)}
    keys = flow.checkpoint.load_weights(model, part, strict=False)
    assert keys.unexpected_keys == ["more"] and "0.weight" in keys.missing_keys
    part["more"].fill_(float("nan"))  # which nobody reads
    flow.checkpoint.load_weights(model, part, strict=False)
    nan = {**good, "0.bias": torch.full((5,), float("nan"))}
    flow.checkpoint.load_weights(model, nan, allow_nan=True)
    assert np.isnan(model[0].bias.numpy()).all()


def test_tied_weights_need_one_name(world):
    model = flow.nn.Sequential(flow.nn.Embedding(4, 3), flow.nn.Linear(3, 4, bias=False))
    model[1].weight = model[0].weight
    weight = torch.randn(4, 3)
    flow.checkpoint.load_weights(model, {"0.weight": weight})
    assert model[1].weight is model[0].weight
    np.testing.assert_array_equal(model[1].weight.numpy(), weight.numpy())


def test_folders_that_are_damaged(world, tmp_path):
    state = net(torch).state_dict()
    model = net()
    folder = sharded(state, tmp_path / "a")
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="is missing; by model"):
        flow.checkpoint.load_weights(model, folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "../y"}}')
    with pytest.raises(CheckpointError, match="is missing"):
        flow.checkpoint.load_weights(model, folder)
    (folder / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(CheckpointError, match="not an index of weights"):
        flow.checkpoint.load_weights(model, folder)
    with pytest.raises(CheckpointError, match="no files of weights"):
        flow.checkpoint.load_weights(model, tmp_path)
    with pytest.raises(CheckpointError, match="there is no file"):
        flow.checkpoint.load_weights(model, tmp_path / "none")


def test_real_processes(tmp_path):
    state = net(torch).state_dict()
    folder = sharded(state, tmp_path / "in")

    def program():
        p = flow.placement("cpu", [0, 1])
        model = net().to_global(p, B)
        for name, x in model[2].named_parameters():
            getattr(model[2], name).data = x.data.to_global(sbp=S(0))
        flow.checkpoint.load_weights(model, folder)
        assert_equal(model, state)
        flow.checkpoint.save_weights(model, tmp_path / "out")
        (tmp_path / "in" / "model-00002-of-00002.safetensors").unlink(missing_ok=True)
        try:
            flow.checkpoint.load_weights(model, folder)
        except CheckpointError as error:
            return str(error)
        return ""

    for problem in run_ranks(2, program):
        assert "is missing" in problem
    model = net()
    flow.checkpoint.load_weights(model, tmp_path / "out")
    assert_equal(model, state)
