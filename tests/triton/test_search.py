"""Binary searches: the places that torch finds."""

import pytest
import torch
from triton_harness import assert_matches_reference

import onefold as flow
from onefold.engine.dispatch_plan import clear_plans
from onefold.engine.ops import random_creation
from onefold.kernels import search_ref

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.uint8,
]  # fmt: skip


def ordered(dtype, *shape):
    return (torch.rand(shape) * 40).to(dtype).sort(-1).values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(dtype, right):
    for rows, numbers in [
        ((9,), (4, 7)), ((1,), (3,)), ((3, 17), (3, 300)), ((2, 3, 64), (2, 3, 1)),
        ((0,), (3,)), ((5,), ()), ((4, 6), (4, 0)),
    ]:  # fmt: skip
        sequence, wanted = ordered(dtype, *rows), (torch.rand(numbers) * 44 - 2).to(dtype)
        assert_matches_reference(search_ref.searchsorted, sequence, wanted, right=right)
        assert_matches_reference(
            search_ref.searchsorted, sequence, wanted, out_int32=True, right=right
        )
        if len(rows) == 1:
            assert_matches_reference(search_ref.bucketize, wanted, sequence, right=right)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_integers_that_float32_does_not_tell_apart(dtype):
    sequence = torch.arange(2**30, 2**30 + 50, 3).to(dtype)
    numbers = torch.arange(2**30 - 2, 2**30 + 52).to(dtype)
    for right in (False, True):
        assert_matches_reference(search_ref.searchsorted, sequence, numbers, right=right)


@pytest.mark.filterwarnings("ignore:torch.searchsorted")
def test_nan_infinity_and_strides():
    sequence = torch.tensor([-torch.inf, 1.0, 1.0, 2.0, torch.inf, torch.nan])
    numbers = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0, 1.5]).expand(3, 5).t()
    for side in ("left", "right"):
        assert_matches_reference(search_ref.searchsorted, sequence, numbers, side=side)
    columns = ordered(torch.float32, 7, 4).t().contiguous().t()
    assert_matches_reference(search_ref.searchsorted, columns, torch.rand(5, 7).t() * 40)


def test_in_an_order_of_its_own():
    rows = torch.rand(4, 30)
    numbers = torch.rand(4, 9)
    assert_matches_reference(search_ref.searchsorted, rows, numbers, sorter=rows.argsort(-1))


def test_errors_are_those_of_torch():
    for call in (search_ref.searchsorted, flow.searchsorted):
        given = [torch.rand(3, 4), torch.rand(2, 4)]
        if call is flow.searchsorted:
            given = [flow.from_torch(x) for x in given]
        with pytest.raises(RuntimeError, match="should"):
            call(*given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_multinomial_has_the_draws_of_the_references(monkeypatch, dtype):
    weights = flow.from_torch(
        torch.rand(5, 700).to(dtype).masked_fill_(torch.rand(5, 700) < 0.5, 0)
    )
    found = []
    for kernels in ("triton", "torch"):
        monkeypatch.setenv("ONEFOLD_KERNELS", kernels)
        clear_plans()
        random_creation._local_draw.cache_clear()
        flow.manual_seed(3)
        found.append([flow.multinomial(weights, 40, again).to_torch() for again in (True, False)])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
