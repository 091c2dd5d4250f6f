"""Small draws come from tables for many calls, with the bits of single draws."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from onefold.kernels import philox, random_ref, read_ahead

KINDS = {
    "bits": (random_ref.bits, {}),
    "uniform": (random_ref.uniform, {"low": -1.0, "high": 3.0}),
    "uniform64": (random_ref.uniform, {"dtype": torch.float64}),
    "normal": (random_ref.normal, {"mean": 0.5, "std": 2.0}),
    "bfloat16": (random_ref.normal, {"dtype": torch.bfloat16}),
    "randint": (random_ref.randint, {"low": -5, "high": 1 << 40}),
    "keep": (random_ref.keep_mask, {"p": 0.3}),
}


def single(fill, options, shape, offset, size, seed, call):
    """One draw by itself."""
    _, dtype, transform, _, wide = fill.__wrapped__(**options)
    return philox.fill(shape, offset, size, transform, seed=seed, call=call, dtype=dtype, wide=wide)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "box", [((5, 7), (0, 0), (5, 7)), ((5, 7), (1, 2), (3, 4)), ((), (), ()), ((3,), (2,), (1,))]
)
def test_rows_of_tables_are_single_draws(kind, box):
    fill, options = KINDS[kind]
    first = (1 << 40) - 6  # the high words of the calls change
    for call in [*range(first, first + 12), *reversed(range(first - 40, first + 12, 3))]:
        drawn = fill(*box, seed=2**63 + 5, call=call, **options)
        expected = single(fill, options, *box, 2**63 + 5, call)
        assert drawn.dtype == expected.dtype
        assert torch.equal(drawn, expected)
        assert drawn.is_contiguous()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6), st.integers(0, 2**64 - 1))
def test_words_of_calls_are_those_of_each_call(calls, seed):
    groups = np.arange(3, dtype=np.uint64)
    pairs = [np.array(each, np.uint64) for each in (groups, calls)]
    made = philox.Philox(seed, 0, 3 * len(calls)).words_of_calls(
        np.tile(pairs[0], len(calls)), np.repeat(pairs[1], 3)
    )
    expected = [w for call in calls for w in philox.Philox(seed, call, 3).words(groups).tolist()]
    assert made.tolist() == expected


@pytest.fixture
def tables(monkeypatch):
    """The tables that are made, as (first call, calls)."""
    made = []
    make = read_ahead._table

    def noted(first, calls, *rest):
        made.append((first, calls))
        return make(first, calls, *rest)

    monkeypatch.setattr(read_ahead, "_table", noted)
    return made


def test_draws_that_follow_each_other_share_a_table(tables):
    for call in range(64):
        random_ref.normal((8, 8), (0, 0), (8, 8), seed=101, call=call)
    assert tables == [(0, 128)]
    for call in reversed(range(64)):  # as in backward
        random_ref.normal((8, 8), (0, 0), (8, 8), seed=101, call=call)
    assert len(tables) == 1


def test_rare_and_large_draws_have_no_table(tables):
    for call in range(0, 20_000, 1000):
        random_ref.normal((8, 8), (0, 0), (8, 8), seed=102, call=call)
    for call in range(8):
        random_ref.normal((8, 8), (0, 0), (8, 8), seed=103 + call, call=call)
        random_ref.normal((128, 128), (0, 0), (128, 128), seed=102, call=call)
    assert tables == []


def test_what_is_kept_is_bounded():
    for size in range(1, 200):
        for call in range(0, 2000, 100):
            random_ref.keep_mask((size,), (0,), (size,), p=0.5, seed=7, call=call)
    assert len(read_ahead._series) <= 32
    assert max(len(series.tables) for series in read_ahead._series.values()) <= 2


def test_a_draw_may_be_written():
    for call in (0, 1, 1, 1):
        drawn = random_ref.uniform((4,), (0,), (4,), seed=9, call=call)
        expected = single(random_ref.uniform, {}, (4,), (0,), (4,), 9, call)
        assert torch.equal(drawn, expected)
        drawn.zero_()
