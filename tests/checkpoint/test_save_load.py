"""flow.save and flow.load: one file for a pytree of values, compared with torch and safetensors."""

import math
import pickle
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, strategies as st
from launched import run_ranks

import onefold as flow
from onefold.checkpoint.safetensors_format import runs
from onefold.checkpoint.value_tree import Description, restored
from onefold.errors import CheckpointError, OnefoldRuntimeError, OnefoldTypeError


def through_file(value, **options):
    file = BytesIO()
    flow.save(value, file, **options)
    return flow.load(file)


def test_a_nest_of_plain_values_comes_back(world):
    """tests/distributed has the space of plain values."""
    value = [{"a": 1.5, 3: (None, True)}, OrderedDict(x=float("inf"), y=b"z"), flow.sbp.split(1)]
    value += [flow.placement("cpu", [[0, 1]]), flow.float16, [], {"$": 2}, 1j]
    back = through_file(value)
    assert repr(back) == repr(value)


def test_numbers_of_numpy_and_sets(world):
    value = {"a": np.float32(0.1), "b": np.int64(3), "c": {1, 2}, "d": frozenset(["x"])}
    back = through_file(value)
    assert back == value and type(back["a"]) is np.float32


def test_strings_of_numpy(world):
    value = {"a": np.str_("ab"), "b": np.bytes_(b"c"), "c": np.bool_(True), "d": np.complex64(1j)}
    back = through_file(value)
    assert back == value and [*map(type, back.values())] == [*map(type, value.values())]
    found = restored([{"$": "numpy", "value": ["str64", "ab"]}], id)  # as it once was written
    assert found == ["ab"] and type(found[0]) is np.str_


def test_arrays_that_torch_does_not_read(world, tmp_path):
    value = {
        "reversed": np.arange(6).reshape(2, 3)[::-1, ::-1],
        "swapped": np.arange(3, dtype=">i4"),
        "complex": np.array([1j, 2.0]),
        "nothing": np.zeros((0, 2)),
    }
    flow.checkpoint.save(tmp_path, {"x": value}, 1)
    for back in (through_file(value), flow.checkpoint.load(tmp_path, {"x": None})["x"]):
        for name, array in value.items():
            assert back[name].dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(back[name], array)
    for bad in (np.array(["a"]), np.array([object()]), np.longdouble([1]), np.longdouble(1)):
        with pytest.raises(OnefoldTypeError, match=r"cannot save x\.y, "):
            through_file({"x": {"y": bad}})
    with pytest.raises(OnefoldTypeError, match=r"cannot save x, a datetime64"):
        through_file({"x": np.datetime64("2020-01-01")})


def test_options_of_a_program(world, tmp_path):
    """Training scripts save what argparse gave them together with the weights."""
    options = Namespace(lr=0.1, out=tmp_path / "out", seen=range(2, 9, 3), w=flow.arange(2))
    value = {
        "args": options,
        "names": SimpleNamespace(a={"b": (1, 2)}),
        "counts": Counter("hello"),
        "groups": defaultdict(list, {1: [2]}),
        "plain": defaultdict(None, {"x": 1}),
        "last": deque([1, 2, 3], maxlen=3),
    }
    back = through_file(value)
    assert back["args"].w.tolist() == [0, 1]
    options.w = back["args"].w = None
    assert back == value
    assert [type(x) for x in back.values()] == [type(x) for x in value.values()]
    assert back["groups"]["new"] == [] and back["last"].maxlen == 3
    with pytest.raises(OnefoldTypeError, match=r"dict\(\.\.\.\) of it"):
        through_file({"a": defaultdict(lambda: 3)})


def test_options_in_files_of_torch(world, tmp_path):
    torch.save({"model": torch.ones(2), "args": Namespace(lr=0.1)}, tmp_path / "x")
    back = flow.load(tmp_path / "x")
    assert back["args"] == Namespace(lr=0.1) and back["model"].tolist() == [1, 1]


def test_a_tree_of_options_that_nothing_wrote():
    with pytest.raises(CheckpointError, match="damaged"):
        restored({"$": "defaultdict", "value": {"$": "tuple", "items": ["exec", {}]}}, id)


