"""Endings: a product and a chain in one kernel have the bits of the two one after the other."""

import pytest
import torch

from onefold.kernels import ending, matmul, pointwise
from onefold.kernels.chain import At, Chain, Link
from onefold.kernels.gpu import chain as chains
from onefold.kernels.gpu import ending as gpu
from onefold.kernels.select import twin

# gelu(0.5 * product), x + relu(product), and product * x + z > 0.1.
GELU = Chain(1, (Link(torch.mul, (At(0), 0.5)), Link(pointwise.gelu, (At(1), "none"))), (2,))
RESIDUAL = Chain(2, (Link(torch.relu, (At(0),)), Link(torch.add, (At(1), At(2)))), (3,))
GATED = Chain(
    3,
    (
        Link(torch.mul, (At(0), At(1))),
        Link(torch.add, (At(3), At(2))),
        Link(torch.gt, (At(4), 0.1)),
    ),
    (5,),
)
CHAINS = {"gelu": (GELU, ""), "residual": (RESIDUAL, "m"), "gated": (GATED, "mv")}
OPERANDS = {
    matmul.linear: ((2, 9, 20), (6, 20), (6,)),
    matmul.matmul: ((2, 9, 20), (20, 6)),
    matmul.matmul_nt: ((2, 9, 20), (6, 20)),
    matmul.mm: ((9, 20), (20, 6)),
    matmul.mm_nt: ((9, 20), (6, 20)),
    matmul.mm_tn: ((20, 9), (20, 6)),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def check(product, operands, chain, kind, dtype=torch.float32):
    """Both ways, with and without the product; returns the result."""
    given = [torch.randn(shape).to(dtype) for shape in operands]
    value = twin(product)(*given)
    sizes = {"m": value.shape, "v": value.shape[-1:], "c": (*value.shape[:-1], 1), "s": ()}
    beside = [torch.randn(sizes[letter]).to(dtype) for letter in kind]
    wanted = chains.one(chain)(value, *beside)
    result, kept = gpu.ended(product, len(given), chain, True)(*given, *beside)
    alone = gpu.ended(product, len(given), chain, False)(*given, *beside)
    for found, expected in ((result, wanted), (alone, wanted), (kept, value)):
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    close = ending.ended(product, len(given), chain, False)(*given, *beside)
    if dtype.itemsize > 2 and close.dtype is not torch.bool:
        torch.testing.assert_close(result, close, rtol=1e-4, atol=1e-4)
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("product", OPERANDS, ids=lambda product: product.__name__)
def test_products(product, name, dtype):
    check(product, OPERANDS[product], *CHAINS[name], dtype)


def test_every_product_is_tested():
    assert set(OPERANDS) == set(ending.PRODUCTS)


def test_a_sum_in_parts():
    check(matmul.linear, ((5, 1500), (6, 1500), (6,)), *CHAINS["gated"])


@pytest.mark.parametrize("kind", ["c", "s"])
def test_what_lies_otherwise_is_taken_by_the_chain_alone(kind):
    check(matmul.linear, OPERANDS[matmul.linear], RESIDUAL, kind)


def test_no_elements():
    assert check(matmul.linear, ((0, 20), (6, 20)), *CHAINS["gelu"]).shape == (0, 6)
    assert check(matmul.mm, ((3, 0), (0, 6)), *CHAINS["gelu"]).shape == (3, 6)


def test_nan_stays():
    relu = Chain(1, (Link(torch.relu, (At(0),)),), (1,))
    x = torch.tensor([[float("nan")], [-1.0]])
    y = gpu.ended(matmul.linear, 2, relu, False)(x, torch.ones(1, 1))
    assert y[0].isnan() and y[1] == 0
