"""Functions of linear algebra and statistics that smaller ops compute."""

from __future__ import annotations

from ...errors import OnefoldRuntimeError
from ..argument_types import Number
from ..names import all_names, register_function
from ..out_tensors import give_to
from ..tensor import Tensor
from .arithmetic import div, mul, sub
from .cast import cast
from .dims import diagonal, unsqueeze
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
    return added(input, outer(vec1, vec2), beta, alpha)


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
    centred = sub(x, div(sum(weighted, 1, True), total))
    weighted = centred if weights is None else mul(centred, weights)
    lost: Tensor | int = correction
    if weights is not None and aweights is not None:
        lost = mul(div(sum(mul(weights, aweights)), total), correction)
    norm = total - lost
    norm = norm.clamp_min(0) if isinstance(norm, Tensor) else max(0, norm)
    found = div(matmul(weighted, centred.mH), norm)
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
