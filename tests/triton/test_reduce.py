"""Reductions over any dims and scans."""

import math

import pytest
import torch
from device_checks import DEVICE
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import reduce_ref

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool]
CASES = [
    ((5, 7), None), ((3, 4, 5), (0, 2)), ((), None), ((3, 33), -1), ((2, 1, 5), (1,)),
    ((4, 0, 3), 2), ((2, 9, 70), 1),
]  # fmt: skip
ONE_DIM = [((3, 9, 5), 1), ((6,), 0), ((3, 70), -1), ((4, 0), 0)]


def drawn(shape, dtype, seed=0):
    """Numbers of which sums are exact in no float, and small integers."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 5, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), CASES, ids=str)
def test_sums(shape, dim, dtype):
    x = drawn(shape, dtype)
    assert_matches_reference(reduce_ref.total, x, dim, False, None)
    assert_matches_reference(reduce_ref.any_of, x, dim, True)
    assert_matches_reference(reduce_ref.all_of, x, dim, False)
    if dtype.is_floating_point:
        assert_matches_reference(reduce_ref.mean, x, dim, True, None)
        assert_matches_reference(reduce_ref.partial_mean, x, dim, False, None, 999)
        assert_matches_reference(reduce_ref.vector_norm, x, 2, dim, False)
    if x.numel():
        assert_matches_reference(reduce_ref.amax, x, dim, False)
        assert_matches_reference(reduce_ref.amin, x, dim, True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "dim"), CASES, ids=str)
def test_formulas(shape, dim, dtype):
    x = drawn(shape, dtype) + 3
    if x.numel() == 0:
        return
    if x.ndim:
        assert_matches_reference(reduce_ref.var, x, dim, 1 if shape != (2, 1, 5) else 0, False)
        assert_matches_reference(reduce_ref.std, x, dim, 0.5, True)
        assert_matches_reference(reduce_ref.logsumexp, x, dim if dim is not None else (0, 1), False)
        kept = reduce_ref.mean(x, dim, True, None)
        assert_matches_reference(reduce_ref.variance_around, x, kept, dim, 2.5, True)
    for order in (0, 1, -1, math.inf) if shape else (3, 0.5, -math.inf):
        assert_matches_reference(reduce_ref.vector_norm, x, order, dim, False, slack=8)


@pytest.mark.parametrize("dtype", DTYPES[:-1], ids=str)
@pytest.mark.parametrize(("shape", "dim"), ONE_DIM, ids=str)
def test_along_one_dim(shape, dim, dtype):
    x = drawn(shape, dtype)
    assert_matches_reference(reduce_ref.prod, x, dim, True)
    assert_matches_reference(reduce_ref.cumsum, x, dim, False, slack=8)
    assert_matches_reference(reduce_ref.cumsum, x, dim, True, slack=8)
    assert_matches_reference(reduce_ref.cumprod, x, dim, False)
    assert_matches_reference(reduce_ref.cumprod, x, dim, True)
    if dtype.is_floating_point:
        for back in (False, True):
            assert_matches_reference(
                reduce_ref.recurrence, drawn(shape, dtype, 1), x, dim, back, slack=8
            )
    if x.numel() == 0:
        return
    assert_matches_reference(reduce_ref.prod, x, None, False)
    x = x.to(torch.int32).to(dtype)  # with many ties
    assert_matches_reference(reduce_ref.argmax, x, dim, False)
    assert_matches_reference(reduce_ref.argmin, x, dim, True)
    assert_matches_reference(reduce_ref.argmin, x, None, False)
    values, index = assert_matches_reference(reduce_ref.max_along, x, dim, True)
    assert_matches_reference(reduce_ref.min_along, x, dim, False)
    assert_matches_reference(reduce_ref.pick, x, index.squeeze(dim), dim, False)
    assert_matches_reference(reduce_ref.pick_here, x, index, dim, True, 1)
    assert_matches_reference(
        reduce_ref.place, values, index, (*shape[:dim], 4, *shape[dim:][1:]), dim, True, 1
    )
    assert_matches_reference(reduce_ref.first_index, x, values, dim, True, 5)
    assert_matches_reference(reduce_ref.first_index, x, values + 100, dim, True, 5)


def test_nan_is_the_extreme():
    x = torch.randn(3, 5)
    x[0, 1] = x[0, 3] = math.nan
    x[1, 0] = x[1, 3] = math.inf
    x[1, 2] = -math.inf
    for dim in (0, 1):
        for kernel in (reduce_ref.argmax, reduce_ref.argmin):
            assert_matches_reference(kernel, x, dim, False)
        for kernel in (
            reduce_ref.amax,
            reduce_ref.amin,
            reduce_ref.max_along,
            reduce_ref.min_along,
        ):
            assert_matches_reference(kernel, x, dim, False)
        assert_matches_reference(reduce_ref.total, x, dim, False, None)
        assert_matches_reference(reduce_ref.logsumexp, x, dim, False)
    low = torch.full((2, 3), -math.inf)
    low[0, 1] = -1e4
    assert_matches_reference(reduce_ref.amax, low, 1, False)
    assert_matches_reference(reduce_ref.argmax, low, 1, False)
    assert_matches_reference(reduce_ref.logsumexp, low, 1, True)
    assert_matches_reference(reduce_ref.first_index, x, x[:, 1:2], 1, True, 0)


def test_logsumexp_of_infinite_parts():
    """Of what is reduced in several programs, or in several blocks of one."""
    for n in (40000, 4000):
        x = torch.full((2, 3, n), -math.inf)
        x[0, 0, :9] = x[0, 1, -9:] = -1e3
        x[0, 2, :9], x[0, 2, -1] = 1e3, math.inf
        x[1, 0, 0], x[1, 0, 1:] = math.inf, 1e3
        x[1, 1, 0], x[1, 1, -1] = math.inf, math.nan
        assert_matches_reference(reduce_ref.logsumexp, x, 2, False)
        assert_matches_reference(reduce_ref.logsumexp, x.movedim(2, 0).contiguous(), 0, False)


def test_extremes_of_the_widest_integers():
    x = torch.tensor([[2**63 - 1, -(2**63)], [-(2**63), -(2**63)]])
    for kernel in (
        reduce_ref.amax,
        reduce_ref.amin,
        reduce_ref.argmax,
        reduce_ref.argmin,
        reduce_ref.max_along,
    ):
        assert_matches_reference(kernel, x, 1, False)


@pytest.mark.parametrize("shape", [(17001,), (2, 17001), (9001, 3), (2, 9001, 2)], ids=str)
def test_chunks(shape):
    """Where few elements are kept, several programs share the work."""
    x = drawn(shape, torch.float32)
    dim = 1 if shape[0] == 2 else 0
    for kernel, rest in (
        (reduce_ref.total, (dim, False, None)),
        (reduce_ref.mean, (dim, True, None)),
        (reduce_ref.amax, (dim, False)),
        (reduce_ref.argmax, (dim, False)),
        (reduce_ref.min_along, (dim, True)),
        (reduce_ref.var, (dim, 1, False)),
        (reduce_ref.std, (dim, 1, True)),
        (reduce_ref.logsumexp, (dim, False)),
        (reduce_ref.vector_norm, (3, dim, True)),
    ):
        assert_matches_reference(kernel, x, *rest, slack=8)
    for back in (False, True):
        assert_matches_reference(
            reduce_ref.cumsum, x, dim, back, slack=8
        )  # torch adds these up in float64
    value = x.select(dim, -1).unsqueeze(dim)
    assert_matches_reference(reduce_ref.first_index, x, value, dim, True, 0)
    whole = drawn((7, 2, 3), torch.float32)
    part = whole[2:5, :, 1:]
    args = ((2, 0, 1), (7, 2, 3), (1, 1, 1))
    assert_matches_reference(reduce_ref.first_index_flat, part, part[1, 1, 1], *args)
    assert_matches_reference(reduce_ref.first_index_flat, part, torch.tensor(9.0), *args)


@settings(max_examples=15)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.sets(st.integers(0, 4)),
    st.permutations(range(5)),
    st.booleans(),
)
def test_any_dims_in_any_order(shape, dims, order, keepdim):
    x = drawn(shape, torch.float32).permute([d for d in order if d < len(shape)])
    dims = tuple(d for d in dims if d < x.ndim)
    for kernel, rest in (
        (reduce_ref.total, (None,)),
        (reduce_ref.amin, ()),
    ):
        assert_matches_reference(kernel, x, dims, keepdim, *rest)
    if dims:
        assert_matches_reference(reduce_ref.var, x, dims, 0, keepdim)
        assert_matches_reference(
            reduce_ref.variance_around, x, x.mean(dims, True), dims, 3, keepdim
        )
    assert_matches_reference(reduce_ref.sum_rows, x)


def test_a_large_mean_costs_no_accuracy():
    x = drawn((4, 300), torch.float32) + 1e4
    assert_matches_reference(reduce_ref.var, x, 1, 1, False)
    assert_matches_reference(reduce_ref.var, x, None, 1, False)


def test_dtypes_of_sums():
    x = drawn((5, 6), torch.float32) * 9
    assert_matches_reference(reduce_ref.total, x, 0, False, torch.float64)
    assert_matches_reference(reduce_ref.total, x, 0, False, torch.int32)
    assert_matches_reference(reduce_ref.total, x.to(torch.int8), 0, False, torch.int8)
    assert_matches_reference(reduce_ref.total, x.to(torch.complex64).real, 0, False, None)
    assert_matches_reference(reduce_ref.mean, x.to(torch.int16), 0, False, torch.float32)
    big = torch.full((3, 3), 2**53, dtype=torch.int64) + 1
    assert_matches_reference(reduce_ref.total, big, None, False, None)


def test_dense_memory_is_read_as_it_lies(monkeypatch):
    contiguous = torch.Tensor.contiguous

    def uncopied(x, **how):
        assert x.is_contiguous(**how), "a copy of what is dense already"
        return contiguous(x, **how)

    x = drawn((2, 3, 5, 4), torch.float32).contiguous(memory_format=torch.channels_last)
    means = {dims: x.mean(dims, True) for dims in ((0, 2, 3), (2, 3), (1,))}
    rows = drawn((3, 4, 5), torch.float32)
    average = rows.mean((0, 2), True)
    monkeypatch.setattr(torch.Tensor, "contiguous", uncopied)
    for dims, mean in means.items():
        assert_matches_reference(reduce_ref.total, x, dims, False, None)
        assert_matches_reference(reduce_ref.amax, x, dims, True)
        assert_matches_reference(reduce_ref.var, x, dims, 1, False)
        assert_matches_reference(reduce_ref.variance_around, x, mean, dims, 3, False)
    monkeypatch.undo()
    assert_matches_reference(reduce_ref.variance_around, rows, average, (0, 2), 3, False)
