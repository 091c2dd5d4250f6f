"""Zeros, infinities and NaN: the results over partial and split tensors are one device's."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, parse, partial_sum, split
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

TWO = Placement("cpu", [0, 1])
PLACEMENTS = [TWO, Placement("cpu", [0, 1, 2]), Placement("cpu", [[0, 1], [2, 3]])]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan, 1e-42, 1e300, -1e300]
NUMBERS = [*SPECIAL, 0, 1, -3]

WITH_A_TENSOR = {
    "div": torch.div,
    "xlogy": torch.xlogy,
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
}
WITH_A_NUMBER = {
    "mul": torch.mul,
    "div": torch.div,
    "xlogy": torch.xlogy,
    "lerp": lambda a, n: torch.lerp(a, a + 1, float(n)),
    "addcmul": lambda a, n: torch.addcmul(a, a, torch.ones(()), value=float(n)),
}


def laid(x, placement, nd_sbp, seed=0):
    return make_global(x, placement, nd_sbp, seed)


def whole(x, placement):
    return make_global(x, placement, (broadcast,) * placement.ndim)


def layouts(placement, ndim):
    kinds = [broadcast, partial_sum, *map(split, range(ndim))]
    return st.tuples(*[st.sampled_from(kinds)] * placement.ndim)


def assert_same(found, wanted):
    largest = wanted.nan_to_num(0.0, 0.0, 0.0).abs().max().item()
    torch.testing.assert_close(
        found, wanted, equal_nan=True, rtol=1e-5, atol=1e-6 * max(largest, 1.0)
    )


@pytest.mark.parametrize("name", WITH_A_TENSOR)
@given(data=st.data())
def test_with_a_tensor_of_any_values(name, data):
    placement = data.draw(st.sampled_from(PLACEMENTS))
    a = torch.tensor([[0.0], [1.0], [-2.0]]).expand(3, len(SPECIAL)).contiguous()
    b = torch.tensor(SPECIAL).to(torch.float32).expand(a.shape).contiguous()
    x = laid(a, placement, data.draw(layouts(placement, 2)))
    y = laid(b, placement, data.draw(layouts(placement, 2).filter(lambda s: partial_sum not in s)))
    found = names.addcdiv(x, x, y) if name == "addcdiv" else getattr(names, name)(x, y)
    assert_same(value_of(found), WITH_A_TENSOR[name](a, b))


@pytest.mark.parametrize("name", WITH_A_NUMBER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(data=st.data())
def test_with_any_number(name, dtype, data):
    placement = data.draw(st.sampled_from(PLACEMENTS))
    large = name in ("lerp", "addcmul") and dtype is torch.float32  # where torch refuses them
    numbers = [n for n in NUMBERS if not (large and 1e39 < abs(n) < math.inf)]
    number = data.draw(st.sampled_from(numbers))
    a = torch.tensor([0.0, 1.0, -2.0, 3.5], dtype=dtype)
    x = laid(a, placement, data.draw(layouts(placement, 1)))
    # The plan of a number that suits must not be taken for one that does not.
    for n in (2.0, number):
        if name == "lerp":
            found = names.lerp(x, x + 1, float(n))
        elif name == "addcmul":
            found = names.addcmul(
                x, x, whole(torch.ones((), dtype=dtype), placement), value=float(n)
            )
        else:
            found = getattr(names, name)(x, n)
            if name == "mul":
                assert_same(value_of(names.mul(n, x)), a * n)
        assert_same(value_of(found), WITH_A_NUMBER[name](a, n))


@pytest.mark.parametrize("number", [0.0, math.inf, math.nan, 2.0])
def test_the_gradient_of_a_quotient_and_a_product_by_a_number(number):
    for ours, torchs in ((lambda x: x / number, torch.div), (lambda x: x * number, torch.mul)):
        if number == 0.0 and torchs is torch.mul:
            continue
        a = torch.tensor([1.0, 2.0], requires_grad=True)
        dy = torch.tensor([2.0, -1.0])
        torchs(a, number).backward(dy)
        x = make_global(a.detach(), TWO, parse("(B)")).requires_grad_()
        ours(x).backward(make_global(dy, TWO, parse("(P)")))
        assert_same(value_of(x.grad), a.grad)


def test_by_a_finite_number_nothing_is_communicated():
    x = make_global(torch.randn(4), TWO, parse("(P)"))
    with flow.profiler.comm() as log:
        ys = [x * 2, 3.0 * x, x / 7, flow.xlogy(x, 2.0), flow.lerp(x, x, 0.5)]
    assert not log.total_bytes(0)
    assert all(y.sbp == (partial_sum,) for y in ys)


def test_a_graph_does_not_put_a_reduction_off_past_such_a_number():
    class Scaled(flow.nn.Graph):
        def __init__(self, number):
            super().__init__()
            self.number = number

        def build(self, x):
            return flow.sum(x.to_global(sbp=flow.sbp.broadcast) * self.number, 0)

    a = torch.tensor([[1.0, 1.0, -2.0, 0.0]] * 3)
    x = make_global(a, TWO, parse("(P)"))
    for number in (2.0, math.inf):
        assert_same(value_of(Scaled(number)(x)), torch.sum(a * number, 0))


# Medians.


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_of_expanded_shards(name):
    """torch's own kernel reads memory beyond a tensor that is expanded and transposed."""
    a = torch.tensor([2.0, 3.0])
    for make in (make_local, lambda x: make_global(x, TWO, parse("(B)"))):
        x = flow.unsqueeze(make(a), 1).expand(2, 50)
        for found, wanted in (
            (getattr(flow, name)(flow.t(x), 0).values, a),
            (getattr(flow, name)(x, 1).values, a),
            (getattr(flow, name)(x), torch.tensor(2.0)),
            (getattr(flow, name)(flow.t(x)), torch.tensor(2.0)),
        ):
            assert_same(value_of(found), wanted)


# Variances without degrees of freedom.


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [1, 3, 4, 7])
@pytest.mark.parametrize("values", [[1.0, 2.0, 2.5], [1.0, 1.0, 4.0], [2.0] * 3, [5.0]])
def test_a_variance_without_degrees_of_freedom(name, correction, values):
    a = torch.tensor(values).requires_grad_()
    wanted = getattr(torch, name)(a, correction=correction)
    wanted.backward()
    for placement in PLACEMENTS:
        for layout in ((split(0),), (broadcast,), (partial_sum,)):
            x = laid(a.detach(), placement, layout * placement.ndim).requires_grad_()
            found = getattr(names, name)(x, correction=correction)
            found.backward()
            assert_same(value_of(found), wanted.detach())
            assert_same(value_of(x.grad), a.grad)
    x = make_local(a.detach()).requires_grad_()
    getattr(names, name)(x, correction=correction).backward()
    assert_same(value_of(x.grad), a.grad)


@pytest.mark.parametrize("name", ["addmm", "addcmul", "addbmm", "addmv"])
def test_float_factors_of_integers_are_whole(name):
    """As in torch, which gives integers."""
    shapes = {"addbmm": ((2, 2), (1, 2, 2), (1, 2, 2)), "addmv": ((2,), (2, 2), (2,))}
    values = [torch.ones(shape, dtype=torch.int64) * 3 for shape in shapes.get(name, ((2, 2),) * 3)]
    factors = {"value": 2.5} if name == "addcmul" else {"alpha": 2.5, "beta": 3.9}
    wanted = getattr(torch, name)(*values, **factors)
    made = getattr(flow, name)(*map(flow.from_torch, values), **factors).to_torch()
    assert made.dtype is wanted.dtype
    assert torch.equal(made, wanted)
