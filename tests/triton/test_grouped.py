"""Products in groups, with ends that no host knows: empty groups, rows behind the last, layouts."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference, poisoned_memory, without_records

from onefold.kernels import grouped_ref
from onefold.kernels.gpu.matmul import grouped_kernels
from onefold.kernels.gpu.matmul.gemm_config import Tile

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def check(sizes, behind, k, n, dtype, columns=False):
    ends = torch.tensor(sizes).cumsum(0).to(torch.int32)
    m = sum(sizes) + behind
    a, b, dy = (torch.randn(shape, dtype=dtype) for shape in ((m, k), (len(sizes), k, n), (m, n)))
    if columns:
        a, b, dy = a.t().contiguous().t(), b.mT.contiguous().mT, dy.t().contiguous().t()
    with poisoned_memory():
        for reference, args in (
            (grouped_ref.grouped_rows, (a, b, ends)),
            (grouped_ref.grouped_sums, (a, dy, ends)),
        ):
            assert_matches_reference(reference, *args, slack=8.0 if dtype.itemsize > 2 else 4.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("columns", [False, True])
def test_groups(dtype, columns):
    check([7, 0, 20, 1], 3, 24, 17, dtype, columns)


@settings(max_examples=6)
@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=5), behind=st.integers(0, 20),
       k=st.integers(1, 20), n=st.integers(1, 20))  # fmt: skip
def test_any_sizes(sizes, behind, k, n):
    check(sizes, behind, k, n, torch.float32)


def test_small_tiles(monkeypatch):
    """Groups of several tiles, and tiles of several steps."""
    monkeypatch.setattr(grouped_kernels, "_tile", lambda *_: Tile(16, 16, 16, 4, 2))
    check([40, 0, 17], 18, 37, 35, torch.bfloat16)


def far_columns(rows, columns, step):
    """A batch of a matrix whose columns are so many elements apart, which take no memory."""
    x = torch.empty(step * (columns - 1) + rows, dtype=torch.float16)
    x = x.as_strided((1, rows, columns), (x.numel(), 1, step))
    return x.copy_(torch.randn(1, rows, columns))


def test_columns_behind_two_to_the_31_elements(monkeypatch):
    """Offsets inside of a tile fit 32 bits, those of the tile do not."""
    without_records(monkeypatch)
    monkeypatch.setattr(grouped_kernels, "_tile", lambda *_: Tile(16, 16, 16, 4, 2))
    x = far_columns(3, 40, 56_000_000)
    near, ends = x.contiguous(), torch.tensor([5], dtype=torch.int32)
    a, dy = torch.randn(2, 5, 3).half()
    mine, wanted = (grouped_kernels.grouped_rows(a, b, ends) for b in (x, near))
    assert torch.equal(mine, wanted)
    ends = torch.tensor([3], dtype=torch.int32)
    mine, wanted = (grouped_kernels.grouped_sums(b[0], dy[:3], ends) for b in (x, near))
    assert torch.equal(mine, wanted)


@pytest.mark.parametrize("ends", [[5, 3, 9], [2, 90, 95], [-4, 3, 3]], ids=str)
def test_ends_that_are_none_reach_no_other_memory(ends):
    a, b = torch.randn(8, 3), torch.randn(3, 3, 2)
    given = torch.tensor(ends, dtype=torch.int32)
    assert_matches_reference(grouped_ref.grouped_rows, a, b, given, slack=8.0)
    assert_matches_reference(grouped_ref.grouped_sums, a, torch.randn(8, 2), given, slack=8.0)
