"""benchmarks/kernels.py at tiny sizes: all of it runs, with numbers near those of float64."""

import sys

import pytest
from device_checks import DEVICE
from source_tree import REPO

sys.path.insert(0, str(REPO / "benchmarks"))

import kernel_rows_rest
import step_models
import torch

import kernels

ROWS = kernel_rows_rest.all_rows()
OF_INDICES = ("argmax", "searchsorted")  # they are whole numbers: nothing is rounded


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_every_row_is_measured_and_exact_enough(row):
    result = kernels.measure(row, quick=True, dry=True)
    assert "onefold" not in result.failed, result.failed
    assert result.seconds["onefold"] > 0
    assert "onefold" in kernels.text(result, kernels.ceilings(16))
    if result.errors is not None:
        assert kernels.exact_enough(result), result.errors
    compared = not row.random and row.name not in OF_INDICES and "torch" not in result.failed
    assert (result.errors is not None) == compared


@pytest.mark.skipif(DEVICE == "cuda", reason="there it takes long")
def test_a_wrong_kernel_is_noticed():
    row = next(row for row in ROWS if row.name == "softmax")
    wrong = kernels.replace(row, ours=lambda x: row.torch(x) * 1.1)
    result = kernels.measure(wrong, quick=True, dry=True)
    assert not kernels.exact_enough(result)
    assert "TOO LARGE" in kernels.text(result, kernels.ceilings(16))
    assert "TOO LARGE" in kernels.summary([result])


def test_the_command_runs_dry(capsys):
    kernels.main(["--dry", "--quick", "--only", "host", "norm"])
    said = capsys.readouterr().out
    assert "1 of 1 targets reached" in said or "0 of 1 targets reached" in said
    assert "within twice torch's error" in said
    assert "written" not in said
    assert "[4/4] norm" in said


@pytest.mark.parametrize("model", [step_models.gpt2, step_models.llama])
def test_liger_computes_what_torch_does(model):
    pytest.importorskip("liger_kernel", reason="Liger is not installed")
    size = {"width": 32, "heads": 4, "kv_heads": 2, "layers": 1, "hidden": 48, "vocabulary": 64,
            "length": 16}  # fmt: skip
    found = []
    for make in (step_models.torch_library, step_models.liger_library):
        torch.manual_seed(0)  # of the biases
        net = model(make(DEVICE), size)
        net.load_state_dict(step_models.weights(net, DEVICE), strict=False)
        loss = net(*[part.to(DEVICE) for part in step_models.batch_of(size, 2)])
        loss.backward()
        found.append([loss.detach(), *[parameter.grad for parameter in net.parameters()]])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
