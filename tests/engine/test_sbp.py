"""Sbp: one object per layout, reading of what users write, and the errors."""

import pickle

import pytest

import onefold as flow
from onefold.engine.sbp import as_nd_sbp, parse, partial_max, short
from onefold.errors import SbpError

S0, S1 = flow.sbp.split(0), flow.sbp.split(1)
B, P = flow.sbp.broadcast, flow.sbp.partial_sum


def test_equal_layouts_are_one_object():
    assert flow.sbp.split(1) is S1 and flow.sbp.split(dim=1) is S1 and flow.sbp.split(axis=1) is S1
    assert B() is B and P() is P
    assert len({S0, S1, B, P, flow.sbp.split(0), B()}) == 4
    assert all(isinstance(sbp, flow.sbp.sbp) for sbp in (S0, B, P))


def test_repr_is_what_oneflow_users_match_on():
    assert repr(S1) == "onefold.sbp.split(dim=1)"
    assert repr((B,)) == "(onefold.sbp.broadcast,)"
    assert repr(P) == "onefold.sbp.partial_sum"


def test_pickle_keeps_identity():
    for sbp in (S0, S1, B, P, partial_max):
        assert pickle.loads(pickle.dumps(sbp)) is sbp


def test_short_and_parse_are_inverse():
    for nd_sbp in [(S0,), (B, P), (S1, S0, partial_max)]:
        assert parse(short(nd_sbp)) == nd_sbp
    assert short((S0, B, P)) == "(S0, B, P)"


def test_an_nd_sbp_may_be_written_in_many_ways():
    assert as_nd_sbp(S0, 1) == as_nd_sbp([S0], 1) == as_nd_sbp((S0,), 1) == (S0,)
    assert as_nd_sbp([S0, B], 2) == (S0, B)


@pytest.mark.parametrize(
    ("value", "axes", "text"),
    [
        ((S0, B), 1, "the placement's ranks have 1 axes, but sbp has length 2"),
        (S0, 2, "the placement's ranks have 2 axes, but sbp has length 1"),
        ("S0", 1, "sbp must be an onefold.sbp.sbp or a tuple of them"),
        (3, 1, "sbp must be an onefold.sbp.sbp"),
        (("S0",), 1, "every entry of sbp must be"),
        ((flow.sbp.split,), 1, r"sbp.split needs the dim to split"),
    ],
)
def test_malformed_nd_sbps(value, axes, text):
    with pytest.raises(SbpError, match=text):
        as_nd_sbp(value, axes)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: flow.sbp.split(-1), "Split axis must not be negative, but got -1!"),
        (lambda: flow.sbp.split(1.5), "needs an integer"),
        (lambda: flow.sbp.split(True), "needs an integer"),
        (flow.sbp.split, "needs an integer"),
        (lambda: flow.sbp.split(0, axis=1), "got both dim=0 and axis=1"),
        (S0, "is a layout already"),
        (flow.sbp.sbp, "an sbp is not built directly"),
    ],
)
def test_malformed_sbps(call, text):
    with pytest.raises(SbpError, match=text):
        call()
