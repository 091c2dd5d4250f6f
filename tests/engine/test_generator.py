"""Generator: seeds, call numbers, states."""

import numpy as np
import pytest

import onefold as flow
from onefold.errors import OnefoldTypeError, OnefoldValueError


def test_calls_are_counted_from_the_seed_on():
    generator = flow.Generator().manual_seed(3)
    assert [generator.next_call() for _ in range(3)] == [0, 1, 2]
    assert generator.manual_seed(3).next_call() == 0
    assert generator.initial_seed() == 3


def test_a_state_can_be_restored():
    flow.manual_seed(4)
    flow.rand(2)
    state = flow.get_rng_state()
    first = flow.rand(5).tolist()
    flow.set_rng_state(state)
    assert flow.rand(5).tolist() == first
    flow.set_rng_state(list(state))
    assert flow.rand(5).tolist() == first


def test_seeds_wrap_and_may_be_numpys():
    generator = flow.Generator()
    assert generator.manual_seed(-1).initial_seed() == 2**64 - 1
    assert generator.manual_seed(np.int64(7)).initial_seed() == 7
    assert type(generator.initial_seed()) is int


def test_seed_draws_a_new_one():
    generator = flow.Generator()
    seeds = {generator.seed() for _ in range(4)}
    assert len(seeds) == 4 and generator.initial_seed() in seeds


def test_dropout_takes_one_call():
    flow.manual_seed(1)
    flow.nn.functional.dropout(flow.ones(4), 0.5, True)
    assert flow.get_rng_state() == (1, 1)
    flow.nn.functional.dropout(flow.ones(4), 0.5, False)
    assert flow.get_rng_state() == (1, 1)


@pytest.mark.parametrize("seed", [1.5, "1", True, None])
def test_bad_seeds(seed):
    state = flow.get_rng_state()
    with pytest.raises(OnefoldTypeError, match="manual_seed needs an integer"):
        flow.manual_seed(seed)
    assert flow.get_rng_state() == state


@pytest.mark.parametrize("state", [(1,), (1, 2, 3), ("a", 1)])
def test_bad_states(state):
    before = flow.get_rng_state()
    with pytest.raises(OnefoldValueError, match="a generator state is"):
        flow.set_rng_state(state)
    assert flow.get_rng_state() == before
