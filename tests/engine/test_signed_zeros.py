"""0.0 and -0.0 are equal, but plans, programs and their steps tell them apart; so do 1 and True."""

import pytest
import torch

import onefold as flow
from onefold.engine.dispatch_plan import clear_plans

VALUES = [1.0, -1.0, 0.0, -0.0]
LAYOUTS = [None, flow.sbp.split(0), flow.sbp.broadcast]
# Of torch or flow, a tensor and a number.
CALLS = {
    "clamp": lambda t, x, v: t.clamp(x, min=v),
    "clamp_max": lambda t, x, v: t.clamp_max(x, v),
    "hardtanh": lambda t, x, v: t.nn.functional.hardtanh(x, v, 2.0),
    "threshold": lambda t, x, v: t.nn.functional.threshold(x, 0.5, v),
    "leaky_relu": lambda t, x, v: t.nn.functional.leaky_relu(x, v),
    "elu": lambda t, x, v: t.nn.functional.elu(x, v),
    "lerp": lambda t, x, v: t.lerp(x, x, v),
    "pad": lambda t, x, v: t.nn.functional.pad(x, (1, 1), value=v),
    "scatter": lambda t, x, v: t.scatter(x, 0, t.zeros_like(x, dtype=t.int64), v),
    "masked_fill": lambda t, x, v: x.masked_fill(x > 0, v),
    "full_like": lambda t, x, v: t.full_like(x, v),
    "xlog1py": lambda t, x, v: t.special.xlog1py(x, v),
    "mul": lambda t, x, v: x * v,
    "where": lambda t, x, v: t.where(x > 0, x, v),
}


@pytest.fixture(autouse=True)
def no_plans():
    clear_plans()


def bits(x):
    """Signs and values, of which -0.0 and 0.0 differ."""
    return [*map(repr, x.flatten().tolist())]


def make(layout):
    where = {} if layout is None else {"placement": flow.placement("cpu", [0, 1]), "sbp": layout}
    return flow.tensor(VALUES, **where)


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (-0.0, 0.0)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_sign_of_a_zero_is_kept_call_after_call(call, layout, numbers):
    x = make(layout)
    for number in numbers:
        wanted = call(torch, torch.tensor(VALUES), number)
        assert bits(call(flow, x, number)) == bits(wanted), number


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_sign_of_a_zero_is_kept_in_graphs(call, layout):
    class Both(flow.nn.Graph):
        def build(self, x):
            return call(flow, x, 0.0), call(flow, x, -0.0)

    compiled = flow.compile(lambda x, number: call(flow, x, number))
    x = make(layout)
    for number, made in zip((0.0, -0.0), Both()(x), strict=True):
        wanted = bits(call(torch, torch.tensor(VALUES), number))
        assert bits(made) == wanted, number
        assert bits(compiled(x, number)) == wanted, number


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_one_by_three_types_promotes_as_in_torch(dtype):
    """The orders matter: a plan for one type must not be found for another that is equal."""

    def dtypes(t, x, one):
        made = [x + one, x * one, one / (x + 1), t.clamp(x, min=one), t.where(x > 0, x, one)]
        made += [t.full((2,), one), t.full_like(x, one), t.pow(x, one), x.masked_fill(x > 0, one)]
        return [each.dtype for each in made]

    compiled = flow.compile(lambda x, one: dtypes(flow, x, one))
    ones = (1, 1.0, True) if dtype is not torch.bool else (1, 1.0)  # torch.clamp takes no bools
    for order in (ones, ones[::-1]):
        clear_plans()
        for one in order:
            wanted = dtypes(torch, torch.tensor([1, 0], dtype=dtype), one)
            x = flow.tensor([1, 0], dtype=dtype)
            assert dtypes(flow, x, one) == wanted
            assert compiled(x, one) == wanted


def test_a_number_for_is_causal_does_not_spoil_the_plan_of_true():
    q = torch.randn(1, 2, 4, 8)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    mine = flow.from_torch(q)
    for causal in (1, True):
        made = flow.nn.functional.scaled_dot_product_attention(mine, mine, mine, is_causal=causal)
        assert torch.equal(made.to_torch(), wanted)
