"""Which parts are written and read, against brute force over elements."""

import math

import numpy as np
from hypothesis import given, strategies as st

import onefold as flow
from onefold.checkpoint.pieces import cut, intersection, needed, pieces_of, within
from onefold.distributed.world import virtual_world
from onefold.engine.meta import Meta
from onefold.engine.sbp import broadcast, split

shapes = st.lists(st.integers(0, 6), max_size=3).map(tuple)


@st.composite
def metas(draw, shape):
    mesh = draw(st.sampled_from([(1,), (2,), (3,), (2, 2), (3, 2)]))
    kinds = [broadcast, *(split(dim) for dim in range(len(shape)))]
    nd_sbp = tuple(draw(st.sampled_from(kinds)) for _ in mesh)
    ranks = draw(st.permutations(range(math.prod(mesh))))
    placement = flow.placement("cpu", np.array(ranks).reshape(mesh))
    return Meta.of(shape, flow.float32, placement, nd_sbp)


def elements(shape, box):
    index = np.arange(math.prod(shape)).reshape(shape)
    return set(index[within(box, ((0,) * len(shape), shape))].ravel().tolist())


@given(shapes, st.integers(1, 64), st.data())
def test_cutting_keeps_order_and_bytes(shape, limit, data):
    box = (tuple(data.draw(st.integers(0, 9)) for _ in shape), shape)
    parts = list(cut(box, 4, limit))
    assert all(math.prod(size) * 4 <= max(limit, 4) for _, size in parts)
    index = np.arange(math.prod(shape)).reshape(shape)
    found = [i for part in parts for i in index[within(part, box)].ravel().tolist()]
    assert sorted(found) == list(range(math.prod(shape)))


@given(st.data(), shapes, st.sampled_from([8, 40, 1 << 24]))
def test_every_element_is_written_once_by_its_first_holder(data, shape, limit):
    with virtual_world():
        meta = data.draw(metas(shape))
        writer = {}
        for piece in pieces_of(meta, limit):
            assert meta.placement.flat_ranks[piece.holder] == piece.owner
            for element in elements(shape, piece.box):
                assert element not in writer
                writer[element] = piece.holder
        for element in range(math.prod(shape)):
            holders = [
                position
                for position in range(meta.placement.num_ranks)
                if element in elements(shape, meta.box(position))
            ]
            assert writer[element] == min(holders)


@given(st.data(), shapes, st.sampled_from([8, 40, 1 << 24]))
def test_any_layout_is_read_from_any_other(data, shape, limit):
    """Exactly the pieces that share elements with a box are read, and fill it."""
    with virtual_world():
        saved, wanted = data.draw(metas(shape)), data.draw(metas(shape))
        whole = np.arange(math.prod(shape)).reshape(shape)
        pieces = [piece.box for piece in pieces_of(saved, limit)]
        for position in range(wanted.placement.num_ranks):
            box = wanted.box(position)
            mine = elements(shape, box)
            target = np.full(box[1], -1)
            read = set()
            for number, copies in needed(pieces, [box]):
                read.add(number)
                part = whole[within(pieces[number], ((0,) * len(shape), shape))]
                for copy in copies:
                    assert (target[within(copy.shared, box)] == -1).all()
                    target[within(copy.shared, box)] = part[within(copy.shared, pieces[number])]
            assert set(target.ravel().tolist()) == mine
            assert read == {i for i, piece in enumerate(pieces) if elements(shape, piece) & mine}


@given(st.data(), st.integers(0, 3))
def test_intersections(data, ndim):
    sizes = st.tuples(*[st.integers(0, 4)] * ndim)
    a, b = ((data.draw(sizes), data.draw(sizes)) for _ in range(2))
    shape = (9,) * ndim
    shared = intersection(a, b)
    assert (elements(shape, shared) if shared else set()) == elements(shape, a) & elements(shape, b)
