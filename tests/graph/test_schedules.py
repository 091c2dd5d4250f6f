"""Schedules: complete, free of deadlock, with the bubbles and in-flight counts published."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.graph.schedules.actions import Action, chain
from onefold.graph.schedules.diagram import diagram
from onefold.graph.schedules.named_schedules import SCHEDULES, default_for, make
from onefold.graph.schedules.schedule_check import bubble, check, check_forms, held, in_flight
from onefold.graph.schedules.simulate import Times, simulate

STAGES = range(1, 9)
MICRO_BATCHES = range(1, 33)

# Qi et al., Zero Bubble Pipeline Parallelism (2023), tables 9 and 5: ranks, micro-batches, times
# of F, I, W and a transfer in ms; the bubble rates of 1f1b, zb-h1 and zb-h2.
PUBLISHED = [
    (8, 24, (18.522, 18.086, 9.337, 0.601), (0.2431, 0.1585, 0.1083)),
    (8, 32, (18.513, 18.086, 9.331, 0.626), (0.1985, 0.1242, 0.0837)),
    (8, 64, (18.546, 18.097, 9.321, 0.762), (0.1240, 0.0674, 0.0444)),
    (8, 24, (29.718, 29.444, 19.927, 0.527), (0.2347, 0.1323, 0.0698)),
    (8, 32, (29.802, 29.428, 19.530, 0.577), (0.1898, 0.1045, 0.0559)),
    (8, 64, (29.935, 29.621, 19.388, 0.535), (0.1091, 0.0554, 0.0294)),
    (16, 48, (11.347, 11.248, 8.132, 0.377), (0.2552, 0.1397, 0.0672)),
    (16, 64, (11.307, 11.254, 8.101, 0.379), (0.2082, 0.1088, 0.0516)),
    (16, 128, (11.325, 11.308, 8.109, 0.378), (0.1251, 0.0576, 0.0266)),
    (32, 96, (10.419, 10.207, 7.715, 0.408), (0.2646, 0.1421, 0.0641)),
    (32, 128, (10.408, 10.204, 7.703, 0.408), (0.2168, 0.1106, 0.0490)),
    (32, 256, (10.402, 10.248, 7.698, 0.460), (0.1352, 0.0594, 0.0257)),
]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"p{row[0]}-m{row[1]}")
@pytest.mark.parametrize("column", range(3), ids=("1f1b", "zb-h1", "zb-h2"))
def test_published_bubble_rates(row, column):
    ranks, micro_batches, times, rates = row
    schedule = make(("1f1b", "zb-h1", "zb-h2")[column], ranks, micro_batches)
    rate = simulate(schedule, Times(*times)).bubble_rate
    assert rate == pytest.approx(rates[column], abs=5.1e-5)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("p", STAGES)
def test_synchronous_schedules(name, p):
    times = Times(2.0, 3.0, 1.5)
    for m in MICRO_BATCHES:
        schedule = make(name, p, m)
        check(schedule)
        assert simulate(schedule, times).bubble == pytest.approx((p - 1) * 6.5)
        for rank in range(p):
            wanted = m if name == "gpipe" else min(m, p - rank)
            assert in_flight(schedule, rank) == wanted


@pytest.mark.parametrize("p", STAGES)
@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_interleaved(p, v):
    times = Times(2.0, 3.0, 1.5)
    for m in MICRO_BATCHES:
        schedule = make("interleaved", p * v, m, p)
        check(schedule)
        found = simulate(schedule, times)
        if m % p == 0:  # times are those of one chunk: the closed form's (F + B) / v
            assert found.bubble == pytest.approx((p - 1) * 6.5)
            for rank in range(p):
                warm = p - 1 - rank if v == 1 else 2 * (p - 1 - rank) + (v - 1) * p
                assert in_flight(schedule, rank) == min(m * v, warm + 1)


@pytest.mark.parametrize("p", STAGES)
@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_looped_bfs(p, v):
    for m in MICRO_BATCHES:
        schedule = make("looped-bfs", p * v, m, p)
        check(schedule)
        if m >= p:
            assert simulate(schedule, Times(2.0, 3.0, 1.5)).bubble == pytest.approx((p - 1) * 6.5)
        assert [in_flight(schedule, rank) for rank in range(p)] == [m * v] * p


@pytest.mark.parametrize("p", STAGES)
def test_zero_bubble_schedules(p):
    times = Times(3.0, 3.5, 2.5)
    f, i, w = 3.0, 3.5, 2.5
    for m in MICRO_BATCHES:
        h1, h2 = make("zb-h1", p, m), make("zb-h2", p, m)
        check(h1)
        check(h2)
        for rank in range(p):
            assert in_flight(h1, rank) == min(m, p - rank)
            assert in_flight(h2, rank) == min(m, 2 * (p - 1 - rank) + 1)
            assert in_flight(h1, rank, "W") <= p
            assert in_flight(h2, rank, "W") <= 2 * p - 1
        if m >= 2 * p - 1:
            assert simulate(h1, times).bubble == pytest.approx((p - 1) * (f + i - w))
            assert simulate(h2, times).bubble == pytest.approx((p - 1) * (f + i - 2 * w))


@pytest.mark.parametrize("p", STAGES)
def test_zb_v(p):
    for m in MICRO_BATCHES:
        schedule = make("zb-v", 2 * p, m)
        check(schedule)
        assert max(in_flight(schedule, rank, "W") for rank in range(p)) <= 2 * p  # half stages
        if m >= 2 * p - 1:
            assert simulate(schedule, Times()).bubble == 0
            assert simulate(schedule, Times(2, 3, 1)).bubble == (p - 1) * 4  # I - W of both stages


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(1, 3),
    st.lists(st.floats(0, 5), min_size=4, max_size=4),
)
def test_any_schedule_runs_and_never_ends_before_its_work(name, ranks, m, chunks, drawn):
    per_rank = {"interleaved": chunks, "looped-bfs": chunks, "zb-v": 2}.get(name, 1)
    schedule = make(name, ranks * per_rank, m, ranks)
    check(schedule)
    skips = [*chain(schedule.stages), *((0, s) for s in range(2, schedule.stages))]
    check(schedule, skips)  # shortcuts over several stages
    times = Times(*drawn)
    found = simulate(schedule, times)
    assert found.makespan >= found.cost >= found.work - 1e-9
    ends = [0.0] * ranks
    for rank, actions in enumerate(schedule.ranks):
        for action in actions:
            start, end = found.spans[action]
            assert start >= ends[rank]
            ends[rank] = end


# The checks must be able to fail.

GOOD = make("1f1b", 2, 2)


def changed(rank, actions):
    ranks = list(GOOD.ranks)
    ranks[rank] = tuple(actions)
    return replace(GOOD, ranks=tuple(ranks))


F, B = (lambda m: Action("F", 0, m)), (lambda m: Action("B", 0, m))


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ([F(0), F(1), B(0)], r"stage 0 does \['F'\] for micro-batch 1; it must do F and B"),
        ([F(0), F(1), B(0), B(1), B(1)], r"B0\.1 is done more than once"),
        ([F(0), F(1), B(0), B(1), Action("W", 0, 1)], r"does \['B', 'F', 'W'\]"),
        ([B(0), F(0), F(1), B(1)], r"cannot run: rank 0 before B0\.0, rank 1 before F1\.0 wait"),
        ([F(0), F(1), B(1), B(0)], r"B0\.0 comes after micro-batch 1 of its stage"),
        ([F(0), F(1), B(0), Action("B", 1, 1)], r"B1\.1 is on rank 0, but its stage lives on rank"),
        ([F(0), F(1), B(0), B(7)], r"B0\.7 on rank 0 is of no stage or micro-batch"),
    ],
)
def test_a_wrong_schedule_is_noticed(actions, text):
    check(GOOD)
    with pytest.raises(OnefoldRuntimeError, match=text):
        check(changed(0, actions))


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize("p", STAGES)
def test_schedules_have_their_closed_forms(name, p):
    several = (1, 2, 3, 4)
    for v in {"interleaved": several, "looped-bfs": several, "zb-v": (2,)}.get(name, (1,)):
        for m in MICRO_BATCHES:
            assert check_forms(make(name, p * v, m, p)) is None


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (replace(make("gpipe", 2, 4), name="1f1b"), "rank 0 holds 4 micro-batches at once and sh"),
        (replace(make("1f1b", 4, 8), name="zb-h1"), "its bubble is 9 and should be 3"),
    ],
)
def test_another_bubble_or_memory_is_noticed(schedule, text):
    with pytest.raises(OnefoldRuntimeError, match=text):
        check_forms(schedule)


def test_an_unknown_schedule_has_no_form():
    schedule = replace(make("1f1b", 4, 8), name="mine")
    for check_one in (check_forms, lambda s: bubble(s, Times()), lambda s: held(s, 0)):
        with pytest.raises(OnefoldValueError, match=r"unknown schedule 'mine'; choose one of 'gp"):
            check_one(schedule)


@pytest.mark.parametrize(
    ("rank_of", "name"),
    [
        ((0,), "1f1b"),
        ((0, 1, 2), "1f1b"),
        ((0, 1, 0, 1), "interleaved"),
        ((0, 0), "interleaved"),
        ((0, 1, 1, 0), "zb-v"),
        ((0, 1, 2, 2, 1, 0), "zb-v"),
        ((0, 0, 1, 1), "interleaved"),  # which does not fit, and says so
    ],
)
def test_the_schedule_for_how_stages_lie(rank_of, name):
    assert default_for(rank_of) == name


def test_a_deadlock_is_noticed_when_timed():
    with pytest.raises(OnefoldRuntimeError, match="cannot run"):
        simulate(changed(0, [F(0), B(0), F(1), B(1)][::-1]), Times())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("magic", 2, 2), OnefoldValueError, "unknown schedule 'magic'; choose one of 'gpipe'"),
        (("1f1b", 0, 2), OnefoldValueError, "stages must be at least 1, but got 0"),
        (("1f1b", 2, 1.5), OnefoldTypeError, "micro_batches must be an integer, but got 1.5"),
        (("1f1b", 4, 2, 2), OnefoldValueError, "needs one stage on every rank.*are 2; use 'inter"),
        (("interleaved", 4, 2, 3), OnefoldValueError, "cannot be dealt out evenly to 3 ranks"),
        (("zb-v", 4, 2, 4), OnefoldValueError, "zb-v needs 2 stages on every rank"),
    ],
)
def test_bad_requests(arguments, error, text):
    with pytest.raises(error, match=text):
        make(*arguments)


def test_the_picture_of_the_textbook():
    found = simulate(make("1f1b", 3, 4), Times(1, 1, 1))
    assert diagram(found).splitlines() == [
        "0 F0 F1 F2 .. .. .. .. b0 b0 F3 b1 b1 .. b2 b2 .. b3 b3",
        "1 .. F0 F1 .. .. b0 b0 F2 b1 b1 F3 b2 b2 .. b3 b3 .. ..",
        "2 .. .. F0 b0 b0 F1 b1 b1 F2 b2 b2 F3 b3 b3 .. .. .. ..",
    ]
