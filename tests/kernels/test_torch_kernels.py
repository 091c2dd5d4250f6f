"""The torch kernels that take another way than torch's function: they give what it gives."""

import torch
from hypothesis import given, strategies as st

from onefold.kernels import conv_ref, pool_ref

VALUES = torch.tensor([0.0, -0.0, 1.0, 2.0, float("inf"), float("-inf"), float("nan")])


@st.composite
def max_pools(draw):
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    sizes = (
        kernel,
        draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        tuple(draw(st.integers(0, k // 2)) for k in kernel),
        draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        draw(st.booleans()),
    )
    shape = draw(st.tuples(st.integers(1, 2), st.integers(15, 34), st.just(7), st.just(6)))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    # Few different values: most windows hold the maximum, or NaN, several times.
    x = VALUES[torch.randint(len(VALUES), shape, generator=generator)].to(dtype)
    return x, sizes


@given(max_pools())
def test_max_pool_over_many_channels(case):
    x, sizes = case
    y, places = pool_ref.max_pool(x, 2, sizes)
    wanted, at = torch.nn.functional.max_pool2d_with_indices(x, *sizes)
    assert (y.is_contiguous(), places.is_contiguous()) == (True, True)
    torch.testing.assert_close(y, wanted, rtol=0, atol=0, equal_nan=True)
    zeros = wanted == 0
    assert torch.equal(torch.signbit(y[zeros]), torch.signbit(wanted[zeros]))
    assert torch.equal(places, at)


@st.composite
def convolutions(draw):
    pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
    stride, kernel, dilation = draw(pairs), draw(pairs), draw(pairs)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    side = st.integers(7, 9)
    x = draw(st.tuples(st.integers(1, 2), st.integers(1, 3), side, side))
    return x, kernel, stride, padding, dilation


@given(convolutions(), st.integers(0, 99))
def test_weight_gradient_of_few_places(case, seed):
    size, kernel, stride, padding, dilation = case
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=generator)
    places = torch.conv2d(x[:, :1], x.new_zeros(1, 1, *kernel), None, stride, padding, dilation)
    out = 4 * places.numel()
    w = torch.randn(out, size[1], *kernel, generator=generator, dtype=torch.float64)
    w.requires_grad_()
    y = torch.conv2d(x.double(), w, None, stride, padding, dilation)
    dy = torch.randn(y.shape, generator=generator)
    sizes = (stride, padding, dilation, False, (0, 0), 1)
    assert conv_ref._few_places(dy, x, tuple(w.shape), False, 1) == (kernel != (1, 1))
    dw = conv_ref.convolution_weight_grad(dy, x, tuple(w.shape), *sizes)
    (wanted,) = torch.autograd.grad(y, w, dy.double())
    assert (dw.dtype, dw.is_contiguous()) == (torch.float32, True)
    torch.testing.assert_close(dw.double(), wanted, rtol=1e-5, atol=1e-4)
