"""Complex numbers of two floats: sums, products and conjugates in any layout."""

import pytest
import torch

import onefold as flow
from onefold.kernels.gpu.pointwise import copy_kernels, pointwise_kernels
from onefold.testing.sample_checks import value_of


def make(*shape):
    return torch.randn(shape, dtype=torch.complex64)


LAYOUTS = {
    "rows": lambda: (make(5, 7), make(5, 7)),
    "a table": lambda: (make(2, 6, 3, 4), make(6, 1, 4)),
    "transposed": lambda: (make(5, 7).t(), make(7, 5)),
    "beside real": lambda: (make(4, 9), torch.randn(9)),
    "beside bfloat16": lambda: (torch.randn(4, 9).bfloat16(), make(4, 9)),
    "beside integers": lambda: (make(4, 9), torch.arange(9)),
    "beside a number": lambda: (make(300), -1.5),
    "no dims": lambda: (make(), make(3)),
    "nothing": lambda: (make(0, 3), make(3)),
    "every second": lambda: (make(40)[::2], make(3, 20)),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("function", [torch.mul, torch.add, torch.sub], ids=lambda f: f.__name__)
def test_of_two(name, function, monkeypatch):
    kernel = pointwise_kernels.of_torch(function)
    monkeypatch.setattr(kernel, "torchs", only_empty(function))
    a, b = LAYOUTS[name]()
    found, wanted = kernel(a, b), function(a, b)
    assert found.dtype is wanted.dtype and found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted)


def only_empty(function):
    """What is asked for dtypes alone."""

    def call(*args):
        assert not any(isinstance(x, torch.Tensor) and x.numel() > 1 for x in args)
        return function(*args)

    return call


@pytest.mark.parametrize("function", [torch.neg, torch.conj_physical], ids=lambda f: f.__name__)
def test_of_one(function, monkeypatch):
    kernel = pointwise_kernels.of_torch(function)
    monkeypatch.setattr(kernel, "torchs", only_empty(function))
    for z in (make(5, 7), make(6, 4).t(), make(3, 5)[:, ::2]):
        found = kernel(z)
        torch.testing.assert_close(found, function(z))
    assert torch.equal(kernel(torch.ones(3)), function(torch.ones(3)))
    z = torch.complex(torch.tensor([0.0, -0.0, 1.0]), torch.tensor([0.0, 0.0, -0.0]))
    signs = [torch.view_as_real(f(z).resolve_conj()).signbit() for f in (kernel, function)]
    assert torch.equal(*signs)


def test_copies():
    z = make(5, 6, 4).transpose(0, 2)
    found = copy_kernels.contiguous(z)
    assert found.is_contiguous() and torch.equal(found, z)


def test_what_is_wider_or_deferred_is_left_to_torch():
    kernel, z = pointwise_kernels.of_torch(torch.mul), make(4)
    torch.testing.assert_close(kernel(z.to(torch.complex128), z), z.to(torch.complex128) * z)
    torch.testing.assert_close(kernel(z.conj(), z), z.conj() * z)
    torch.testing.assert_close(kernel(z, 2j), z * 2j)


def rotated(x, table, view_as_complex, view_as_real):
    """Rotary embedding as Llama's reference has it."""
    pairs = view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return view_as_real(pairs * table[:, None]).flatten(3).type_as(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rotary_by_complex_numbers(dtype):
    x = torch.randn(2, 6, 3, 8).to(dtype).requires_grad_()
    table = torch.polar(torch.ones(6, 4), torch.randn(6, 4))
    wanted = rotated(x, table, torch.view_as_complex, torch.view_as_real)
    dy = torch.randn_like(wanted)
    wanted.backward(dy)
    own = flow.from_torch(x.detach().clone()).requires_grad_()
    y = rotated(own, flow.from_torch(table), flow.view_as_complex, flow.view_as_real)
    y.backward(flow.from_torch(dy))
    torch.testing.assert_close(value_of(y), wanted.detach())
    torch.testing.assert_close(value_of(own.grad), x.grad)


def test_a_graph_has_the_bits_of_eager():
    table = flow.from_torch(torch.polar(torch.ones(6, 4), torch.randn(6, 4)))
    x = flow.from_torch(torch.randn(2, 6, 3, 8))

    def run(x):
        own = x.detach().requires_grad_()
        y = rotated(own * 2.0, table, flow.view_as_complex, flow.view_as_real)
        (y * y).sum().backward()
        return y, own.grad

    found = flow.nn.Graph.trace(run)(x)
    for a, b in zip(found, run(x), strict=True):
        assert torch.equal(value_of(a), value_of(b))
