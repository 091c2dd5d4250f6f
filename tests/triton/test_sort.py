"""sort, topk, kthvalue and medians."""

import pytest
import torch
from triton_harness import assert_matches_reference, poisoned_memory

from onefold.kernels import reduce_ref, select, sort_ref
from onefold.kernels.gpu.sort import order_statistics, sort_kernels as order_kernels

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def of(dtype, *shape):
    return torch.randn(shape).mul(4).round().to(dtype)  # many are equal


@every_dtype
@pytest.mark.parametrize("descending", [False, True])
def test_sort(dtype, descending):
    shapes = [((3, 7), 1), ((5, 2, 3), 0), ((40,), -1), ((0, 3), 1), ((2, 0), 1), ((), 0)]
    for shape, dim in shapes[:1] if dtype is torch.float64 else shapes:  # many passes
        assert_matches_reference(sort_ref.sort, of(dtype, *shape), dim, descending, True)
        assert_matches_reference(
            sort_ref.sort,
            of(dtype, *reversed(shape)).mT if len(shape) == 2 else of(dtype, *shape),
            dim,
            descending,
            True,
        )


def test_signs_and_nan():
    x = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-42, -1.0])
    for descending in (False, True):
        values, indices = select.triton_kernel(sort_ref.sort)(x, 0, descending, True)
        wanted = torch.sort(x, descending=descending, stable=True)
        assert torch.equal(indices, wanted.indices)
        assert torch.equal(values.view(torch.int32), wanted.values.view(torch.int32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_half_types_with_keys_of_32_bits(dtype, descending):
    finest = torch.finfo(dtype)
    some = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), finest.max, finest.min]
    some += [finest.smallest_normal, finest.smallest_normal / 4, 1.0, 1.0 + finest.eps, 1.0]
    x = torch.tensor([some, [-v for v in some]], dtype=dtype)
    values, indices = select.triton_kernel(sort_ref.sort)(x, 1, descending, True)
    # On the CPU: on a GPU torch takes a float16 NaN with a sign for the least number.
    wanted = torch.sort(x.cpu(), descending=descending, stable=True)
    assert torch.equal(indices.cpu(), wanted.indices)
    assert torch.equal(values.cpu().view(torch.int16), wanted.values.view(torch.int16))


