"""Convolutions on the CPU and their weights' gradients against float64, of any sizes and strides.

torch computes float64 without oneDNN.
"""

import pytest
import torch
from hypothesis import example, given, settings, strategies as st

import onefold as flow
from onefold.kernels import conv_ref
from onefold.kernels.onednn_workaround import is_affected
from onefold.nn import functional as F
from onefold.testing.sample_checks import value_of

NEAR = {torch.bfloat16: 0.02, torch.float16: 0.005, torch.float32: 1e-5}
LARGE = {torch.bfloat16: 1e30, torch.float16: 6e4, torch.float32: 1e30}


def leave_large_numbers(dtype):
    """Uninitialized memory then holds numbers far from what a sum may be."""
    made = [torch.full((size,), LARGE[dtype], dtype=dtype) for size in (64, 240, 1000, 4000)]
    del made


@st.composite
def convolutions(draw):
    """dtype, shape of the input, shape of the weight, stride, padding, dilation, groups."""
    dims = draw(st.integers(1, 3))

    def numbers(low, high):
        return draw(st.tuples(*[st.integers(low, high)] * dims))

    taps, stride, padding, dilation = numbers(1, 3), numbers(1, 3), numbers(0, 2), numbers(1, 2)
    more = numbers(0, 3)
    size = [d * (k - 1) + 1 + m for d, k, m in zip(dilation, taps, more, strict=True)]
    groups, channels, outs = draw(st.sampled_from([(1, 4, 20), (1, 16, 6), (2, 8, 12)]))
    x, w = (draw(st.integers(1, 3)), channels, *size), (outs, channels // groups, *taps)
    return draw(st.sampled_from(list(NEAR))), x, w, stride, padding, dilation, groups


def assert_near(convolution, weight_grad, case):
    dtype, shape, weight, stride, padding, dilation, groups = case
    make = torch.Generator().manual_seed(0)
    x, w = (torch.randn(size, generator=make).to(dtype) for size in (shape, weight))
    none = (0,) * len(stride)
    sizes = (stride, padding, dilation, False, none, groups)
    exact = torch.convolution(x.double(), w.double(), None, *sizes)
    dy = torch.randn(exact.shape, generator=make).to(dtype)
    double = (dy.double(), x.double(), w.double())
    back = torch.ops.aten.convolution_backward.default
    exact_grad = back(*double, None, *sizes, [False, True, False])[1]
    for compute, true in (
        (lambda: convolution(x, w, None, *sizes), exact),
        (lambda: weight_grad(dy, x, weight, *sizes), exact_grad),
    ):
        leave_large_numbers(dtype)
        found = compute()
        assert found.dtype is dtype and found.shape == true.shape
        limit = NEAR[dtype] * max(1.0, float(true.abs().max()))
        assert float((found.double() - true).abs().max()) <= limit


@given(convolutions())
@example((torch.bfloat16, (1, 4, 3, 3), (20, 4, 2, 3), (1, 2), (1, 0), (1, 1), 1))
@example((torch.float16, (2, 16, 1), (20, 16, 1), (2,), (1,), (2,), 1))
@example((torch.float32, (2, 8, 2, 1), (12, 4, 1, 1), (3, 3), (0, 1), (2, 2), 2))
@example((torch.bfloat16, (1, 16, 2), (6, 16, 2), (3,), (1,), (1,), 1))
@settings(max_examples=300, deadline=None)
def test_any_sizes(case):
    assert_near(conv_ref.convolution, conv_ref.convolution_weight_grad, case)


def test_a_wrong_channel_is_noticed():
    def wrong(*args):
        return torch.convolution(*args).index_fill_(1, torch.tensor([0]), 1e30)

    case = (torch.bfloat16, (1, 4, 5, 6), (20, 4, 2, 3), (1, 1), (1, 0), (1, 1), 1)
    with pytest.raises(AssertionError):
        assert_near(wrong, conv_ref.convolution_weight_grad, case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_usual_convolutions_are_left_to_onednn(dtype):
    for size, taps, stride, padding in [(32, 3, 2, 1), (7, 3, 1, 1), (224, 7, 2, 3), (8, 1, 2, 0)]:
        shapes = (2, 16, size, size), (32, 16, taps, taps)
        assert not is_affected(*shapes, dtype, (stride,) * 2, (padding,) * 2, (1, 1))


def test_an_op_finds_with_its_plan_whether_it_needs_the_workaround(world):
    x, w = torch.randn(1, 4, 3, 3).bfloat16(), torch.randn(20, 4, 2, 3).bfloat16()
    for stride in ((1, 2), (1, 1)):
        leave_large_numbers(x.dtype)
        found = F.conv2d(flow.tensor(x), flow.tensor(w), stride=stride, padding=(1, 0))
        exact = torch.nn.functional.conv2d(x.double(), w.double(), stride=stride, padding=(1, 0))
        torch.testing.assert_close(value_of(found).double(), exact, rtol=0.02, atol=0.02)
