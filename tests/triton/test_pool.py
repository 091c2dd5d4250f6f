"""Pooling and its gradients."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import pool_ref, select
from onefold.kernels.gpu.pointwise import channels_last as memory

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

# x without its batch, then kernel, stride, padding and dilation.
WINDOWS = [
    ((2, 7, 6), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((2, 9, 8), (3, 2), (2, 1), (1, 1), (1, 1)),
    ((2, 9, 11), (2, 3), (1, 3), (1, 0), (3, 2)),
    ((2, 5, 6, 4), (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 1)),
]


def channels_last(x):
    names = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=names[x.ndim])


def test_channels_last_is_read_as_it_lies(monkeypatch):
    def copied(x):
        raise AssertionError("a copy of what is dense already")

    monkeypatch.setattr(memory, "contiguous", copied)
    for x in (channels_last(torch.randn(2, 70, 6, 5)), torch.randn(2, 3, 6, 5)):
        sizes = ((2, 2), (2, 2), (0, 0), (1, 1), False)
        y, places = assert_matches_reference(pool_ref.max_pool, x, 2, sizes)
        back = (tuple(x.shape), 2)
        assert_matches_reference(pool_ref.max_pool_grad, y, places, *back, sizes)
        sizes = (*sizes[:3], False, True, None)
        y = assert_matches_reference(pool_ref.avg_pool, x, 2, sizes)
        assert_matches_reference(pool_ref.avg_pool_grad, y, *back, sizes)
        y = assert_matches_reference(pool_ref.adaptive_avg_pool, x, 2, (1, 2))
        assert_matches_reference(pool_ref.adaptive_avg_pool_grad, y, *back, (1, 2))


@every_dtype
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_max(dtype, number, ceil):
    shape, *windows = WINDOWS[number]
    planes, sizes = len(windows[0]), (*windows, ceil)
    given = torch.randn(2, *shape).to(dtype)
    turned = given.transpose(0, 1).contiguous().transpose(0, 1)
    assert_matches_reference(pool_ref.max_pool, turned, planes, sizes)
    for x in (given, channels_last(given)):
        y, places = assert_matches_reference(pool_ref.max_pool, x, planes, sizes)
        dy = torch.randn_like(y)
        back = (places, tuple(x.shape), planes, sizes)
        dx = assert_matches_reference(pool_ref.max_pool_grad, dy, *back)
        assert_matches_reference(pool_ref.max_pool_take, torch.randn_like(x), places, planes)
        assert dx.stride() == x.stride()
    assert_matches_reference(pool_ref.max_pool_grad, dy.contiguous(), *back)


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
    given = torch.randn(2, *shape).to(dtype)
    last = channels_last(given)
    for pad, divisor, x in [(True, None, given), (False, None, last), (True, 5, given)]:
        sizes = (size, stride, padding, ceil, pad, divisor)
        y = assert_matches_reference(pool_ref.avg_pool, x, len(size), sizes)
        dx = assert_matches_reference(
            pool_ref.avg_pool_grad, torch.randn_like(y), tuple(x.shape), len(size), sizes
        )
        assert dx.stride() == x.stride()


@settings(max_examples=10)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=3, max_size=3),
    wanted=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    planes=st.sampled_from([2, 3]),
    last=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.bfloat16]),
)
def test_adaptive(sizes, wanted, planes, last, dtype):
    lead = (2, 3) if last and planes == 3 else (2,)
    x = torch.randn(*lead, *sizes, dtype=dtype)
    x = channels_last(x) if last else x
    size = tuple(wanted[:planes])
    y = assert_matches_reference(pool_ref.adaptive_avg_pool, x, planes, size)
    assert_matches_reference(
        pool_ref.adaptive_avg_pool_grad, torch.randn_like(y), tuple(x.shape), planes, size
    )
    y, places = assert_matches_reference(pool_ref.adaptive_max_pool, x, planes, size)
    dx = assert_matches_reference(
        pool_ref.adaptive_max_pool_grad, torch.randn_like(y), places, tuple(x.shape), planes, size
    )
    assert dx.stride() == x.stride()


def test_adaptive_windows_with_equal_ones_and_nan():
    x = torch.zeros(2, 5, 4)
    x[0, 1, 1], x[1] = float("nan"), -float("inf")
    triton = select.triton_kernel(pool_ref.adaptive_max_pool)
    for size in ((2, 3), (4, 2), (5, 4)):
        pairs = zip(triton(x, 2, size), pool_ref.adaptive_max_pool(x, 2, size), strict=True)
        assert all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in pairs)


def test_bad_sizes():
    with pytest.raises(RuntimeError):
        assert_matches_reference(
            pool_ref.max_pool, torch.zeros(1, 2, 2), 2, ((5, 5), (1, 1), (0, 0), (1, 1), False)
        )
