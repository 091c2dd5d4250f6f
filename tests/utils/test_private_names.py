"""Private names of torch that programs call, and old paths: each with what torch's own gives."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.nn.attention import SDPBackend, sdpa_kernel
from onefold.optim.optimizer import Optimizer, required

X = [torch.tensor([0.25, 0.5]), torch.tensor([[0.75], [0.1]])]
Y = [torch.tensor([0.5, 0.125]), torch.tensor([[2.0], [0.3]])]
CALLS = {
    "add": [(X, Y), (X, 0.5), (X, [0.5, 2.0]), (X, Y[0][0])],
    "addcdiv": [(X, Y, Y, 0.5), (X, Y, Y, [0.5, 3.0])],
    "addcmul": [(X, Y, Y), (X, Y, Y, 0.5)],
    "clamp_max": [(X, 0.3)],
    "clamp_min": [(X, [0.3, 0.4])],
    "copy_": [(X, Y)],
    "div": [(X, Y), (X, 4.0)],
    "lerp": [(X, Y, 0.25), (X, Y, Y)],
    "max": [(X,)],
    "maximum": [(X, Y)],
    "minimum": [(X, 0.3)],
    "mul": [(X, Y), (X, [0.5, 2.0])],
    "norm": [(X,), (X, 1), (X, float("inf"))],
    "pow": [(X, 2), (X, Y), (0.5, X)],
    "pow_": [(X, 2), (X, Y)],
    "sub": [(X, Y), (X, 1.0)],
}
NAMES = sorted(name[9:] for name in dir(torch) if name.startswith("_foreach_"))


def swapped(value, made):
    if isinstance(value, list):
        return [swapped(each, made) for each in value]
    return made(value) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mm", "powsum")])
def test_functions_of_lists(name):
    for args in CALLS.get(name, CALLS.get(name.rstrip("_"), [(X,)])):
        theirs, ours = swapped(list(args), torch.clone), swapped(list(args), flow.from_torch)
        expected = getattr(torch, f"_foreach_{name}")(*theirs)
        result = getattr(flow, f"_foreach_{name}")(*ours)
        if name.endswith("_"):
            assert all(x is y for x, y in zip(result, ours[0], strict=True))
        torch.testing.assert_close([x.to_torch() for x in result], list(expected))


def test_lists_of_other_lengths():
    with pytest.raises(ValueError, match=r"_foreach_add: lists .* \[1, 2\]"):
        flow._foreach_add([flow.ones(1)], [flow.ones(1)] * 2)
    x = [flow.ones(2)]
    flow._foreach_add_(x, x, alpha=0.5)
    assert x[0].tolist() == [1.5, 1.5]
    assert [each.item() for each in flow._foreach_norm(x, ord=1)] == [3.0]


def test_checks():
    flow._assert(flow.tensor(True), "held")
    flow._assert_async(flow.tensor(1))
    flow._check(True)
    with pytest.raises(AssertionError, match="sizes"):
        flow._assert(flow.tensor(1) == 2, "sizes")
    with pytest.raises(RuntimeError, match="nonzero"):
        flow._assert_async(flow.tensor(0))
    with pytest.raises(RuntimeError, match="because"):
        flow._check(False, lambda: "because")


def test_options_without_a_default():
    class Steps(Optimizer):
        def __init__(self, params, lr=required):
            super().__init__(params, {"lr": lr})

    w = flow.nn.Parameter(flow.ones(2))
    with pytest.raises(ValueError, match="gives no 'lr'"):
        Steps([w])
    assert Steps([{"params": [w], "lr": 0.5}]).param_groups[0]["lr"] == 0.5


def test_the_back_end_of_attention_is_chosen_by_shapes():
    q = flow.from_torch(torch.arange(24.0).reshape(1, 2, 3, 4).sin())
    outside = flow.nn.functional.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        inside = flow.nn.functional.scaled_dot_product_attention(q, q, q)
    assert flow.equal(inside, outside) and SDPBackend is torch.nn.attention.SDPBackend


def test_dtypes_of_autocast():
    with flow.autocast("cpu", dtype=flow.float16), flow.autocast("cuda", dtype=flow.bfloat16):
        assert flow.is_autocast_cpu_enabled()
        assert flow.get_autocast_cpu_dtype() == flow.float16
        assert flow.get_autocast_gpu_dtype() == flow.bfloat16
    assert not flow.is_autocast_cpu_enabled()


def test_settings_of_torchs_compiler_are_torchs():
    assert flow._dynamo.config is torch._dynamo.config
    assert flow.accelerator.is_available() == torch.cuda.is_available()
    assert flow.xpu.is_available() == torch.xpu.is_available()
    assert flow.__config__.show() == torch.__config__.show()


@pytest.mark.parametrize("get", [flow.hub.load_state_dict_from_url, "load_url"])
def test_weights_from_an_address(tmp_path, get, monkeypatch):
    """The file is fetched once, by torch's function, and read as tensors."""
    get = flow.utils.model_zoo.load_url if isinstance(get, str) else get
    source = tmp_path / "made-0.pth"
    torch.save({"w": torch.arange(3.0)}, source)
    address = source.as_uri()
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    loaded = get(address, progress=False)
    assert isinstance(loaded["w"], flow.Tensor) and loaded["w"].tolist() == [0, 1, 2]
    source.unlink()
    assert get(address, map_location="cpu")["w"].tolist() == [0, 1, 2]
    torch.save({"w": torch.ones(1)}, tmp_path / "other.pth")
    there = get("https://nowhere.invalid/a.pth", model_dir=str(tmp_path), file_name="other.pth")
    assert there["w"].tolist() == [1]


