"""Pointwise Triton kernels: every torch function of the elementwise ops, in the dtypes that
torch has.
"""

import gc
import math

import pytest
import torch
import triton_harness
from device_checks import DEVICE
from triton_harness import assert_matches_reference

import onefold
from onefold.engine.ops.pointwise import Elementwise
from onefold.kernels import (
    elementwise_loss as losses,
    pointwise_ref as own,
    scalar_expression,
    select,
)
from onefold.kernels.gpu.pointwise import pointwise_kernels as gpu
from onefold.kernels.gpu.pointwise.triton_functions import function_named, is_known
from onefold.kernels.pointwise_ref import aten
from onefold.kernels.scalar_expression import torch_named

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
BOOL = torch.bool
EDGES = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1.0, -1.0, math.inf, -math.inf, math.nan])
_nn = torch._C._nn
_settings = pytest.mark.filterwarnings("ignore")


def numbers(dtype, low=-3.0, high=3.0, shape=(5, 7), edges=False, seed=0):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    if dtype is BOOL:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        low = max(math.ceil(low), torch.iinfo(dtype).min)
        return torch.randint(low, math.floor(high) + 1, shape, generator=generator).to(dtype)
    x = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if edges:
        flat = x.view(-1)
        flat[: len(EDGES)] = EDGES.to(DEVICE)
    return x.to(dtype)


# One tensor: functions, the range in which they are smooth, whether integers are taken too.
ONE = [
    ("exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh sinc erf erfc deg2rad rad2deg sigmoid "
     "angle", -3, 3, True),
    ("log log2 log10 log1p sqrt rsqrt lgamma reciprocal", 0.1, 5, True),
    ("asin acos atanh erfinv", -0.9, 0.9, False),
    ("acosh", 1.1, 4, False),
    ("logit", 0.1, 0.9, False),
]  # fmt: skip
EXACT = """abs neg square sign sgn isnan isinf isposinf isneginf isfinite signbit logical_not clone
    relu""".split()
ROUNDING = "floor ceil trunc frac".split()
ACTIVATIONS = "silu mish hardswish hardsigmoid log_sigmoid".split()


@pytest.mark.parametrize("name", [n for names, *_ in ONE for n in names.split()])
def test_smooth_functions(name):
    _, low, high, whole = next(row for row in ONE if name in row[0].split())
    for dtype in (*FLOATS, *((*INTEGERS, BOOL) if whole else ())):
        assert_matches_reference(getattr(torch, name), numbers(dtype, low, high), slack=4)


@pytest.mark.parametrize("name", [*EXACT, *ROUNDING])
def test_exact_functions(name):
    for dtype in (*FLOATS, *INTEGERS, BOOL):
        if dtype is BOOL and name in ("neg", "sgn", "relu", "abs", *ROUNDING):
            continue
        if name == "frac" and not dtype.is_floating_point:
            continue
        x = numbers(dtype, edges=True)
        assert torch.equal(
            select.triton_kernel(getattr(torch, name))(x).double().nan_to_num(9e9),
            getattr(torch, name)(x).double().nan_to_num(9e9),
        )


def test_signs_of_zeros():
    for dtype in FLOATS:
        x = torch.tensor([0.0, -0.0, 1.0, -1.0], dtype=dtype)
        for f in (torch.neg, torch.trunc, torch.round, torch.ceil, torch.sgn, own.positive):
            found = select.triton_kernel(f)(x)
            assert torch.equal(found.signbit(), f(x).signbit()), f


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    for dtype in FLOATS:
        x, dy = numbers(dtype, -8, 8), numbers(dtype, seed=1)
        # On a GPU torch multiplies by 1/6 as a float32, in float64 too; on the CPU it divides.
        assert_matches_reference(getattr(_nn, name), x, on_cpu=name.startswith("hard"))
        if name != "log_sigmoid":
            assert_matches_reference(aten(f"{name}_backward"), dy, x)


@pytest.mark.parametrize("how", ["none", "tanh"])
def test_gelu_of_large_numbers(how):
    x = torch.tensor([-6e4, -1e3, -30.0, -5.0, 5.0, 30.0, 1e3, 6e4], device=DEVICE)
    dy = torch.ones_like(x)
    for dtype in FLOATS:
        assert_matches_reference(own.gelu, x.to(dtype), how)
        assert_matches_reference(own.gelu_backward, dy.to(dtype), x.to(dtype), how)


