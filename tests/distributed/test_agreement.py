"""What members of a group expect: the same on each of them, and what repeats is known."""

from hypothesis import given, strategies as st

from onefold.distributed import agreement as module
from onefold.distributed.agreement import Agreement

KINDS = st.integers(0, 3)


def compared(agreement, sequence):
    """How many of a sequence are compared."""
    count = 0
    for what in sequence:
        if not agreement.expects(what):
            agreement.learn(what)
            count += 1
    return count


@given(st.lists(KINDS, min_size=1, max_size=40))
def test_a_program_that_repeats_compares_nothing_after_its_second_step(period):
    agreement = Agreement()
    first = compared(agreement, [*period, "end"])
    second = compared(agreement, [*period, "end"])
    assert first <= len(period) + 1
    assert second <= len(period) + 1
    assert compared(agreement, [*period, "end"] * 5) <= 1


@given(st.lists(st.one_of(KINDS, st.none()), max_size=200))
def test_renamed_members_expect_alike(sequence):
    """Ranks see their own side of a transfer: other values, with the same equalities."""
    one, two = Agreement(), Agreement()
    for what in sequence:
        known = one.expects(what)
        assert two.expects(("renamed", what)) is known
        if not known:
            one.learn(what)
            two.learn(("renamed", what))


def test_another_size_is_compared_and_the_rest_is_not():
    agreement = Agreement()
    compared(agreement, [(kind, 4) for kind in "abcdef"] * 3)
    step = [("a", 4), ("b", 5), ("c", 4), ("d", 4), ("e", 4), ("f", 4)]
    assert compared(agreement, step) == 1
    assert compared(agreement, [("a", 4), ("b", 6), *step[2:]]) == 1


def test_who_does_something_else_is_never_expected():
    agreement = Agreement()
    compared(agreement, list("abc") * 9)
    assert agreement.expects("a")
    assert not agreement.expects("a")
    assert not agreement.expects("c")
    assert agreement.expects("b")


def test_the_history_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 50)
    agreement = Agreement()
    compared(agreement, list("abcdefg") * 100)
    assert compared(agreement, list("abcdefg") * 100) == 0
    assert len(agreement._history) <= 100
    assert compared(agreement, range(1000)) == 1000
    assert len(agreement._same) <= 100
