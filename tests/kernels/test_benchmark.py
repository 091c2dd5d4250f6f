"""benchmarks/kernels.py without a GPU: every candidate runs at a tiny size and gives the same."""

import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from source_tree import REPO

sys.path.insert(0, str(REPO / "benchmarks"))

import kernel_rows

benchmark = SimpleNamespace(**runpy.run_path(str(REPO / "benchmarks" / "kernels.py")))
ROWS = kernel_rows.all_rows()


def tiny_inputs(row):
    torch.manual_seed(0)
    return row.inputs(kernel_rows.Maker(torch.float32, "cpu"), *row.tiny)


@pytest.mark.skipif(torch.cuda.is_available(), reason="rows are made for the GPU here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_candidates_agree(row):
    torch._dynamo.reset()
    wanted = row.torch(*tiny_inputs(row))
    for name, call in benchmark.candidates(row, backend="eager"):
        found = call(*tiny_inputs(row))
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), name
        if not row.random:
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert row.elements(*row.sizes) > row.elements(*row.tiny) > 0
    assert row.flops(*row.sizes) >= row.flops(*row.tiny) >= 0


def test_titles_are_distinct_and_families_whole():
    assert len({row.title for row in ROWS}) == len(ROWS)
    assert {"matmul", "norm", "softmax", "pointwise", "reduce", "attention"} <= {
        row.family for row in ROWS
    }


def test_text_and_picture(tmp_path):
    limits = benchmark.Ceilings(4e12, 8e14)
    slow = benchmark.Result("a: b", 4 * 10**9, 0, {"torch": 2e-3, "onefold": 1e-3}, {"liger": "no"})
    product = benchmark.Result("c: d", 10**6, 8 * 10**11, {"onefold": 2e-3}, {})
    assert slow.share("onefold", limits) == 1.0
    assert product.share("onefold", limits) == 0.5
    title, torchs, ours, liger = benchmark.text(slow, limits).splitlines()
    assert title == "a: b"
    assert "2.00 TB/s" in torchs
    assert "50.0%" in torchs
    assert "2.00 x torch" in ours
    assert "did not run: no" in liger
    assert "400.0 TFLOP/s" in benchmark.text(product, limits)
    benchmark.draw([slow, product], limits, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would measure")
def test_without_a_gpu_it_says_so():
    done = subprocess.run(
        [sys.executable, str(REPO / "benchmarks" / "kernels.py")],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.strip().endswith("measured on a GPU, and torch.cuda.is_available() is False")
