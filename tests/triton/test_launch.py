"""Launches: which facts of the arguments choose the compiled form, and what it is called with."""

from contextlib import nullcontext

import pytest
import torch
import triton.language as tl

from onefold.kernels.gpu.launch import jit_kernel
from onefold.kernels.gpu.launch.jit_kernel import Kernel

DEVICE = 5


class Compiled:
    """A compiled form that writes down its calls."""

    function, packed_metadata = "function", "metadata"

    def __init__(self):
        self.calls = []

    def run(self, *args):
        self.calls.append(args)


class Compiler:
    """In place of Triton's: every call compiles."""

    def __init__(self):
        self.forms = []

    def __getitem__(self, grid):
        def compile(*args, **options):
            self.forms.append(Compiled())
            return self.forms[-1]

        return compile


@pytest.fixture
def kernel(monkeypatch):
    @Kernel
    def copy(x, y, n, seed: tl.int64, BLOCK: tl.constexpr):
        tl.store(y + n, tl.load(x + n + seed))

    copy.jit = Compiler()
    monkeypatch.setattr(jit_kernel, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    monkeypatch.setattr(torch.Tensor, "get_device", lambda x: DEVICE)
    driver = lambda: DEVICE, lambda device: device + 100
    monkeypatch.setattr(jit_kernel, "driver_functions", lambda: driver)
    return copy


def aligned(*names, shift=0, dtype=torch.float32):
    """Tensors that begin at a multiple of 16 bytes, or so many elements behind one."""
    memory = [torch.empty(64, dtype=dtype) for _ in names]
    found = [x[-x.data_ptr() // x.itemsize % 16 + shift :] for x in memory]
    return found[0] if len(found) == 1 else found


def test_a_form_is_compiled_once(kernel):
    x, y = aligned("x", "y")
    for _ in range(3):
        kernel.launch((2,), (x, y, 32, 7), (64,))
    (form,) = kernel.jit.forms
    call = (2, 1, 1, DEVICE + 100, "function", "metadata", None, None, None)
    assert form.calls == [(*call, x.data_ptr(), y.data_ptr(), 32, 7, 64)] * 2


def test_what_forms_depend_on(kernel):
    x, y = aligned("x", "y")
    base = (x, y, 32, 7), (64,)
    others = [
        ((aligned("x", shift=1), y, 32, 7), (64,)),
        ((aligned("x", dtype=torch.float64), y, 32, 7), (64,)),
        ((x, None, 32, 7), (64,)),
        ((x, y, 1, 7), (64,)),
        ((x, y, 33, 7), (64,)),
        ((x, y, 2**31, 7), (64,)),
        ((x, y, 2**63, 7), (64,)),
        ((x, y, True, 7), (64,)),
        ((x, y, 32, 7), (128,)),
    ]
    kernel.launch((1,), *base)
    for args, constants in others:
        before = len(kernel.jit.forms)
        kernel.launch((1,), args, constants)
        assert len(kernel.jit.forms) == before + 1, (args, constants)
    kernel.launch((1,), *base, warps=8)
    kernel.launch((1,), *base, fused=False)
    assert len(kernel.jit.forms) == len(others) + 3


def test_what_forms_do_not_depend_on(kernel):
    x, y = aligned("x", "y")
    for n, seed in ((32, 7), (-16, 1), (2**31 - 16, 2**40), (0, 16)):
        kernel.launch((1,), (x, y, n, seed), (64,))
    assert len(kernel.jit.forms) == 1


def test_prepared(kernel):
    x, y = aligned("x", "y")
    run = kernel.prepared((3,), (), (64,), 2)
    for seed in range(3):
        run((x, y, 32, seed))
    (form,) = kernel.jit.forms
    assert [call[:3] + call[-5:] for call in form.calls] == [
        (3, 1, 1, x.data_ptr(), y.data_ptr(), 32, seed, 64) for seed in (1, 2)
    ]
    run((aligned("x", shift=1), y, 32, 0))
    assert len(kernel.jit.forms) == 2
    run((x, y, 32, 0))
    assert len(form.calls) == 3


def test_another_device_is_made_the_current_one(kernel, monkeypatch):
    current = [0]

    class Device:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            self.before, current[0] = current[0], self.index

        def __exit__(self, *_):
            current[0] = self.before

    monkeypatch.setattr(torch.cuda, "device", Device)
    driver = lambda: current[0], lambda device: device
    monkeypatch.setattr(jit_kernel, "driver_functions", lambda: driver)
    x, y = aligned("x", "y")
    kernel.launch((1,), (x, y, 32, 7), (64,))
    kernel.launch((1,), (x, y, 32, 7), (64,))
    assert kernel.jit.forms[0].calls[0][3] == DEVICE
    assert current == [0]


def test_no_programs(kernel):
    kernel.launch((0, 3), (*aligned("x", "y"), 32, 7), (64,))
    assert kernel.jit.forms == []
