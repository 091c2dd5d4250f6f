"""Meta: where each rank's shard lies, against brute force over every element."""

import itertools
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold.distributed.world import seen_from
from onefold.engine.meta import Meta, balanced, check_nd_sbp
from onefold.engine.sbp import parse
from onefold.errors import SbpError
from onefold.testing import nd_sbps, placements, shapes


def meta(shape, ranks, nd_sbp):
    return Meta.of(shape, torch.float32, flow.placement("cpu", ranks), parse(nd_sbp))


def cells(box):
    return set(
        itertools.product(*[range(start, start + size) for start, size in zip(*box, strict=True)])
    )


@given(st.integers(0, 40), st.integers(1, 9))
def test_balanced_parts_are_numpys(size, parts):
    found = [balanced(size, parts, index) for index in range(parts)]
    wanted = np.array_split(np.arange(size), parts)
    assert [length for _, length in found] == [len(part) for part in wanted]
    assert [list(range(start, start + length)) for start, length in found] == [
        part.tolist() for part in wanted
    ]


@given(st.data())
def test_boxes_partition_the_index_space(data):
    placement = data.draw(placements(max_ranks=8, max_ndim=3))
    shape = data.draw(shapes(max_ndim=3))
    nd_sbp = data.draw(nd_sbps(shape, placement.ndim))
    found = Meta.of(shape, torch.float32, placement, nd_sbp)
    everything = cells(((0,) * len(shape), shape))
    replicas = prod(
        size for size, sbp in zip(placement.shape, nd_sbp, strict=True) if not sbp.is_split
    )
    count = dict.fromkeys(everything, 0)
    for position in range(placement.num_ranks):
        box = found.box(position)
        assert found.local_offset(position) == box[0] and found.local_shape(position) == box[1]
        assert len(cells(box)) == prod(box[1])
        for cell in cells(box):
            count[cell] += 1
    assert set(count.values()) <= {replicas}, "every element is held, equally often"


@given(st.data())
def test_boxes_are_nested_array_splits(data):
    placement = data.draw(placements(max_ranks=8, max_ndim=3))
    shape = data.draw(shapes(min_ndim=1, max_ndim=2))
    nd_sbp = data.draw(nd_sbps(shape, placement.ndim))
    found = Meta.of(shape, torch.float32, placement, nd_sbp)
    index = np.arange(prod(shape)).reshape(shape)
    for position in range(placement.num_ranks):
        part = index
        for axis, where in enumerate(placement.coordinate(position)):
            if nd_sbp[axis].is_split:
                pieces = np.array_split(part, placement.shape[axis], nd_sbp[axis].dim)
                sizes = [piece.shape[nd_sbp[axis].dim] for piece in pieces]
                assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
                part = pieces[where]
        starts, sizes = found.box(position)
        mine = index[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))]
        assert np.array_equal(mine, part)


def test_nested_splits_nest():
    sizes = [meta((6,), [[0, 1], [2, 3]], "(S0, S0)").local_shape(i)[0] for i in range(4)]
    assert sizes == [2, 1, 2, 1]
    flat = [meta((6,), [0, 1, 2, 3], "(S0)").local_shape(i)[0] for i in range(4)]
    assert flat == [2, 2, 1, 1]


def test_empty_shards():
    sizes = [meta((2, 3), [0, 1, 2, 3], "(S0)").local_shape(i) for i in range(4)]
    assert sizes == [(1, 3), (1, 3), (0, 3), (0, 3)]


def test_equal_metas_are_one_object():
    first = meta((4, 5), [0, 1], "(S0)")
    assert first is meta([4, 5], [0, 1], "(S0)")
    assert first is not meta((4, 5), [1, 0], "(S0)")
    assert first.like(shape=(2, 5)).like(shape=(4, 5)) is first
    assert isinstance(first.shape, torch.Size) and first.numel == 20 and first.nbytes == 80


def test_a_meta_answers_for_any_rank_without_a_device():
    with seen_from(4095, 4096):
        placement = flow.placement("cpu", np.arange(4096).reshape(64, 64))
        big = Meta.of((10**9, 3), torch.float32, placement, parse("(S0, S0)"))
        assert placement.owned == (4095,)
        assert big.local_shape(0)[0] - big.local_shape(4095)[0] <= 2
        ends = [big.box(i)[0][0] + big.box(i)[1][0] for i in range(4096)]
        starts = [big.local_offset(i)[0] for i in range(4096)]
        assert starts == [0, *ends[:-1]] and ends[-1] == 10**9


def test_repr():
    assert repr(meta((4, 5), [0, 1], "(S0)")) == (
        'float32[4, 5] (S0) on onefold.placement(type="cpu", ranks=[0, 1])'
    )
    assert repr(flow.zeros(2, dtype=flow.int64).meta) == "int64[2] on cpu"


@pytest.mark.parametrize(
    ("shape", "text"),
    [((4, 5), "allowed are dims 0 to 1"), ((), "use broadcast")],
)
def test_split_dim_out_of_range(shape, text):
    with pytest.raises(SbpError, match=text):
        check_nd_sbp(shape, parse("(S2)"))