def test_activations_with_settings():
    for dtype in FLOATS:
        x, dy, y = numbers(dtype, -4, 4), numbers(dtype, seed=1), numbers(dtype, 0.1, 0.9)
        for how in ("none", "tanh"):
            assert_matches_reference(own.gelu, x, how)
            assert_matches_reference(own.gelu_backward, dy, x, how)
        assert_matches_reference(own.relu_backward, dy, x)
        assert_matches_reference(aten("sigmoid_backward"), dy, y)
        assert_matches_reference(aten("tanh_backward"), dy, y)
        assert_matches_reference(torch_named("logsigmoid_backward"), dy, x)
        for settings in ((0.7, 1.0, 1.0), (1.6, 1.05, 0.5)):
            assert_matches_reference(_nn.elu, x, *settings)
            assert_matches_reference(own.elu_backward, dy, x, *settings)
        assert_matches_reference(_nn.leaky_relu, x, 0.125)
        assert_matches_reference(own.leaky_relu_backward, dy, x, 0.125)
        assert_matches_reference(_nn.softplus, x, 1.5, 4.0)
        assert_matches_reference(aten("softplus_backward"), dy, x, 1.5, 4.0)
        assert_matches_reference(_nn.hardtanh, x, -1.0, 1.5)
        assert_matches_reference(aten("hardtanh_backward"), dy, x, -1.0, 1.5)
        assert_matches_reference(torch.hardshrink, x, 0.5)
        assert_matches_reference(aten("hardshrink_backward"), dy, x, 0.5)
        assert_matches_reference(_nn.softshrink, x, 0.5)
        assert_matches_reference(aten("softshrink_backward"), dy, x, 0.5)
        assert_matches_reference(torch.threshold, x, 0.5, 20.0)
        assert_matches_reference(own.threshold_backward, dy, x, 0.5, 20.0)
        assert_matches_reference(torch_named("softsign"), x)
        assert_matches_reference(torch_named("tanhshrink"), x)
        assert_matches_reference(torch.logit, y, 0.25)


@pytest.mark.parametrize("name", "add sub mul div maximum minimum fmax fmin".split())
def test_arithmetic(name):
    f = getattr(torch, name)
    for dtype in (*FLOATS, *INTEGERS, BOOL):
        if dtype is BOOL and name == "sub":
            continue
        a, b = numbers(dtype, edges=name != "div"), numbers(dtype, 1, 3, (7,), seed=1)
        assert_matches_reference(f, a, b)
        assert_matches_reference(f, b, a.t().contiguous().t())
        if name in ("add", "sub", "mul", "div"):
            for n in (2, 2.5, *([True] if name != "sub" else [])):
                assert_matches_reference(f, a, n)


@pytest.mark.parametrize("name", "floor_divide remainder fmod".split())
def test_remainders(name):
    f = getattr(torch, name)
    for dtype in (*FLOATS, *INTEGERS):
        a, b = numbers(dtype, -9, 9), numbers(dtype, 1, 3, seed=1)
        if dtype is not torch.uint8:
            b = torch.where(numbers(BOOL, seed=2), b, -b)
        assert_matches_reference(f, a, b)
        assert_matches_reference(f, a, 2)
        assert_matches_reference(f, a, 1.5)
        assert_matches_reference(own.number_first(f), 7, b)
        for rounded in (own.div_floor, own.div_trunc):
            assert_matches_reference(rounded, a, b)
            assert_matches_reference(rounded, a, 3)
            assert_matches_reference(own.number_first(rounded), 7, b)


def test_numbers_first():
    for dtype in (*FLOATS, *INTEGERS):
        x = numbers(dtype, 1, 4)
        assert_matches_reference(own.rsub, 2, x)
        assert_matches_reference(own.rsub, 2.5, x)
        assert_matches_reference(own.number_div, 2, x)
        assert_matches_reference(torch.pow, 2, x)
    assert_matches_reference(own.number_first(torch.copysign), 2.0, numbers(torch.float32))


def test_powers():
    for dtype in FLOATS:
        x, e = numbers(dtype, 0.5, 3), numbers(dtype, seed=1)
        assert_matches_reference(torch.pow, x, e)
        for n in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.7, 2.0, True):
            assert_matches_reference(torch.pow, x, n)
        for n in (1, 2, 3.0, 0.5):
            assert_matches_reference(own.norm_power, numbers(dtype), n)
            assert_matches_reference(own.norm_root, x, n)
    for dtype in INTEGERS:
        x, e = numbers(dtype), numbers(dtype, 0, 9, seed=1)
        assert_matches_reference(torch.pow, x, e)
        for n in (0, 2, 3, 7, 2.0, 0.5):
            assert_matches_reference(torch.pow, x.abs() if n == 0.5 else x, n)
    assert_matches_reference(
        torch.pow, torch.tensor([1, -1, 2, 1, -1]), torch.tensor([-1, -3, -2, 0, -2])
    )


