"""Elements repeated, put on diagonals, padded with a tensor's own, and windows added up."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import attention_ref, pad_repeat_ref, select

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool]
SUMMED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64]
MODES = ["reflect", "replicate", "circular"]


def numbers(shape, dtype=torch.float32):
    return (torch.randn(shape) * 5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_repeats(dtype):
    x = numbers((3, 5, 4), dtype)
    for view in (x, x.transpose(0, 2), x[:, ::2], x[:, :1], x[:0]):
        assert_matches_reference(pad_repeat_ref.repeat, view, (2, 1, 3))
        assert_matches_reference(pad_repeat_ref.repeat, view, (2, 1, 3, 1, 2))
        assert_matches_reference(pad_repeat_ref.repeat, view, (1, 0, 1))
        for dim in (0, 1, -1):
            assert_matches_reference(pad_repeat_ref.repeat_interleave, view, 3, dim)
        assert_matches_reference(pad_repeat_ref.repeat_interleave, view, 0, 1)
    assert_matches_reference(pad_repeat_ref.repeat, numbers((), dtype), (2, 3))
    assert_matches_reference(pad_repeat_ref.repeat, numbers((), dtype), ())
    for times in ((1, 2), (1, 2, -1)):
        with pytest.raises(RuntimeError):
            select.triton_kernel(pad_repeat_ref.repeat)(x, times)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_diagonals(dtype):
    for shape, offset, dims in (((4, 6), 0, (0, 1)), ((4, 6), 3, (1, 0)), ((3, 5, 4), -2, (0, -1))):
        x = torch.diagonal(numbers(shape, dtype), offset, *dims)
        assert_matches_reference(pad_repeat_ref.diag_embed, x, shape, offset, *dims)
        assert_matches_reference(pad_repeat_ref.diag_embed, x.contiguous(), shape, offset, *dims)
    assert_matches_reference(pad_repeat_ref.diag_embed, numbers((0,), dtype), (0, 3), 0, 0, 1)


@pytest.mark.parametrize("dtype", SUMMED[:-1], ids=str)
def test_causal_fill(dtype):
    x = numbers((2, 5, 7), dtype)
    for view in (x, x.transpose(1, 2), x[:0]):
        for first in (-2, 0, 3, 9):
            assert_matches_reference(
                attention_ref.causal_fill, view, torch.finfo(dtype).min / 2, first
            )
            assert_matches_reference(attention_ref.causal_fill, view, 0.0, first)


PADS = [
    ((0, 0), (0, 0), (2, 1)),
    ((0, 0), (0, 0), (0, 3)),
    ((0, 0), (1, 2), (3, 0)),
    ((0, 0), (-1, 2), (3, -2)),
    ((1, 1), (0, 0), (2, 0)),
    ((0, 2), (2, 0), (1, 1)),
    ((1, 0), (0, 0), (0, 0)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pads_of_own_elements(dtype, mode):
    x = numbers((3, 4, 5), dtype)
    for pads in PADS:
        for view in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
            assert_matches_reference(pad_repeat_ref.pad, view, pads, mode)
    assert_matches_reference(pad_repeat_ref.pad, x, ((0, 0),) * 3, mode)
    assert_matches_reference(pad_repeat_ref.pad, x[:0], PADS[0], mode)


def test_pads_of_more_dims_than_one_launch_takes():
    x, pads = numbers((2, 3, 2, 3, 2)), ((1, 0), (0, 2), (0, 0), (1, 1), (0, 1))
    assert_matches_reference(pad_repeat_ref.pad, x, pads, "reflect")
    assert_matches_reference(
        pad_repeat_ref.pad_grad, pad_repeat_ref.pad(x, pads, "reflect"), pads, "reflect"
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_gradients_of_pads(dtype, mode):
    for pads in PADS:
        shape = [size + sum(both) for size, both in zip((3, 4, 5), pads, strict=True)]
        dy = numbers(shape, dtype)
        assert_matches_reference(pad_repeat_ref.pad_grad, dy, pads, mode)
        assert_matches_reference(
            pad_repeat_ref.pad_grad, dy.transpose(1, 2).contiguous().transpose(1, 2), pads, mode
        )
    assert_matches_reference(pad_repeat_ref.pad_grad, dy[:0], PADS[0], mode)


@st.composite
def padded(draw):
    mode = draw(st.sampled_from(MODES))
    sizes = [draw(st.integers(1, 9)) for _ in range(3)]
    most = {"reflect": lambda n: n - 1, "circular": lambda n: n, "replicate": lambda n: 12}[mode]
    pads = []
    for size in sizes:
        before = draw(st.integers(1 - size, most(size)))
        pads.append((before, draw(st.integers(1 - size - min(before, 0), most(size)))))
    return sizes, tuple(pads), mode


@settings(max_examples=15)
@given(padded())
def test_any_pads(drawn):
    sizes, pads, mode = drawn
    x = numbers(sizes, torch.float64)
    y = assert_matches_reference(pad_repeat_ref.pad, x, pads, mode)
    assert_matches_reference(pad_repeat_ref.pad_grad, torch.randn_like(y), pads, mode, slack=20)


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
def test_windows_are_added(dtype):
    for length, size, step in ((9, 3, 1), (9, 2, 3), (1, 1, 1), (8, 5, 2)):
        for dim in (0, 1, 2):
            shape = [3, 4, 2]
            shape[dim] = length
            dy = numbers(shape, dtype).unfold(dim, size, step)
            assert_matches_reference(pad_repeat_ref.unfold_grad, dy, dim, length, step)
    assert_matches_reference(pad_repeat_ref.unfold_grad, numbers((0, 4, 3), dtype), 1, 9, 2)