def test_arguments_of_torch(world, tmp_path):
    """Torch's second argument of load is map_location."""
    path = tmp_path / "x"
    flow.save(obj={"x": flow.arange(3)}, f=path, pickle_protocol=4)
    flow.save({"x": flow.arange(3)}, path, _use_new_zipfile_serialization=False)
    for where in ("cpu", flow.device("cpu"), {"cuda:0": "cpu"}, lambda storage, tag: storage):
        assert flow.load(path, where)["x"].tolist() == [0, 1, 2]
    assert flow.load(f=path, map_location="cpu", mmap=True)["x"].tolist() == [0, 1, 2]
    assert flow.load(path, "meta")["x"].device.type == "meta"
    for wrong in (flow.load, lambda: flow.load(path, f=path), lambda: flow.save({})):
        with pytest.raises(TypeError, match="one path or file"):
            wrong()


DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32),
    *(torch.float64, torch.complex32, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 3)])
def test_every_dtype_bit_for_bit(world, tmp_path, dtype, shape):
    data = torch.randint(0, 2, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8)
    value = data.view(dtype).view(shape)
    back = through_file({"x": flow.from_torch(value), "y": value})
    assert back["x"].dtype == back["y"].dtype == dtype
    for found in (back["x"].to_torch(), back["y"]):
        assert found.shape == value.shape
        assert torch.equal(found.contiguous().view(-1).view(torch.uint8), data)


def test_a_tensor_that_occurs_twice_is_one(world):
    x = flow.randn(3, requires_grad=True)
    back = through_file([x, {"again": x}, x.detach() * 1])
    assert back[0] is back[1]["again"] and back[0] is not back[2]
    assert back[0].requires_grad and not back[2].requires_grad


def test_names_that_would_collide(world):
    back = through_file(
        {"a.b": flow.ones(1), "a": {"b": flow.zeros(1)}, "__metadata__": flow.ones(2)}
    )
    assert [back["a.b"].item(), back["a"]["b"].item(), back["__metadata__"].numel()] == [1, 0, 2]


def test_safetensors_reads_what_is_written_and_the_other_way_round(world, tmp_path):
    model = flow.nn.Linear(3, 2)
    path = tmp_path / "model.safetensors"
    flow.save(model.state_dict(), path)
    theirs = safetensors.torch.load_file(path)
    assert flow.load(path)._metadata == model.state_dict()._metadata
    for name, value in model.state_dict().items():
        assert torch.equal(theirs[name], value.to_torch())
    values = {"w": torch.randn(4, 3), "half": torch.randn(2).bfloat16(), "n": torch.tensor(3)}
    safetensors.torch.save_file(values, path)
    back = flow.load(path)
    assert back.keys() == values.keys()
    for name, value in values.items():
        assert torch.equal(back[name].to_torch(), value)


def test_files_of_torch(world, tmp_path):
    state = {"w": torch.randn(3, 2), "step": 3, "t": (1, None), "o": OrderedDict(a=torch.ones(1))}
    path = tmp_path / "model.pth"
    torch.save(state, path)
    back = flow.load(path)
    assert isinstance(back["w"], flow.Tensor) and torch.equal(back["w"].to_torch(), state["w"])
    assert back["step"] == 3 and back["t"] == (1, None) and type(back["o"]) is OrderedDict
    flow.save(back, path, format="torch")
    again = torch.load(path, weights_only=True)
    assert torch.equal(again["w"], state["w"]) and again["t"] == (1, None)
    with pytest.raises(CheckpointError, match="support_pytorch_format"):
        flow.load(path, support_pytorch_format=False)


class Program:
    def __reduce__(self):
        return print, ("this must not run",)


def test_no_pickle_is_executed(world, tmp_path, capsys):
    path = tmp_path / "bad.pth"
    torch.save({"w": Program()}, path)
    with pytest.raises(CheckpointError, match="would execute a program"):
        flow.load(path)
    with pytest.raises(ValueError, match="weights_only=False"):
        flow.load(path, weights_only=False)
    path.write_bytes(pickle.dumps(Program()))
    for weights_only in (True, False):
        with pytest.raises(CheckpointError):
            flow.load(path, weights_only=weights_only)
    assert capsys.readouterr().out == ""


