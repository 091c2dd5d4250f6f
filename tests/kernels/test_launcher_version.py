"""Kernels start with a version of Triton whose launcher is not known, through its own launch."""

import gc
import inspect

import pytest
import torch
import triton
from triton.backends.nvidia.driver import CudaLauncher

import onefold as flow
from onefold.kernels.gpu.launch import jit_kernel
from onefold.kernels.gpu.launch.launcher_version import KNOWN, StartedByTriton, is_known
from onefold.testing.gpu_driver import GpuDriver


def test_which_versions_are_known():
    assert [is_known(text) for text in ("3.6.0", "3.7.1", "3.7.1+cu130")] == [True] * 3
    assert not any(map(is_known, ("3.5.9", "3.8.0", "4", "")))


def test_the_launcher_of_this_version_takes_what_is_passed():
    """If this fails with a new Triton, compare its launcher before its version is added."""
    assert is_known(triton.__version__), f"{triton.__version__} is not one of {KNOWN}"
    given = inspect.signature(CudaLauncher.__call__).parameters
    names = [name for name, each in given.items() if each.kind is not each.VAR_POSITIONAL]
    known = ["self", "gridX", "gridY", "gridZ", "stream", "function"]
    known += ["kernel_metadata", "launch_metadata", "launch_enter_hook", "launch_exit_hook"]
    assert names in (known, known[:6])
    assert next(reversed(given.values())).kind is inspect.Parameter.VAR_POSITIONAL


def train(steps):
    """Steps with launches of every kind: prepared ones, lists of tensors, and replayed ones."""
    x = flow.randn(24, 32)
    model = flow.nn.Sequential(flow.nn.Linear(32, 16), flow.nn.GELU(), flow.nn.LayerNorm(16))
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1)
    for number in range(steps):
        (model(x) * (number + 0.5)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def launches(monkeypatch, known):
    monkeypatch.setattr(jit_kernel, "STARTED_DIRECTLY", known)
    for kernel in every_kernel():
        kernel._compiled.clear()
    with GpuDriver("none") as gpu:
        train(4)
    return gpu


def every_kernel():

    return [x for x in gc.get_objects() if type(x) is jit_kernel.Kernel]


def test_an_unknown_version_launches_the_same(monkeypatch):
    through_triton = []
    run = StartedByTriton._run

    def noted(self, *args):
        through_triton.append(args)
        return run(self, *args)

    monkeypatch.setattr(StartedByTriton, "_run", noted)
    known = launches(monkeypatch, True)
    assert through_triton == []
    unknown = launches(monkeypatch, False)
    assert len(through_triton) > unknown.launches.total() / 3  # others are first launches
    assert unknown.launches == known.launches
    assert unknown.problems == known.problems == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
def test_addresses_become_pointers_of_their_dtype(dtype):
    class Launches:
        def __getitem__(self, grid):
            return lambda *args, **options: seen.append((grid, args, options))

    seen = []
    x = torch.zeros(4, dtype=dtype)
    form = StartedByTriton(Launches(), (x, None, 3), {"num_warps": 8})
    form.run(2, 1, 1, 7, None, None, None, None, None, x.data_ptr(), None, 5)
    ((grid, (pointer, *others), options),) = seen
    assert (grid, others, options) == ((2, 1, 1), [None, 5], {"num_warps": 8})
    assert (pointer.data_ptr(), pointer.dtype) == (x.data_ptr(), dtype)
