"""benchmarks/kernels.py without a GPU: every candidate runs at a tiny size and gives the same."""

import json
import runpy
import subprocess
import sys
from dataclasses import asdict
from types import FunctionType, SimpleNamespace

import pytest
import torch
from source_tree import REPO

sys.path.insert(0, str(REPO / "benchmarks"))

import kernel_row
import kernel_rows_rest
import roofline
from kernel_row import Target

benchmark = SimpleNamespace(**runpy.run_path(str(REPO / "benchmarks" / "kernels.py")))
HOST_TARGET = benchmark.HOST_TARGET
ROWS = kernel_rows_rest.all_rows()


def tiny_inputs(row):
    torch.manual_seed(0)
    return row.inputs(kernel_row.Maker(torch.float32, "cpu"), *row.tiny)


@pytest.mark.skipif(torch.cuda.is_available(), reason="rows are made for the GPU here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_candidates_agree(row):
    torch._dynamo.reset()
    wanted = row.torch(*tiny_inputs(row))
    for name, call in benchmark.candidates(row, backend="eager"):
        try:
            found = call(*tiny_inputs(row))
        except (LookupError, RuntimeError):
            assert name == "cudnn", name  # which needs a GPU
            continue
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


def test_groups_are_all_families():
    families = [family for group in benchmark.GROUPS.values() for family in group]
    assert sorted(families) == sorted({"host", *(row.family for row in ROWS)})


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
    found = {"ceilings": asdict(limits), "rows": [asdict(slow), asdict(product)]}
    roofline.draw(found, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_targets():
    """Each is a share: 1 where it is just reached, more where the kernel is faster."""
    seconds = {"onefold": 2e-3, "torch": 1e-3}
    for target, wanted in [
        (Target(2.0, "TB/s"), 1.0),
        (Target(100, "TFLOP/s"), 4.0),
        (Target(1.0, "ms"), 0.5),
        (Target(0.5, "torch"), 1.0),
        (Target(1.0, "torch"), 0.5),
    ]:
        assert target.reached(seconds, 4 * 10**9, 8 * 10**11) == pytest.approx(wanted)
    row = next(row for row in ROWS if row.name == "softmax")
    fast = benchmark.result_of(row, {"torch": 1.0, "onefold": 1e-5}, {})
    slow = benchmark.result_of(row, {"torch": 1.0, "onefold": 1.0}, {})
    none = benchmark.result_of(row, {"torch": 1.0}, {"onefold": "no"})
    said = benchmark.summary([fast, slow, none, benchmark.host_result(4e-6)]).splitlines()
    assert said[0] == "2 of 4 targets reached"
    assert said.pop() == "0 of 0 rows within twice torch's error"
    for line, word in zip(said[1:], ["reached", "MISSED", "did not run", "reached"], strict=True):
        assert word in line


def test_every_target_of_an_h200_is_a_row():
    aimed = {(row.family, row.name, row.sizes[0]): str(row.target) for row in ROWS if row.target}
    assert len(aimed) == 18
    assert aimed["matmul", "nt", 1024] == "at least 0.8 of the speed of torch"
    assert aimed["cross_entropy", "cross_entropy forward and backward", 8192] == "at most 1.75 ms"
    assert aimed["attention", "causal", 4] == "at least 500 TFLOP/s"


def test_every_family_of_kernels_has_a_row():
    """By the modules that have Triton kernels; those without kernels of their own are parts of
    others.
    """
    modules = {path.stem.removesuffix("_ref") for path in (REPO / "kernels").glob("*_ref.py")}
    gpu = (REPO / "kernels" / "gpu").rglob("*_kernels.py")
    modules &= {path.stem.removesuffix("_kernels") for path in gpu}
    parts = {"pad_repeat", "indexing", "packed_attention", "slicing", "memory_format"}
    assert modules - parts <= {row.family for row in ROWS}


def test_the_host_is_timed():
    assert 1e-7 < benchmark.host_seconds("cpu", calls=20) < 1.0


def test_report(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark.timing, "RESULTS", tmp_path)
    result = benchmark.Result("a: b", 10**9, 0, {"onefold": 1e-3}, {}, "at least 1 TB/s", 1.0)
    results = [benchmark.host_result(9e-6), result]
    path = benchmark.report(results, benchmark.Ceilings(4e12, 8e14), "made_up")
    found = json.loads(path.read_text())["results"]
    assert {"gpu", "driver", "torch", "triton", "ceilings"} < found.keys()
    assert [row["reached"] for row in found["rows"]] == [HOST_TARGET / 9e-6, 1.0]


def test_rows_are_saved_one_by_one_and_not_measured_again(tmp_path, capsys):
    """With a timer that is told the time: a run that ends early, and one that goes on."""
    rows = [row for row in ROWS if row.family == "softmax"]
    measured = []

    def measure(row, quick, dry):
        measured.append(row.title)
        return benchmark.Result(row.title, 10**9, 0, {"onefold": 1e-3}, {})

    options = benchmark.parse(["--quick", "--dry", "--only", "softmax"], ["softmax"])
    run = FunctionType(
        benchmark.measure_all.__code__, {**benchmark.measure_all.__globals__, "measure": measure}
    )
    path = tmp_path / "rows.jsonl"
    options.minutes = 0.0
    assert not run(rows, options, benchmark.Saved(path, quick=True, fresh=False))
    assert "2 rows are left" in capsys.readouterr().out
    options.minutes = 1.0
    assert run(rows[:1], options, benchmark.Saved(path, quick=True, fresh=False))
    assert run(rows, options, benchmark.Saved(path, quick=True, fresh=False))
    assert measured == [row.title for row in rows]
    assert len(benchmark.Saved(path, quick=True, fresh=False).known) == 2
    assert not benchmark.Saved(path, quick=False, fresh=False).known
    assert not benchmark.Saved(path, quick=True, fresh=True).known


def test_options():
    options = benchmark.parse(["--quick", "--only", "norm"], ["norm", "host"])
    assert (options.quick, options.only) == (True, ["norm"])
    assert benchmark.parse(["--group", "rows"], ["norm"]).only == benchmark.GROUPS["rows"]
    names = [name for name, _ in benchmark.candidates(ROWS[0], quick=True)]
    assert names == ["torch", "onefold"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would measure")
def test_without_a_gpu_it_says_so():
    done = subprocess.run(
        [sys.executable, str(REPO / "benchmarks" / "kernels.py")],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.strip().endswith("measured on a GPU, and torch.cuda.is_available() is False")
