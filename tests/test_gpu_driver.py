"""The driver without a GPU: programs run on it, and everything that it checks can fail."""

import resource
import subprocess
import sys
from dataclasses import replace

import driver_families
import driver_models
import driver_runs
import pytest
import torch
import triton
import triton.language as tl

import onefold as flow
from onefold.errors import OnefoldRuntimeError
from onefold.kernels import norm_ref
from onefold.kernels.aot.facts import HAZARD, Facts
from onefold.kernels.gpu.launch import jit_kernel
from onefold.kernels.gpu.launch.jit_kernel import Kernel
from onefold.kernels.gpu.pointwise.triton_functions import from_text
from onefold.kernels.gpu.reduce.norm_chain_kernels import with_chains
from onefold.kernels.norm_chain_ref import NormChain
from onefold.kernels.pointwise_chain_ref import At, Chain, Link
from onefold.testing.gpu_driver import Form, GpuDriver, Problem, __main__ as command
from onefold.testing.gpu_driver.launch_checks import form_faults, launch_faults

FACTS = Facts(64, 0, 1024, 128, 16, 1, 16, "", False)
FORM = Form(
    "scale",
    {"x": "*fp32", "y": "*fp32", "n": "i32", "big": "i64", "by": "fp32", "flag": "i1",
     "one": "constexpr", "BLOCK": "constexpr", "odd": "u8"},
    {6: 1, 7: 128},
    frozenset({0, 2}),
    facts=FACTS,
)  # fmt: skip
RIGHT = {"x": 64, "y": 3, "n": 32, "big": 2**40, "by": 1.5, "flag": True, "one": 1, "BLOCK": 128}
RIGHT |= {"odd": 255}


class Addressed:
    def __init__(self, address):
        self.data_ptr = lambda: address


@pytest.mark.parametrize(
    ("grid", "given", "text"),
    [
        ((0, 1, 1), {}, "grid (0, 1, 1)"),
        ((2**31, 1, 1), {}, "grid (2147483648, 1, 1)"),
        ((1, 65536, 1), {}, "grid (1, 65536, 1)"),
        ((1, 1, 65536), {}, "grid (1, 1, 65536)"),
        ((1.0, 1, 1), {}, "grid (1.0, 1, 1)"),
        ((1, 1), {}, "grid (1, 1)"),
        ((1, 1, 1), {"x": 72}, "x: address 0x48 is no multiple of 16"),
        ((1, 1, 1), {"x": Addressed(8)}, "x: address 0x8 is no multiple of 16"),
        ((1, 1, 1), {"y": 1.0}, "y: a float is given for a pointer"),
        ((1, 1, 1), {"y": None}, "y: a NoneType is given for a pointer"),
        ((1, 1, 1), {"n": 33}, "n: 33 is no multiple of 16"),
        ((1, 1, 1), {"n": 2**31}, "n: 2147483648 is not in the range of i32"),
        ((1, 1, 1), {"n": 32.0}, "n: a float is given for i32"),
        ((1, 1, 1), {"big": -(2**63) - 1}, "big: -9223372036854775809 is not in the range"),
        ((1, 1, 1), {"by": "1"}, "by: a str is given for fp32"),
        ((1, 1, 1), {"flag": 2}, "flag: 2 is not in the range of i1"),
        ((1, 1, 1), {"one": 2}, "one: 2 is given, and 1 was compiled in"),
        ((1, 1, 1), {"BLOCK": 256}, "BLOCK: 256 is given, and 128 was compiled in"),
        ((1, 1, 1), {"BLOCK": 128.0}, "BLOCK: 128.0 is given, and 128 was compiled in"),
        ((1, 1, 1), {"odd": 256}, "odd: 256 is not in the range of u8"),
    ],
)
def test_wrong_launches(grid, given, text):
    assert list(launch_faults(FORM, (1, 1, 1), [*RIGHT.values()])) == []
    (found,) = launch_faults(FORM, grid, [*{**RIGHT, **given}.values()])
    assert text in found


def test_wrong_numbers_of_arguments_and_unknown_types():
    (found,) = launch_faults(FORM, (1, 1, 1), [64, 64])
    assert found == "2 arguments, and the form has 9 parameters"
    (found,) = launch_faults(replace(FORM, types={"x": "tile"}), (1, 1, 1), [64])
    assert found == "x: parameters of type tile are not known to this check"


