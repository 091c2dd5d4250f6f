"""DTensor conversion, between real processes: values, shared shards, uneven sizes, errors."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks
from torch.distributed.tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor as distribute,
)

import onefold as flow
from onefold.distributed.world import seen_from, world
from onefold.engine.meta import Meta
from onefold.engine.sbp import parse
from onefold.testing import nd_sbps, shapes
from onefold.utils import dtensor
from onefold.utils.dtensor import from_dtensor, to_dtensor

SHAPES = [(4, 6), (5, 3), (1, 2), (3,), (0, 2), (7, 1, 2)]


def _of(shape):
    return torch.arange(float(np.prod(shape))).reshape(shape)


def _round_trips(ranks):
    world().connection()
    mesh, place = DeviceMesh("cpu", ranks), flow.placement("cpu", ranks)
    sizes = np.array(ranks).shape
    found = []
    for shape in SHAPES:
        value = _of(shape)
        choices = [Replicate(), *map(Shard, range(len(shape)))]
        for layout in itertools.product(choices, repeat=len(sizes)):
            dt = distribute(value, mesh, layout)
            x = from_dtensor(dt)
            ok = x.placement is place and torch.equal(x.to_torch(), value)
            ok = ok and all(
                tuple(part.shape) == x.meta.local_shape(place.owned[0]) for part in x.shards
            )
            back = to_dtensor(x)
            ok = ok and back.placements == dt.placements and back.shape == dt.shape
            ok = ok and torch.equal(back.to_local(), dt.to_local())
            ok = ok and torch.equal(back.full_tensor(), value)
            if not ok:
                found.append((shape, layout))
    return found


@pytest.mark.parametrize("ranks", [[0, 1], [[0], [1]]])
def test_round_trips(ranks):
    assert run_ranks(2, _round_trips, ranks) == [[], []]


def test_round_trips_on_a_mesh():
    assert run_ranks(4, _round_trips, [[0, 1], [2, 3]]) == [[]] * 4


def _partials():
    world().connection()
    mesh, rank = DeviceMesh("cpu", [0, 1]), flow.env.get_rank()
    found = []
    for op, joined in (("sum", 3.0), ("max", 2.0), ("min", 1.0)):
        dt = DTensor.from_local(torch.full((2,), 1.0 + rank), mesh, [Partial(op)])
        x = from_dtensor(dt)
        back = to_dtensor(x, mesh)
        found.append(x.tolist() == [joined] * 2 and back.placements == (Partial(op),))
        found.append(back.full_tensor().tolist() == [joined] * 2)
    return found


def test_partial_layouts():
    assert run_ranks(2, _partials) == [[True] * 6] * 2


def _shared():
    world().connection()
    dt = distribute(torch.zeros(4, 2), DeviceMesh("cpu", [0, 1]), [Shard(0)])
    x = from_dtensor(dt)
    dt.to_local()[0] = 5.0
    seen = x.shards[0][0].tolist()
    y = to_dtensor(x)
    x.add_(1)
    return seen, dt.to_local()[1].tolist(), y.to_local()[1].tolist(), x.shards[0][1].tolist()


def test_shards_that_agree_are_shared_and_never_written():
    assert run_ranks(2, _shared) == [([5.0, 5.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0])] * 2


def _subset():
    x = flow.arange(5, placement=flow.placement("cpu", [1]), sbp=flow.sbp.split(0))
    dt = to_dtensor(x)
    local = dt.to_local().tolist()
    return tuple(dt.shape), local, from_dtensor(dt).to_local().tolist()


def test_a_placement_of_some_processes():
    assert run_ranks(2, _subset) == [((5,), [], []), ((5,), [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])]


def _text(call):
    try:
        call()
    except flow.OnefoldError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _errors():
    world().connection()
    mesh = DeviceMesh("cpu", [0, 1])
    x = flow.ones(4, placement=flow.placement("cpu", [1, 0]), sbp=flow.sbp.split(0))
    product = DTensor.from_local(torch.ones(2), mesh, [Partial("product")])
    return [
        _text(lambda: from_dtensor(product)),
        _text(lambda: to_dtensor(x, mesh)),
        _text(lambda: to_dtensor(x, "cpu")),
        _text(lambda: to_dtensor(flow.ones(2))),
        _text(lambda: from_dtensor(torch.ones(2))),
    ]


def test_errors():
    texts = [
        "SbpError: from_dtensor: Partial(product) has no counterpart",
        "PlacementError: to_dtensor: the tensor is on onefold.placement",
        "OnefoldTypeError: device_mesh must be a DeviceMesh, got str",
        "OnefoldRuntimeError: to_dtensor needs a global tensor",
        "OnefoldTypeError: from_dtensor needs a DTensor",
    ]
    for found in run_ranks(2, _errors):
        for text, wanted in zip(found, texts, strict=True):
            assert text.startswith(wanted), text


def test_a_virtual_world_says_what_to_do(world):
    x = flow.ones(4, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    with pytest.raises(RuntimeError, match="this world is virtual"):
        to_dtensor(x)


@given(st.data())
def test_torchs_boxes_are_nested_chunks(data):
    with seen_from(0, 12):
        mesh = data.draw(st.sampled_from([(2,), (3,), (4,), (2, 2), (2, 3), (3, 4)]))
        place = flow.placement("cpu", np.arange(np.prod(mesh)).reshape(mesh))
        shape = data.draw(shapes(min_ndim=1, max_ndim=2))
        meta = Meta.of(shape, torch.float32, place, data.draw(nd_sbps(shape, len(mesh))))
        whole = torch.arange(float(np.prod(shape))).reshape(shape)
        differ = False
        for position in range(place.num_ranks):
            part = whole
            for axis, index in enumerate(place.coordinate(position)):
                if meta.nd_sbp[axis].is_split:
                    dim = meta.nd_sbp[axis].dim
                    chunks = torch.chunk(part, mesh[axis], dim)
                    part = chunks[index] if index < len(chunks) else part.narrow(dim, 0, 0)
            offset, size = dtensor._torch_box(meta, position)
            assert tuple(part.shape) == size
            box = tuple(slice(a, a + n) for a, n in zip(offset, size, strict=True))
            assert torch.equal(whole[box], part)
            ours = tuple(slice(a, a + n) for a, n in zip(*meta.box(position), strict=True))
            differ = differ or not torch.equal(whole[ours], part)
        assert differ <= bool(dtensor._cut_differently(meta))


def test_what_divides_is_never_gathered():
    with seen_from(0, 4):
        place = flow.placement("cpu", [[0, 1], [2, 3]])
        for shape, sbp, dims in [
            ((8, 4), "(S0, S1)", set()),
            ((8, 4), "(S0, S0)", set()),
            ((8, 5), "(S0, S1)", set()),  # 3 and 2: both cut alike
            ((6, 4), "(S0, S0)", set()),
            ((10, 4), "(S0, B)", set()),
            ((9, 4), "(S0, S0)", set()),
        ]:
            assert (
                dtensor._cut_differently(Meta.of(shape, torch.float32, place, parse(sbp))) == dims
            )
        line = flow.placement("cpu", [0, 1, 2, 3])
        assert dtensor._cut_differently(Meta.of((5, 2), torch.float32, line, parse("(S0)"))) == {0}
