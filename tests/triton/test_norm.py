"""layer_norm, rms_norm and their gradients."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import norm_ref

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [((5, 7), (7,)), ((3, 2, 33), (33,)), ((2, 3, 4), (3, 4)), ((8,), (8,)), ((0, 4), (4,))]


def drawn(dtype, *shapes):
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


def check_grad(x, w, last, dtype):
    """Gradients, with kept statistics where torch has them in the dtype of x."""
    dy = torch.randn(x.shape, dtype=torch.float64).to(dtype)
    assert_matches_reference(norm_ref.layer_norm_grad, dy, x, w, last, 1e-3, slack=4)
    assert_matches_reference(norm_ref.layer_norm_grad, dy, x, None, last, 1e-3, slack=4)
    assert_matches_reference(norm_ref.rms_norm_grad, dy, x, w, last, 1e-3, slack=4)
    assert_matches_reference(norm_ref.rms_norm_grad, dy, x, None, last, 1e-3, slack=4)
    for gradient in (norm_ref.layer_norm_input_grad, norm_ref.rms_norm_input_grad):
        for weight in (w, None):
            assert_matches_reference(gradient, dy, x, weight, last, 1e-3, slack=4)
    if dtype in (torch.float32, torch.float64):
        _, mean, rstd = norm_ref.layer_norm_with_stats(x, w, w, last, 1e-3)
        assert_matches_reference(
            norm_ref.layer_norm_with_stats_grad, dy, x, w, mean, rstd, last, slack=4
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "last"), SHAPES, ids=str)
def test_forward(shape, last, dtype):
    x, w, b = drawn(dtype, shape, last, last)
    assert_matches_reference(norm_ref.layer_norm, x, w, b, last, 1e-5)
    assert_matches_reference(norm_ref.layer_norm, x, None, None, last, 1e-5)
    assert_matches_reference(
        norm_ref.layer_norm, x.transpose(0, -1).contiguous().transpose(0, -1), w, b, last, 0.1
    )
    assert_matches_reference(norm_ref.rms_norm, x, w, None, last, 1e-5)
    if dtype in (torch.float32, torch.float64):
        assert_matches_reference(norm_ref.layer_norm_with_stats, x, w, b, last, 1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "last"), SHAPES, ids=str)
def test_gradients(shape, last, dtype):
    x, w = drawn(dtype, shape, last)
    check_grad(x, w, last, dtype)
    check_grad(x.transpose(0, -1).contiguous().transpose(0, -1), w, last, dtype)


def test_wide_rows():
    last = (33001,)
    x, w, b = drawn(torch.float32, (2, *last), last, last)
    assert_matches_reference(norm_ref.layer_norm_with_stats, x + 10.0, w, b, last, 1e-5)
    assert_matches_reference(norm_ref.rms_norm, x, w, None, last, 1e-5)


def test_gradients_of_wide_rows():
    last = (9001,)
    dy, x, w = drawn(torch.float32, (3, *last), (3, *last), last)
    assert_matches_reference(norm_ref.layer_norm_grad, dy, x, w, last, 1e-3, slack=4)
    assert_matches_reference(norm_ref.rms_norm_grad, dy, x, None, last, 1e-3, slack=4)
    assert_matches_reference(norm_ref.rms_norm_input_grad, dy, x, w, last, 1e-3, slack=4)
    _, mean, rstd = norm_ref.layer_norm_with_stats(x, w, w, last, 1e-3)
    assert_matches_reference(
        norm_ref.layer_norm_with_stats_grad, dy, x, w, mean, rstd, last, slack=4
    )


def test_many_rows():
    """More rows than programs: each adds up the gradients of several."""
    dy, x, w = drawn(torch.float32, (270, 2049), (270, 2049), 2049)
    assert_matches_reference(norm_ref.layer_norm_grad, dy, x, w, (2049,), 1e-3, slack=4)


def test_a_large_mean_costs_no_accuracy():
    x, w, b = drawn(torch.float32, (4, 600), 600, 600)
    assert_matches_reference(norm_ref.layer_norm, x + 1e3, w, b, (600,), 1e-5)


@settings(max_examples=6)
@given(st.integers(1, 9), st.integers(1, 70), st.booleans())
def test_shapes(rows, columns, narrow):
    dtype = torch.bfloat16 if narrow else torch.float32
    x, w, b = drawn(dtype, (rows, columns), columns, columns)
    assert_matches_reference(norm_ref.layer_norm, x, w, b, (columns,), 1e-3)
    check_grad(x, w, (columns,), dtype)
