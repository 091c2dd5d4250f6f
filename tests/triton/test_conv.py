"""Convolutions and their gradients for the weight; transposed ones are gradients for the input."""

import pytest
import torch
from hypothesis import given, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import conv_ref
from onefold.kernels.gpu.conv import one_product
from onefold.kernels.gpu.conv.conv_geometry import Sizes
from onefold.kernels.gpu.conv.phases import phases
from onefold.kernels.gpu.pointwise import channels_last as memory

# channels, outs, groups, taps, stride, padding, dilation
KINDS = {
    "few channels": (3, 5, 1, (3, 2), (2, 1), (1, 2), (1, 1)),
    "product": (16, 20, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
    "strided": (32, 17, 1, (3, 3), (2, 2), (1, 0), (1, 2)),
    "one tap": (48, 16, 1, (1, 1), (1, 1), (0, 0), (1, 1)),
    "one tap of two places": (48, 16, 1, (1, 1), (2, 2), (0, 0), (1, 1)),
    "strides over taps": (16, 20, 1, (2, 2), (3, 4), (1, 0), (2, 3)),
    "depthwise, strides over taps": (6, 6, 6, (2, 1), (3, 2), (0, 0), (1, 1)),
    "groups": (32, 64, 2, (2, 2), (1, 1), (0, 0), (1, 1)),
    "depthwise": (6, 6, 6, (3, 3), (1, 2), (1, 1), (1, 1)),
    "depthwise of many": (70, 70, 70, (3, 2), (1, 1), (1, 0), (1, 1)),
    "small groups": (6, 9, 3, (2, 3), (2, 1), (0, 1), (2, 1)),
    "few channels, volume": (3, 5, 1, (2, 3, 2), (1, 2, 1), (1, 0, 1), (2, 1, 1)),
    "product, volume": (16, 20, 1, (3, 2, 2), (2, 1, 2), (1, 1, 0), (1, 1, 2)),
    "each depth alone": (16, 16, 1, (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    "groups, volume": (32, 32, 2, (2, 1, 2), (1, 1, 1), (0, 0, 1), (1, 1, 1)),
    "depthwise, volume": (20, 20, 20, (3, 3, 3), (1, 1, 2), (1, 1, 1), (1, 1, 1)),
    "small groups, volume": (6, 9, 3, (2, 3, 1), (2, 1, 1), (0, 1, 0), (1, 1, 1)),
}
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def check(kind, dtype, last=False):
    channels, outs, groups, taps, *sizes = kind
    dims = len(taps)
    x = torch.randn(dims - 1, channels, *((5, 6) if dims == 2 else (4, 5, 3))).to(dtype)
    w = torch.randn(outs, channels // groups, *taps).to(dtype)
    if last:
        x = x.contiguous(memory_format=FORMATS[dims])
    bias = torch.randn(outs).to(dtype)
    more = (False, (0,) * dims, groups)
    slack = 40 if dtype in (torch.float64, torch.float32) else 2
    y = assert_matches_reference(conv_ref.convolution, x, w, bias, *sizes, *more, slack=slack)
    dy = torch.randn_like(y)
    shape = tuple(w.shape)
    for channels_last in (False, True):
        args = (dy, x, shape, *sizes, *more, channels_last)
        dw = assert_matches_reference(conv_ref.convolution_weight_grad, *args, slack=slack)
        form = FORMATS[dims] if channels_last else torch.contiguous_format
        assert dw.is_contiguous(memory_format=form)
    more = (True, (0,) * dims, groups)
    back = assert_matches_reference(conv_ref.convolution, dy, w, None, *sizes, *more, slack=slack)
    args = (torch.randn_like(back), dy, shape, *sizes, *more)
    assert_matches_reference(conv_ref.convolution_weight_grad, *args, slack=slack)
    assert y.is_contiguous(memory_format=FORMATS[dims])


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind):
    check(KINDS[kind], torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["few channels", "one tap", "small groups", "product, volume"])
def test_dtypes(kind, dtype):
    check(KINDS[kind], dtype)


def test_float32_may_be_rounded_to_tf32_as_in_torch(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    x, w = torch.randn(2, 16, 6, 7), torch.randn(16, 16, 2, 2)
    sizes = ((1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    assert_matches_reference(conv_ref.convolution, x, w, None, *sizes, slack=2**13)


def test_channels_last_is_taken_as_it_is():
    check(KINDS["product"], torch.float32, last=True)
    check(KINDS["depthwise"], torch.bfloat16, last=True)
    check(KINDS["product, volume"], torch.bfloat16, last=True)


@pytest.mark.parametrize("kind", ["product", "depthwise", "depthwise, volume"])
def test_channels_last_is_not_copied(monkeypatch, kind):
    def copied(x):
        raise AssertionError("a copy of what is dense already")

    monkeypatch.setattr(memory, "contiguous", copied)
    channels, outs, groups, taps, *sizes = KINDS[kind]
    dims = len(taps)
    x = torch.randn(2, channels, *(5, 6, 4)[:dims]).contiguous(memory_format=FORMATS[dims])
    w = torch.randn(outs, channels // groups, *taps).contiguous(memory_format=FORMATS[dims])
    more = (*sizes, False, (0,) * dims, groups)
    y = assert_matches_reference(conv_ref.convolution, x, w, None, *more, slack=40)
    args = (y, x, tuple(w.shape), *more)
    assert_matches_reference(conv_ref.convolution_weight_grad, *args, slack=40)


def test_one_dim():
    x, w = torch.randn(2, 4, 9), torch.randn(6, 4, 3)
    sizes = ((2,), (1,), (1,), False, (0,), 1)
    y = assert_matches_reference(conv_ref.convolution, x, w, None, *sizes)
    dy = torch.randn_like(y)
    assert_matches_reference(conv_ref.convolution_weight_grad, dy, x, (6, 4, 3), *sizes)
    assert_matches_reference(conv_ref.convolution, dy, w, None, (2,), (1,), (1,), True, (1,), 1)


def test_many_places_in_parts():
    kind = (3, 4, 1, (3, 3), (1, 1), (1, 1), (1, 1))
    x = torch.randn(3, 3, 20, 21, dtype=torch.float64)
    dy = torch.randn(3, 4, 20, 21, dtype=torch.float64)
    args = (dy, x, (4, 3, 3, 3), *kind[4:], False, (0, 0), 1)
    assert_matches_reference(conv_ref.convolution_weight_grad, *args, slack=100)
    x, dy = (torch.randn(2, 3, 7, 9, 9, dtype=torch.float64) for _ in range(2))
    sizes = [(1,) * 3] * 3
    args = (dy, x, (3, 3, 3, 3, 3), *sizes, False, (0,) * 3, 1)
    assert_matches_reference(conv_ref.convolution_weight_grad, *args, slack=100)


@pytest.mark.parametrize("groups", [1, 2, 16], ids=["one group", "small groups", "depthwise"])
def test_transposed_with_strides_and_a_bias(groups):
    """Also with outputs that no tap reaches."""
    x, w = torch.randn(2, 16, 4, 5), torch.randn(16, 16 // groups, 3, 2)
    sizes = ((3, 3), (1, 0), (1, 1), True, (2, 1), groups)
    assert_matches_reference(conv_ref.convolution, x, w, torch.randn(16), *sizes, slack=40)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("taps", [(2, 2), (3, 1), (2, 3, 2), (4,)], ids=str)
def test_transposed_with_patches_is_one_product(taps, dtype, monkeypatch):
    ran = []
    inner = one_product.product
    monkeypatch.setattr(one_product, "product", lambda *args: ran.append(1) or inner(*args))
    dims = len(taps)
    x, w = torch.randn(2, 6, *(3, 4, 2)[:dims]).to(dtype), torch.randn(6, 5, *taps).to(dtype)
    more = (taps, (0,) * dims, (1,) * dims, True, (0,) * dims, 1)
    for bias in (None, torch.randn(5).to(dtype)):
        y = assert_matches_reference(conv_ref.convolution, x, w, bias, *more, slack=40)
        assert y.stride(1) == 1
    assert ran
    ran.clear()
    more = (*more[:4], tuple(tap - 1 for tap in taps), 1)
    assert_matches_reference(conv_ref.convolution, x, w, None, *more, slack=40)
    assert not ran  # outputs behind the last patch


@st.composite
def dims(draw):
    """Taps, stride, padding and dilation of a dim."""
    return tuple(draw(st.integers(least, 6)) for least in (1, 1, 0, 1))


@given(dims())
def test_phases_have_each_tap_of_each_output_once(dim):
    taps, stride, padding, dilation = dim
    found = []
    sizes = Sizes((1, 1, stride), (0, 0, padding), (1, 1, dilation))
    outputs = range(4 * stride * (1 + dilation))
    for phase in phases((1, 1, taps), sizes):
        for n, o in enumerate(outputs[phase.outputs[-1]]):
            for u, tap in enumerate(range(taps)[phase.taps[-1]]):
                found.append((o, tap, n + phase.padding[-1] - u * phase.dilation[-1]))
    wanted = [
        (o, tap, (o + padding - tap * dilation) // stride)
        for o in outputs
        for tap in range(taps)
        if (o + padding - tap * dilation) % stride == 0
    ]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("taps", [1, 3])
def test_nothing(taps, dtype):
    sizes = ((1, 1), (0, 0), (1, 1))
    x, w = torch.randn(0, 4, 6, 6).to(dtype), torch.randn(4, 4, taps, taps).to(dtype)
    for transposed in (False, True):
        more = (*sizes, transposed, (0, 0), 1)
        assert_matches_reference(conv_ref.convolution, x, w, None, *more)
    x, w = torch.randn(2, 0, 6, 6).to(dtype), torch.randn(5, 0, taps, taps).to(dtype)
    assert_matches_reference(conv_ref.convolution, x, w, None, *sizes, False, (0, 0), 1)


def test_bad_sizes():
    with pytest.raises(RuntimeError):
        assert_matches_reference(
            conv_ref.convolution, torch.zeros(1, 3, 4, 4), torch.zeros(2, 4, 1, 1), None,
            (1, 1), (0, 0), (1, 1), False, (0, 0), 1,
        )  # fmt: skip
