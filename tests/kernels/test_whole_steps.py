"""benchmarks/whole_steps.py with tiny models: the candidates agree, and rows are saved."""

import runpy
import sys
from types import SimpleNamespace

import pytest
import torch
from source_tree import REPO

sys.path.insert(0, str(REPO / "benchmarks"))

import step_models
import steps_in_turns
import whole_steps

TIME_OVER = {"failed": ""}


@pytest.mark.skipif(torch.cuda.is_available(), reason="it is measured there")
@pytest.mark.parametrize("name", whole_steps.MODELS)
def test_the_losses_of_the_candidates_agree(name, monkeypatch):
    monkeypatch.setattr(whole_steps, "STEPS", 1)
    monkeypatch.setattr(whole_steps, "ROUNDS", 1)
    size = whole_steps.MODELS[name][2]
    rows = [
        {"model": name, "batch": 2, "candidate": candidate}
        | whole_steps.measure(name, size, 2, candidate)
        for candidate in ("torch", "eager", "graph", *whole_steps.CAPTURED)
    ]
    assert whole_steps.apart(rows) == []
    assert rows[0]["losses"][0] > rows[0]["losses"][-1]
    rows[2]["losses"] = [loss * 1.1 for loss in rows[2]["losses"]]
    (fault,) = whole_steps.apart(rows)
    assert fault.startswith(f"the losses of graph ({name}, batch 2)")


def made_up(run, monkeypatch, fits=4, calls=None):
    """Candidates that need as many milliseconds as their batch is large, and a full memory."""

    def measured(wanted, limit):
        if calls is not None:
            calls.append(tuple(wanted.values()))
        if wanted["candidate"] == "liger":
            return {"failed": "Liger is not installed"}
        if wanted["batch"] > fits * (1 + (wanted["candidate"] == "graph")):
            return {"failed": "torch.OutOfMemoryError: CUDA out of memory. Tried to"}
        speed = {"graph": 2.0, "compile": 1.6, "captured": 4.0, "captured_in_backward": 5.0}.get(
            wanted["candidate"], 1.0
        )
        ms = wanted["batch"] / speed
        return {"losses": [3.0, 2.0, 1.0], "ms": [ms, ms, ms], "tokens_per_s": 1000 * speed,
                "peak": wanted["batch"] * 2**30}  # fmt: skip

    monkeypatch.setattr(run, "measured", measured)
    return run


def test_the_largest_batch_that_fits_is_found_and_nothing_is_measured_twice(tmp_path, monkeypatch):
    options = whole_steps.parse(["--results", str(tmp_path), "--dry"])
    size = {**whole_steps.MODELS["gpt2"][2], "most": 16}
    models = {**whole_steps.MODELS, "gpt2": (step_models.gpt2, size, size)}
    monkeypatch.setattr(whole_steps, "MODELS", models)
    calls = []
    run = made_up(whole_steps.Run(options), monkeypatch, calls=calls)
    assert run.model("gpt2")
    assert [batch for _, batch, candidate in calls if candidate == "torch"] == [1, 16, 8, 4]
    assert [batch for _, batch, candidate in calls if candidate == "graph"] == [1, 16, 8]
    assert whole_steps.summary(run.rows, "gpt2") == [
        "gpt2: 1.250 x the speed of torch.compile (batch 8, its 4)",
        "gpt2: batch 1 takes 0.500 of eager's time as graph",
        "gpt2: batch 1 takes 0.250 of eager's time as captured",
        "gpt2: batch 1 takes 0.200 of eager's time as captured_in_backward",
    ]
    count = len(calls)
    again = made_up(whole_steps.Run(options), monkeypatch, calls=calls)
    assert again.model("gpt2") and len(calls) == count


def test_a_candidate_without_time_is_left(tmp_path, monkeypatch):
    options = whole_steps.parse(["--results", str(tmp_path), "--minutes", "1"])
    run = whole_steps.Run(options)
    monkeypatch.setattr(run, "measured", lambda wanted, limit: TIME_OVER)
    assert not run.model("gpt2")
    assert run.rows == []
    run = whole_steps.Run(whole_steps.parse(["--results", str(tmp_path), "--minutes", "0"]))
    assert not run.model("llama")


@pytest.mark.skipif(torch.cuda.is_available(), reason="it is measured there")
def test_steps_in_turns(capsys, monkeypatch):
    words = ["--dry", "--rounds", "2", "--steps", "1", "--only", "torch", "graph", "--kernels"]
    assert steps_in_turns.main(words) == 0
    out = capsys.readouterr().out
    assert "gpt2   batch   2 graph" in out
    assert "of the time of torch" in out
    monkeypatch.setattr(whole_steps, "AGREE", -1.0)
    assert steps_in_turns.main(words) == 1
    assert "the losses of graph (gpt2, batch 2) are" in capsys.readouterr().out


def test_each_candidate_has_its_turn_in_every_round():
    calls = []
    steps = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = steps_in_turns.in_turns(steps, rounds=2, count=2)
    assert "".join(calls) == "aaabbbaaabbb"
    assert [len(times[name]) for name in "ab"] == [2, 2]
    assert [len(found) for found in steps_in_turns.in_turns(steps, 5, 1, 0.0).values()] == [1, 1]
    text = steps_in_turns.ratios({"a": [2.0, 4.0, 5.0], "b": [1.0, 2.0, 5.0]})
    assert text == ["b takes 0.500 [0.500-1.000] of the time of a"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would measure")
@pytest.mark.parametrize("script", ["whole_steps", "steps_in_turns"])
def test_without_a_gpu_it_says_so(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", [f"{script}.py"])
    with pytest.raises(SystemExit, match="steps are measured on a GPU"):
        runpy.run_path(str(REPO / "benchmarks" / f"{script}.py"), run_name="__main__")


def test_liger_is_called_by_its_names(monkeypatch):
    """The functions of Liger that are used, with stand-ins that compute the same in torch."""
    F = torch.nn.functional
    plain = step_models.torch_library("cpu")

    def rope(q, k, cos, sin):
        half = cos.shape[-1] // 2
        return plain.rotary(q, k, cos[0, :, :half], sin[0, :, :half])

    liger = SimpleNamespace(
        liger_rms_norm=lambda x, w, eps: F.rms_norm(x, w.shape, w, eps),
        liger_rope=rope,
        liger_swiglu=lambda gate, up: F.silu(gate) * up,
        liger_fused_linear_cross_entropy=lambda x, w, t: (F.cross_entropy(x @ w.t(), t), None),
    )
    monkeypatch.setattr(step_models, "import_module", lambda name: liger)
    size = whole_steps.MODELS["llama"][2]
    losses = []
    for make in (step_models.torch_library, step_models.liger_library):
        model = step_models.llama(make("cpu"), size)
        model.load_state_dict(step_models.weights(model, "cpu"), strict=False)
        losses.append(model(*step_models.batch_of(size, 2)).item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
