"""Rotary position embedding, of dense and of strided heads."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import rotary_ref
from onefold.kernels.gpu.attention import rotary_kernels as gpu

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def drawn(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_rotary(dtype, interleaved, back):
    for x, table, seq_dim in (
        ((2, 3, 5, 8), (5, 4), 2),
        ((2, 5, 11, 10), (5, 4), 1),
        ((3, 2, 5, 6), (3, 5, 3), 2),
        ((7, 6), (7, 3), 0),
        ((0, 3, 4), (3, 2), 1),
        ((2, 2, 3, 2, 4), (3, 2), 2),
    ):
        cos, sin = drawn(*table), drawn(*table)
        rest = (seq_dim, interleaved, back)
        assert_matches_reference(
            rotary_ref.rotary, drawn(*x, dtype=dtype), cos, sin, *rest, slack=4
        )
        assert_matches_reference(
            rotary_ref.rotary, drawn(*x, dtype=dtype), cos.to(dtype), sin.to(dtype), *rest, slack=4
        )


def test_many_positions_and_heads_of_a_joint_projection():
    joint = drawn(2, 70, 3, 9, 64)
    q = joint[:, :, 1].transpose(1, 2)
    assert not q.is_contiguous()
    assert_matches_reference(rotary_ref.rotary, q, drawn(70, 32), drawn(70, 32), 2, False, False)
    assert_matches_reference(rotary_ref.rotary, q.mT, drawn(64, 35), drawn(64, 35), 2, True, True)


@pytest.mark.parametrize("interleaved", [False, True])
def test_positions_first_and_two_dims_that_lie_the_other_way_round(interleaved):
    x = drawn(5, 2, 3, 10).transpose(1, 2)
    assert_matches_reference(
        rotary_ref.rotary, x, drawn(5, 4), drawn(5, 4), 0, interleaved, False, slack=4
    )


def test_many_heads(monkeypatch):
    """As of a large batch behind the positions: a grid has at most 65535 programs along them."""
    monkeypatch.setattr(gpu, "_MOST", 3)
    x = drawn(2, 7, 9, 8)
    launched = mock.Mock(wraps=gpu._rotary.launch)
    monkeypatch.setattr(gpu._rotary, "launch", launched)
    assert_matches_reference(rotary_ref.rotary, x, drawn(2, 4), drawn(2, 4), 0, False, False)
    assert launched.call_args.args[0] == (1, 2)


def test_turning_back():
    x, angle = drawn(2, 5, 8), drawn(5, 4)
    there = assert_matches_reference(
        rotary_ref.rotary, x, angle.cos(), angle.sin(), 1, False, False
    )
    back = assert_matches_reference(
        rotary_ref.rotary, there, angle.cos(), angle.sin(), 1, False, True
    )
    torch.testing.assert_close(back, x)


@settings(max_examples=10)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.data())
def test_any_shape(shape, data):
    seq_dim = data.draw(st.integers(0, len(shape) - 2))
    pairs = data.draw(st.integers(1, 5))
    x = drawn(*shape[:-1], 2 * pairs + shape[-1] - 1)
    batch = (shape[0],) if seq_dim and data.draw(st.booleans()) else ()
    table = (*batch, shape[seq_dim], pairs)
    assert_matches_reference(
        rotary_ref.rotary,
        x,
        drawn(*table),
        drawn(*table),
        seq_dim,
        data.draw(st.booleans()),
        False,
        slack=4,
    )