def test_memory_for_descriptors_needs_an_allocator():
    form = replace(FORM, scratch=128)
    assert list(launch_faults(form, (1, 1, 1), [*RIGHT.values()])) == []
    (found,) = launch_faults(form, (1, 1, 1), [*RIGHT.values()], has_allocator=False)
    assert found == "needs 128 bytes of global memory, and no allocator is set"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (replace(FACTS, spills=8), "spills 8 bytes a thread"),
        (replace(FACTS, serialized=True), "wgmma instructions are serialized"),
        (replace(FACTS, hazard=True), HAZARD),
        (replace(FACTS, shared=232449), "232449 bytes of shared memory, of 232448"),
        (replace(FACTS, registers=255, threads=512), "255 registers x 512 threads, of 65536"),
    ],
)
def test_forms_beyond_the_limits(facts, text):
    assert list(form_faults(FORM, "sm_90")) == []
    assert list(form_faults(replace(FORM, facts=facts), "sm_90")) == [text]


def test_too_many_warps():
    assert list(form_faults(replace(FORM, warps=64, facts=None), "sm_90")) == ["64 warps, of 32"]


# Kernels that are wrong, as Triton compiles them.


@Kernel
def _broken(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tl.zeros((2 * BLOCK,), tl.float32))


@Kernel
def _spilling(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(y + at, values - tl.sum(values) / n)


@Kernel
def _sharing(x, y, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for k in range(n):
        there = k * SIZE * SIZE + at
        total = tl.dot(tl.load(x + there), tl.load(y + there), total)
    tl.store(y + at, total.to(tl.float16))


@Kernel
def _hazardous(x, y, n, SIZE: tl.constexpr):
    """A reshaped first operand is loaded into registers that wgmma may still read."""
    rows = tl.make_tensor_descriptor(x, [n, 8, SIZE], [8 * SIZE, SIZE, 1], [8, 8, SIZE])
    columns = tl.make_tensor_descriptor(y, [n, SIZE], [SIZE, 1], [SIZE, SIZE])
    total = tl.zeros((64, SIZE), tl.float32)
    for k in range(0, n, 8):
        left = rows.load([k, 0, 0]).reshape(64, SIZE)
        total = tl.dot(left, columns.load([k, 0]).T, total)
    at = tl.arange(0, 64)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(y + at, total.to(tl.float16))


@Kernel
def _right(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def launched(kernel, *launches, depth="binary", dtype=torch.float32, warps=4, stages=3):
    """The problems of launches, each with its own tensors and numbers."""
    with GpuDriver(depth) as gpu:
        for tensors, numbers, constants in launches:
            x = [torch.empty(64, dtype=dtype)[start:] for start in tensors]
            kernel.launch((1,), (*x, *numbers), constants, warps, stages)
    assert gpu.launches == {f"{kernel.name}": len(launches)}
    return [problem.text for problem in gpu.problems]


@pytest.mark.parametrize("depth", ["ir", "binary"])
def test_a_kernel_that_does_not_compile(depth):
    (found,) = launched(_broken, ((0,), (32,), (16,)), depth=depth)
    assert found.startswith("does not compile: CompilationError")


def test_a_kernel_that_spills():
    (found,) = launched(_spilling, ((0, 0), (32,), (16384,)), warps=1)
    assert found.startswith("spills ")


def test_a_kernel_that_shares_too_much_memory():
    found = launched(_sharing, ((0, 0), (32,), (64,)), dtype=torch.float16, stages=16)
    assert any("of shared memory, of 232448" in text for text in found)


def test_a_kernel_with_a_hazard():
    found = launched(_hazardous, ((0, 0), (32,), (64,)), dtype=torch.float16)
    assert HAZARD in found


@Kernel
def _both(x, FIRST: tl.constexpr, SECOND: tl.constexpr):
    tl.store(x, SECOND(FIRST(tl.load(x))))


@pytest.mark.parametrize(("other", "count"), [("same", 1), ("another", 0)])
def test_functions_of_one_name(other, count):
    """Triton compiles the first of them for both."""
    first = triton.jit(from_text("def same(x):\n    return x + 1\n", "same"))
    second = triton.jit(from_text(f"def {other}(x):\n    return x * 2\n", other))
    with GpuDriver("ir") as gpu:
        _both.launch((1,), (torch.zeros(1),), (first, second))
    assert len(gpu.problems) == count
    assert all("calls several functions of the name" in each.text for each in gpu.problems)


def test_chains_before_and_after_a_norm():
    twice = Chain(1, (Link(torch.add, (At(0), At(0))),), (1,))
    square = Chain(1, (Link(torch.mul, (At(0), At(0))),), (1,))
    chain = NormChain(norm_ref.rms_norm, (None, None, (8,), 1e-5), twice, square)
    with GpuDriver("ir") as gpu:
        with_chains(chain)(torch.zeros(4, 8))
    assert (gpu.problems, gpu.launches["_norm_chain"]) == ([], 1)


def test_a_right_kernel():
    assert launched(_right, ((0, 0), (32,), (16,)), ((0, 4), (48,), (16,))) == []


def test_a_form_for_other_numbers_is_noticed(monkeypatch):
    """As where the key of a form leaves out what its code was specialized on."""
    monkeypatch.setattr(jit_kernel, "_kind", lambda number: 0)
    launches = [((0, 0), (32,), (64,)), ((0, 0), (33,), (64,)), ((0, 0), (2**31,), (64,))]
    found = launched(_right, *launches, depth="none")
    assert found == [
        "n: 33 is no multiple of 16, as the form was compiled for",
        "n: 2147483648 is not in the range of i32",
    ]
    found = launched(_right, ((0, 0), (1,), (32,)), ((0, 0), (7,), (32,)), depth="none")
    assert found == ["n: 7 is given, and 1 was compiled in"]


def test_a_form_for_other_addresses_is_noticed(monkeypatch):
    monkeypatch.setattr(jit_kernel, "_ALIGNMENT", 1)
    monkeypatch.setattr(jit_kernel, "_kind", jit_kernel._kind.__wrapped__)  # keep no kind by it
    found = launched(_right, ((0, 0), (5,), (256,)), ((0, 1), (5,), (256,)), depth="none")
    assert len(found) == 1 and "is no multiple of 16, as the form was compiled for" in found[0]


def test_a_replay_for_other_addresses_is_noticed(monkeypatch):
    """As where a trace forgets to look at the alignment of its arguments."""
    memory = torch.zeros(24)
    x, shifted = (flow.from_torch(memory[start : start + 16].view(4, 4)) for start in (0, 1))
    monkeypatch.setattr("onefold.kernels.gpu.launch.host_replay.ALIGNMENT", 1)
    with GpuDriver("none") as gpu:
        for _ in range(3):
            flow.softmax(x, 1)
        assert gpu.problems == []
        flow.softmax(shifted, 1)
    assert [problem.text.split(" is ")[-1] for problem in gpu.problems] == [
        "no multiple of 16, as the form was compiled for"
    ]


# Programs.


def test_every_launch_of_a_program_is_counted():
    x = flow.ones(8, 8)
    with GpuDriver("none") as gpu:
        for _ in range(4):  # by the function, by its trace, and by generated code
            flow.softmax(x, 1)
    assert gpu.launches == {"_softmax": 4}
    assert len(gpu.forms) == 1
    assert gpu.forms[0].types["x"] == "*fp32"
    assert str(gpu) == "4 launches of 1 kernels, 1 forms, 0 problems"
    assert flow.softmax(x, 1).sum().item() == 8.0  # by torch again


def test_new_memory_is_zero():
    with GpuDriver("none"):
        assert flow.randn(6, 6).tolist() == [[0.0] * 6] * 6


def test_work_of_torch_is_counted():
    x = flow.ones(8, 8)
    with GpuDriver("none") as gpu:
        flow.softmax(x, 1)
        assert not gpu.torch_work
        flow.digamma(x)
        torch.exp(torch.ones(2))
    inside = {"kernels.gpu.pointwise.pointwise_kernels": 1, "": 1}
    assert {module: n for (module, name), n in gpu.torch_work.items()} == inside


def test_work_of_torch_in_a_step_needs_a_reason():
    found = driver_runs.torch_faults({("optim.clip", "pow"): 1, ("optim.clip", "exp"): 2})
    assert list(found) == ["optim.clip leaves exp to torch, 2 times"]
    assert list(driver_runs.torch_faults({("optim.muon", "mm"): 1, ("any", "clone"): 1})) == []


def test_one_driver_at_a_time():
    with GpuDriver(), pytest.raises(OnefoldRuntimeError, match="one is in use"), GpuDriver():
        pass
    active = triton.runtime.driver._active
    with pytest.raises(ZeroDivisionError), GpuDriver():
        raise ZeroDivisionError
    assert triton.runtime.driver._active is active


def test_a_form_is_not_launched_behind_the_context():
    kept = []
    with GpuDriver("none") as gpu:
        x = torch.zeros(32)
        kept.append(_right.launch((1,), (x, x, 32), (32,)))
    assert gpu.launches.total() == 1
    with pytest.raises(OnefoldRuntimeError, match="whose context is closed"):
        kept[0].run(1, 1, 1, 0, 1, (), None, None, None, 0, 0, 32, 32)


BROKEN = "tests._broken.launch((1,), (tests.torch.zeros(4), 7), (16,))"
PROGRAM = """
import sys
import onefold as flow
print(sys.argv[1:], flow.softmax(flow.ones(4, 4), 1).tolist()[0])
"""


def test_a_program_from_the_command_line(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "onefold.testing.gpu_driver", "--depth", "ir", program, "a", "--b"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    first, *_, last = done.stdout.splitlines()
    assert first == "['a', '--b'] [0.0, 0.0, 0.0, 0.0]"
    assert last.endswith("0 problems")


def test_a_program_with_a_problem(tmp_path, monkeypatch, capsys):
    program = tmp_path / "program.py"
    program.write_text(f"{PROGRAM}\nimport test_gpu_driver as tests\n{BROKEN}\nsys.exit(0)")
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "test_gpu_driver", sys.modules[__name__])
    assert command.main(["--depth", "ir", str(program)]) == 1
    printed = capsys.readouterr().out
    assert "does not compile: CompilationError" in printed
    assert "    in _broken(x: *fp32 % 16, n: i32, BLOCK=16) 4 warps" in printed
    assert printed.splitlines()[-1].endswith("1 problems")


def test_a_step_of_training_and_of_every_optimizer():
    """All of them are compiled by `make kernels`; here arguments are bound."""
    with GpuDriver("none") as gpu:
        step = driver_models.training_step("llama", "graph amp")
        for _ in range(3):
            step()
        for name, options in driver_models.OPTIMIZERS:
            driver_models.optimizer_step(name, options)()
    assert gpu.problems == []
    assert gpu.launches["_update"] > len(driver_models.OPTIMIZERS) / 2


@pytest.mark.parametrize("family", ["resnet", "translation"])
def test_a_step_of_a_family(family):
    """All of them are compiled by `make kernels`; here arguments are bound."""
    called = driver_families.family_step, family, "eager amp"
    texts, launches, _ = driver_runs.run(*called, depth="none")
    assert (texts, launches > 300) == ([], True)


def test_parameters_are_cast_in_one_launch():
    """In each block of autocast but the first, and the gradients of weights are never cast."""
    layers = flow.nn.ModuleList(flow.nn.Linear(32, 32) for _ in range(3))
    optimizer = flow.optim.AdamW(layers.parameters())
    with GpuDriver("none") as gpu:
        for number in range(3):
            before = gpu.launches.copy()
            with flow.autocast("cpu"):
                y = flow.ones(8, 32)
                for layer in layers:
                    y = layer(y)
            y.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            made = gpu.launches - before
            # The input is cast, a gradient is expanded, and the first block has none to go by.
            assert made["pointwise_copy"] == (2 if number else 2 + 6)
            assert made["_copy_each"] == (1 if number else 0)
    assert gpu.problems == []


def test_a_step_of_a_model_that_is_larger_than_the_machine(monkeypatch):
    """A Llama of 1.2 billion parameters, which with gradients and states takes 18 GiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr(driver_runs, "GpuDriver", lambda depth: GpuDriver("none"))
    texts, launches, forms = driver_runs.work("whole step", "llama", 16, "eager")
    assert (texts, launches > 2300, forms > 40) == ([], True, True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**21  # KiB


def test_spills_are_notes_with_a_compiler_without_a_budget(monkeypatch):
    spilling, wrong = Problem("_a(x)", "spills 8 bytes a thread"), Problem("_a(x)", "wrong")
    monkeypatch.setattr(driver_runs, "is_budgeted", lambda: False)
    serial = [Problem("_a(x)", "wgmma is serial"), Problem("_a(y)", "wgmma is serial")]
    assert list(driver_runs.wrong([spilling, *serial, wrong])) == [
        f"note: {spilling}", str(wrong), "note: wgmma is serial in _a",
    ]  # fmt: skip


def test_a_task_of_samples_reports_what_is_wrong(monkeypatch):
    texts, launches, forms = driver_runs.run_samples("float64", "none", 0, 8, 1, "two ranks")
    assert (texts, launches > 20, forms > 5) == ([], True, True)
    here = "onefold.testing.gpu_driver.driver.launch_faults"
    monkeypatch.setattr(here, lambda *given: ["wrong"])
    texts, *_ = driver_runs.run_samples("float64", "none", 0, 1, 1, "local")
    assert texts and all(" in float64: wrong\n    in " in text for text in texts)
