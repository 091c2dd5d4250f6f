"""Writes to what backward does not read, such as a factor whose gradient alone is asked for."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import AutogradError

PRODUCTS = {
    "mul": lambda t, k, c: k * c,
    "mul of parts": lambda t, k, c: k[:2] * c[:2],
    "matmul": lambda t, k, c: c @ k,
    "einsum": lambda t, k, c: t.einsum("ij,jk->ik", k, c),
}


def gradient(package, product, needs_both=False):
    x = package.arange(9.0).reshape(3, 3).requires_grad_()
    c = package.arange(9.0).reshape(3, 3).cos().requires_grad_(needs_both)
    k = x * 2
    y = PRODUCTS[product](package, k, c)
    k[1] = 5.0
    k.add_(1)
    y.sum().backward()
    return np.asarray(x.grad)


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_factor_of_a_constant_may_change(product):
    np.testing.assert_allclose(gradient(flow, product), gradient(torch, product), rtol=1e-6)


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_factor_that_is_read_may_not(product):
    with pytest.raises(AutogradError, match="modified by an inplace"):
        gradient(flow, product, needs_both=True)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        gradient(torch, product, needs_both=True)
