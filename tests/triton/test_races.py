"""The interpreter refuses what is right only as long as programs and threads take turns."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def _copies(x, out, STEP: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + tl.program_id(0) * STEP + at, tl.load(x + at))


@triton.jit
def _next_block(x, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(x + at, tl.load(x + at + N))


@triton.jit
def _flip(x, BARRIER: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + N - 1 - at, value)


@triton.jit
def _sums(x, BARRIER: tl.constexpr, N: tl.constexpr):
    for i in range(1, N):
        tl.store(x + i, tl.load(x + i - 1) + 1)
        if BARRIER:
            tl.debug_barrier()


@triton.jit
def _pairs(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at // 2, at.to(tl.float32))


@triton.jit
def _count(x, out, ATOMIC: tl.constexpr):
    if ATOMIC:
        tl.atomic_add(x, 1.0)
    else:
        tl.store(x, tl.load(x) + 1)
    tl.store(out + tl.program_id(0), 1.0)


@triton.jit
def _own_part(table, N: tl.constexpr):
    """Adds one to what has its address in a table."""
    part = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, N)
    tl.store(part + at, tl.load(part + at) + 1)


def ran(kernel, programs, *args, **constants):
    """What an error says, or nothing."""
    try:
        kernel[(programs,)](*args, **constants)
    except triton.runtime.errors.InterpreterError as error:
        return str(error)
    return ""


def test_programs_that_write_the_same():
    x, out = torch.arange(8.0), torch.zeros(16)
    assert not ran(_copies, 2, x, out, STEP=8, N=8)
    assert out.tolist() == [*range(8)] * 2
    message = ran(_copies, 2, x, out, STEP=4, N=8)
    assert "program (1, 0, 0) writes 4 elements of `out`, the first at byte 16" in message
    assert "program (0, 0, 0) has written" in message
    assert "debug_barrier" in message


def test_a_program_that_reads_what_another_writes():
    assert not ran(_next_block, 1, torch.zeros(16), N=8)
    assert "program (1, 0, 0) writes 8 elements of `x`" in ran(_next_block, 2, torch.zeros(24), N=8)


@pytest.mark.parametrize("kernel", [_flip, _sums])
def test_threads_need_a_barrier(kernel):
    x = torch.arange(8.0)
    assert "that it has" in ran(kernel, 1, x.clone(), BARRIER=False, N=8)
    assert not ran(kernel, 1, x, BARRIER=True, N=8)
    assert x.tolist() == ([*range(7, -1, -1)] if kernel is _flip else [*range(8)])


def test_an_element_is_stored_once():
    assert "that it has written" in ran(_pairs, 1, torch.zeros(8), N=8)


def test_atomic_updates():
    x, out = torch.zeros(1), torch.zeros(2)
    assert not ran(_count, 2, x, out, ATOMIC=True)
    assert x.tolist() == [2]
    assert "program (1, 0, 0) reads 1 elements of `x`" in ran(_count, 2, x, out, ATOMIC=False)


@pytest.mark.parametrize(("second", "races"), [(8, False), (4, True)])
def test_addresses_out_of_a_table(second, races):
    x = torch.zeros(4096)[1020:]  # the first part is in two pages, or more
    table = torch.tensor([x.data_ptr(), x.data_ptr() + 4 * second])
    assert ("program (1, 0, 0)" in ran(_own_part, 2, table, N=8)) is races


def test_arguments_that_share_memory():
    x = torch.arange(16.0)
    assert not ran(_copies, 2, x, x[4:], STEP=4, N=4)
    assert "`x/out`" in ran(_copies, 1, x, x[2:], STEP=4, N=4)