@pytest.mark.parametrize("name", "eq ne lt le gt ge".split())
def test_comparisons(name):
    f = getattr(torch, name)
    for dtype in (*FLOATS, *INTEGERS, BOOL):
        a, b = numbers(dtype, edges=True), numbers(dtype, edges=True, seed=1)
        assert_matches_reference(f, a, b)
        for n in (1, 0.5, 0.1, True):
            assert_matches_reference(f, torch.cat([a, torch.full((1, 7), n).to(dtype)]), n)
    assert_matches_reference(f, numbers(torch.int32), numbers(torch.bfloat16, seed=1))
    assert_matches_reference(f, numbers(torch.uint8), numbers(torch.int8, seed=1))
    for dtype in (torch.bfloat16, torch.float16):  # what is compared is rounded to these first
        a, b = torch.tensor([256, 2048, 3]).to(dtype), torch.tensor([257, 2049, 4])
        assert_matches_reference(f, a, b)
        assert_matches_reference(f, b, a)
        assert_matches_reference(f, torch.full((3,), 0.1, dtype=dtype), torch.tensor(0.1))


@pytest.mark.parametrize("name", "and or xor".split())
def test_logic_and_bits(name):
    f = getattr(torch, f"logical_{name}")
    for dtype in (*FLOATS, *INTEGERS, BOOL):
        a, b = numbers(dtype, edges=True), numbers(dtype, seed=1)
        assert_matches_reference(f, a, b)
        assert_matches_reference(own.number_last(f), a, 0)
        assert_matches_reference(own.number_first(f), 2.5, a)
        assert_matches_reference(f, a, numbers(BOOL, seed=1))
    f = getattr(torch, f"bitwise_{name}")
    for dtype in (*INTEGERS, BOOL):
        a, b = numbers(dtype, 0, 100), numbers(dtype, 0, 100, seed=1)
        assert_matches_reference(f, a, b)
        assert_matches_reference(own.number_last(f), a, 1)
        assert_matches_reference(torch.bitwise_not, a)


@pytest.mark.filterwarnings("ignore:.*shift.*")
def test_shifts():
    for dtype in INTEGERS:
        for f in (torch.bitwise_left_shift, torch.bitwise_right_shift):
            assert_matches_reference(f, numbers(dtype, -90, 90), numbers(dtype, 0, 6, seed=1))
            assert_matches_reference(own.number_last(f), numbers(dtype, -90, 90), 2)


def test_functions_of_several():
    for dtype in FLOATS:
        a, b, c = (numbers(dtype, seed=seed) for seed in range(3))
        positive = numbers(dtype, 0.1, 3)
        for name in ("atan2", "hypot", "logaddexp", "logaddexp2", "copysign", "heaviside"):
            assert_matches_reference(getattr(torch, name), a, b, slack=4)
        assert_matches_reference(torch.copysign, a, -0.0)
        assert_matches_reference(torch.xlogy, a, positive)
        assert_matches_reference(torch.xlogy, torch.zeros_like(a), a)
        assert_matches_reference(torch.addcmul, a, b, c)
        assert_matches_reference(torch.addcdiv, a, b, positive)
        assert_matches_reference(torch.lerp, a, b, c)
        for weight in (0.25, 0.75):
            assert_matches_reference(torch.lerp, a, b, weight)
        for equal_nan in (False, True):
            assert_matches_reference(torch.isclose, a, a + 1e-9, 1e-5, 1e-8, equal_nan)
            assert_matches_reference(torch.isclose, a, b, 0.5, 0.1, equal_nan)
    nan, inf = torch.tensor([math.nan, 1.0, math.inf]), torch.tensor([math.nan, 1.0, math.inf])
    for equal_nan in (False, True):
        assert_matches_reference(torch.isclose, nan, inf, 1e-5, 1e-8, equal_nan)


def test_choices():
    mask = numbers(BOOL, seed=3)
    for dtype in (*FLOATS, *INTEGERS, BOOL):
        a, b = numbers(dtype, edges=True), numbers(dtype, seed=1)
        assert_matches_reference(torch.where, mask, a, b)
        assert_matches_reference(torch.where, mask, a, numbers(torch.float32, shape=(7,)))
        for n in ((2, "2"), (0.1, "0.1")):
            assert_matches_reference(own.where_first, mask, a, n)
            assert_matches_reference(own.where_last, mask, a, n)
        assert_matches_reference(own.where_numbers, mask, (1, "1"), (0.25, ""))
        assert_matches_reference(own.masked_fill, a, mask, (1, "1"))
        if dtype is BOOL:
            continue
        for low, high in ((-1, 1), (None, 0.3), (0.1, None), (2, 1)):
            if dtype.is_floating_point or dtype.is_signed or low != -1:
                assert_matches_reference(own.clamp, a, low, high, type(low), type(high))
        assert_matches_reference(torch.clamp_min, a, b)
        assert_matches_reference(torch.clamp_max, a, b)
        for given in (None, 5.0):
            assert_matches_reference(own.nan_to_num, a, (given,), (given,), (given,))
        for nan, high in ((math.inf, None), (-math.inf, None), (0.0, -math.inf)):
            assert_matches_reference(own.nan_to_num, a, (nan,), (high,), (None,))
        for decimals in (0, 1, -1):
            if dtype.is_floating_point:
                assert_matches_reference(own.round, numbers(dtype, -30, 30), decimals)
        assert_matches_reference(own.positive, a)


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, BOOL], ids=str)
def test_casts(source):
    x = numbers(source, 0, 100)
    for target in (*FLOATS, *INTEGERS, BOOL):
        assert_matches_reference(own.cast, x, target)


