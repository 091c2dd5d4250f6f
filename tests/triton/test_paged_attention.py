"""Attention to keys and values in pages of a cache."""

import pytest
import torch
from triton_harness import assert_matches_reference, without_records

from onefold.kernels import paged_attention_ref as reference
from onefold.kernels.gpu.attention import paged_attention_kernels as gpu

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SLACK = {torch.float64: 64.0, torch.float32: 8.0}


def cache(dtype, lens, heads, features, size=4, table_dtype=torch.int32):
    """Pages in any order; what no sequence has is NaN, and unused numbers are none."""
    most = -(-max(lens) // size) + 1
    table = torch.randperm(len(lens) * most).view(len(lens), most)
    pages = [torch.randn(len(lens) * most, size, heads, d).to(dtype) for d in features]
    for row, n in enumerate(lens):
        used = -(-n // size)
        for x in pages:
            x[table[row, used:]] = float("nan")
            if n % size:
                x[table[row, used - 1], n % size :] = float("nan")
        table[row, used:] = -7
    return *pages, table.to(table_dtype), torch.tensor(lens, dtype=table_dtype)


def check(dtype, lens, heads, group, queries, features, **kw):
    pages = cache(dtype, lens, heads, features, **kw)
    q = torch.randn(len(lens), heads * group, queries, features[0]).to(dtype)
    rest = (0.3, queries, 0)
    slack = SLACK.get(dtype, 4.0)
    return assert_matches_reference(reference.paged_attention, q, *pages, *rest, slack=slack)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_token_for_each_sequence(dtype):
    check(dtype, [13, 1, 40, 4], 2, 1, 1, (16, 16))
    check(dtype, [13, 0, 7], 2, 4, 1, (20, 12), table_dtype=torch.int64)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_several_tokens_see_those_before_them(dtype):
    check(dtype, [13, 5], 2, 3, 5, (8, 8), size=16)
    y = check(dtype, [2, 30], 1, 2, 40, (8, 8))  # more than there are: those before see nothing
    assert torch.equal(y[0, :, :38], torch.zeros_like(y[0, :, :38]))


def test_queries_behind_two_to_the_31_elements(monkeypatch):
    """As of a long prompt, in a projection of all heads. What is between takes no memory."""
    without_records(monkeypatch)
    *pages, table, lens = cache(torch.float16, [13], 1, (8, 8))
    q = torch.randn(1, 1, 3, 8).half()
    step = 2**30 + 8
    far = torch.empty(2 * step + 8, dtype=q.dtype)
    far = far.as_strided(q.shape, (far.numel(), far.numel(), step, 1)).copy_(q)
    mine, wanted = (gpu.paged_attention(x, *pages, table, lens, 0.5, 3, 0) for x in (far, q))
    assert torch.equal(mine, wanted)


def test_a_part_of_the_queries():
    pages = cache(torch.float32, [13, 5], 2, (8, 8))
    q = torch.randn(2, 4, 5, 8)
    whole = reference.paged_attention(q, *pages, 0.5, 5, 0)
    part = assert_matches_reference(
        reference.paged_attention, q[:, :, 2:4], *pages, 0.5, 5, 2, slack=8
    )
    torch.testing.assert_close(part, whole[:, :, 2:4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_long_context_in_parts(dtype, monkeypatch):
    launched = []
    launch = gpu._joined.launch
    monkeypatch.setattr(
        gpu._joined, "launch", lambda *a, **k: (launched.append(a[0]), launch(*a, **k))
    )
    monkeypatch.setattr(gpu, "_LEAST", 32)
    gpu._sizes.cache_clear()
    try:
        check(dtype, [300, 1, 129], 1, 4, 2, (16, 8), size=8)
    finally:
        gpu._sizes.cache_clear()
    assert launched[-1] == (3 * 4 * 2,)


def test_strides_of_a_joint_projection():
    k, v, table, lens = cache(torch.float32, [9, 6], 2, (8, 8))
    joint = torch.stack((k, v), 2)  # pages of keys and values
    q = torch.randn(2, 1, 4, 8).transpose(1, 2)
    given = q, joint[:, :, 0], joint[:, :, 1], table, lens
    assert_matches_reference(reference.paged_attention, *given, 0.3, 1, 0, slack=8)


def test_numbers_of_blocks_are_checked_on_the_cpu():
    k, v, table, lens = cache(torch.float32, [9, 6], 2, (8, 8))
    q = torch.randn(2, 2, 1, 8)
    table[0, 0] = len(k)
    with pytest.raises(IndexError, match="none of the"):
        reference.paged_attention(q, k, v, table, lens, 0.3, 1, 0)
    with pytest.raises(IndexError, match="no room"):
        reference.paged_attention(q, k, v, table, lens + 90, 0.3, 1, 0)
