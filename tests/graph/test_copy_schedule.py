"""When copies to the host and back begin: in order, few at a time, and during computation."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from onefold.graph.passes.copy_schedule import Copy, Turns, schedule
from onefold.graph.simulator.event_simulation import Task, run

SECONDS = st.floats(0.01, 10)
ANY = st.just(0.0) | SECONDS


@st.composite
def programs(draw):
    """The seconds of steps, and values that are away between a step of forward and of backward."""
    steps = draw(st.lists(ANY, min_size=4, max_size=60))
    half = len(steps) // 2
    made = draw(st.lists(st.integers(0, half - 1), max_size=40).map(sorted))
    copies = [Copy(last, draw(st.integers(half, len(steps) - 1)), draw(ANY), half) for last in made]
    return steps, copies


def makespan(steps, copies, turns):
    """Seconds until the last step is done, where steps wait for copies as `turns` has it."""
    away = list(zip(range(len(copies)), copies, turns, strict=True))
    back = sorted(away, key=lambda each: each[1].needed)
    tasks = []
    latest = {}
    copied = {}

    def add(name, stream, seconds, needs):
        tasks.append(Task(name, 0, stream, seconds, tuple(needs)))
        latest[stream] = len(tasks) - 1
        return latest[stream]

    for index, seconds in enumerate(steps):
        add("release", "compute", 0.0, [copied[n] for n, _, t in away if t.released == index])
        for number, copy, turn in back:
            if turn.fetched == index:
                copied[number] = add("fetch", "copies", copy.seconds, [latest["compute"]])
        add("step", "compute", seconds, [copied[n] for n, c, _ in away if c.needed == index])
        for number, copy, _ in away:
            if copy.last == index:
                copied[number] = add("offload", "copies", copy.seconds, [latest["compute"]])
    return run(tasks).makespan


@given(programs(), st.booleans())
def test_turns_are_in_order_and_few_copies_are_under_way(program, apart):
    steps, copies = program
    copies = [replace(copy, apart=apart) for copy in copies]
    turns = schedule(steps, copies)
    for copy, turn in zip(copies, turns, strict=True):
        assert copy.last < turn.released <= turn.fetched <= copy.needed
        assert turn.released <= max(copy.turn, copy.last + 1)
        assert turn.fetched >= copy.turn or not apart
    pairs = list(zip(copies, turns, strict=True))
    for index in range(len(steps)):
        # Where several begin behind one step they do so before the first of them is waited for.
        alike = sum(copy.last == index for copy, _ in pairs)
        going = sum(copy.last <= index < turn.released for copy, turn in pairs)
        coming = sum(turn.fetched <= index < copy.needed for copy, turn in pairs)
        assert going <= 16 + alike
        assert coming <= 16 + sum(turn.fetched == index for _, turn in pairs)


@given(programs())
def test_it_is_no_slower_than_waiting_for_each_copy_at_once(program):
    steps, copies = program
    turns = schedule(steps, copies)
    at_once = [Turns(copy.last + 1, copy.needed) for copy in copies]
    assert makespan(steps, copies, turns) <= makespan(steps, copies, at_once) * (1 + 1e-9)


@given(st.lists(SECONDS, min_size=40, max_size=60), st.integers(1, 8), st.floats(0.001, 0.9))
def test_what_computing_can_hide_takes_no_time(steps, count, share):
    """Values of the first steps, needed in the last ones in reverse."""
    least = min(steps) * share
    copies = [Copy(at, len(steps) - 1 - at, least, len(steps) // 2) for at in range(count)]
    turns = schedule(steps, copies)
    assert makespan(steps, copies, turns) == pytest.approx(sum(steps), rel=1e-9)


def test_slow_copies_are_done_where_backward_begins():
    slow = [Copy(0, 7, 9.0, 4), Copy(1, 6, 9.0, 4)]
    assert schedule([1.0] * 8, slow) == [Turns(4, 4), Turns(4, 4)]


def test_copies_that_go_on_beside_other_work_wait_for_none_of_each_other():
    """Without other work a copy would be waited for where the second one after it begins."""
    slow = [Copy(at, 9 - at, 9.0, 5) for at in range(4)]
    assert [turns.released for turns in schedule([1.0] * 10, slow)] == [3, 4, 5, 5]
    apart = [replace(copy, apart=True) for copy in slow]
    assert schedule([1.0] * 10, apart) == [Turns(5, 5)] * 4
