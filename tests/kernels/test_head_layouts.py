"""Heads are split off a product, turned, attended with and joined again without a copy."""

import pytest

import onefold as flow
from onefold.testing.gpu_driver import GpuDriver

F = flow.nn.functional
ROWS, LENGTH, HEADS, SIZE = 2, 64, 4, 16


def joined(q, k, v, turned):
    """The attention of products (rows, length, width), with rotary embeddings or without."""
    heads = [x.view(ROWS, LENGTH, -1, SIZE).transpose(1, 2) for x in (q, k, v)]
    if turned:
        angles = flow.zeros(LENGTH, SIZE // 2)
        heads[:2] = [F.rotary(x, angles, angles) for x in heads[:2]]
    y = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    return y.transpose(1, 2).reshape(ROWS, LENGTH, -1)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("fewer", [1, 2])
def test_heads_are_not_copied(turned, fewer):
    given = [
        flow.zeros(ROWS, LENGTH, count * SIZE, dtype=flow.bfloat16, requires_grad=True)
        for count in (HEADS, HEADS // fewer, HEADS // fewer)
    ]
    with GpuDriver("none") as gpu:
        y = joined(*given, turned)
        y.backward(flow.zeros(*y.shape, dtype=y.dtype))
    assert gpu.launches["forward"] == gpu.launches["of_keys"] == 1
    assert gpu.launches["_rotary"] == (4 if turned else 0)
    assert gpu.launches["pointwise_copy"] == 0
