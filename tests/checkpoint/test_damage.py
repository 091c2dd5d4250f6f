"""Damaged checkpoints: the error names file and tensor, nothing changes, an older one loads."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest
from safetensors.torch import load_file, save_file
from strategy_runs import Run, assert_same

import onefold as flow
from onefold.checkpoint import sharded_writer
from onefold.errors import CheckpointError

NAME = "model-00001-of-00002.safetensors"


@pytest.fixture
def saved(world, tmp_path):
    """A run, and a folder with its checkpoints of steps 1 and 2."""
    run = Run("tp4")
    for step in (1, 2):
        run.step(step)
        flow.checkpoint.save(tmp_path, run.state(), step, max_shard_size=400)
    return run, tmp_path


def tensors_of(folder, file):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return [name for name, place in index["weight_map"].items() if place == file]


def truncated(folder):
    with open(folder / NAME, "r+b") as file:
        file.truncate(os.path.getsize(folder / NAME) - 4)
    return "truncated"


def one_bit(folder):
    data = bytearray((folder / NAME).read_bytes())
    data[-3] ^= 16
    (folder / NAME).write_bytes(data)
    return "checksum"


def missing(folder):
    (folder / NAME).unlink()
    return "missing"


def foreign_index(folder):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    name = tensors_of(folder, NAME)[0]
    index["weight_map"][name] = NAME.replace("1-of", "2-of")
    path.write_text(json.dumps(index))
    return name


def wrong_shape(folder):
    values = load_file(folder / NAME)
    name = tensors_of(folder, NAME)[0]
    values[name] = values[name].reshape(1, -1)
    save_file(values, folder / NAME)
    return "but the manifest says"


def wrong_dtype(folder):
    values = load_file(folder / NAME)
    name = tensors_of(folder, NAME)[0]
    values[name] = values[name].view(flow.int32)
    save_file(values, folder / NAME)
    return "but the manifest says"


def unreadable(folder):
    (folder / NAME).unlink()
    (folder / NAME).mkdir()  # what opens, and cannot be read, also for root
    return "cannot read"


DAMAGES = [truncated, one_bit, missing, foreign_index, wrong_shape, wrong_dtype, unreadable]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_named_and_nothing_changes(saved, damage):
    run, root = saved
    held = tensors_of(root / "step-2", NAME)
    word = damage(root / "step-2")
    other = Run("2x2", seed=7)
    other.step(0)
    before = other.values()
    with pytest.raises(CheckpointError) as caught:
        flow.checkpoint.load(root / "step-2", other.state())
    message = str(caught.value)
    assert word in message and any(repr(name) in message for name in held)
    assert (NAME in message) or (damage is foreign_index and "index.json" in message)
    assert_same(other.values(), before)
    with pytest.raises(CheckpointError):
        flow.checkpoint.verify(root / "step-2")
    flow.checkpoint.load(root / "step-1", other.state())
    assert other.values()["lr"] == run.values()["lr"] * 2
    if damage in (truncated, missing):
        assert flow.checkpoint.latest(root) == str(root / "step-1")


@pytest.mark.parametrize("place", ["write", "sync", "manifest", "rename"])
def test_a_full_disk(saved, monkeypatch, place):
    run, root = saved
    full = OSError(errno.ENOSPC, "No space left on device")

    def fails(*args, **kwargs):
        raise full

    if place == "write":
        monkeypatch.setattr(sharded_writer, "write_box", fails)
    elif place == "manifest":
        monkeypatch.setattr(sharded_writer, "_write_file", fails)
    else:
        monkeypatch.setattr(os, {"sync": "fsync", "rename": "rename"}[place], fails)
    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        flow.checkpoint.save(root, run.state(), 3)
    if place == "write":
        assert "cannot write '0.weight' into" in str(caught.value)
    monkeypatch.undo()
    assert sorted(os.listdir(root)) == ["step-1", "step-2"]
    assert flow.checkpoint.latest(root) == str(root / "step-2")
    flow.checkpoint.save(root, run.state(), 3)


def test_the_manifest_is_last(saved):
    """A killed save leaves no step, and what it leaves is removed by the next one."""
    run, root = saved
    left = root / ".step-3.1234.partial"
    shutil.copytree(root / "step-2", left)
    assert flow.checkpoint.latest(root) == str(root / "step-2")
    (root / "step-2" / "manifest.json").unlink()
    assert flow.checkpoint.latest(root) == str(root / "step-1")
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        flow.checkpoint.load(root / "step-2", run.state())
    flow.checkpoint.save(root, run.state(), 3)
    assert not left.exists()


def test_every_flipped_bit_of_the_manifest_is_found(saved):
    run, root = saved
    path = root / "step-2" / "manifest.json"
    good = path.read_bytes()
    for place in range(0, len(good) - 1, 97):
        bad = bytearray(good)
        bad[place] ^= 2
        path.write_bytes(bad)
        with pytest.raises(CheckpointError):
            flow.checkpoint.load(root / "step-2", run.state())
        assert flow.checkpoint.latest(root) == str(root / "step-1")
    path.write_bytes(good)
    flow.checkpoint.verify(root)


def test_a_killed_save_leaves_no_checkpoint(tmp_path):
    """The process dies inside a save, at several moments: what is complete can be read."""
    program = """
