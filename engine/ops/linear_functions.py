"""Functions of linear algebra and statistics that smaller ops compute."""

from __future__ import annotations

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ..argument_types import Number
from ..names import all_names, register_as, register_function
from ..out_tensors import give_to
from ..tensor import Tensor
from .arithmetic import div, mul, sub
from .cast import cast, clone
from .dims import diag_embed, diagonal, unsqueeze
from .elementwise_nary import pow
from .matmul import added, bmm, matmul, outer
from .reduce import sum
from .torch_rows import FUNCTIONS
from .unary import sqrt
from .where import clamp


@register_function
def addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * sum over the batch of (batch1 @ batch2)`."""
    if out is not None:
        return give_to(out, addbmm(input, batch1, batch2, beta=beta, alpha=alpha))
    products = bmm(batch1, batch2)
    return added(input, cast(sum(products, 0), products.dtype), beta, alpha)


@register_function
def addr(
    input: Tensor,
    vec1: Tensor,
    vec2: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * outer(vec1, vec2)`."""
    if out is not None:
        return give_to(out, addr(input, vec1, vec2, beta=beta, alpha=alpha))
    product = outer(vec1, vec2)
    dtype = torch.promote_types(input.dtype, product.dtype)
    return added(input, cast(product, dtype), beta, alpha)


@register_function
def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The n-th power of square matrices (batch dims in front), by repeated squaring.

    The power 0 is the identity; a negative n takes the powers of the inverse.
    """
    if out is not None:
        return give_to(out, matrix_power(input, n))
    if isinstance(n, bool) or not isinstance(n, int):
        raise OnefoldTypeError(f"matrix_power(): n must be an int, but got {type(n).__name__}")
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise OnefoldRuntimeError(
            "matrix_power: input must be a batch of square matrices, but has shape "
            f"{tuple(input.shape)}"
        )
    if n == 0:
        ones = pow(diagonal(input, 0, -2, -1), 0)  # their gradient is 0, as in torch
        return cast(diag_embed(ones), input.dtype)
    if n == 1:
        return clone(input)
    base = input if n > 0 else FUNCTIONS["linalg.inv"](input)
    n = abs(n)
    if n == 3:  # as torch does; else a * (a * a)
        return matmul(matmul(base, base), base)
    power: Tensor | None = None
    while True:
        if n % 2:
            power = base if power is None else matmul(power, base)
        n //= 2
        if n == 0:
            assert power is not None
            return power
        base = matmul(base, base)


@register_function
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """`linalg.multi_dot` of any number of matrices, which torch has deprecated."""
    if out is not None:
        return give_to(out, chain_matmul(*matrices))
    if len(matrices) == 1:
        return matrices[0]
    product: Tensor = FUNCTIONS["linalg.multi_dot"](matrices)
    return product


@register_function
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of the rows, whose columns are observations.

    `fweights` counts how often each observation occurs, `aweights` weighs it.
    """
    if input.ndim > 2:
        raise OnefoldRuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got {input.ndim}"
        )
    x = unsqueeze(input, 0) if input.ndim == 1 else input.reshape(1, 1) if not input.ndim else input
    weights = fweights
    if aweights is not None:
        weights = aweights if fweights is None else mul(fweights, aweights)
    total: Tensor | int = x.shape[1] if weights is None else sum(weights)
    weighted = x if weights is None else mul(x, weights)
    centered = sub(x, div(sum(weighted, 1, True), total))
    weighted = centered if weights is None else mul(centered, weights)
    lost: Tensor | int = correction
    if weights is not None and aweights is not None:
        lost = mul(div(sum(mul(weights, aweights)), total), correction)
    norm = total - lost
    norm = norm.clamp_min(0) if isinstance(norm, Tensor) else max(0, norm)
    found = div(matmul(weighted, centered.mH), norm)
    return found if x.shape[0] != 1 else found.reshape(())


@register_function
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of the rows, whose columns are observations."""
    found = cov(input)
    if not found.ndim:
        return div(found, found)
    scale = sqrt(diagonal(found))
    if scale.dtype.is_complex:
        scale = all_names()["real"](scale)
    r = div(div(found, unsqueeze(scale, 1)), unsqueeze(scale, 0))
    return r if r.dtype.is_complex else clamp(r, -1, 1)  # which rounding may have left


@register_function
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """The LU factors of matrices in one tensor, and the pivots; `get_infos` adds the codes."""
    found: tuple[Tensor, ...] = FUNCTIONS["linalg.lu_factor_ex"](A, pivot=pivot)
    return found if get_infos else found[:2]


def _diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    return diagonal(A, offset, dim1, dim2)


register_as("linalg.diagonal", _diagonal, "The diagonals of matrices, as a view; see `diagonal`.")
