"""Elementwise ops: promotion, numbers, errors, layouts and the gradients that samples miss."""

import itertools
import math
import operator

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold.engine.dispatch_plan import num_plans
from onefold.engine.names import names
from onefold.engine.ops.pointwise import exact
from onefold.engine.sbp import parse, partial_sum, short
from onefold.errors import OnefoldError
from onefold.testing.manual_layouts import make_global, make_local

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]
BINARY = "add sub mul div pow remainder fmod maximum minimum floor_divide eq lt atan2 logical_and"
NUMBERS = [True, 2, 2.5, 1 + 2j]


def outcome(call, *args):
    """(dtype, shape), or the class of error."""
    try:
        y = call(*args)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        kinds = (IndexError, TypeError, ValueError, RuntimeError)
        return next(kind for kind in kinds if isinstance(error, kind))
    return y.dtype, tuple(y.shape)


def outcomes(name, *args):
    """Our outcome, and torch's."""
    ours = [make_local(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    return outcome(getattr(names, name), *ours), outcome(getattr(torch, name), *args)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("name", BINARY.split())
def test_promotion_of_two_tensors(name):
    for left, right, shape in itertools.product(DTYPES, DTYPES, [(3,), ()]):
        args = torch.ones(3, dtype=left), torch.ones(shape, dtype=right)
        found, wanted = outcomes(name, *args)
        assert found == wanted, args


@pytest.mark.parametrize("name", "add sub mul div pow remainder fmod eq lt".split())
def test_promotion_with_a_number(name):
    for dtype, number in itertools.product(DTYPES, NUMBERS):
        if (name, dtype, number) != ("pow", torch.bool, True):  # torch's meta device says int64
            found, wanted = outcomes(name, torch.ones(3, dtype=dtype), number)
            assert found == wanted, (dtype, number)


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_numbers_first_promote_as_in_torch(op):
    for dtype, number in itertools.product(DTYPES, NUMBERS):
        x = torch.ones(3, dtype=dtype)
        assert outcome(op, number, make_local(x)) == outcome(op, number, x), (dtype, number)


UNARY = """abs neg exp log sqrt rsqrt square reciprocal sin tanh sigmoid erf floor ceil round sign
relu isnan isfinite logical_not bitwise_not positive angle real signbit sgn digamma""".split()


@pytest.mark.parametrize("name", UNARY)
def test_dtypes_of_functions_of_one_tensor(name):
    for dtype in DTYPES:
        found, wanted = outcomes(name, torch.ones(3, dtype=dtype))
        assert found == wanted, dtype


def test_integer_keys_tell_types_apart():
    """Plans are found by attributes, and 1 == 1.0 == True."""
    x = make_local(torch.tensor([0, 5]))
    assert names.clamp(x, 1, 4).dtype == torch.int64
    assert names.clamp(x, 1.0, 4.0).dtype == torch.float32
    condition = make_local(torch.tensor([True, False]))
    assert names.where(condition, x, 1).dtype == torch.int64
    assert names.where(condition, x, 1.0).dtype == torch.float32
    zero = make_local(torch.zeros(2))
    signs = [names.masked_fill(zero, condition, fill).shards[0] for fill in (0.0, -0.0)]
    assert [bool(torch.signbit(sign[0])) for sign in signs] == [False, True]


def test_exact():
    assert len({exact(value) for value in (0, 0.0, -0.0, False, math.nan, 1, 1.0, True)}) == 8
    assert exact(math.nan) == exact(float("nan"))


def test_a_number_is_no_part_of_the_plan():
    x = make_local(torch.ones(3))
    for call in (names.add, names.mul, names.div, names.sub, names.eq, names.pow):
        call(x, 1.5)
        call(1.5, x)
    before = num_plans()
    for number in (2.5, 3.5):
        for call in (names.add, names.mul, names.div, names.sub, names.eq, names.pow):
            call(x, number)
            call(number, x)
    assert num_plans() == before


def test_numpy_numbers():
    x = make_local(torch.ones(3))
    for number in (np.float32(2.5), np.float64(2.5), np.int64(2)):
        assert names.mul(x, number).dtype == torch.float32
        assert names.sub(number, x).shards[0].tolist() == [float(number) - 1] * 3


BAD = [
    (lambda x: names.add(x, "a"), TypeError, "argument 1"),
    (lambda x: names.add(x, torch.ones(3)), TypeError, "from_torch"),
    (lambda x: names.add(1, 2), TypeError, "at least"),
    (lambda x: names.mul(x, None), TypeError, "NoneType"),
    (lambda x: names.add(x, make_local(torch.ones(4))), RuntimeError, "float32"),
    (lambda x: names.add(make_local(torch.ones(3).long()), 1, alpha=0.5), RuntimeError, "alpha"),
    (lambda x: names.div(x, x, rounding_mode="up"), ValueError, "'up'"),
    (names.clamp, ValueError, "min"),
    (lambda x: names.masked_fill(x, names.gt(x, 0), x), ValueError, "0-dimensional"),
    (lambda x: names.where(x, x, x), RuntimeError, "bool"),
    (lambda x: names.celu(x, 0.0), ValueError, "alpha"),
    (lambda x: names.equal(x, 3), TypeError, "argument 1"),
    (lambda x: names.relu(3), TypeError, "Tensor"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_errors(case):
    call, kind, word = BAD[case]
    with pytest.raises(OnefoldError, match=word) as caught:
        call(make_local(torch.ones(3)))
    assert isinstance(caught.value, kind)
    assert "test_pointwise.py" in str(caught.value) or kind is ValueError


# Layouts: what comes out, and that nothing is communicated on the way.

KEPT = [
    (lambda a, b: a + b, ["(P)", "(P)"], "(P)"),
    (lambda a, b: a - b, ["(P)", "(P)"], "(P)"),
    (lambda a, b: a * b, ["(P)", "(B)"], "(P)"),
    (lambda a, b: a * b, ["(B)", "(P)"], "(P)"),
    (lambda a, b: a * 2.0 / 3.0, ["(P)", "(B)"], "(P)"),
    (lambda a, b: -a, ["(P)", "(B)"], "(P)"),
    (lambda a, b: names.where(names.gt(b, 0), a, 0), ["(P)", "(B)"], "(P)"),
    (lambda a, b: names.masked_fill(a, names.gt(b, 0), 0.0), ["(P)", "(B)"], "(P)"),
    (lambda a, b: names.addcmul(a, a, b), ["(P)", "(B)"], "(P)"),
    (lambda a, b: names.lerp(a, b, 0.5), ["(P)", "(P)"], "(P)"),
    (lambda a, b: names.clone(a), ["(P)", "(B)"], "(P)"),
    (lambda a, b: a + b, ["(S0)", "(S0)"], "(S0)"),
    (lambda a, b: a + b, ["(S1)", "(B)"], "(S1)"),
    (lambda a, b: names.relu(a), ["(S0)", "(B)"], "(S0)"),
    (lambda a, b: names.relu(names.amax(a, 0)), ["(S0)", "(B)"], "(PMAX)"),
    (lambda a, b: -names.amax(a, 0), ["(S0)", "(B)"], "(PMIN)"),
    (lambda a, b: names.maximum(names.amax(a, 0), b), ["(S0)", "(B)"], "(PMAX)"),
    (lambda a, b: names.cast(a, torch.float64), ["(P)", "(B)"], "(P)"),
]


@pytest.mark.parametrize("case", range(len(KEPT)))
def test_layouts_that_pass(case):
    call, layouts, wanted = KEPT[case]
    placement = flow.placement("cpu", [0, 1, 2])
    values = [torch.randn(6, 4), torch.randn(6, 4) + 3]
    tensors = [make_global(v, placement, parse(s), 1) for v, s in zip(values, layouts, strict=True)]
    with flow.profiler.comm() as log:
        y = call(*tensors)
    assert short(y.sbp) == wanted
    assert sum(log.total_bytes(rank) for rank in range(3)) == 0


def test_what_is_not_linear_does_not_keep_partial_sums():
    placement = flow.placement("cpu", [0, 1])
    x = make_global(torch.randn(6, 4), placement, (partial_sum,), 1)
    narrow = names.cast(x, torch.bfloat16)
    chosen = names.where(names.gt(x, 0), x, 1)
    divided = x / make_global(torch.ones(6, 4), placement, parse("(B)"))  # or by 0
    for y in (names.relu(x), names.exp(x), names.square(x), x + 1.0, narrow, chosen, divided):
        assert partial_sum not in y.sbp


# Functions whose results are Python values.


def test_equal_and_allclose():
    placement = flow.placement("cpu", [0, 1])
    values = torch.randn(5, 3)
    x = make_global(values, placement, parse("(S0)"), 1)
    y = make_global(values, placement, parse("(P)"), 1)
    assert names.equal(x, x) is True
    assert names.equal(x, x + 1) is False
    assert names.equal(x, names.sum(x, 0)) is False
    assert names.allclose(x, y, atol=1e-5) is True
    assert names.allclose(x, y + 1) is False


@given(st.floats(-30, 30), st.sampled_from("silu gelu mish softplus elu hardswish tanh".split()))
def test_third_derivatives_run(value, name):
    """Gradients are written with ops, so they can be differentiated again and again."""
    x = make_local(torch.tensor(value, dtype=torch.float64))
    x.requires_grad = True
    tx = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    y, ty = getattr(names, name)(x), getattr(torch.nn.functional, name)(tx)
    for _ in range(2):
        (y,) = flow.autograd.grad(y, x, create_graph=True)
        (ty,) = torch.autograd.grad(ty, tx, create_graph=True)
        assert torch.allclose(y.shards[0], ty, rtol=1e-7, atol=1e-9)
        if not ty.requires_grad:
            return
    if y.requires_grad:
        flow.autograd.grad(y, x, allow_unused=True)


def test_polygamma_takes_the_order_first_and_as_a_method_last(world):
    x = torch.rand(3) + 0.5
    wanted = torch.polygamma(1, x)
    ours = flow.tensor(x)
    for found in (flow.polygamma(1, ours), ours.polygamma(1), ours.clone().polygamma_(1)):
        assert torch.equal(found.to_torch(), wanted)
