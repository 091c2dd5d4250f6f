"""Layouts of pointwise kernels: dims merged and ordered, and kernels over any strides."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels.gpu.pointwise import copy_kernels, pointwise_kernels as gpu
from onefold.kernels.gpu.pointwise.codegen import source
from onefold.kernels.gpu.pointwise.strided_layout import (
    Pattern,
    broadcast_strides,
    dense_strides,
    layout_of,
    merged,
    order_of,
)


def test_order_follows_the_first_tensor_that_is_not_broadcast():
    assert order_of((2, 3, 4), [(0, 1, 0), (12, 1, 3)]) == [0, 2, 1]
    assert order_of((2, 3), [(0, 1)]) == [0, 1]
    assert dense_strides((2, 3, 4), [0, 2, 1]) == (12, 1, 3)


def test_merging():
    assert merged((2, 3, 4), [(12, 4, 1)], (0, 1, 2)) == ([24], [[1]])
    assert merged((2, 1, 4), [(4, 9, 1)], (0, 1, 2)) == ([8], [[1]])
    assert merged((2, 3, 4), [(12, 4, 1), (0, 4, 1)], (0, 1, 2)) == ([2, 12], [[12, 1], [0, 1]])
    assert merged((1, 1), [(7, 7)], (0, 1)) == ([1], [[0]])


def test_contiguous_tensors_are_flat():
    layout = layout_of((64, 64), [(64, 1)] * 3, (0, 1), 2)
    assert layout.pattern == Pattern(0, 0, ((1,), (1,), (1,)))
    assert layout.programs == 64 * 64 // layout.tile[1]


def test_the_largest_width_of_32_bits():
    x = torch.empty(0)
    text = source(gpu.single("neg", (x,), x.dtype), Pattern(0, 0, ((1,), (1,))))
    (line,) = [line for line in text.splitlines() if line.strip().startswith("across =")]
    found = {"width": np.int32(2**31 - 1), "COLUMNS": np.int32(2048)}
    with np.errstate(over="raise"):
        exec(line.strip(), found)
    assert found["across"] == 2**20
    assert copy_kernels._as_rows([2**31 - 1], [1], 0) is None
    assert copy_kernels._as_rows([2**31], [1], 0) == (1, 2**31, 0)


def test_tiles_cross_where_one_side_is_transposed():
    layout = layout_of((64, 128), [(1, 64), (128, 1)], (0, 1), 2)
    assert layout.pattern == Pattern(0, 1, ((1, None), (None, 1)))
    assert layout.tile == (64, 64)
    batched = layout_of((5, 64, 128), [(8192, 1, 64), (8192, 128, 1)], (0, 1, 2), 4)
    assert (batched.pattern.batch, batched.tile) == (1, (32, 32))


def test_programs_have_enough_to_do_where_dims_that_cross_are_short():
    channels, side = 3, 224 * 224  # as of images, from one memory format to the other
    images = [(channels * side, 1, side), (channels * side, channels, 1)]
    assert layout_of((5, side, channels), images, (0, 1, 2), 2).tile == (1024, 4)
    back = [(channels * side, 1, channels), (channels * side, side, 1)]
    assert layout_of((5, channels, side), back, (0, 1, 2), 2).tile == (4, 1024)
    small = layout_of((9000, 3, 5), [(15, 1, 3), (15, 5, 1)], (0, 1, 2), 4)
    assert (small.pattern.batch, small.tile) == (0, (128, 8))
    many = layout_of((2**31, 3, 5), [(15, 1, 3), (15, 5, 1)], (0, 1, 2), 4)
    assert many is not None and many.pattern.batch == 1


def test_few_lanes_are_idle():
    for columns in range(2, 4000, 7):
        rows, width = layout_of((999, columns), [(columns + 1, 1)], (0, 1), 2).tile
        assert -(-columns // width) * width < max(2 * columns, 2)
        assert rows * width <= 4096
        if columns > 600:
            assert -(-columns // width) * width <= columns * 9 / 8 + 1


def test_rows_that_cannot_be_counted():
    assert layout_of((2**32, 3), [(4, 1)], (0, 1), 2) is None
    assert layout_of((2**32,), [(1,)], (0,), 2).programs == 2**32 // 2048


SHAPES = [(), (1,), (37,), (3000,), (3, 5), (70, 50), (2, 33, 5), (3, 1, 4, 5), (0, 3), (2, 0)]


def variants(shape, dtype):
    """Tensors of a shape that lie in memory in many ways."""
    x = torch.randn(shape).mul(3).to(dtype)
    yield x
    if x.ndim >= 2:
        yield x.transpose(0, -1).contiguous().transpose(0, -1)
        yield x.transpose(-1, -2).contiguous().transpose(-1, -2)
        yield x[:, :1].expand(shape)
        yield x[:1].expand(shape)
    if x.ndim:
        yield torch.cat([x, x], -1)[..., ::2]
        yield torch.cat([x, x], 0)[: shape[0]]
        yield x.new_zeros(()).expand(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_pair_of_layouts(shape):
    for a, b in product(variants(shape, torch.float32), variants(shape, torch.float16)):
        assert_matches_reference(torch.sub, a, b)


def test_results_lie_as_the_inputs_do():
    x = torch.randn(2, 3, 4, 5)
    for order in ((0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)):
        y = x.permute(order)
        assert gpu.of_torch(torch.add)(y, y).stride() == y.stride()
        assert gpu.of_torch(torch.mul)(y, y[:1, :1, :1, :1]).stride() == y.stride()


@st.composite
def operands(draw):
    """Tensors that broadcast, of any dtypes, transposed, expanded and sliced."""
    full = draw(st.lists(st.integers(1, 6), max_size=4))
    if draw(st.booleans()) and full:
        full[draw(st.integers(0, len(full) - 1))] = draw(st.sampled_from([17, 33, 70]))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        shape = [1 if draw(st.integers(0, 4)) == 0 else size for size in full]
        shape = shape[draw(st.integers(0, len(shape))) if draw(st.booleans()) else 0 :]
        steps = [draw(st.sampled_from([1, 1, 1, 2])) for _ in shape]
        order = draw(st.permutations(range(len(shape))))
        whole = [shape[dim] * steps[dim] for dim in order]
        dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float64, torch.int32]))
        x = torch.randn(whole).mul(5).to(dtype)
        x = x.permute([order.index(dim) for dim in range(len(shape))])
        x = x[tuple(slice(None, None, step) for step in steps)]
        if draw(st.integers(0, 5)) == 0:
            x = x[..., :1].expand(x.shape) if x.ndim else x
        found.append(x)
    return found


@settings(max_examples=60)
@given(operands())
def test_broadcasting(given):
    if len(given) == 1:
        assert_matches_reference(torch.abs, *given)
        assert_matches_reference(torch.mul, *given, 3)
    elif len(given) == 2:
        assert_matches_reference(torch.add, *given)
        assert_matches_reference(torch.lt, *given)
    else:
        mask = given[0] > 0
        assert_matches_reference(torch.where, mask, *given[1:])


def test_plans_are_kept():
    triton_kernel = gpu.Pointwise(torch.add, lambda *args: ("add", args))
    x = torch.ones(3, 4)
    for _ in range(3):
        triton_kernel(x, x)
        triton_kernel(x, 2.5)
        triton_kernel(x, 3.5)
    assert len(triton_kernel._plans) == 2
    assert broadcast_strides(x[0], (3, 4)) == (0, 1)


def test_zero_tensors_of_any_layout():
    for shape in ((0,), (0, 3), (3, 0)):
        assert gpu.of_torch(torch.add)(torch.ones(shape), 1).shape == shape
