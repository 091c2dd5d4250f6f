"""Copies, joins, fills and places exchanged: exact, in every layout."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference, poisoned_memory

from onefold.kernels import pad_repeat_ref, pointwise_ref, slicing_ref
from onefold.kernels.gpu.pointwise import copy_kernels

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]


def numbers(shape, dtype=torch.float32):
    return (torch.randn(shape) * 5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies(dtype):
    for shape in ((3,), (70, 50), (2, 3, 40, 5), (0, 4), ()):
        x = numbers(shape, dtype)
        for order in ((0, 1, 2, 3), (3, 2, 1, 0), (0, 2, 3, 1)):
            view = x.permute([dim for dim in order if dim < x.ndim])
            with poisoned_memory():
                found = copy_kernels.contiguous(view)
            assert found.is_contiguous()
            assert torch.equal(found, view)
            y = torch.zeros_like(x)
            copy_kernels.copy_into(y.permute([d for d in order if d < x.ndim]), view)
            assert torch.equal(y, x)


def test_a_copy_keeps_its_layout():
    x = numbers((2, 3, 4, 5)).permute(0, 2, 3, 1)
    found = assert_matches_reference(torch.clone, x)
    assert found.stride() == x.stride()


def test_reshape():
    x = numbers((6, 4))
    assert copy_kernels.reshape(x, (2, 12)).data_ptr() == x.data_ptr()
    assert_matches_reference(torch.reshape, x.t(), (3, -1))
    with pytest.raises(RuntimeError):
        copy_kernels.reshape(x.t(), (5, 5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fills(dtype):
    x = numbers((5, 7), dtype)
    for value in (0, 3, True) if not dtype.is_floating_point else (0, 2.5, -1e30):
        assert_matches_reference(torch.full_like, x, value)
        assert_matches_reference(torch.full_like, x.t(), value)
        assert_matches_reference(pointwise_ref.filled, x, (3, 0, 2), value)
        assert_matches_reference(pointwise_ref.filled, x, (3, 900), value)


@pytest.mark.parametrize("value", [300, -256, math.inf, math.nan, 1e30])
def test_fills_that_integers_cannot_hold(value):
    x = torch.zeros(3, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="without overflow"):
        copy_kernels.fill(x, value)
    assert copy_kernels.fill(x, -1).tolist() == [255] * 3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cat(dtype):
    a, b, c = numbers((5, 4), dtype), numbers((2, 4), dtype), numbers((5, 300), dtype)
    assert_matches_reference(torch.cat, (a, b, a), 0)
    assert_matches_reference(torch.cat, (a, c, a), -1)
    assert_matches_reference(torch.cat, (a.t().contiguous().t(), c), 1)
    assert_matches_reference(torch.cat, (a.t(), b.t()), 1)
    assert_matches_reference(torch.cat, (c[:, ::2], a[:, :1].expand(5, 3)), 1)
    assert_matches_reference(torch.cat, (c[:, 10:20], c[:, 50:60]), 1)
    assert_matches_reference(torch.cat, (a, numbers(0, dtype)), 0)
    assert_matches_reference(torch.cat, (a[:, :0], a), 1)
    assert_matches_reference(torch.cat, (a,), 0)
    assert_matches_reference(
        torch.cat, tuple(a + i for i in range(11)) if dtype is not torch.bool else [a], 1
    )
    assert_matches_reference(torch.stack, (a, a, a), 0)
    assert_matches_reference(torch.stack, (a, a), 1)
    assert_matches_reference(torch.stack, (a.t(), a.t()), -1)
    assert_matches_reference(torch.stack, (a[0, 0], a[1, 1]), 0)


def test_cat_promotes_and_refuses():
    a, b = numbers((3, 4), torch.bfloat16), numbers((3, 2), torch.float32)
    assert_matches_reference(torch.cat, (a, b), 1)
    assert_matches_reference(torch.cat, (a, numbers((3, 2), torch.int64)), 1)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        copy_kernels.cat((a, b), 0)
    z = torch.randn(2, dtype=torch.complex64)
    assert torch.equal(copy_kernels.cat((z, z)), torch.cat((z, z)))


def test_cat_keeps_channels_last():
    x = numbers((2, 3, 4, 5)).to(memory_format=torch.channels_last)
    found = assert_matches_reference(torch.cat, (x, x), 1)
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_places_exchanged(dtype):
    x = numbers((5, 6, 7), dtype)
    for view in (x, x.transpose(0, 2), x[:, ::2], x[:0]):
        assert_matches_reference(torch.flip, view, (0,))
        assert_matches_reference(torch.flip, view, (1, -1))
        assert_matches_reference(torch.roll, view, (1, -2), (0, 2))
        assert_matches_reference(torch.roll, view, 3)
        assert_matches_reference(torch.roll, view, 9, 1)
        for diagonal in (-2, 0, 1, 9):
            assert_matches_reference(torch.tril, view, diagonal)
            assert_matches_reference(torch.triu, view, diagonal)


def test_pads():
    for dtype in DTYPES:
        x = numbers((4, 6), dtype)
        for pads in (((0, 0), (1, 2)), ((3, 0), (-1, 2)), ((-1, -1), (-2, 0)), ((1, 1), (0, 0))):
            for view in (x, x[:0], x.t().contiguous().t()):
                if view.shape[0] or pads[0][0] >= 0:
                    assert_matches_reference(pad_repeat_ref.pad_constant, view, pads, 1)


def test_slices_of_shards():
    x = numbers((6, 8))
    cuts = slicing_ref.overlap([slice(1, 11, 2), slice(2, 5)], [3, 0], [6, 8])
    assert_matches_reference(slicing_ref.take, x, cuts, (5, 3))
    part = slicing_ref.take(x, cuts, (5, 3))
    assert_matches_reference(slicing_ref.put, part, cuts, (6, 8))
    assert_matches_reference(slicing_ref.put_into, x, part, cuts)
    assert_matches_reference(slicing_ref.put_into, x.t().contiguous().t(), part, cuts)
    assert_matches_reference(slicing_ref.put_into, x, None, cuts)
    row = slicing_ref.overlap([4, slice(2, 5)], [3, 0], [6, 8])
    assert_matches_reference(slicing_ref.take, x, row, (3,))
    assert_matches_reference(slicing_ref.put, numbers((3,)), row, (6, 8))
    for function, args in (
        (slicing_ref.take, (x, None, (2, 2))),
        (slicing_ref.put_into, (x, None, None)),
    ):
        assert_matches_reference(function, *args)


@st.composite
def joined(draw):
    ndim = draw(st.integers(1, 4))
    dim = draw(st.integers(0, ndim - 1))
    shape = [draw(st.integers(1, 5)) for _ in range(ndim)]
    parts = []
    for _ in range(draw(st.integers(1, 10))):
        shape[dim] = draw(st.sampled_from([0, 1, 3, 40]))
        order = draw(st.permutations(range(ndim)))
        x = numbers([shape[d] * draw(st.integers(1, 2)) for d in order])
        x = x.permute([order.index(d) for d in range(ndim)])
        parts.append(x[tuple(slice(0, size) for size in shape)])
    return parts, dim


@settings(max_examples=40)
@given(joined())
def test_cat_of_any_parts(drawn):
    assert_matches_reference(torch.cat, *drawn)
