"""A run of all these tests that does not launch some kernel fails, and says which."""

from types import SimpleNamespace

import pytest
import torch
from triton_launches import Launches, all_kernels

from onefold.kernels.gpu.reduce import reduce_kernels


@pytest.fixture
def launches(tmp_path, monkeypatch):
    """What is noted of runs of one test file, of which two kernels are asked."""
    (tmp_path / "test_a.py").touch()
    (tmp_path / "test_b.py").touch()
    kernels = {name: all_kernels()[name] for name in ("reductions._reduce", "scan_kernels._scan")}
    found = Launches(tmp_path, kernels)
    kernel_type = type(kernels["reductions._reduce"])
    monkeypatch.setattr(kernel_type, "launch", kernel_type.launch)  # put back behind the test
    found.record()
    return found


def collect(launches, *files, args=("tests",)):
    items = [SimpleNamespace(path=SimpleNamespace(name=name)) for name in files]
    launches.pytest_collection_finish(
        SimpleNamespace(items=items, config=SimpleNamespace(args=args))
    )


def ended(launches, **more):
    """The exit status of a run whose tests all passed."""
    session = SimpleNamespace(config=SimpleNamespace(**more), exitstatus=pytest.ExitCode.OK)
    launches.pytest_sessionfinish(session, session.exitstatus)
    return session.exitstatus


def test_a_kernel_that_is_not_launched_is_named(launches):
    collect(launches, "test_a.py", "test_b.py")
    x = torch.ones(3, 4)
    reduce_kernels.total(x, 1, False, None)
    reduce_kernels.cumsum(x[:0], 1, False)
    assert launches.left() == ["scan_kernels._scan"]
    assert ended(launches) == pytest.ExitCode.TESTS_FAILED
    reduce_kernels.cumsum(x, 1, False)
    assert launches.left() == []
    assert ended(launches) == pytest.ExitCode.OK


def test_a_run_of_some_tests_passes(launches):
    for files, args in [(["test_a.py"], ["tests"]), (["test_a.py", "test_b.py"], ["x.py::test"])]:
        collect(launches, *files, args=args)
        assert ended(launches) == pytest.ExitCode.OK
    launches.pytest_deselected([])
    collect(launches, "test_a.py", "test_b.py")
    assert ended(launches) == pytest.ExitCode.OK


def test_processes_tell_theirs(launches):
    collect(launches, "test_a.py", "test_b.py")
    reduce_kernels.total(torch.ones(3), 0, False, None)
    output = {}
    assert ended(launches, workeroutput=output) == pytest.ExitCode.OK
    other = Launches.__new__(Launches)
    other.kernels, other.launched, other.whole = launches.kernels, set(), False
    other.pytest_testnodedown(SimpleNamespace(workeroutput=output), None)
    assert other.left() == ["scan_kernels._scan"]
    assert ended(other) == pytest.ExitCode.TESTS_FAILED