@pytest.mark.parametrize(("most", "narrow"), [(2**31 // 8 - 2, True), (2**31 // 8 - 1, False)])
def test_numbers_up_to_the_largest_key(most, narrow):
    x = torch.tensor([[most, 0, 1, most, most - 1, 0, 7]])
    assert order_kernels._are_narrow(x.dtype, most, 8) is narrow
    values, indices = order_kernels.sort_rows(x, most=most)
    wanted = torch.sort(x, stable=True)
    assert torch.equal(values, wanted.values) and torch.equal(indices, wanted.indices)


@every_dtype
@pytest.mark.parametrize("largest", [False, True])
def test_topk(dtype, largest):
    if dtype is torch.bool:
        return  # torch has none
    some = [((70, 1), 0, 65), ((3, 7), 1, 3), ((5, 2), 0, 5), ((90,), 0, 1)]
    for shape, dim, k in some[:1] if dtype is torch.float64 else some:  # many passes
        x = of(dtype, *shape)
        with poisoned_memory():
            values, indices = select.triton_kernel(sort_ref.topk)(x, dim, k, largest, True)
        assert torch.equal(values, torch.topk(x, k, dim, largest).values)
        assert torch.equal(values, x.gather(dim, indices))
        assert indices.movedim(dim, 0).sort(0).values.diff(dim=0).gt(0).all()


def test_topk_over_blocks():
    x = torch.randn(2, 2500)
    x[0, 2100] = 9.0
    x[0, 3] = float("nan")
    values, indices = select.triton_kernel(sort_ref.topk)(x, 1, 3, True, True)
    wanted = torch.topk(x, 3)
    assert torch.equal(indices, wanted.indices)
    assert torch.equal(values.nan_to_num(), wanted.values.nan_to_num())


RANKED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8]


@pytest.mark.parametrize("dtype", RANKED, ids=str)
def test_ranks(dtype):
    """The indices are those of the first such elements, which torch does not promise."""
    for shape, dim in [((3, 7), 1), ((5, 2, 3), 0), ((300,), -1)]:
        x = of(dtype, *shape)
        size = x.shape[dim]
        for triton_kernel, rest, wanted in (
            (sort_ref.kthvalue, (dim, 1), torch.kthvalue(x, 1, dim, True)),
            (sort_ref.kthvalue, (dim, size), torch.kthvalue(x, size, dim, True)),
            (reduce_ref.median_along, (dim, True), torch.median(x, dim, True)),
            (reduce_ref.nanmedian_along, (dim, True), torch.nanmedian(x, dim, True)),
        ):
            with poisoned_memory():
                values, indices = select.triton_kernel(triton_kernel)(x, *rest)
            assert torch.equal(values, wanted.values)
            assert torch.equal(indices, (x == values).to(torch.uint8).argmax(dim, True))
        assert_matches_reference(reduce_ref.median, x)
        assert_matches_reference(reduce_ref.nanmedian, x.movedim(0, -1))
        values, _ = select.triton_kernel(reduce_ref.median_along)(x, dim, False)
        assert torch.equal(values, torch.median(x, dim).values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_medians_of_what_is_no_number(dtype):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor(
        [[1, nan, 0, nan, -1], [nan] * 5, [-0.0, 0.0, inf, -inf, 1e-42], [inf, nan, -inf, 3, 2]]
    ).to(dtype)
    for reference in (reduce_ref.median_along, reduce_ref.nanmedian_along):
        for dim in (0, 1):
            values, _ = select.triton_kernel(reference)(x, dim, False)
            wanted, _ = reference(x, dim, False)
            assert torch.equal(values.isnan(), wanted.isnan())
            assert torch.equal(values.nan_to_num(7.0), wanted.nan_to_num(7.0))
    assert select.triton_kernel(reduce_ref.median)(x).isnan()
    assert_matches_reference(reduce_ref.nanmedian, x)
    assert select.triton_kernel(reduce_ref.median_along)(x, 1, False)[1].tolist()[:2] == [1, 0]
    for k in range(1, 6):
        values, _ = select.triton_kernel(sort_ref.kthvalue)(x, 1, k)
        wanted, _ = sort_ref.kthvalue(x, 1, k)
        assert torch.equal(values.nan_to_num(7.0), wanted.nan_to_num(7.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32, torch.uint8], ids=str)
def test_long_rows(dtype, monkeypatch):
    """The same as of short rows, by way of the radix sort."""
    nan = float("nan")
    x = of(dtype, 3, 40)
    if dtype.is_floating_point:
        x[0, ::3], x[1], x[2, 7] = nan, nan, -0.0
    short = [found(x) for found in WAYS]
    monkeypatch.setattr(order_kernels, "_LONGEST", 8)
    monkeypatch.setattr(order_kernels, "_MOST", 8)
    monkeypatch.setattr(order_statistics, "_LONGEST", 8)
    for found, wanted in zip(WAYS, short, strict=True):
        for mine, same in zip(found(x), wanted, strict=True):
            assert torch.equal(mine.double().nan_to_num(7.5), same.double().nan_to_num(7.5))


WAYS = [
    lambda x: select.triton_kernel(sort_ref.sort)(x.mT, 0, True, True),
    lambda x: select.triton_kernel(sort_ref.topk)(x, 1, 20, False, True),
    lambda x: select.triton_kernel(sort_ref.kthvalue)(x, 1, 30),
    lambda x: select.triton_kernel(reduce_ref.median_along)(x, 1, True),
    lambda x: select.triton_kernel(reduce_ref.nanmedian_along)(x, 1, True),
]


def test_tensors_without_dims():
    x = torch.tensor(3.0)
    assert_matches_reference(sort_ref.sort, x, -1, False, True)
    with pytest.raises(IndexError):
        select.triton_kernel(sort_ref.sort)(x, 1, False, True)


def test_bad_numbers():
    with pytest.raises(RuntimeError):
        select.triton_kernel(sort_ref.kthvalue)(torch.zeros(3), 0, 4)
    with pytest.raises(RuntimeError):
        select.triton_kernel(sort_ref.topk)(torch.zeros(3), 0, 4, True, True)
    with pytest.raises(IndexError):
        select.triton_kernel(sort_ref.sort)(torch.zeros(3), 1, False, True)
