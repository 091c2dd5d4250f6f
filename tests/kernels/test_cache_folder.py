"""A folder of compiled forms: made without a GPU, and used where paths and keys are others."""

import os
import subprocess
import sys

import pytest
import triton
import tuned_forms
from source_tree import REPO
from triton import knobs
from triton.runtime import cache as triton_cache

import onefold as flow
from onefold.errors import OnefoldValueError
from onefold.kernels.aot import cache_folder, fill_cache
from onefold.kernels.tune.__main__ import chosen
from onefold.testing import form_cache

PROGRAM = """
import sys
import onefold as flow

x = flow.ones(8, 8)
flow.relu(x), flow.exp(x)
assert sys.argv[1:] == ["--steps", "2"], sys.argv
"""


@pytest.fixture
def forms():
    """Two forms, of elementwise ops."""
    x = flow.ones(8, 8)
    found = form_cache.forms_of(lambda: (flow.relu(x), flow.exp(x)))
    assert [source.name for source, _ in found] == ["pointwise_relu", "pointwise_exp"]
    return found


def compiled(forms, folder, monkeypatch):
    """How many forms are compiled where Triton's cache is this folder."""
    monkeypatch.setattr(knobs.cache, "dir", str(folder))
    new, errors = form_cache.compile_forms(forms, 1)
    assert errors == []
    return new


def test_forms_are_compiled_once_and_installed_for_another_machine(forms, tmp_path, monkeypatch):
    made, carried, there = (tmp_path / name for name in ("made", "carried", "there"))
    assert compiled(forms, made, monkeypatch) == 2
    assert compiled(forms, made, monkeypatch) == 0

    made.rename(carried)
    # Another build of the same Triton: its files have other hashes.
    for module in (triton_cache, cache_folder):
        monkeypatch.setattr(module, "triton_key", lambda: "another build")
    monkeypatch.setattr(knobs.cache, "dir", str(there))
    assert cache_folder.install(carried) == 2
    assert compiled(forms, there, monkeypatch) == 0
    assert compiled(forms, tmp_path / "empty", monkeypatch) == 2


def test_forms_of_another_version_are_refused(forms, tmp_path, monkeypatch):
    with pytest.raises(OnefoldValueError, match="has no compiled forms"):
        cache_folder.install(tmp_path)
    assert compiled(forms[:1], tmp_path, monkeypatch) == 1
    monkeypatch.setattr(triton, "__version__", "3.0.0")
    with pytest.raises(OnefoldValueError, match=r"and this is 3\.0\.0"):
        cache_folder.install(tmp_path)


def test_a_form_that_does_not_compile_is_named(forms, tmp_path, monkeypatch):
    source, options = forms[0]
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    new, errors = form_cache.compile_forms([(source, {**options, "num_warps": 3}), forms[1]], 1)
    assert new == 1
    assert len(errors) == 1
    assert errors[0].startswith("pointwise_relu: ")


@pytest.mark.slow
def test_the_command_runs_programs(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    folder = tmp_path / "forms"
    command = [sys.executable, "-m", "onefold.kernels.aot", "--cache", str(folder)]
    command += ["--programs", f"{program} --steps 2", "--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 forms, 2 compiled, 0 failed" in done.stdout
    assert "MiB in" in done.stdout
    assert not list(folder.rglob("*.ttir")) and not list(folder.rglob("*.source"))
    assert len(list(folder.rglob("*.cubin"))) == 2


def test_the_forms_that_the_tuner_measures():
    """About one for each configuration; some are alike, and some have a second kernel."""
    words = "softmax", "bfloat16", "8192x1024"
    entries = chosen(*([word] for word in words))
    count = sum(len(tuned.allowed(dtype, tuned.shapes[name])) for tuned, dtype, name in entries)
    assert count / 2 < len(form_cache.forms_of(lambda: tuned_forms.main(*words))) < 2 * count


def test_the_programs_of_the_benchmarks_are_there(tmp_path, monkeypatch):
    assert (REPO / fill_cache.STEPS.split()[0]).exists()
    monkeypatch.setattr(fill_cache, "_ROOT", tmp_path)
    with pytest.raises(OnefoldValueError, match="without programs"):
        fill_cache.fill(tmp_path / "forms", [], 1)


@pytest.mark.slow
def test_a_step_of_gpt_2_compiles_nothing_where_its_forms_are_installed(tmp_path):
    """Eager and as a graph, with AdamW, in bfloat16; the second process has another cache."""
    steps = f"{REPO / 'benchmarks' / 'whole_steps.py'} --forms --dry --model gpt2"
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    said = []
    for words in (
        ["onefold.kernels.aot", "--cache", str(tmp_path / "forms"), "--programs", steps],
        ["onefold.kernels.aot", "--install", str(tmp_path / "forms")],
        ["onefold.testing.form_cache", *steps.split()],
    ):
        command = [sys.executable, "-m", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=220, check=False, env=env
        )
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout)
    count = said[0].split(" forms, ")[0].split("\n")[-1]
    assert int(count) > 50
    assert f"{count} forms, {count} compiled, 0 failed" in said[0]
    assert said[1] == f"{count} forms installed\n"
    assert said[2] == f"{count} forms, 0 compiled, 0 failed\n"
