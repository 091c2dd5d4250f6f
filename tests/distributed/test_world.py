"""The world in one process: virtual, as seen from one rank, and read from the environment."""

import contextlib

import pytest
import torch

from onefold.distributed import topology
from onefold.distributed.collectives import all_reduce
from onefold.distributed.world import (
    World,
    forget_world,
    on_world_change,
    seen_from,
    virtual_world,
    world,
)
from onefold.env import VARIABLES
from onefold.errors import OnefoldRuntimeError, OnefoldValueError, PlacementError


@pytest.fixture
def environment(monkeypatch):
    """A world read anew from an environment that holds only what the test sets."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    with virtual_world():
        forget_world()
        yield monkeypatch


def test_virtual_world_owns_every_rank_and_grows():
    with virtual_world() as w:
        assert world() is w
        assert (w.rank, w.size, w.launched) == (None, 1, False)
        w.ensure((3, 0))
        assert w.size == 4
        w.ensure((1,))
        assert w.size == 4
        assert w.owns(2)
        assert w.owned((5, 2, 7)) == (0, 1, 2)
        assert w.owned(()) == ()


def test_launched_world_owns_its_rank():
    w = World(2, 4)
    assert w.launched
    assert w.owns(2)
    assert not w.owns(0)
    assert w.owned((3, 2, 0)) == (1,)
    assert w.owned((3, 0)) == ()


def test_a_launched_world_does_not_grow():
    with seen_from(1, 4) as w:
        w.ensure((0, 3))
        with pytest.raises(
            PlacementError, match=r"include 4.*rank 1 of a world of 4.*--nproc_per_node 5"
        ):
            w.ensure((0, 4))
        assert w.size == 4


@pytest.mark.parametrize(("rank", "size"), [(4, 4), (-1, 2)])
def test_a_rank_outside_its_world(rank, size):
    with pytest.raises(OnefoldValueError, match=f"rank {rank} .*{size} ranks"):
        World(rank, size)


def test_worlds_are_put_back():
    with virtual_world(3) as outer:
        with virtual_world() as inner:
            assert world() is inner
        assert world() is outer
        with contextlib.suppress(KeyError), virtual_world():
            raise KeyError
        assert world() is outer
        assert outer.size == 3


def test_listeners_hear_of_a_new_world():
    heard = []
    on_world_change(lambda: heard.append("changed"))
    with virtual_world(2) as w, seen_from(0, 5):
        assert len(heard) == 2
        w.ensure((3,))
        assert len(heard) == 2
    assert len(heard) == 4


def test_world_from_an_empty_environment(environment):
    assert not world().launched
    assert world() is world()


def test_world_from_a_launchers_environment(environment):
    environment.setenv("RANK", "5")
    environment.setenv("WORLD_SIZE", "6")
    environment.setenv("LOCAL_RANK", "1")
    environment.setenv("LOCAL_WORLD_SIZE", "2")
    assert (world().rank, world().size) == (5, 6)
    assert topology.get_rank() == 5
    assert topology.get_world_size() == 6
    assert topology.get_local_rank() == 1
    assert topology.get_node_size() == 3
    assert repr(world()) == "World(rank 5 of 6)"


def test_a_launch_without_local_numbers_is_one_machine(environment):
    environment.setenv("RANK", "1")
    environment.setenv("WORLD_SIZE", "2")
    assert topology.get_local_rank() == 1
    assert topology.get_node_size() == 1


@pytest.mark.parametrize(("name", "other"), [("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")])
def test_half_a_launch_is_an_error(environment, name, other):
    environment.setenv(name, "1")
    with pytest.raises(OnefoldValueError, match=f"sets {name} but not {other}"):
        world()


def test_topology_of_a_virtual_world():
    with virtual_world() as w:
        w.ensure((7,))
        assert topology.get_rank() == 0
        assert topology.get_local_rank() == 0
        assert topology.get_world_size() == 8
        assert topology.get_node_size() == 1
        assert repr(w) == "World(virtual, 8 ranks)"
        devices = max(torch.cuda.device_count(), 1)
        assert topology.cuda_index(7) == 7 % devices


def test_there_is_nobody_to_talk_to():
    t = torch.ones(2)
    with virtual_world(), pytest.raises(OnefoldRuntimeError, match="virtual world"):
        all_reduce(t, (0, 1), "sum")
    with seen_from(0, 2), pytest.raises(OnefoldRuntimeError, match="no other processes"):
        all_reduce(t, (0, 1), "sum")
    assert torch.equal(t, torch.ones(2))