class Written:
    """Stands for torch's writer, whose package need not be installed."""

    def __init__(self, log_dir=None):
        self.log_dir, self.rows = log_dir, []

    def add_scalar(self, tag, scalar_value, global_step=None):
        self.rows.append((tag, scalar_value, global_step))

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None):
        self.rows.append((main_tag, tag_scalar_dict, global_step))

    def add_graph(self, model):
        raise AssertionError

    def close(self):
        self.rows.append("closed")


def test_logs_for_tensorboard(monkeypatch):
    stand_in = ModuleType("torch.utils.tensorboard")
    stand_in.SummaryWriter = stand_in.FileWriter = Written
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    monkeypatch.setattr(torch.utils, "tensorboard", stand_in, raising=False)
    monkeypatch.delitem(sys.modules, "onefold.utils.tensorboard", raising=False)
    try:
        w = flow.nn.Parameter(flow.tensor(0.5))
        p = flow.placement("cpu", [0, 1])
        parts = flow.tensor([2.0, 4.0], placement=p, sbp=flow.sbp.split(0)).sum()
        writer = flow.utils.tensorboard.SummaryWriter("runs")
        writer.add_scalar("loss", w, global_step=3)
        writer.add_scalars("all", {"a": parts, "b": np.float32(1)}, 4)
        writer.close()
        (_, loss, step), (_, values, _), closed = writer.rows
        assert torch.equal(loss, torch.tensor(0.5)) and step == 3 and not loss.requires_grad
        assert torch.equal(values["a"], torch.tensor(6.0)) and values["b"] == 1
        assert closed == "closed" and writer.log_dir == "runs"
        with pytest.raises(NotImplementedError, match="leave it out"):
            writer.add_graph(None)
    finally:
        sys.modules.pop("onefold.utils.tensorboard", None)
        vars(flow.utils).pop("tensorboard", None)


def test_settings_of_scripted_code():
    flow._C._log_api_usage_once("a program")
    assert flow._C._get_tracing_state() is None
    flow._C._jit_set_profiling_mode(False)
    flow._C._jit_set_profiling_executor(False)
