"""softmax, log_softmax and their gradients."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import softmax_ref

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [((5, 7), 1), ((5, 7), 0), ((3, 33, 5), 1), ((9,), 0), ((), 0), ((0, 4), 1), ((3, 0), 1)]
BOTH = (
    (softmax_ref.softmax, softmax_ref.softmax_grad),
    (softmax_ref.log_softmax, softmax_ref.log_softmax_grad),
)


def check(x, dim):
    for forward, backward in BOTH:
        y = assert_matches_reference(forward, x, dim, None, slack=4)
        dy = torch.randn(x.shape, dtype=torch.float64).to(x.dtype)
        # A gradient depends on y's rounding: it is compared for the same y.
        assert_matches_reference(backward, dy, y, dim, slack=16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_shapes_and_dtypes(shape, dim, dtype):
    check((torch.randn(shape, dtype=torch.float64) * 2).to(dtype), dim)


@pytest.mark.parametrize("shape", [(2, 33000), (2, 1100, 3)], ids=str)
def test_wide_ones_in_two_passes(shape):
    x = torch.randn(shape)
    x[0] *= 100.0
    x[1, -1] = 200.0
    check(x, 1)


def test_other_dtype_out():
    x = torch.randn(4, 9).half()
    assert_matches_reference(softmax_ref.softmax, x, 1, torch.float32)
    assert_matches_reference(softmax_ref.log_softmax, x, 0, torch.float64)
    assert_matches_reference(softmax_ref.softmax, torch.arange(6).view(2, 3), 1, torch.float32)


@pytest.mark.parametrize("columns", [4, 33000])
def test_infinities_and_nan(columns):
    x = torch.randn(5, columns)
    x[0] = -math.inf
    x[1, 2] = math.inf
    x[2, 1] = math.nan
    x[3, 1:] = -math.inf
    for forward, _ in BOTH:
        assert_matches_reference(forward, x, 1, None, slack=4)


@settings(max_examples=10)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(-4, 3), st.permutations("0123")
)
def test_any_dim_in_any_order(shape, dim, order):
    x = torch.randn(shape).permute([int(d) for d in order if int(d) < len(shape)])
    if -x.ndim <= dim < x.ndim:
        check(x, dim)
