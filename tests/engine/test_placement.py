"""Placement: validation, identity, rank order, coordinates and groups."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

import onefold as flow
from onefold.distributed.world import seen_from, virtual_world
from onefold.errors import PlacementError
from onefold.testing import meshes
from onefold.testing.strategies import nested_ranks


def test_equal_placements_are_one_object(world):
    p = flow.placement("cpu", [[0, 3], [1, 2]])
    assert flow.placement("cpu", np.array([[0, 3], [1, 2]])) is p
    assert flow.placement(type="cpu", ranks=((0, 3), (1, 2))) is p
    assert flow.placement("cpu", [[0, 1], [2, 3]]) is not p
    assert pickle.loads(pickle.dumps(p)) is p
    assert {p: 1}[flow.placement("cpu", [[0, 3], [1, 2]])] == 1


def test_the_given_rank_order_is_kept(world):
    p = flow.placement("cpu", [[0, 3], [1, 2]])
    assert p.ranks.tolist() == [[0, 3], [1, 2]] and p.type == "cpu"
    assert repr(p) == 'onefold.placement(type="cpu", ranks=[[0, 3], [1, 2]])'
    x = flow.arange(8, placement=p, sbp=[flow.sbp.split(0), flow.sbp.split(0)])
    held = dict(zip(p.flat_ranks, [part.tolist() for part in x.shards], strict=True))
    assert held == {0: [0, 1], 3: [2, 3], 1: [4, 5], 2: [6, 7]}


def test_all_ranks_of_the_world():
    with virtual_world(4):
        assert flow.placement.all("cpu").ranks.tolist() == [0, 1, 2, 3]


@given(meshes(max_ranks=12, max_ndim=3), st.data())
def test_coordinates_and_groups_are_numpys(mesh, data):
    number = int(np.prod(mesh))
    ranks = data.draw(st.permutations(range(number)))
    p = flow.placement("cpu", nested_ranks(ranks, mesh))
    array = np.array(ranks).reshape(mesh)
    assert np.array_equal(p.ranks, array)
    axes = sorted(data.draw(st.sets(st.integers(0, len(mesh) - 1))))
    for position in range(number):
        coordinate = p.coordinate(position)
        assert p.flat_ranks[position] == array[coordinate]
        same = [
            np.ravel_multi_index(c, mesh)
            for c in itertools.product(*map(range, mesh))
            if all(c[a] == coordinate[a] for a in range(len(mesh)) if a not in axes)
        ]
        assert list(p.group(position, axes)) == same


@pytest.mark.parametrize(
    ("type_", "ranks", "text"),
    [
        ("tpu", [0], "placement type must be one of 'cpu', 'cuda', but got 'tpu'"),
        (None, [0], "needs a device type and ranks"),
        (0, [0], "but got 0; write for instance placement"),
        ([0], "cpu", r"but got \[0\]; write for instance"),
        ("cpu", None, "needs a device type and ranks, but got type='cpu' and ranks=None; write"),
        ("cpu", [], "must be a non-empty list of integers"),
        ("cpu", 0, "must be a non-empty list of integers"),
        ("cpu", [0.5], "must be a non-empty list of integers"),
        ("cpu", ["0"], "must be a non-empty list of integers"),
        ("cpu", [True], "must be a non-empty list of integers"),
        ("cpu", [[0, 1], [2]], "must be a non-empty list of integers"),
        ("cpu", [-1, 0], "placement ranks must be >= 0, but got -1"),
        ("cpu", [0, 1, 0], "rank 0 occurs more than once"),
        ("cpu", [[0, 1], [1, 2]], "rank 1 occurs more than once"),
    ],
)
def test_malformed_placements(type_, ranks, text, world):
    size = world.size
    with pytest.raises(PlacementError, match=text):
        flow.placement(type_, ranks)
    assert world.size == size


def test_what_is_left_out_is_asked_for(world):
    for arguments in ({"type": "cpu"}, {"ranks": [0]}, {}):
        with pytest.raises(PlacementError, match="needs a device type and ranks, but got") as told:
            flow.placement(**arguments)
        assert 'write for instance placement("cpu", ranks=[0, 1])' in str(told.value)


def test_a_placement_that_was_not_initialized_can_be_printed():
    assert repr(object.__new__(flow.placement)) == "<onefold.placement that was not initialized>"


def test_ranks_outside_a_launched_world():
    with seen_from(1, 4):
        assert flow.placement("cpu", [0, 1, 2, 3]).owned == (1,)
        assert flow.placement("cpu", [2, 3]).owned == ()
        text = r"ranks \[0, 4\] include 4, but this is rank 1 of a world of 4"
        with pytest.raises(PlacementError, match=text):
            flow.placement("cpu", [0, 4])


def test_a_virtual_world_grows(world):
    assert world.size == 1
    flow.placement("cpu", [5, 2])
    assert world.size == 6
