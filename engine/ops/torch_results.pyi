"""The tuples with named fields that functions of several outputs in `torch_table` give.

Written by `make stubs`; do not edit.
"""

from typing import NamedTuple

from ..tensor import Tensor

RESULTS: dict[str, type[tuple[Tensor, ...]]]

class Geqrf(NamedTuple):
    a: Tensor
    tau: Tensor

class Slogdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor

class LuUnpack(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor

class Qr(NamedTuple):
    Q: Tensor
    R: Tensor

class Svd(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor

class TriangularSolve(NamedTuple):
    solution: Tensor
    cloned_coefficient: Tensor

class LinalgCholeskyEx(NamedTuple):
    L: Tensor
    info: Tensor

class LinalgEig(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor

class LinalgEigh(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor

class LinalgInvEx(NamedTuple):
    inverse: Tensor
    info: Tensor

class LinalgLdlFactor(NamedTuple):
    LD: Tensor
    pivots: Tensor

class LinalgLdlFactorEx(NamedTuple):
    LD: Tensor
    pivots: Tensor
    info: Tensor

class LinalgLu(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor

class LinalgLuFactor(NamedTuple):
    LU: Tensor
    pivots: Tensor

class LinalgLuFactorEx(NamedTuple):
    LU: Tensor
    pivots: Tensor
    info: Tensor

class LinalgLstsq(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor

class LinalgQr(NamedTuple):
    Q: Tensor
    R: Tensor

class LinalgSlogdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor

class LinalgSolveEx(NamedTuple):
    result: Tensor
    info: Tensor

class LinalgSvd(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor

class Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor

class Cummax(NamedTuple):
    values: Tensor
    indices: Tensor

class Cummin(NamedTuple):
    values: Tensor
    indices: Tensor

class Frexp(NamedTuple):
    mantissa: Tensor
    exponent: Tensor

class Mode(NamedTuple):
    values: Tensor
    indices: Tensor

class NativeGroupNorm(NamedTuple):
    out: Tensor
    mean: Tensor
    rstd: Tensor

class NativeLayerNorm(NamedTuple):
    out: Tensor
    mean: Tensor
    rstd: Tensor

class EmbeddingBag(NamedTuple):
    output: Tensor
    offset2bag: Tensor
    bag_size: Tensor
    max_indices: Tensor

class FractionalMaxPool2DWithIndices(NamedTuple):
    output: Tensor
    indices: Tensor

class FractionalMaxPool3DWithIndices(NamedTuple):
    output: Tensor
    indices: Tensor
