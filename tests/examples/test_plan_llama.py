"""The planning example: a search that prints what it found, for a small model."""

import subprocess
import sys

import pytest
from source_tree import REPO

import onefold as flow
from onefold.auto import load

sys.path.insert(0, str(REPO / "examples"))
import plan_llama

PROGRAM = REPO / "examples" / "plan_llama.py"


def shown(*options):
    command = [sys.executable, "-W", "error", str(PROGRAM), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout


def test_a_small_model_is_planned(tmp_path):
    path, page = tmp_path / "plan.json", tmp_path / "plan.html"
    lines = shown("--code", "--save", str(path), "--report", str(page)).splitlines()
    strategy = load(path)
    assert strategy.size == 8 and strategy.amp == "bfloat16"
    assert lines[0] == f"on DGX H100: {strategy.summary}"
    assert "class Train(nn.Graph):" in lines
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("gated", [True, False])
def test_the_models_train(gated):
    shape = plan_llama.Shape(2, 32, 4, 4, 64, 16, 8, 4, gated)
    model = plan_llama.LanguageModel(shape)
    tokens = flow.randint(0, 16, (2, 8))
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = plan_llama.loss_of(model, tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2]
