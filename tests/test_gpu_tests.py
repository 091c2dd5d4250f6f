"""tests/gpu_tests.py, on files of tests that fail in every way."""

import os
import subprocess
import sys

import gpu_tests
import pytest
from source_tree import REPO

TESTS = """
import os, signal, time, warnings
import pytest
pytestmark = pytest.mark.gpu

@pytest.mark.parametrize("number", range(9))
def test_passes(number):
    warnings.warn("CUDA says something")

def test_fails():
    assert 1 == 2

def test_kills_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

def test_hangs():
    time.sleep(600)

def test_is_skipped():
    pytest.skip("for a reason")
"""


@pytest.fixture
def found(tmp_path):
    (tmp_path / "test_all_ways.py").write_text(TESTS)

    def run(*words):
        command = [sys.executable, str(REPO / "tests" / "gpu_tests.py"), str(tmp_path)]
        command += ["--results", str(tmp_path / "results"), "--workers", "2", "--limit", "1"]
        command += words
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        rows = gpu_tests.read_rows(tmp_path / "results" / "tests.jsonl")
        outcomes = {row["test"].split("::")[1]: row["outcome"] for row in rows}
        return done, outcomes, rows

    return run


def test_each_test_has_a_row_and_only_what_failed_runs_again(found):
    done, outcomes, rows = found()
    assert done.returncode == 1
    assert len(rows) == 13
    assert {name: word for name, word in outcomes.items() if "[" not in name} == {
        "test_fails": "failed",
        "test_kills_its_process": "crashed",
        "test_hangs": "hung",
        "test_is_skipped": "skipped",
    }
    assert [word for name, word in outcomes.items() if "[" in name] == ["passed"] * 9
    assert "FAILED test_all_ways.py::test_fails: assert 1 == 2" in done.stdout
    assert "not run" not in done.stdout

    done, _, rows = found("--again", "-k", "fails or passes or skipped")
    assert len(rows) == 14
    assert "1/1 tests" in done.stdout


def test_parts_share_the_tests_and_a_deadline_keeps_the_rows(found):
    done, first, _ = found("--part", "1/2", "-k", "passes")
    assert done.returncode == 0, done.stdout
    _, both, rows = found("--part", "2/2", "-k", "passes")
    assert len(first) == 4
    assert len(both) == len(rows) == 9

    done, outcomes, _ = found("--minutes", "0.05", "--limit", "99", "-k", "hangs")
    assert done.returncode == 1
    assert "test_hangs" not in outcomes
    assert "not run" in done.stdout


def test_a_wrong_part_is_named(capsys):
    with pytest.raises(SystemExit):
        gpu_tests.parse(["--part", "5/4"])
    assert "--part 5/4 is no i/n" in capsys.readouterr().err


def test_without_other_packages_the_tests_of_kernels_are_collected(tmp_path):
    blocked = "hypothesis matplotlib tqdm safetensors expecttest scipy"
    (tmp_path / "sitecustomize.py").write_text(BLOCKING.format(names=blocked.split()))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TRITON_INTERPRET": "1",
        "ONEFOLD_KERNELS": "triton",
    }
    command = [sys.executable, "-m", "pytest", "-c", "tests/gpu.ini", "--rootdir", ".", "-q"]
    command += ["--collect-only", "-k", "not norm", *(f"tests/{path}" for path in gpu_tests.ALL)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, cwd=REPO, env=env
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "test_training.py" in done.stdout
    assert "test_radix.py" in done.stdout


BLOCKING = """
import importlib.util
import sys

NAMES = {names}
real = importlib.util.find_spec

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] in NAMES:
            raise ModuleNotFoundError("No module named " + name, name=name)

def find_spec(name, package=None):
    return None if name.split(".")[0] in NAMES else real(name, package)

importlib.util.find_spec = find_spec
sys.meta_path.insert(0, Blocked)
"""