def test_states_of_training_go_on_alike(world, tmp_path):
    def made():
        flow.manual_seed(1)
        model = flow.nn.Sequential(flow.nn.Linear(4, 8), flow.nn.BatchNorm1d(8))
        optimizer = flow.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
        return model, optimizer, flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def train(parts, steps):
        model, optimizer, schedule = parts
        for number in range(steps):
            loss = model(flow.arange(24.0).reshape(6, 4).sin() * (number + 1)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        return [p.numpy() for p in model.parameters()]

    first = made()
    train(first, 3)
    flow.save([part.state_dict() for part in first], tmp_path / "state")
    second = made()
    for part, state in zip(second, flow.load(tmp_path / "state"), strict=True):
        part.load_state_dict(state)
    np.testing.assert_equal(train(second, 2), train(first, 2))


def test_global_tensors_need_a_rank(world):
    p = flow.placement("cpu", [0, 1])
    x = flow.arange(5, placement=p, sbp=flow.sbp.split(0))
    with pytest.raises(OnefoldRuntimeError, match=r"Please set global_dst_rank in flow\.save"):
        flow.save({"x": x}, BytesIO())
    with pytest.raises(OnefoldRuntimeError, match="must be global, but 'y'"):
        flow.save({"x": x, "y": flow.ones(1)}, BytesIO(), global_dst_rank=0)
    with pytest.raises(ValueError, match="global_dst_rank must be a rank"):
        flow.save({"x": x}, BytesIO(), global_dst_rank=2)
    whole = flow.arange(5, placement=p, sbp=flow.sbp.broadcast)
    back = through_file({"x": whole, "y": flow.ones(1)})  # nothing to gather
    assert back["x"].is_local and back["x"].tolist() == [0, 1, 2, 3, 4]
    back = through_file({"x": x}, global_dst_rank=1)
    assert back["x"].is_local and back["x"].tolist() == [0, 1, 2, 3, 4]


def test_loading_as_global(world, tmp_path):
    flow.save({"x": flow.arange(4)}, tmp_path / "x")
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    x = flow.load(tmp_path / "x", 0, p)["x"]
    assert x.placement is p and x.sbp == (flow.sbp.broadcast,) * 2 and x.tolist() == [0, 1, 2, 3]
    assert flow.load(tmp_path / "x", global_src_rank=1)["x"].placement.num_ranks == 4
    with pytest.raises(ValueError, match="needs global_src_rank"):
        flow.load(tmp_path / "x", map_location=p)


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_map_location_as_in_torch(format, tmp_path):
    path = tmp_path / "x"
    flow.save({"x": flow.arange(3)}, path, format=format)
    asked = []

    def location(storage, tag):
        asked.append(tag)
        return storage

    for where in (location, lambda storage, tag: None, {"cuda:0": "cuda:1"}, "cpu", None):
        assert flow.load(path, map_location=where)["x"].tolist() == [0, 1, 2]
    assert asked == ["cpu"]
    assert flow.load(path, map_location={"cpu": "meta"})["x"].device.type == "meta"


def test_files_without_a_program_need_no_trust(tmp_path):
    flow.save({"x": 1}, tmp_path / "x")
    assert flow.load(tmp_path / "x", weights_only=False) == {"x": 1}


def test_one_rank_saves_and_all_load(tmp_path):
    """As programs with DistributedDataParallel do."""

    def program():
        model = flow.nn.parallel.DistributedDataParallel(flow.nn.Linear(3, 2))
        if flow.env.get_rank() == 0:
            flow.save(model.state_dict(), tmp_path / "model")
        flow.comm.barrier()
        before = model.module.weight.tolist()
        with flow.no_grad():
            model.module.weight.zero_()
        state = flow.load(tmp_path / "model")
        model.load_state_dict(state)
        alone = flow.nn.Linear(3, 2)
        alone.load_state_dict(model.module.state_dict())
        return before == model.module.weight.tolist() == alone.weight.tolist()

    assert run_ranks(2, program) == [True, True]


def test_real_processes(tmp_path):
    path = tmp_path / "x"

    def program():
        p = flow.placement("cpu", [0, 1])
        x = flow.arange(5.0, placement=p, sbp=flow.sbp.split(0))
        flow.save({"x": x, "n": 3}, path, global_dst_rank=1)
        back = flow.load(path, global_src_rank=0)
        problem = ""
        try:
            flow.save({"x": x}, path / "below" / "file", global_dst_rank=1)
        except CheckpointError as error:
            problem = str(error)
        try:
            flow.load(tmp_path / "none", global_src_rank=1)
        except CheckpointError as error:
            problem += str(error)
        return back["x"].tolist(), back["n"], back["x"].placement.num_ranks, problem

    values = [0.0, 1.0, 2.0, 3.0, 4.0]
    for found in run_ranks(2, program):
        assert found[:3] == (values, 3, 2)
        assert "cannot write" in found[3] and "there is no file" in found[3]


def test_what_no_file_holds(world):
    model = flow.nn.Linear(2, 2)
    with pytest.raises(OnefoldTypeError, match="Save its state_dict"):
        flow.save(model, BytesIO())
    with pytest.raises(OnefoldTypeError, match=r"cannot save a\.0, a function"):
        flow.save({"a": [test_what_no_file_holds]}, BytesIO())
    with pytest.raises(ValueError, match="format must be one of"):
        flow.save(1, BytesIO(), format="npz")


def test_every_flipped_bit_is_found(world, tmp_path):
    path = tmp_path / "x"
    flow.save({"w": flow.arange(8.0), "lr": 0.1, "betas": (0.9, 0.99)}, path)
    good = path.read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 4
        path.write_bytes(bad)
        with suppress(CheckpointError):
            back = flow.load(path)
            # Only a blank of the padding, or a word of the format's that nothing reads.
            assert back["w"].tolist() == list(range(8))
            assert (back["lr"], back["betas"]) == (0.1, (0.9, 0.99))
    for length in range(0, len(good), 7):
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError):
            flow.load(path)


