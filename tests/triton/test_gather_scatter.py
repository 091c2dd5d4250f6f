"""gather, scatter, embedding, and rows by integer tensors."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from device_checks import DEVICE
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.errors import OnefoldError
from onefold.kernels import gather_scatter_ref, indexing_ref, select
from onefold.kernels.gpu.gather import gather_scatter_kernels, scatter_gather, segment_reduce
from onefold.kernels.gpu.sort import sort_kernels

DTYPES = [torch.float32, torch.bfloat16, torch.int32, torch.bool]
SUMMED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64]


def of(dtype, *shape):
    return torch.randn(shape).mul(4).to(dtype)


def held(size):
    """Every way to hold part of a dim of `size`: (offset, how many)."""
    return [(0, size), (1, size - 2), (size, 0)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_and_scatter(dtype, dim):
    x = of(dtype, 4, 5, 3).transpose(0, 1).contiguous().transpose(0, 1)
    shape = [7 if d == dim else n for d, n in enumerate(x.shape)]
    index = torch.randint(0, x.shape[dim], shape)
    assert_matches_reference(gather_scatter_ref.gather, x, dim, index)
    assert_matches_reference(gather_scatter_ref.gather, x, dim, index[:, :0])
    for offset, size in held(x.shape[dim]):
        part = x.narrow(dim, min(offset, x.shape[dim] - size), size)
        assert_matches_reference(
            gather_scatter_ref.gather_held, part, dim, index, offset, x.shape[dim]
        )
        each = torch.randperm(x.shape[dim])[:3].view([-1 if d == dim else 1 for d in range(3)])
        each = each.expand([3 if d == dim else n - 1 for d, n in enumerate(x.shape)])
        for source in (of(dtype, 5, 5, 5), 1):
            assert_matches_reference(
                gather_scatter_ref.scatter, part, dim, each, source, offset, x.shape[dim]
            )


def test_of_values_for_one_place_the_last_stays():
    index = torch.tensor([[2, 2, 0, 2, 0]])
    y = select.triton_kernel(gather_scatter_ref.scatter)(
        torch.zeros(1, 3), 1, index, torch.arange(5.0)[None], 0, 3
    )
    assert y.tolist() == [[4, 0, 3]]


@pytest.mark.parametrize("dtype", SUMMED, ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("in_rows", [True, False])
def test_add_at(dtype, dim, in_rows, monkeypatch):
    if not in_rows:
        monkeypatch.setattr(gather_scatter_kernels, "fit", lambda *_: False)
    shape = (4, 5, 3)
    dy = of(dtype, *[7 if d == dim else n for d, n in enumerate(shape)])
    index = torch.randint(0, shape[dim], dy.shape)
    assert_matches_reference(
        gather_scatter_ref.add_at, dy, dim, index, shape, (0, 0, 0), 0, shape[dim]
    )
    smaller = tuple([slice(None if d == dim else 1, None) for d in range(3)])
    for offset, size in held(shape[dim]):
        mine = [size if d == dim else n for d, n in enumerate(shape)]
        start = [0 if d == dim else 1 for d in range(3)]
        args = (dim, index[smaller], mine, start, offset, shape[dim])
        assert_matches_reference(gather_scatter_ref.add_at, dy[smaller], *args)


HOW = ["sum", "prod", "mean", "amax", "amin"]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool], ids=str
)
def test_scatter_reduce(dtype):
    x, source = of(dtype, 4, 3, 5), of(dtype, 6, 9, 5).transpose(0, 1).contiguous().transpose(0, 1)
    if dtype.is_floating_point:
        x, source = x / 4, source / 4
    index = torch.randint(0, 3, (4, 9, 5))
    for how in HOW:
        if dtype is torch.bool and how == "mean":
            continue  # torch has none
        assert_matches_reference(gather_scatter_ref.scatter_reduce, x, index, source, 1, how, True)
        assert_matches_reference(
            gather_scatter_ref.scatter_reduce, x, index[:2, :5, 1:], source, -2, how, False
        )
        assert_matches_reference(
            gather_scatter_ref.scatter_reduce, x, index[:, :0], source, 1, how, False
        )
    args = (index[0, :4, 0] * 0, source[0, :, 0])
    assert_matches_reference(gather_scatter_ref.scatter_reduce, x[0, 0, 0], *args, 0, "sum", True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_index_reduce(dtype):
    x, source, index = of(dtype, 4, 3, 5), of(dtype, 4, 9, 5), torch.randint(0, 3, (9,))
    for how in set(HOW) - {"sum"}:
        for own in (True, False):
            given = (x, index.int() if own else index, source, 1, how, own)
            assert_matches_reference(gather_scatter_ref.index_reduce, *given)
            turned = (x.transpose(0, 1), index, source.transpose(0, 1), 0, how, own)
            assert_matches_reference(gather_scatter_ref.index_reduce, *turned)
            nothing = (x, index[:0], source[:, :0], 1, how, own)
            assert_matches_reference(gather_scatter_ref.index_reduce, *nothing)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_reduce_sorts_the_index_alone(dim, monkeypatch):
    def sort(places, **options):
        sorted_.append(len(places))
        return sort_rows(places, **options)

    sorted_, sort_rows = [], gather_scatter_kernels.sort_rows
    monkeypatch.setattr(gather_scatter_kernels, "sort_rows", sort)
    shape = [4, 3, 300]
    source = torch.randn([7 if d == dim else size for d, size in enumerate(shape)])
    given = (torch.randn(shape), torch.randint(0, shape[dim], (7,)), source, dim, "amax", True)
    assert_matches_reference(gather_scatter_ref.index_reduce, *given)
    assert set(sorted_) == {7}


def test_scatter_reduce_of_what_is_no_number():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([nan, 3, 5, 9, nan, -inf])
    index, source = torch.tensor([0, 1, 1, 2, 5, 3]), torch.tensor([2, 4, nan, 0, -inf, inf])
    for how in HOW:
        found = select.triton_kernel(gather_scatter_ref.scatter_reduce)(
            x, index, source, 0, how, how != "amin"
        )
        exact = gather_scatter_ref.scatter_reduce(x, index, source, 0, how, how != "amin")
        assert torch.equal(found.nan_to_num(7.5), exact.nan_to_num(7.5)), (how, found, exact)


@settings(max_examples=4)
@given(count=st.integers(30, 90), rows=st.integers(1, 6), seed=st.integers(0, 99))
def test_runs_of_extremes_are_joined_over_chunks(count, rows, seed):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    index = torch.randint(0, rows, (count,), generator=generator) ** 2 // rows
    source = torch.randn(count, generator=generator, dtype=torch.float64)
    for how in ("amax", "prod"):
        assert_matches_reference(
            gather_scatter_ref.scatter_reduce,
            torch.ones(rows).double(),
            index,
            source,
            0,
            how,
            False,
            slack=20,
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("width", [3, 70])
def test_embedding(dtype, width):
    weight, index = of(dtype, 9, width), torch.randint(0, 9, (4, 5))
    assert_matches_reference(gather_scatter_ref.embedding, weight, index)
    assert_matches_reference(gather_scatter_ref.embedding, weight.T.contiguous().T, index.int())
    assert_matches_reference(gather_scatter_ref.embedding, weight, index[:0])
    for offset, size in held(9):
        assert_matches_reference(gather_scatter_ref.embedding_held, weight[:size], index, offset, 9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [3, 70])
def test_embedding_grad(dtype, width):
    index = torch.randint(0, 9, (5, 9))
    dy = of(dtype, 5, 9, width)
    assert_matches_reference(gather_scatter_ref.embedding_grad, dy, index, (9, width), 0, 4, False)
    assert_matches_reference(gather_scatter_ref.embedding_grad, dy, index, (9, width), 0, -1, True)
    assert_matches_reference(gather_scatter_ref.embedding_grad, dy, index, (5, width), 3, -1, False)
    assert_matches_reference(
        gather_scatter_ref.embedding_grad, dy[:0], index[:0], (9, width), 0, -1, False
    )


@settings(max_examples=8)
@given(
    count=st.integers(0, 90),
    rows=st.integers(1, 12),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    part=st.booleans(),
    dense=st.booleans(),
)
def test_gradients_of_embeddings_are_added(count, rows, dtype, part, dense):
    """With the bits of an addition of its own."""
    index = torch.randint(0, rows, (count,)) ** 2 // rows
    dy, total = torch.randn(count, 5, dtype=dtype), torch.randn(rows, 5, dtype=dtype)
    offset, shape, padding = (1, (rows - 1, 5), 0) if part else (0, (rows, 5), -1)
    total = total[offset:].clone() if dense else total[offset:].t().contiguous().t()
    alone = select.triton_kernel(gather_scatter_ref.embedding_grad)
    wanted = total + alone(dy, index, shape, offset, padding, False)
    add = select.triton_kernel(gather_scatter_ref.add_embedding_grad)
    found = add(total, dy, index, shape, offset, padding)
    assert found is total and torch.equal(found, wanted)


@settings(max_examples=8)
@given(
    count=st.integers(1, 90),
    rows=st.integers(1, 12),
    width=st.sampled_from([1, 2, 130]),
    seed=st.integers(0, 99),
)
def test_long_runs_are_joined_over_chunks(count, rows, width, seed):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    index = torch.randint(0, rows, (count,), generator=generator) ** 2 // rows  # many low ones
    dy = torch.randn(count, width, generator=generator, dtype=torch.float64)
    assert_matches_reference(
        gather_scatter_ref.embedding_grad, dy, index, (rows, width), 0, -1, False, slack=20
    )


def test_runs_of_many_rows_are_sorted_by_radix(monkeypatch):
    monkeypatch.setattr(sort_kernels, "_LONGEST", 8)
    index, dy = torch.randint(0, 40, (33,)), torch.randn(33, 2, dtype=torch.float64)
    assert_matches_reference(
        gather_scatter_ref.embedding_grad, dy, index, (40, 2), 0, 3, False, slack=20
    )
    assert_matches_reference(
        gather_scatter_ref.scatter_reduce, torch.ones(40), index, torch.ones(33), 0, "sum", True
    )


def test_one_hot():
    index = torch.randint(0, 5, (3, 4))
    for offset, size in held(5):
        assert_matches_reference(gather_scatter_ref.one_hot, index, offset, size, 5)


INDICES = [
    (torch.randint(-4, 4, (3, 2)), None, None),
    (None, torch.randint(-5, 5, (4,)), None),
    (None, None, torch.randint(-70, 70, (2, 1))),
    (torch.randint(-4, 4, (3,)), torch.randint(-5, 5, (2, 3)), None),
    (None, torch.randint(-5, 5, (3, 1)), torch.randint(-70, 70, (4,))),
    (torch.randint(-4, 4, (3,)), None, torch.randint(-70, 70, (3,))),
    (torch.zeros(0, dtype=torch.int64), None, None),
]


@pytest.mark.parametrize("number", range(len(INDICES)))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64], ids=str)
def test_rows(number, dtype):
    # They are made where this file is read, which is not on the device.
    indices = tuple([None if index is None else index.to(DEVICE) for index in INDICES[number]])
    whole = (4, 5, 70)
    x = of(dtype, *whole)
    assert_matches_reference(indexing_ref.take, x, indices)
    shape = indexing_ref.take_shape(whole, indices)
    dim = next(i for i, index in enumerate(indices) if index is not None)
    for offset, size in held(whole[dim]):
        part = x.narrow(dim, min(offset, whole[dim] - size), size)
        boxes = [(offset if d == dim else 0, n) for d, n in enumerate(whole)]
        assert_matches_reference(indexing_ref.take_held, part, indices, boxes, shape)
        dy = of(dtype, *shape)
        assert_matches_reference(indexing_ref.add_rows, dy, indices, boxes, tuple(part.shape))
        if size:
            assert_matches_reference(indexing_ref.put_rows, part, None, indices, boxes)


def test_rows_are_put():
    x = torch.randn(6, 4, 3)
    boxes = [(0, n) for n in x.shape]
    for indices in [(torch.tensor([5, 0, -2]),), (None, torch.tensor([[3, 0]]))]:
        values = torch.randn(indexing_ref.take_shape(x.shape, indices))
        assert_matches_reference(indexing_ref.put_rows, x, values, indices, boxes)
    found = select.triton_kernel(indexing_ref.put_rows)(
        torch.zeros(3), torch.arange(4.0), (torch.tensor([1, 1, 2, 1]),), [(0, 3)]
    )
    assert found.tolist() == [0, 3, 2]


@pytest.mark.skipif(DEVICE == "cuda", reason="indices are only checked on the CPU: see `checked`")
def test_a_wrong_index_is_named():
    x, wrong = torch.randn(3, 4), torch.tensor([[7]])
    for call in [
        lambda: select.triton_kernel(gather_scatter_ref.gather)(x, 0, wrong),
        lambda: select.triton_kernel(gather_scatter_ref.embedding)(x, wrong),
        lambda: select.triton_kernel(indexing_ref.take)(x, (None, wrong)),
        lambda: select.triton_kernel(gather_scatter_ref.scatter_reduce)(
            x, wrong, wrong.float(), 0, "amax", True
        ),
    ]:
        with pytest.raises(OnefoldError, match="7"):
            call()


@pytest.mark.parametrize(("rest", "kernel"), [(2**27 - 2048, "rows"), (2**27, "each")])
def test_long_rows_fit_in_a_grid(monkeypatch, rest, kernel):
    launched = []
    for name in ("rows", "each"):
        launch = partial(lambda name, grid, *_: launched.append((name, grid)), name)
        monkeypatch.setattr(scatter_gather, f"gather_{name}", SimpleNamespace(launch=launch))
    x, index = torch.empty(3, rest, device="meta"), torch.empty(2, dtype=torch.int64, device="meta")
    along = scatter_gather.Along(3, 0, 3)
    scatter_gather.gathered(x, index, 1, 2, rest, along, each=False)
    [(name, grid)] = launched
    assert name == kernel and max(grid[1:], default=1) <= 65535


def test_sums_of_long_rows_fit_in_a_grid(monkeypatch):
    launched = []
    kernel = SimpleNamespace(launch=lambda grid, *_: launched.append(grid))
    for name in ("add_chunks", "combine_chunks"):
        monkeypatch.setattr(segment_reduce, name, kernel)
    source, total = (torch.empty(rows, 2**27, device="meta") for rows in (40, 3))
    places = torch.empty(40, dtype=torch.int64, device="meta")
    segment_reduce.reduce_runs(places, places, source, 3, into=total)
    assert launched == [(3 * 2**17,)] * 2
