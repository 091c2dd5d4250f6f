"""Boxing of every dtype: moved, joined and filled as torch itself would."""

import boxing_oracle as oracle
import pytest
import torch

from onefold.engine.boxing import plan, run
from onefold.engine.sbp import parse

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e5m2]
MOVED = [*FLOATS, *INTS, *EIGHT_BITS, torch.bool, torch.complex64]


def box(a, b, shards, shape, ranks=(0, 1, 2)):
    src = oracle.metas(shape, shards[0].dtype, list(ranks), a)
    return run(plan(src, src.like(nd_sbp=parse(b))), tuple(shards))


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_moving(dtype):
    whole = torch.arange(21).reshape(7, 3).remainder(2).to(dtype)
    rows = torch.tensor_split(whole.float() if dtype in EIGHT_BITS else whole, 3)
    rows = [row.to(dtype) for row in rows]
    (first, *_) = box("S0", "B", rows, (7, 3))
    assert first.dtype == dtype
    assert torch.equal(first.view(torch.uint8), whole.view(torch.uint8))
    columns = box("S0", "S1", rows, (7, 3))
    for column, want in zip(
        columns, torch.tensor_split(whole.view(torch.uint8), 3, 1), strict=True
    ):
        assert torch.equal(column.contiguous().view(torch.uint8), want)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.complex64], ids=str)
def test_sums(dtype):
    addends = [torch.arange(4).to(dtype) + k for k in range(3)]
    for made in box("P", "B", addends, (4,)):
        assert torch.equal(made, addends[0] + addends[1] + addends[2])
    zeros = box("S0", "P", [addends[0][:2], addends[0][2:3], addends[0][3:]], (4,))
    assert torch.equal(zeros[0] + zeros[1] + zeros[2], addends[0])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool], ids=str)
@pytest.mark.parametrize(("kind", "join"), [("PMAX", torch.maximum), ("PMIN", torch.minimum)])
def test_extremes(dtype, kind, join):
    addends = [torch.tensor([1, 0, k == 1, 0]).to(dtype) for k in range(3)]
    want = join(join(addends[0], addends[1]), addends[2])
    for made in box(kind, "B", addends, (4,)):
        assert torch.equal(made, want)
    filled = box("S0", kind, [want[:2], want[2:3], want[3:]], (4,))
    assert torch.equal(join(join(filled[0], filled[1]), filled[2]), want)


def test_nan_wins_a_maximum():
    addends = [torch.tensor([1.0, float("nan")]), torch.tensor([float("nan"), 2.0]), torch.ones(2)]
    for made in box("PMAX", "B", addends, (2,)):
        assert made.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_sums_are_rounded_once(dtype):
    torch.manual_seed(0)
    addends = [torch.randn(1000).to(dtype) for _ in range(3)]
    exact = sum(addend.double() for addend in addends)
    (made, *_) = box("P", "B", addends, (1000,))
    assert torch.equal(made, exact.to(dtype))


def test_sums_have_one_order():
    """The sum of a shard does not depend on how the sum was laid out."""
    torch.manual_seed(0)
    addends = [torch.randn(9) for _ in range(3)]
    (whole, *_) = box("P", "B", addends, (9,))
    assert torch.equal(torch.cat(box("P", "S0", addends, (9,))), whole)


def test_shards_need_not_be_contiguous():
    whole = torch.arange(12.0).reshape(4, 3)
    shards = [piece.t().contiguous().t() for piece in torch.tensor_split(whole, 3)]
    columns = box("S0", "S1", shards, (4, 3))
    assert torch.equal(torch.cat(columns, 1), whole)
