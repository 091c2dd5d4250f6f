"""tests/gpu_first.py with steps that pass, fail, are not possible and do not end."""

import subprocess
import sys
from pathlib import Path

import gpu_first
import pytest
from gpu_first import Step
from source_tree import REPO

from onefold.kernels.tune.saved_rows import read_rows


def python(code):
    return [sys.executable, "-c", code]


FOUR = [
    Step("good", python("import sys; print(sys.argv[1:])"), 1),
    Step("bad", python("raise SystemExit('it is wrong')"), 1),
    Step("sanitizer", ["no such program"], 1, saves=False, needs="no-such-program"),
    Step("endless", python("import time; time.sleep(99)"), 0.02, saves=False),
    Step("last", python("print('the last')"), 1),
]


def test_steps_go_on_where_the_last_command_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_first, "STEPS", FOUR)
    words = ["--results", str(tmp_path)]
    assert gpu_first.main(["--minutes", "0", *words]) == 1
    assert "good: is left" in capsys.readouterr().out
    assert gpu_first.main(words) == 1
    said = capsys.readouterr().out
    assert "'--minutes', '1.00', '--results'" in said
    assert "    it is wrong" in said
    outcomes = {row["step"]: row["outcome"] for row in read_rows(tmp_path / "first.jsonl")}
    assert outcomes == {
        "good": "passed",
        "bad": "failed",
        "sanitizer": "skipped: no no-such-program here",
        "endless": "cut off",
        "last": "passed",
    }
    gpu_first.main(words)
    assert "endless: cut off" in capsys.readouterr().out  # the only one that is left
    gpu_first.main(["--again", "--only", "bad", *words])
    assert [row["step"] for row in read_rows(tmp_path / "first.jsonl")[-2:]] == ["endless", "bad"]


@pytest.mark.parametrize("step", gpu_first.STEPS, ids=lambda step: step.name)
def test_the_commands_have_the_options_that_they_are_given(step, tmp_path):
    options = gpu_first.parse(["--results", str(tmp_path)])
    command = gpu_first.command_of(step, options, 1.0)
    for path in command:
        if path.startswith(str(REPO)):
            assert (REPO / path).exists(), path
    if step.saves and step.command[1:3] != gpu_first.TUNE[1:3]:
        text = (REPO / command[1]).read_text()
        for option in command:
            if option.startswith("--"):
                assert f'"{option}"' in text, option


def test_the_sanitizer_checks_tests_that_exist():
    command = next(step for step in gpu_first.STEPS if step.needs).command
    sources = "".join(Path(path).read_text() for path in command if path.endswith(".py"))
    for name in command[command.index("-k") + 1].split(" or "):
        assert f"def {name}(" in sources


def test_the_tuner_takes_its_options(tmp_path):
    step = next(step for step in gpu_first.STEPS if step.name == "tune-matmul")
    command = gpu_first.command_of(step, gpu_first.parse(["--results", str(tmp_path)]), 1.0)
    done = subprocess.run(
        [*command, "--list"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("matmul half")
