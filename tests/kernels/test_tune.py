"""The tuner, with a timer that is told how fast each configuration is."""

import importlib
import subprocess
import sys

import pytest
import torch

from onefold.errors import OnefoldValueError
from onefold.kernels.gpu.launch import configs, registry
from onefold.kernels.gpu.launch.configs import Tuned
from onefold.kernels.tune.config_search import search

command = importlib.import_module("onefold.kernels.tune.__main__")
BF16 = torch.bfloat16
RULE, WIDE, HUGE, WRONG = ({"BLOCK": n, "warps": 4} for n in (64, 128, 4096, 13))


class Fake:
    """A kernel that adds one, and the timer of its configurations."""

    def __init__(self, seconds, allowed):
        self.seconds = seconds
        shapes = {"small": (8,)}
        self.tuned = Tuned("fake", (BF16,), shapes, lambda *_: allowed, self.call, lambda *_: [])

    def call(self, config, dtype, sizes):
        def run():
            self.now = config["BLOCK"]
            if self.now == 4096:
                raise RuntimeError("out of resource: shared memory\nmore")
            return torch.ones(sizes, dtype=dtype) + (self.now != 13)

        return run

    def timer(self, run):
        run()
        return self.seconds[self.now]


def test_the_fastest_that_runs_is_found():
    fake = Fake({64: 2.0, 128: 1.0}, [RULE, HUGE, WIDE])
    found = search(fake.tuned, BF16, "small", fake.timer)
    assert (found.config, found.seconds, found.rule_seconds) == (WIDE, 1.0, 2.0)
    assert found.tried == [(RULE, 2.0), (HUGE, "out of resource: shared memory"), (WIDE, 1.0)]


@pytest.mark.parametrize("seconds", [1.99, 2.0, 3.0])
def test_the_rule_stays_where_little_is_gained(seconds):
    fake = Fake({64: 2.0, 128: seconds}, [RULE, WIDE])
    assert search(fake.tuned, BF16, "small", fake.timer).config == RULE


def test_a_wrong_kernel_is_not_the_fastest():
    fake = Fake({64: 2.0, 13: 0.1}, [RULE, WRONG])
    with pytest.raises(AssertionError, match="is wrong with"):
        search(fake.tuned, BF16, "small", fake.timer)


def test_table_is_rewritten_and_read(tmp_path, monkeypatch, capsys):
    path = tmp_path / "configs.json"
    other = {"other float32 small sm_90": {"BLOCK": 1}}
    configs.write(path, other)
    fake = Fake({64: 2.0, 128: 1.0}, [RULE, WIDE, HUGE])
    command.tune([fake.tuned], "sm_90", path, fake.timer)
    name = "fake bfloat16 small sm_90"
    assert configs.read(path) == {name: WIDE, **other}
    assert "2.00 x the rule: BLOCK 128, warps 4" in capsys.readouterr().out

    monkeypatch.setattr(configs, "_table", lambda: configs.read(path))
    assert configs.config("fake", BF16, "small", RULE, arch="sm_90") == WIDE
    assert configs.config("fake", BF16, "small", RULE, arch="sm_80") == RULE
    assert configs.config("fake", BF16, "large", RULE, arch="sm_90") == RULE
    with pytest.raises(OnefoldValueError, match=r"kernels\.tune fake"):
        configs.config("fake", BF16, "small", {"warps": 4}, arch="sm_90")

    fake.seconds = {64: 0.5, 128: 1.0}  # the rule became better: its entry goes
    command.tune([fake.tuned], "sm_90", path, fake.timer)
    assert configs.read(path) == other


def test_committed_table_is_of_kernels_that_are_tuned():
    known = registry.all_tuned()
    for entry in configs.read(configs.PATH):
        kernel, name, shape_class, _ = entry.split()
        tuned = known[kernel]
        assert name in {tuned.name(dtype).removeprefix("torch.") for dtype in tuned.dtypes}
        assert shape_class in tuned.shapes


def test_allowed_configurations_are_of_one_form():
    for tuned in registry.all_tuned().values():
        for dtype in tuned.dtypes:
            for sizes in tuned.shapes.values():
                rule, *others = tuned.allowed(dtype, sizes)
                assert len(others) > 1
                assert all(set(config) == set(rule) and config != rule for config in others)


def test_a_file_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "configs.json"
    for text in ("", "[]", '{"a": 1}', '{"a": {"BLOCK": "x"}}'):
        path.write_text(text)
        with pytest.raises(OnefoldValueError, match="no table of configurations"):
            configs.read(path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would tune")
def test_without_a_gpu_the_command_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "onefold.kernels.tune"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "kernels are tuned on a GPU" in done.stderr
    assert "Traceback" not in done.stderr