import os, sys
import onefold as flow
root, moment = sys.argv[1], int(sys.argv[2])
count = 0
real = os.pwrite
def dies(*args):
    global count
    count += 1
    if count > 20 + moment:
        os.kill(os.getpid(), 9)
    return real(*args)
os.pwrite = dies
model = flow.nn.Sequential(*[flow.nn.Linear(8, 8) for _ in range(8)])
for step in range(9):
    flow.checkpoint.save(root, {"model": model}, step, max_shard_size=300)
"""
    for moment in (0, 7, 30):
        root = tmp_path / str(moment)
        done = subprocess.run(
            [sys.executable, "-c", program, str(root), str(moment)], timeout=60, check=False
        )
        assert done.returncode == -9
        newest = flow.checkpoint.latest(root)
        if newest is not None:
            flow.checkpoint.verify(newest)
        for folder in root.glob("step-*"):
            flow.checkpoint.verify(folder)


def test_keeping_the_newest(saved):
    run, root = saved
    for step in (3, 10):
        flow.checkpoint.save(root, run.state(), step, keep=2)
    assert sorted(os.listdir(root)) == ["step-10", "step-3"]
    with pytest.raises(ValueError, match="already exists"):
        flow.checkpoint.save(root, run.state(), 10)
    for wrong in ({"step": -1}, {"step": True}, {"step": 11, "keep": 0}):
        with pytest.raises(ValueError, match="must be an integer"):
            flow.checkpoint.save(root, run.state(), **wrong)
    with pytest.raises(ValueError, match="max_shard_size"):
        flow.checkpoint.save(root, run.state(), 11, max_shard_size="big")
    assert sorted(os.listdir(root)) == ["step-10", "step-3"]


def test_what_does_not_fit_changes_nothing(saved):
    _, root = saved
    model = flow.nn.Sequential(flow.nn.Linear(6, 8))
    before = model[0].weight.numpy()
    for state, word in (
        ({"model": model}, r"'0.weight' has shape \(7, 6\), but its target has \(8, 6\)"),
        ({"model": flow.nn.Linear(6, 7)}, "Missing key"),
        ({"mode": model}, "has no 'mode'; it has 'model'"),
        ({"model": {"inner": model}}, "has nothing for model.inner"),
    ):
        with pytest.raises((CheckpointError, RuntimeError), match=word):
            flow.checkpoint.load(root, state)
    assert (model[0].weight.numpy() == before).all()
    half = Run("one")
    half.model.half()
    with pytest.raises(CheckpointError, match=r"is torch\.float32, but .* torch\.float16"):
        flow.checkpoint.load(root, {"model": half.model})
    with pytest.raises(TypeError, match="must be a dict"):
        flow.checkpoint.save(root, [model], 5)
    for key in ("step", "a/b", 3):
        with pytest.raises(ValueError, match="cannot be a key"):
            flow.checkpoint.save(root, {key: model}, 5)


def test_a_part_that_refuses_brings_all_back(saved):
    """The optimizer's groups do not fit: the model, which was loaded before, is as it was."""
    _, root = saved
    run = Run("one", seed=3)
    run.step(0)
    wrong = flow.optim.AdamW([{"params": [p]} for p in run.model.parameters()], lr=0.1)
    before, tensor, rng = run.values(), flow.ones(3), flow.default_generator.get_state()
    state = {**run.state(), "optimizer": wrong}
    with pytest.raises(ValueError, match="other parameter groups"):
        flow.checkpoint.load(root, state)
    assert_same(run.values(), before)
    assert flow.default_generator.get_state() == rng
    assert tensor.tolist() == [1, 1, 1]
