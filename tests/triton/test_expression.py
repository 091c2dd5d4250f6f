"""Expressions: chains and several outputs, against torch in float64."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from triton_harness import EPS, error

from onefold.kernels.gpu.pointwise.codegen import generate, source
from onefold.kernels.gpu.pointwise.evaluate import plan_dense
from onefold.kernels.gpu.pointwise.expression import Writer
from onefold.kernels.gpu.pointwise.strided_layout import Pattern

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16


def evaluate(expression, *args):
    """What an expression gives for its inputs, tensors before numbers: one tensor per output."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    shape, strides, launch = plan_dense(expression, tensors)
    dtypes = [expression.dtype(value) for value in expression.outputs]
    outputs = [torch.empty_strided(shape, strides, dtype=dtype) for dtype in dtypes]
    launch((*tensors, *outputs, *args[len(tensors) :]))
    return outputs


def swiglu(dtype):
    w = Writer()
    gate, up, scale = w.tensor(dtype), w.tensor(dtype), w.number(1.0)
    active = w.step("silu", [gate], dtype)
    whole = w.step("mul", [w.step("mul", [active, up], dtype), scale], dtype)
    return w.expression(whole, active)


def test_it_prints():
    assert str(swiglu(BF16)) == (
        "v0 = tensor bfloat16\n"
        "v1 = tensor bfloat16\n"
        "v2 = number float64\n"
        "v3 = silu(v0.to(float32)) -> bfloat16\n"
        "v4 = mul(v3.to(float32), v1.to(float32)) -> bfloat16\n"
        "v5 = mul(v4.to(float32), v2.to(float32)) -> bfloat16\n"
        "write v5, v3"
    )


def test_equal_steps_are_one():
    w = Writer()
    x = w.tensor(F32)
    a, b = w.step("exp", [x], F32), w.step("exp", [x], F32)
    assert a == b
    text = source(w.expression(w.step("add", [a, b], F32)), Pattern(0, 0, ((1,), (1,))))
    assert text.count("exp(") == 2  # with and without masks


def test_kernels_are_made_once():
    pattern = Pattern(0, 0, ((1,), (1,), (1,), (1,)))
    assert generate(swiglu(F32), pattern) is generate(swiglu(F32), pattern)


@pytest.mark.parametrize("dtype", [F32, F64, BF16, F16], ids=str)
def test_chain_with_two_outputs(dtype):
    gate, up = torch.randn(13, 70).to(dtype), torch.randn(70).to(dtype)
    exact = torch.nn.functional.silu(gate.double())
    y, active = evaluate(swiglu(dtype), gate, up, 0.3)
    assert y.dtype is active.dtype is dtype
    assert error(active, exact) <= EPS[dtype]
    assert error(y, exact * up.double() * 0.3) <= 3 * EPS[dtype]


def test_rounding_between_the_steps():
    x = torch.full((4,), 1.0, dtype=BF16)
    w = Writer()
    v = w.tensor(BF16)
    small = w.number(2.0**-9)
    twice = w.step("add", [w.step("add", [v, small], BF16), small], BF16)
    assert (evaluate(w.expression(twice), x, 2.0**-9)[0] == 1).all()


@st.composite
def chains(draw):
    """A chain of smooth functions over up to three tensors, and the same in torch."""
    dtype = draw(st.sampled_from([F32, F64]))  # half types round at every step
    w = Writer()
    count = draw(st.integers(1, 3))
    tensors = [w.tensor(dtype) for _ in range(count)]
    number = w.number(0.5)
    values = [(i, lambda args, i=i: args[i]) for i in [*tensors, number]]
    for _ in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(["add", "mul", "maximum", "tanh", "sigmoid", "neg", "where"]))
        arity = {"where": 3, "tanh": 1, "sigmoid": 1, "neg": 1}.get(name, 2)
        chosen = [values[draw(st.integers(0, len(values) - 1))] for _ in range(arity)]
        if name == "where":
            mask = w.step("gt", [chosen[0][0], tensors[0]], torch.bool, dtype)
            step = w.step("where", [mask, chosen[1][0], chosen[2][0]], dtype)
        else:
            step = w.step(name, [value for value, _ in chosen], dtype)
        values.append((step, _torchs(name, [f for _, f in chosen])))
    shape = draw(st.sampled_from([(3,), (4, 5), (2, 3, 70)]))
    args = [torch.randn(shape[draw(st.integers(0, len(shape))) :]).to(dtype) for _ in tensors]
    args[0] = torch.randn(shape).to(dtype)
    return w.expression(values[-1][0]), [*args, 0.25], values[-1][1]


def _torchs(name, functions):
    def call(args):
        given = [f(args) for f in functions]
        given = [torch.as_tensor(x, dtype=F64) for x in given]
        if name == "where":
            return torch.where(given[0] > args[0], given[1], given[2])
        return getattr(torch, name)(*given)

    return call


@settings(max_examples=40)
@given(chains())
def test_random_chains(chain):
    expression, args, wanted = chain
    exact = wanted([x.double() if isinstance(x, torch.Tensor) else x for x in args])
    found = evaluate(expression, *args)[0]
    assert error(found, exact.expand(found.shape)) <= 8 * EPS[found.dtype]
