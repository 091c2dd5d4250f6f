"""Views are torch's: a write to a view changes its base and the base's other views."""

import gc
import random
import weakref
from functools import partial

import pytest
import torch
import view_programs
from hypothesis import given, settings
from hypothesis import strategies as st
from launched import run_ranks

import onefold as flow
from onefold.engine import views
from onefold.engine.sbp import parse
from onefold.errors import AutogradError, OnefoldRuntimeError
from onefold.testing.checks import value_of
from onefold.testing.layouts import make_global
from onefold.testing.strategies import nd_sbps, placements, shapes


@st.composite
def cases(draw, recorded=False):
    """A program, and the placement and layout of its base (None: local)."""
    shape = draw(shapes(1, 3, 0, 5))
    program = view_programs.draw_program(
        lambda choices: draw(st.sampled_from(choices)), shape, 10, recorded
    )
    if draw(st.integers(0, 3)) == 0:
        return program, None, None
    placement = draw(placements(max_ranks=4))
    return program, placement, draw(nd_sbps(shape, placement.ndim))


def base_value(program):
    count = torch.Size(program.shape).numel()
    return torch.arange(float(count), dtype=torch.float64).reshape(program.shape)


def laid_out(value, placement, nd_sbp):
    value = torch.as_tensor(value, dtype=torch.float64)
    if placement is None:
        return flow.tensor(value)
    return make_global(value, placement, nd_sbp)


def beside(values, placement):
    """A tensor of these values, for a write to one on the placement."""
    if placement is None:
        return flow.tensor(values, dtype=flow.float64)
    layout = {"placement": placement, "sbp": [flow.sbp.broadcast] * placement.ndim}
    return flow.tensor(values, dtype=flow.float64, **layout)


def histories(program, placement, nd_sbp):
    """All values after each write, as torch and as onefold has them."""
    found, wanted = [], []
    base = base_value(program)
    view_programs.run(
        program,
        base.clone(),
        None,
        view_programs._torch_tensor,
        lambda pool: wanted.append([x.clone() for x in pool]),
    )
    view_programs.run(
        program,
        laid_out(base, placement, nd_sbp),
        None,
        lambda values: beside(values, placement),
        lambda pool: found.append([value_of(x).clone() for x in pool]),
    )
    return found, wanted


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=0)


@settings(max_examples=300)
@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(cases())
def test_random_views_have_torchs_values(case):
    assert_same(*histories(*case))


def gradients(program, make_base, make, sum_of):
    """Gradients of the base and of a scale, from all tensors that are left; None as in torch."""
    leaf = make_base()
    scale = make(1.0).requires_grad_()
    pool = view_programs.run(program, leaf * 1, scale, make)
    total = (scale * 0).sum()
    used = []
    for number, x in enumerate(pool):
        try:
            total = total + sum_of(x, number)
        except RuntimeError:  # torch's views of several whose base has changed
            continue
        used.append(number)
    total.backward()
    return leaf.grad, scale.grad, used


def torch_sum(x, number):
    return (x * x * (number + 1)).sum()


@settings(max_examples=300)
@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(cases(recorded=True))
def test_random_views_have_torchs_gradients(case):
    program, placement, nd_sbp = case
    value = base_value(program)
    *wanted, used = gradients(
        program, lambda: value.clone().requires_grad_(), view_programs._torch_tensor, torch_sum
    )

    def sum_of(x, number):
        if number not in used:
            raise RuntimeError
        return torch_sum(x, number)

    found = gradients(
        program,
        lambda: laid_out(value, placement, nd_sbp).requires_grad_(),
        lambda values: beside(values, placement),
        sum_of,
    )
    for ours, theirs in zip(found[:2], wanted, strict=True):
        assert theirs is not None or ours is None
        if ours is None:  # where torch has a history of constants
            assert theirs is None or not theirs.any()
        else:
            torch.testing.assert_close(value_of(ours), theirs)
