"""Random programs equal torch on one device, in value and gradient, in every kind of world."""

import pytest
import torch
from hypothesis import given, strategies as st
from launched import RankFailed, run_ranks

from onefold.distributed.world import world
from onefold.engine.names import names
from onefold.engine.sbp import partial_sum, split
from onefold.testing.program_builder import CallStep, Input
from onefold.testing.program_calls import STEPS
from onefold.testing.random_programs import (
    Program,
    check_program,
    draw_programs,
    programs,
    run_torch,
)

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")


@given(programs(), st.integers(0, 9))
def test_a_virtual_world_equals_one_device(program, seed):
    check_program(program, seed)


@given(programs(max_ranks=8, max_ndim=3, max_steps=4))
def test_a_mesh_of_three_axes_equals_one_device(program):
    check_program(program)


@given(programs())
def test_local_tensors_equal_one_device(program):
    check_program(program, local=True)


def check_all(drawn):
    """On one rank: check every program; returns how many there were."""
    assert world().launched
    for program in drawn:
        check_program(program)
    return len(drawn)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_launched_world_equals_one_device(num_ranks):
    drawn = draw_programs(60, seed=num_ranks, max_ranks=num_ranks)
    assert run_ranks(num_ranks, check_all, drawn, timeout=120) == [60] * num_ranks


def test_drawing_programs_is_repeatable_and_varied():
    drawn = draw_programs(500)
    assert list(map(repr, draw_programs(500))) == list(map(repr, drawn))
    assert len(set(map(repr, drawn))) > 400
    used = {item.name for program in drawn for item in program.items if isinstance(item, CallStep)}
    assert sorted(set(STEPS) - used) == []


def test_most_programs_have_gradients():
    found = [run_torch(program)[1] for program in draw_programs(100)]
    assert sum(any(g is not None and g.numel() for g in grads) for grads in found) > 60


# The check must be able to fail.

X = Input((5, 3), torch.float64, 0, (split(0),))
Y = Input((5, 3), torch.float64, 0, (partial_sum,))
ADD = Program(([0, 1],), (X, Y, CallStep("add", (0, 1)), CallStep("tanh", (2,))))


def test_a_plain_program_passes():
    check_program(ADD)


def test_a_wrong_value_is_noticed(monkeypatch):
    monkeypatch.setitem(names.__dict__, "tanh", names.sigmoid)
    with pytest.raises(AssertionError, match="value x3 differs"):
        check_program(ADD)


def test_a_wrong_gradient_is_noticed(monkeypatch):
    tanh = names.tanh
    monkeypatch.setitem(names.__dict__, "tanh", lambda x: tanh(x) + (x - x.detach()))
    with pytest.raises(AssertionError, match="gradient of x0 differs"):
        check_program(ADD)


def test_an_in_place_change_that_reaches_another_tensor_is_noticed(monkeypatch):
    monkeypatch.setitem(names.__dict__, "clone", lambda x: x)
    program = Program(([0, 1],), (X, CallStep("neg", (0,)), CallStep("change", (1, 0), ("add",))))
    with pytest.raises(AssertionError, match="value x1 differs"):
        check_program(program)


def test_a_wrong_value_on_one_rank_is_noticed(monkeypatch):
    sigmoid, tanh = names.sigmoid, names.tanh

    def other_on_rank_1(x):
        return sigmoid(x) if world().rank == 1 else tanh(x)

    monkeypatch.setitem(names.__dict__, "tanh", other_on_rank_1)
    with pytest.raises(RankFailed, match="value x3 differs"):
        run_ranks(2, check_all, [ADD])
