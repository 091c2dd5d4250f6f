"""Power-average pooling and its gradient."""

import pytest
import torch
from triton_harness import assert_matches_reference

from onefold.kernels import lp_pool_ref, pool_ref, select
from onefold.kernels.gpu.pointwise import channels_last as memory

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
WINDOWS = [
    ((2, 3, 7, 6), (2, 2), (2, 2), False),
    ((2, 3, 8, 9), (3, 2), (2, 1), True),
    ((2, 3, 9, 11), (1, 3), (2, 4), True),
    ((2, 3, 5, 6, 4), (2, 3, 2), (2, 1, 2), True),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_powers(dtype, number, monkeypatch):
    shape, size, stride, ceil = WINDOWS[number]
    planes = len(size)
    for power in (1.0, 2.0, 3.0, 0.5, -1.0):
        x = (torch.rand(shape) + 0.25).to(dtype)
        if power in (1.0, 2.0):
            x = torch.randn(shape).to(dtype)
        sizes = (power, size, stride, ceil)
        for given in (x, x.contiguous(memory_format=FORMATS[x.ndim])):
            y = assert_matches_reference(lp_pool_ref.lp_pool, given, planes, sizes)
            dy = torch.randn_like(y)
            grad = (dy, given, y, planes, sizes)
            dx = assert_matches_reference(lp_pool_ref.lp_pool_grad, *grad)
            assert dx.stride() == given.stride()


def test_of_zeros_the_gradient_is_zero():
    x = torch.zeros(1, 2, 4, 4)
    x[0, 0] = torch.rand(4, 4)
    sizes = (2.0, (2, 2), (2, 2), False)
    y = assert_matches_reference(lp_pool_ref.lp_pool, x, 2, sizes)
    dx = assert_matches_reference(lp_pool_ref.lp_pool_grad, torch.ones_like(y), x, y, 2, sizes)
    assert dx[0, 0].ne(0).all() and dx[0, 1].eq(0).all()


def test_roots_of_negative_sums_are_nan_as_in_torch():
    x = -torch.rand(1, 4, 4)
    sizes = (3.0, (2, 2), (2, 2), False)
    y = select.triton_kernel(lp_pool_ref.lp_pool)(x, 2, sizes)
    torch.testing.assert_close(y, lp_pool_ref.lp_pool(x, 2, sizes), equal_nan=True)
    assert y.isnan().all()


def test_channels_last_is_read_as_it_lies(monkeypatch):
    def copied(x):
        raise AssertionError("a copy of what is dense already")

    monkeypatch.setattr(memory, "contiguous", copied)
    x = torch.rand(2, 70, 6, 4).contiguous(memory_format=torch.channels_last)
    sizes = (2.0, (2, 2), (2, 2), False)
    y = assert_matches_reference(lp_pool_ref.lp_pool, x, 2, sizes)
    assert_matches_reference(lp_pool_ref.lp_pool_grad, y, x, y, 2, sizes)
    places = torch.arange(24).reshape(6, 4)[::2, ::2].expand(2, 70, 3, 2)
    places = places.contiguous(memory_format=torch.channels_last)
    unpool = (y, places, 2, ((2, 2), (2, 2), (0, 0), None))
    assert_matches_reference(pool_ref.max_unpool, *unpool)
