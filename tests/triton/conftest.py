"""Triton kernels: in Triton's interpreter, or compiled on a machine with a CUDA device.

The interpreter must be chosen before Triton is imported, so it has a process of its own, which
`make kernels` starts. Elsewhere these tests are those of `pytest -m gpu`: what they make is then on
the device.
"""

import os
from pathlib import Path

import pytest
import torch
import triton_launches
from device_checks import DEVICE

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    os.environ.setdefault("ONEFOLD_KERNELS", "triton")
# The interpreter itself, what is compared with torch on the CPU, and what needs no kernel to run;
# tests/gpu has the samples.
ON_THE_CPU = [
    "test_interpreter.py",
    "test_samples.py",
    "test_coverage.py",
    "test_inline_cache.py",
    "test_races.py",
]

if not INTERPRETED:
    collect_ignore_glob = ON_THE_CPU if DEVICE == "cuda" else ["test_*.py"]


def pytest_configure(config):
    """In the interpreter, a run of all these tests must launch every kernel."""
    if INTERPRETED:
        launches = triton_launches.Launches(Path(__file__).parent, triton_launches.all_kernels())
        launches.record()
        config.pluginmanager.register(launches, "launches")


def pytest_collection_modifyitems(items):
    if not INTERPRETED:
        for item in items:
            if item.path.parent.name == "triton":
                item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def _made_on_the_device(request):
    """The same numbers each time, on the device unless a test is of the interpreter itself."""
    torch.manual_seed(0)
    if request.path.name in ON_THE_CPU:
        yield
        return
    with torch.device(DEVICE):
        torch.empty(0)  # torch notes which functions make tensors, before any is replaced
        yield
