"""Philox's words are those of its paper."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from philox_oracle import CALL, SEED, halves, philox_oracle, word_oracle

from onefold.kernels import philox


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_random123(counter, key, expected):
    c0, c1, c2, c3 = counter = [int(word, 16) for word in counter.split()]
    k0, k1 = key = [int(word, 16) for word in key.split()]
    expected = [int(word, 16) for word in expected.split()]
    seed, call, group = k0 | k1 << 32, c2 | c3 << 32, c0 | c1 << 32
    groups = np.array([group], np.uint64)
    assert list(philox_oracle(counter, key)) == expected
    assert philox.Philox(seed, call, 1).words(groups).tolist() == expected


@given(
    st.lists(st.integers(0, 2**61), min_size=1, max_size=8),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)
def test_words_are_the_oracle_s(groups, seed, call):
    groups = np.array(sorted(groups), np.uint64)
    expected = [
        word
        for group in groups.tolist()
        for word in philox_oracle((*halves(group), *halves(call)), halves(seed))
    ]
    assert philox.Philox(seed, call, 8).words(groups).tolist() == expected


def test_groups_on_both_sides_of_2_to_32_make_one_chunk():
    groups = np.arange(2**32 - 3, 2**32 + 3, dtype=np.uint64)
    words = philox.Philox(SEED, CALL, 8).words(groups).tolist()
    assert words == [word_oracle(4 * int(groups[0]) + i) for i in range(24)]


@pytest.mark.parametrize(
    ("box", "rows"),
    [
        (((4, 6), (1, 2), (2, 3)), philox.Rows(3, 2, 8, ((2, 6),))),
        (((4, 6), (1, 0), (2, 6)), philox.Rows(12, 1, 6, ())),
        (((4, 6), (1, 2), (1, 3)), philox.Rows(3, 1, 8, ())),
        (((3, 1, 4, 5), (1, 0, 2, 0), (2, 1, 2, 5)), philox.Rows(10, 2, 30, ((2, 20),))),
        (((), (), ()), philox.Rows(1, 1, 0, ())),
        (((7,), (2,), (5,)), philox.Rows(5, 1, 2, ())),
    ],
)
def test_a_box_is_cut_into_its_longest_rows(box, rows):
    assert philox.Rows.of_box(*box) == rows


@pytest.mark.parametrize(
    "box", [((4,), (3,), (2,)), ((4,), (-1,), (2,)), ((4, 4), (0,), (2,)), ((2**63,), (0,), (1,))]
)
def test_a_box_outside_its_shape_is_refused(box):
    with pytest.raises(AssertionError):
        philox.Rows.of_box(*box)


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


LARGE = (philox.MIN_THREADED // 64, 64)


def test_several_threads_fill_a_large_tensor(two_threads):
    seen = set()

    def transform(words):
        seen.add(threading.get_ident())
        return words.astype(np.int64)

    found = philox.fill(
        LARGE, (0, 0), LARGE, transform, seed=SEED, call=CALL, dtype=torch.int64
    ).flatten()
    assert threading.get_ident() not in seen and 1 <= len(seen) <= 2
    for index in (0, 1, 2**17 + 3, len(found) - 1):
        assert found[index] == word_oracle(index)


def test_an_error_of_a_thread_is_raised(two_threads):
    def transform(words):
        raise ValueError("no such number")

    with pytest.raises(ValueError, match="no such number"):
        philox.fill(LARGE, (0, 0), LARGE, transform, seed=0, call=0, dtype=torch.int64)


def test_large_tensors_in_inference_mode(two_threads):
    def draw():
        return philox.fill(
            LARGE, (0, 0), LARGE, lambda w: w.astype(np.int64), seed=0, call=0, dtype=torch.int64
        )

    with torch.inference_mode():
        found = draw()
    assert torch.equal(found, draw())