def test_a_save_that_fails_leaves_the_file(world, tmp_path, monkeypatch):
    path = tmp_path / "x"
    flow.save({"w": flow.ones(2)}, path)
    full = OSError(28, "No space left on device")

    def fails(file):
        raise full

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(CheckpointError, match="No space left on device"):
        flow.save({"w": flow.zeros(2)}, path)
    assert flow.load(path)["w"].tolist() == [1, 1]
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


@given(st.data())
def test_runs_are_the_elements_of_the_box(data):
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    offset = [data.draw(st.integers(0, n)) for n in shape]
    size = [data.draw(st.integers(0, n - o)) for n, o in zip(shape, offset, strict=True)]
    whole = np.arange(math.prod(shape)).reshape(shape)
    wanted = whole[tuple(slice(o, o + s) for o, s in zip(offset, size, strict=True))]
    found = [i for at, n in runs(shape, (tuple(offset), tuple(size))) for i in range(at, at + n)]
    assert found == wanted.ravel().tolist()


def test_a_tree_that_nothing_wrote():
    for tree in ({"$": "what", "value": 1}, {"$": "tuple"}, {"$": "dtype", "value": "nothing"}):
        with pytest.raises(CheckpointError):
            restored(tree, lambda entry: entry)
    assert Description(3).tree == 3


def test_programs_that_look_for_a_file_find_that_it_is_not_there(world, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        flow.load(tmp_path / "none.pt")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        flow.checkpoint.load_weights(flow.nn.Linear(2, 2), tmp_path / "none.safetensors")


def test_a_folder_in_place_of_a_file(world, tmp_path):
    """OneFlow's programs save into folders, which they make first."""
    with pytest.raises(CheckpointError, match=r"is a folder without a file of flow\.save"):
        flow.load(tmp_path)
    for format, value in (("safetensors", 1.0), ("torch", 2.0)):
        flow.save({"w": flow.full((2,), value)}, tmp_path, format=format)
        assert flow.load(tmp_path)["w"].tolist() == [value, value]
        assert [file.name for file in tmp_path.iterdir()] == ["onefold.state"]
    flow.save({"w": flow.ones(2)}, tmp_path / "x", save_as_external_data=True)
    assert flow.load(tmp_path / "x")["w"].tolist() == [1, 1]
