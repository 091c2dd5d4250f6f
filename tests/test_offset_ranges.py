"""Offsets that overflow 32 bits are found in the IR of a launch, and those that fit are not."""

import driver_large
import pytest
import triton
import triton.language as tl

import onefold as flow
from onefold.kernels.gpu.launch.jit_kernel import Kernel
from onefold.testing.gpu_driver import GpuDriver

BLOCK = 64
ROWS, COLUMNS = 2**16, 2**15  # one element more than 32 bits count


@Kernel
def _rows(x, rows, columns, strip, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tl.store(x + row * columns + at, 1.0, mask=at < columns)


@Kernel
def _elements(x, rows, columns, strip, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    at = at * columns + tl.arange(0, BLOCK)
    value = tl.where(at % 2 == 0, 1.0, 2.0)
    tl.store(x + tl.arange(0, BLOCK), value, mask=at < rows * columns.to(tl.int64))


@Kernel
def _strips(x, rows, columns, strip, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The sum that a loop makes becomes too large."""
    at = tl.arange(0, BLOCK)
    if WIDE:
        at = at.to(tl.int64)
    for _ in range(rows):
        tl.store(x + at, 1.0)
        at += columns


@triton.jit
def _place(row, column, columns):
    return row * columns + column


@Kernel
def _of_another_function(x, rows, columns, strip, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) // 2 * 2 + tl.program_id(0) % 2
    if WIDE:
        row = row.to(tl.int64)
    if columns > BLOCK:
        tl.store(x + _place(row, tl.arange(0, BLOCK), columns), 1.0)


@Kernel
def _persistent(x, rows, columns, strip, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        wide = row.to(tl.int64) if WIDE else row
        tl.store(x + tl.minimum(wide, rows - 1) * columns + tl.arange(0, BLOCK), 1.0)


@Kernel
def _random(x, rows, columns, strip, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Numbers wrap on purpose, and are no places."""
    row = tl.program_id(0)
    tl.store(x + row.to(tl.int64) * columns, ((row * columns * 1664525) & 255).to(tl.float32))


def problems(kernel, rows, wide, depth="ir"):
    x = flow.zeros(8).shards[0]
    with GpuDriver(depth) as gpu:
        kernel.launch((rows,), (x, rows, COLUMNS, rows), (wide, BLOCK))
    assert gpu.launches.total() == 1
    return [problem.text for problem in gpu.problems]


KERNELS = [_rows, _elements, _strips, _of_another_function, _persistent]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_what_does_not_fit_is_found(kernel):
    (text,) = problems(kernel, ROWS + 1, wide=False)
    assert "is not in the range of i32, and memory is addressed with it" in text


@pytest.mark.parametrize("kernel", [*KERNELS, _random], ids=lambda kernel: kernel.name)
def test_what_fits_is_not(kernel):
    assert problems(kernel, ROWS + 1, wide=True) == []
    assert problems(kernel, ROWS - 1, wide=False) == []
    assert problems(kernel, ROWS + 1, wide=kernel is not _random) == []


def test_compiled_forms_are_read_too():
    (text,) = problems(_rows, ROWS + 1, wide=False, depth="binary")
    assert f"reaches {ROWS * COLUMNS}" in text


@pytest.mark.parametrize("name", ["cat of vectors", "cat of rows", "stack", "interpolate"])
def test_ops_on_large_tensors(name):
    """`make kernels` has the others."""
    with GpuDriver("ir") as gpu:
        driver_large.large_op(name)()
    assert gpu.problems == [] and gpu.launches.total() > 0