def test_losses():
    for dtype in FLOATS:
        a, b = numbers(dtype), numbers(dtype, seed=1)
        p, t = numbers(dtype, 0.05, 0.95), numbers(dtype, 0.05, 0.95, seed=1)
        assert_matches_reference(losses.squared_error, a, b)
        assert_matches_reference(losses.absolute_error, a, b)
        assert_matches_reference(losses.smooth_error, a, b, 0.5)
        assert_matches_reference(losses.smooth_error, a, b, 0.0)
        assert_matches_reference(losses.huber_error, a, b, 0.5)
        assert_matches_reference(losses.bit_cross_entropy, p, t)
        assert_matches_reference(losses.bit_cross_entropy_with_logits, a, t)
        assert_matches_reference(losses.kl_divergence, a, t, False)
        assert_matches_reference(losses.kl_divergence, a, b, True)


def test_what_torch_does():
    z = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(gpu.of_torch(torch.mul)(z, 2.0), z * 2)
    assert torch.equal(gpu.of_torch(torch.mul)(torch.ones(3), 1j), torch.ones(3) * 1j)
    assert torch.equal(select.triton_kernel(own.real)(z), z.real)
    x = torch.rand(5)
    assert torch.equal(gpu.of_torch(torch.digamma)(x), torch.digamma(x))
    assert torch.equal(select.triton_kernel(own.polygamma)(x, 1), torch.polygamma(1, x))
    ints = torch.arange(3)
    assert gpu.of_torch(torch.isclose)(ints, ints).all()


def test_errors_are_those_of_torch():
    with pytest.raises(RuntimeError, match="not implemented"):
        gpu.of_torch(torch.bitwise_and)(torch.ones(2), torch.ones(2))
    with pytest.raises(RuntimeError, match="two bool"):
        gpu.of_torch(torch.sub)(torch.ones(2).bool(), torch.ones(2).bool())


def test_nan_wins_in_extrema():
    nan = torch.tensor([math.nan, 1.0, math.nan])
    assert gpu.of_torch(torch.maximum)(nan, torch.tensor([1.0, math.nan, math.nan])).isnan().all()
    assert select.triton_kernel(own.clamp)(nan, 0.0, 0.5).isnan().tolist() == [True, False, True]
    assert select.triton_kernel(torch.relu)(nan).isnan().tolist() == [True, False, True]


def test_every_elementwise_op_has_a_kernel():
    """Of all ops that the package has made; a Triton kernel may say that torch does the work."""
    assert onefold.add
    ops = [op for op in gc.get_objects() if type(op) is not type and _is_elementwise(op)]
    assert len(ops) > 150
    missing = sorted({op.name for op in ops if select.triton_kernel(op.kernel) is None})
    assert missing == []


def _is_elementwise(found):
    return issubclass(type(found), Elementwise)


def test_every_function_that_is_declared_exists():
    assert onefold.add
    assert all(is_known(name) for name in scalar_expression.triton_names())
    for name in ("add", "where", "gelu_tanh_backward"):
        assert function_named(name)


def test_infinities():
    """Where the value is a limit."""
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([math.inf, -math.inf, 3.0, -3.0], dtype=dtype)
        for function in (torch.reciprocal, _nn.hardswish, _nn.hardsigmoid, _nn.log_sigmoid):
            found, wanted = select.triton_kernel(function)(x), function(x)
            torch.testing.assert_close(found, wanted, equal_nan=True)


def test_a_fault_of_torch_is_noticed(monkeypatch):
    """Or else it would be the error that the kernel is allowed."""

    def faulty(*args):
        return [x if x.dtype is torch.float64 else x + 0.5 for x in by_torch(*args)]

    by_torch = triton_harness.by_torch
    monkeypatch.setattr(triton_harness, "by_torch", faulty)
    mask = numbers(BOOL)
    with pytest.raises(AssertionError, match="torch itself"):
        assert_matches_reference(torch.where, mask, torch.rand(mask.shape), torch.rand(mask.shape))
