"""Special functions, under the names of `torch.special`.

Written by `make stubs`; do not edit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .engine.tensor import Tensor

__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]

def airy_ai(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.airy_ai on every shard; see torch's documentation."""

def bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.bessel_j0 on every shard; see torch's documentation."""

def bessel_j1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.bessel_j1 on every shard; see torch's documentation."""

def bessel_y0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.bessel_y0 on every shard; see torch's documentation."""

def bessel_y1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.bessel_y1 on every shard; see torch's documentation."""

def chebyshev_polynomial_t(x: Tensor, n: Tensor | int, *, out: Tensor | None = None) -> Tensor:
    """torch.special.chebyshev_polynomial_t on every shard; see torch's documentation."""

def chebyshev_polynomial_u(x: Tensor, n: Tensor | int, *, out: Tensor | None = None) -> Tensor:
    """torch.special.chebyshev_polynomial_u on every shard; see torch's documentation."""

def chebyshev_polynomial_v(x: Tensor, n: Tensor | int, *, out: Tensor | None = None) -> Tensor:
    """torch.special.chebyshev_polynomial_v on every shard; see torch's documentation."""

def chebyshev_polynomial_w(x: Tensor, n: Tensor | int, *, out: Tensor | None = None) -> Tensor:
    """torch.special.chebyshev_polynomial_w on every shard; see torch's documentation."""

def digamma(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`digamma` of each element."""

def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.entr on every shard; see torch's documentation."""

def erf(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`erf` of each element."""

def erfc(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`erfc` of each element."""

def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.erfcx on every shard; see torch's documentation."""

def erfinv(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`erfinv` of each element."""

def exp2(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`exp2` of each element."""

def expit(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`sigmoid` of each element."""

def expm1(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`expm1` of each element."""

def gammainc(
    input: Tensor, other: Tensor | complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.igamma on every shard; see torch's documentation."""

def gammaincc(
    input: Tensor, other: Tensor | complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.igammac on every shard; see torch's documentation."""

def gammaln(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`lgamma` of each element."""

def hermite_polynomial_h(x: Tensor, n: Tensor | int, *, out: Tensor | None = None) -> Tensor:
    """torch.special.hermite_polynomial_h on every shard; see torch's documentation."""

def hermite_polynomial_he(x: Tensor, n: Tensor | int, *, out: Tensor | None = None) -> Tensor:
    """torch.special.hermite_polynomial_he on every shard; see torch's documentation."""

def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.i0 on every shard; see torch's documentation."""

def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.i0e on every shard; see torch's documentation."""

def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.i1 on every shard; see torch's documentation."""

def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.i1e on every shard; see torch's documentation."""

def laguerre_polynomial_l(x: Tensor, n: Tensor | int, *, out: Tensor | None = None) -> Tensor:
    """torch.special.laguerre_polynomial_l on every shard; see torch's documentation."""

def legendre_polynomial_p(x: Tensor, n: Tensor | int, *, out: Tensor | None = None) -> Tensor:
    """torch.special.legendre_polynomial_p on every shard; see torch's documentation."""

def log1p(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`log1p` of each element."""

def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.log_ndtr on every shard; see torch's documentation."""

def log_softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The logarithm of `softmax(input, dim)`, computed without overflow."""

def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] when `eps` is given."""

def logsumexp(
    input: Tensor,
    dim: int | Sequence[int] | None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """log(sum(exp(input))) over `dim`, computed without overflow."""

def modified_bessel_i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.modified_bessel_i0 on every shard; see torch's documentation."""

def modified_bessel_i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.modified_bessel_i1 on every shard; see torch's documentation."""

def modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.modified_bessel_k0 on every shard; see torch's documentation."""

def modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.modified_bessel_k1 on every shard; see torch's documentation."""

def multigammaln(input: Tensor, p: float | str, *, out: Tensor | None = None) -> Tensor:
    """torch.mvlgamma on every shard; see torch's documentation."""

def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.ndtr on every shard; see torch's documentation."""

def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.ndtri on every shard; see torch's documentation."""

def polygamma(n: Tensor | int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.polygamma on every shard; see torch's documentation."""

def psi(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`digamma` of each element."""

def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest integer, or the nearest value with `decimals` decimals; halves go to even."""

def scaled_modified_bessel_k0(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.scaled_modified_bessel_k0 on every shard; see torch's documentation."""

def scaled_modified_bessel_k1(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.scaled_modified_bessel_k1 on every shard; see torch's documentation."""

def shifted_chebyshev_polynomial_t(
    x: Tensor, n: Tensor | int, *, out: Tensor | None = None
) -> Tensor:
    """torch.special.shifted_chebyshev_polynomial_t on every shard; see torch's documentation."""

def shifted_chebyshev_polynomial_u(
    x: Tensor, n: Tensor | int, *, out: Tensor | None = None
) -> Tensor:
    """torch.special.shifted_chebyshev_polynomial_u on every shard; see torch's documentation."""

def shifted_chebyshev_polynomial_v(
    x: Tensor, n: Tensor | int, *, out: Tensor | None = None
) -> Tensor:
    """torch.special.shifted_chebyshev_polynomial_v on every shard; see torch's documentation."""

def shifted_chebyshev_polynomial_w(
    x: Tensor, n: Tensor | int, *, out: Tensor | None = None
) -> Tensor:
    """torch.special.shifted_chebyshev_polynomial_w on every shard; see torch's documentation."""

def sinc(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """sin(pi x) / (pi x), and 1 where x is 0."""

def softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """exp(x) divided by its sum over `dim`; computed in `dtype` when one is given."""

def spherical_bessel_j0(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.special.spherical_bessel_j0 on every shard; see torch's documentation."""

def xlog1py(
    input: Tensor, other: Tensor | complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.special.xlog1py on every shard; see torch's documentation."""

def xlogy(
    input: Tensor | complex | np.number[Any],
    other: Tensor | complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def zeta(
    input: Tensor, other: Tensor | complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.special.zeta on every shard; see torch's documentation."""
