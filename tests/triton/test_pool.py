"""Pooling and its gradients."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import pool_ref, select

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

# x without its batch, then kernel, stride, padding and dilation.
WINDOWS = [
    ((2, 7, 6), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((2, 9, 8), (3, 2), (2, 1), (1, 1), (1, 1)),
    ((2, 9, 11), (2, 3), (1, 3), (1, 0), (3, 2)),
    ((2, 5, 6, 4), (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 1)),
]


@every_dtype
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_max(dtype, number, ceil):
    shape, *windows = WINDOWS[number]
    planes, sizes = len(windows[0]), (*windows, ceil)
    x = torch.randn(2, *shape).to(dtype)
    y, places = assert_matches_reference(pool_ref.max_pool, x, planes, sizes)
    assert_matches_reference(
        pool_ref.max_pool, x.transpose(0, 1).contiguous().transpose(0, 1), planes, sizes
    )
    dy = torch.randn_like(y)
    assert_matches_reference(pool_ref.max_pool_grad, dy, places, tuple(x.shape), planes, sizes)
    assert_matches_reference(pool_ref.max_pool_take, torch.randn_like(x), places, planes)


def test_the_first_of_equal_ones_and_nan():
    sizes = ((2, 2), (1, 1), (0, 0), (1, 1), False)
    x = torch.zeros(1, 4, 4)
    assert_matches_reference(pool_ref.max_pool, x, 2, sizes)
    x[0, 1, 1] = float("nan")
    assert_matches_reference(pool_ref.max_pool, x, 2, sizes)
    x = torch.full((1, 3, 3), -float("inf"))
    mine, theirs = (
        select.triton_kernel(pool_ref.max_pool)(x, 2, sizes),
        pool_ref.max_pool(x, 2, sizes),
    )
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@every_dtype
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_avg(dtype, number, ceil):
    shape, size, stride, padding, _ = WINDOWS[number]
    if len(size) == 3 and dtype.itemsize == 2:
        return  # torch has no such kernel on the CPU to compare with
    x = torch.randn(2, *shape).to(dtype)
    for pad, divisor in [(True, None), (False, None), (True, 5)]:
        sizes = (size, stride, padding, ceil, pad, divisor)
        y = assert_matches_reference(pool_ref.avg_pool, x, len(size), sizes)
        assert_matches_reference(
            pool_ref.avg_pool_grad, torch.randn_like(y), tuple(x.shape), len(size), sizes
        )


@settings(max_examples=10)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=3, max_size=3),
    wanted=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    planes=st.sampled_from([2, 3]),
    dtype=st.sampled_from([torch.float64, torch.bfloat16]),
)
def test_adaptive(sizes, wanted, planes, dtype):
    x = torch.randn(2, *sizes, dtype=dtype)
    size = tuple(wanted[:planes])
    y = assert_matches_reference(pool_ref.adaptive_avg_pool, x, planes, size)
    assert_matches_reference(
        pool_ref.adaptive_avg_pool_grad, torch.randn_like(y), tuple(x.shape), planes, size
    )


def test_bad_sizes():
    with pytest.raises(RuntimeError):
        assert_matches_reference(
            pool_ref.max_pool, torch.zeros(1, 2, 2), 2, ((5, 5), (1, 1), (0, 0), (1, 1), False)
        )
