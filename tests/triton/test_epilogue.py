"""Endings: a product and a chain in one kernel have the bits of the two one after the other."""

import pytest
import torch

from onefold.kernels import epilogue_ref, matmul_ref, pointwise_ref
from onefold.kernels.gpu.matmul import epilogue_kernels as gpu
from onefold.kernels.gpu.pointwise import pointwise_chain_kernels as chains
from onefold.kernels.pointwise_chain_ref import At, Chain, Link
from onefold.kernels.select import triton_kernel

# gelu(0.5 * product), x + relu(product), and product * x + z > 0.1.
GELU = Chain(1, (Link(torch.mul, (At(0), 0.5)), Link(pointwise_ref.gelu, (At(1), "none"))), (2,))
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
    matmul_ref.linear: ((2, 9, 20), (6, 20), (6,)),
    matmul_ref.matmul: ((2, 9, 20), (20, 6)),
    matmul_ref.matmul_nt: ((2, 9, 20), (6, 20)),
    matmul_ref.mm: ((9, 20), (20, 6)),
    matmul_ref.mm_nt: ((9, 20), (6, 20)),
    matmul_ref.mm_tn: ((20, 9), (20, 6)),
    matmul_ref.rows_tn: ((4, 5, 9), (4, 5, 6)),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def check(product, operands, chain, kind, dtype=torch.float32):
    """Both ways, with and without the product; returns the result."""
    given = [torch.randn(shape).to(dtype) for shape in operands]
    value = triton_kernel(product)(*given)
    sizes = {"m": value.shape, "v": value.shape[-1:], "c": (*value.shape[:-1], 1), "s": ()}
    extra = [torch.randn(sizes[letter]).to(dtype) for letter in kind]
    wanted = chains.one(chain)(value, *extra)
    result, kept = gpu.with_epilogue(product, len(given), chain, True)(*given, *extra)
    alone = gpu.with_epilogue(product, len(given), chain, False)(*given, *extra)
    for found, expected in ((result, wanted), (alone, wanted), (kept, value)):
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    close = epilogue_ref.with_epilogue(product, len(given), chain, False)(*given, *extra)
    if dtype.itemsize > 2 and close.dtype is not torch.bool:
        torch.testing.assert_close(result, close, rtol=1e-4, atol=1e-4)
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("product", OPERANDS, ids=lambda product: product.__name__)
def test_products(product, name, dtype):
    check(product, OPERANDS[product], *CHAINS[name], dtype)


def test_every_product_is_tested():
    assert set(OPERANDS) == set(epilogue_ref.PRODUCTS)


def test_a_sum_in_parts():
    check(matmul_ref.linear, ((5, 1500), (6, 1500), (6,)), *CHAINS["gated"])


@pytest.mark.parametrize("kind", ["c", "s"])
def test_what_lies_otherwise_is_taken_by_the_chain_alone(kind):
    check(matmul_ref.linear, OPERANDS[matmul_ref.linear], RESIDUAL, kind)


def test_no_elements():
    assert check(matmul_ref.linear, ((0, 20), (6, 20)), *CHAINS["gelu"]).shape == (0, 6)
    assert check(matmul_ref.mm, ((3, 0), (0, 6)), *CHAINS["gelu"]).shape == (3, 6)


def test_nan_stays():
    relu = Chain(1, (Link(torch.relu, (At(0),)),), (1,))
    x = torch.tensor([[float("nan")], [-1.0]])
    y = gpu.with_epilogue(matmul_ref.linear, 2, relu, False)(x, torch.ones(1, 1))
    assert y[0].isnan() and y[1] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("product", [each for each in OPERANDS if each is not matmul_ref.linear])
def test_widened_products_are_rounded_before(product, dtype):
    a, b = (torch.randn(shape).to(dtype) for shape in OPERANDS[product])
    widened = product, 2, Chain(1, (Link(pointwise_ref.cast, (At(0), torch.float32)),), (1,)), False
    found = gpu.with_epilogue(*widened)(a, b)
    assert torch.equal(found, triton_kernel(product)(a, b).float())
    wanted = epilogue_ref.with_epilogue(*widened)(a, b)
    torch.testing.assert_close(found, wanted, rtol=torch.finfo(dtype).eps, atol=1e-2)
