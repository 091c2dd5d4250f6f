"""The methods and operators of Tensor that call an op.

Written by `make stubs`; do not edit.
"""

import builtins
from collections.abc import Callable, Iterable, Sequence
from types import EllipsisType
from typing import Any, Literal, NoReturn, Self, overload

import numpy as np
import torch
from torch.storage import TypedStorage, UntypedStorage

from ..parallel.device_mesh import DeviceMesh
from ..parallel.mesh_tensors import MeshPlacement
from .argument_types import DeviceLike
from .convert import SupportsSbp
from .generator import Generator
from .grad_attributes import HookHandle
from .leaf_hooks import LeafHookHandle
from .ops.argreduce import ValuesAndIndices
from .ops.extremum import MinMax
from .ops.sparse_tensor import SparseTensor
from .ops.torch_results import (
    Cummax,
    Cummin,
    Frexp,
    Geqrf,
    Histogram,
    Mode,
    Qr,
    Slogdet,
    Svd,
    TriangularSolve,
)
from .placed_device import PlacedDevice
from .placement import Placement
from .sbp import Sbp
from .tensor import Tensor

class TensorMethods:
    def abs(self, /) -> Tensor:
        """`abs` of each element."""
    def absolute(self, /) -> Tensor:
        """`abs` of each element."""
    def acos(self, /) -> Tensor:
        """`acos` of each element."""
    def acosh(self, /) -> Tensor:
        """`acosh` of each element."""
    def add(
        self, other: Tensor | complex | np.number[Any], *, alpha: complex | np.number[Any] = 1
    ) -> Tensor:
        """`input + alpha * other`; either may be a Python number."""
    def add_(self, other: Tensor | complex | np.number[Any], **options: object) -> Self:
        """`add` in place; see `onefold.add`."""
    def addbmm(
        self,
        batch1: Tensor,
        batch2: Tensor,
        *,
        beta: complex | np.number[Any] = 1,
        alpha: complex | np.number[Any] = 1,
    ) -> Tensor:
        """`beta * input + alpha * sum over the batch of (batch1 @ batch2)`."""
    def addcdiv(
        self, tensor1: Tensor, tensor2: Tensor, *, value: complex | np.number[Any] = 1
    ) -> Tensor:
        """`input + value * tensor1 / tensor2`."""
    def addcmul(
        self, tensor1: Tensor, tensor2: Tensor, *, value: complex | np.number[Any] = 1
    ) -> Tensor:
        """`input + value * tensor1 * tensor2`."""
    def addmm(
        self, mat1: Tensor, mat2: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Tensor:
        """`beta * input + alpha * (mat1 @ mat2)` for matrices; input broadcasts to the product."""
    def addmv(
        self, mat: Tensor, vec: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Tensor:
        """`beta * input + alpha * (mat @ vec)`; input broadcasts to the product."""
    def addr(
        self,
        vec1: Tensor,
        vec2: Tensor,
        *,
        beta: complex | np.number[Any] = 1,
        alpha: complex | np.number[Any] = 1,
    ) -> Tensor:
        """`beta * input + alpha * outer(vec1, vec2)`."""
    def adjoint(self) -> Tensor:
        """The last two dims exchanged, complex values conjugated."""
    def all(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
    ) -> Tensor:
        """Whether every element over `dim` (None: over all) is not zero."""
    def allclose(
        self,
        other: Tensor,
        rtol: builtins.float = 1e-05,
        atol: builtins.float = 1e-08,
        equal_nan: builtins.bool = False,
    ) -> builtins.bool:
        """Whether all elements are close (see `isclose`); the same result on every rank."""
    def amax(
        self, dim: builtins.int | Sequence[builtins.int] | None = (), keepdim: builtins.bool = False
    ) -> Tensor:
        """The greatest values over `dim` (none given: over all); ties share the gradient evenly."""
    def amin(
        self, dim: builtins.int | Sequence[builtins.int] | None = (), keepdim: builtins.bool = False
    ) -> Tensor:
        """The least values over `dim` (none given: over all); ties share the gradient evenly."""
    def aminmax(self, *, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> MinMax:
        """The least and the greatest values, as (min, max)."""
    def angle(self, /) -> Tensor:
        """`angle` of each element."""
    def any(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
    ) -> Tensor:
        """Whether an element over `dim` (None: over all) is not zero."""
    def arccos(self, /) -> Tensor:
        """`acos` of each element."""
    def arccosh(self, /) -> Tensor:
        """`acosh` of each element."""
    def arcsin(self, /) -> Tensor:
        """`asin` of each element."""
    def arcsinh(self, /) -> Tensor:
        """`asinh` of each element."""
    def arctan(self, /) -> Tensor:
        """`atan` of each element."""
    def arctan2(self, other: Tensor, /) -> Tensor:
        """`atan2` of each element."""
    def arctanh(self, /) -> Tensor:
        """`atanh` of each element."""
    def argmax(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """The index of the first greatest value along `dim` (None: in the flattened tensor)."""
    def argmin(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """The index of the first least value along `dim` (None: in the flattened tensor)."""
    def argsort(
        self,
        dim: builtins.int = -1,
        descending: builtins.bool = False,
        stable: builtins.bool = False,
    ) -> Tensor:
        """The indices that sort the values along `dim`."""
    def argwhere(self) -> Tensor:
        """The indices of the elements that are not zero, one per row."""
    def as_strided(
        self,
        size: Sequence[builtins.int],
        stride: Sequence[builtins.int],
        storage_offset: builtins.int | None = None,
    ) -> Tensor:
        """A view with this size and these strides of the base of `input`, or of itself if it has none."""
    def as_strided_(
        self,
        size: Sequence[builtins.int],
        stride: Sequence[builtins.int],
        storage_offset: builtins.int | None = None,
    ) -> Self:
        """A view with this size and these strides of the base of `input`, or of itself if it has none."""
    def as_strided_scatter(
        self,
        src: Tensor,
        size: builtins.int | Sequence[builtins.int],
        stride: builtins.int | Sequence[builtins.int],
        storage_offset: builtins.int | None = None,
    ) -> Tensor:
        """torch.as_strided_scatter on every shard; see torch's documentation."""
    def asin(self, /) -> Tensor:
        """`asin` of each element."""
    def asinh(self, /) -> Tensor:
        """`asinh` of each element."""
    def atan(self, /) -> Tensor:
        """`atan` of each element."""
    def atan2(self, other: Tensor, /) -> Tensor:
        """`atan2` of each element."""
    def atanh(self, /) -> Tensor:
        """`atanh` of each element."""
    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: builtins.bool | None = None,
        create_graph: builtins.bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradients of this tensor to the `.grad` of every leaf it was made from."""
    def baddbmm(
        self, batch1: Tensor, batch2: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Tensor:
        """`beta * input + alpha * (batch1 @ batch2)` for batches; input broadcasts to the product."""
    def bernoulli(
        self, p: builtins.float | None = None, *, generator: Generator | None = None
    ) -> Tensor:
        """1 with the probability that each element is, else 0, in the dtype and layout of `input`."""
    def bernoulli_(
        self, p: Tensor | builtins.float = 0.5, *, generator: Generator | None = None
    ) -> Self:
        """Every element becomes 1 with probability `p`, which may be a tensor, else 0."""
    def bfloat16(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.bfloat16; the same tensor when it is that already."""
    def bincount(self, weights: Tensor | None = None, minlength: builtins.int = 0) -> Tensor:
        """The number of occurrences of each value in a vector of non-negative integers."""
    def bitwise_and(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def bitwise_left_shift(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def bitwise_not(self, /) -> Tensor:
        """`bitwise_not` of each element."""
    def bitwise_or(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def bitwise_right_shift(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def bitwise_xor(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def bmm(self, mat2: Tensor) -> Tensor:
        """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""
    def bool(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.bool; the same tensor when it is that already."""
    def broadcast_to(
        self,
        *sizes: builtins.int | Sequence[builtins.int],
        size: builtins.int | Sequence[builtins.int] | None = None,
    ) -> Tensor:
        """Dims of size 1, and new ones in front, repeated to these sizes; -1 keeps a dim's size."""
    def byte(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.uint8; the same tensor when it is that already."""
    def cast(self, dtype: torch.dtype) -> Tensor:
        """`input` in `dtype`; the same tensor if it has that dtype already."""
    def cauchy_(
        self,
        median: builtins.float = 0.0,
        sigma: builtins.float = 1.0,
        *,
        generator: Generator | None = None,
    ) -> Self:
        """Every element becomes a number of the Cauchy distribution: median + sigma tan(pi (u - 1/2))."""
    def ccol_indices(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def cdouble(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.complex128; the same tensor when it is that already."""
    def ceil(self, /) -> Tensor:
        """`ceil` of each element."""
    def cfloat(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.complex64; the same tensor when it is that already."""
    def chalf(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.complex32; the same tensor when it is that already."""
    def char(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.int8; the same tensor when it is that already."""
    def check_meta_consistency(self) -> None:
        """Check, collectively, that all processes agree on shape, dtype, placement and sbp."""
    def cholesky(self, upper: builtins.bool = False) -> Tensor:
        """torch.cholesky on every shard; see torch's documentation."""
    def cholesky_inverse(self, upper: builtins.bool = False) -> Tensor:
        """torch.cholesky_inverse on every shard; see torch's documentation."""
    def cholesky_solve(self, input2: Tensor, upper: builtins.bool = False) -> Tensor:
        """torch.cholesky_solve on every shard; see torch's documentation."""
    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """At most `chunks` parts of one size along `dim`; the last may be smaller."""
    def clamp(
        self,
        min: Tensor | complex | np.number[Any] | None = None,
        max: Tensor | complex | np.number[Any] | None = None,
    ) -> Tensor:
        """`input` limited to [min, max]: numbers, tensors, or None for no limit."""
    def clamp_max(self, max: Tensor | complex | np.number[Any] | None) -> Tensor:
        """`input`, but at most `max`."""
    def clamp_min(self, min: Tensor | complex | np.number[Any] | None) -> Tensor:
        """`input`, but at least `min`."""
    def clip(
        self,
        min: Tensor | complex | np.number[Any] | None = None,
        max: Tensor | complex | np.number[Any] | None = None,
    ) -> Tensor:
        """`input` limited to [min, max]: numbers, tensors, or None for no limit."""
    def clone(self, *, memory_format: torch.memory_format | None = None) -> Tensor:
        """A copy of `input` with memory of its own, in its memory format or another one."""
    def coalesce(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def col_indices(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def conj(self) -> Tensor:
        """The complex conjugate, as a view; a real tensor itself."""
    def conj_physical(self) -> Tensor:
        """The complex conjugate; a real tensor itself."""
    def contiguous(self, memory_format: torch.memory_format = ...) -> Tensor:
        """The tensor itself, or a copy of a view that is not contiguous in its base."""
    def copy_(self, other: Tensor | np.ndarray, non_blocking: builtins.bool = False) -> Self:
        """Take the value of `other`, which may have another dtype, placement and sbp."""
    def copysign(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def corrcoef(self) -> Tensor:
        """The correlation coefficients of the rows, whose columns are observations."""
    def cos(self, /) -> Tensor:
        """`cos` of each element."""
    def cosh(self, /) -> Tensor:
        """`cosh` of each element."""
    def count_nonzero(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """The number of nonzero elements over `dim` (None: over all), as int64."""
    def cov(
        self,
        *,
        correction: builtins.int = 1,
        fweights: Tensor | None = None,
        aweights: Tensor | None = None,
    ) -> Tensor:
        """The covariance matrix of the rows, whose columns are observations."""
    def cpu(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """The tensor on the cpu (a global one on the same ranks)."""
    def cross(
        self,
        other: Tensor | complex | np.number[Any],
        dim: builtins.int | Sequence[builtins.int] | None = None,
    ) -> Tensor:
        """torch.cross on every shard; see torch's documentation."""
    def crow_indices(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def cuda(
        self,
        device: str | builtins.int | torch.device | PlacedDevice | None = None,
        non_blocking: builtins.bool = False,
        memory_format: torch.memory_format | None = None,
    ) -> Tensor:
        """The tensor on cuda (a global one on the same ranks)."""
    def cummax(self, dim: builtins.int | Sequence[builtins.int]) -> Cummax:
        """torch.cummax on every shard; see torch's documentation."""
    def cummin(self, dim: builtins.int | Sequence[builtins.int]) -> Cummin:
        """torch.cummin on every shard; see torch's documentation."""
    def cumprod(self, dim: builtins.int, *, dtype: torch.dtype | None = None) -> Tensor:
        """The product of each element and all before it along `dim`."""
    def cumsum(self, dim: builtins.int, *, dtype: torch.dtype | None = None) -> Tensor:
        """The sum of each element and all before it along `dim`; integers and bools give int64."""
    def data_ptr(self) -> builtins.int:
        """The address of the first element of this process's shard."""
    def deg2rad(self, /) -> Tensor:
        """Degrees as radians."""
    def det(self) -> Tensor:
        """torch.det on every shard; see torch's documentation."""
    def detach(self) -> Tensor:
        """A view of the tensor without its history; a write to the view changes the tensor."""
    def diag(self, diagonal: builtins.int = 0) -> Tensor:
        """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector."""
    def diag_embed(
        self, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1
    ) -> Tensor:
        """Zeros with the last dim on the diagonal of two new dims `dim1` and `dim2`."""
    def diagflat(self, offset: builtins.int = 0) -> Tensor:
        """A matrix with the elements of `input` on a diagonal."""
    def diagonal(
        self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1
    ) -> Tensor:
        """The diagonal of dims `dim1` and `dim2`, as the last dim; `offset` > 0 lies above."""
    def diagonal_scatter(
        self, src: Tensor, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1
    ) -> Tensor:
        """A copy of `input` in which `src` is the diagonal."""
    def diff(
        self,
        n: Tensor | builtins.int = 1,
        dim: builtins.int | Sequence[builtins.int] = -1,
        prepend: Tensor | None = None,
        append: Tensor | None = None,
    ) -> Tensor:
        """torch.diff on every shard; see torch's documentation."""
    def digamma(self, /) -> Tensor:
        """`digamma` of each element."""
    def dist(self, other: Tensor | complex | np.number[Any], p: builtins.float | str = 2) -> Tensor:
        """torch.dist on every shard; see torch's documentation."""
    def div(
        self, other: Tensor | complex | np.number[Any], *, rounding_mode: str | None = None
    ) -> Tensor:
        """`input / other`; `rounding_mode` 'trunc' or 'floor' rounds, and keeps integers integers."""
    def div_(self, other: Tensor | complex | np.number[Any], **options: object) -> Self:
        """`div` in place; see `onefold.div`."""
    def divide(
        self, other: Tensor | complex | np.number[Any], *, rounding_mode: str | None = None
    ) -> Tensor:
        """`input / other`; `rounding_mode` 'trunc' or 'floor' rounds, and keeps integers integers."""
    def dot(self, tensor: Tensor) -> Tensor:
        """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""
    def double(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.float64; the same tensor when it is that already."""
    def dsplit(
        self, indices_or_sections: builtins.int | Sequence[builtins.int]
    ) -> tuple[Tensor, ...]:
        """`tensor_split` along dim 2 of a tensor with at least 3 dims, in equal parts."""
    def eig(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: torch has removed it; use linalg.eig(x), or linalg.eigh(x) for a symmetric matrix."""
    def eq(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def equal(self, other: Tensor) -> builtins.bool:
        """Whether two tensors have the same shape and elements; the same result on every rank."""
    def erf(self, /) -> Tensor:
        """`erf` of each element."""
    def erfc(self, /) -> Tensor:
        """`erfc` of each element."""
    def erfinv(self, /) -> Tensor:
        """`erfinv` of each element."""
    def exp(self, /) -> Tensor:
        """`exp` of each element."""
    def exp2(self, /) -> Tensor:
        """`exp2` of each element."""
    def expand(
        self,
        *sizes: builtins.int | Sequence[builtins.int],
        size: builtins.int | Sequence[builtins.int] | None = None,
    ) -> Tensor:
        """Dims of size 1, and new ones in front, repeated to these sizes; -1 keeps a dim's size."""
    def expand_as(self, other: Tensor) -> Tensor:
        """The tensor expanded to the shape of another tensor."""
    def expm1(self, /) -> Tensor:
        """`expm1` of each element."""
    def exponential_(
        self, lambd: builtins.float = 1.0, *, generator: Generator | None = None
    ) -> Self:
        """Every element becomes a number of the exponential distribution of rate `lambd`, above 0."""
    def fill_(self, value: Tensor | complex | np.number[Any]) -> Self:
        """Every element becomes `value` (a number or a one-element tensor)."""
    def fill_diagonal_(
        self, fill_value: complex | np.number[Any], wrap: builtins.bool = False
    ) -> Self:
        """The elements on the diagonal become `fill_value`; more than two dims must be of equal size."""
    def fix(self, /) -> Tensor:
        """`trunc` of each element."""
    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """Dims `start_dim` to `end_dim` as one; a 0-d tensor becomes 1-d."""
    def flip(
        self,
        *args: builtins.int | Sequence[builtins.int],
        dims: builtins.int | Sequence[builtins.int] | None = None,
    ) -> Tensor:
        """The tensor reversed along these dims, given one by one, as a tuple or by name."""
    def fliplr(self) -> Tensor:
        """The tensor reversed along dim 1."""
    def flipud(self) -> Tensor:
        """The tensor reversed along dim 0."""
    def float(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.float32; the same tensor when it is that already."""
    def float_power(self, exponent: Tensor | complex | np.number[Any]) -> Tensor:
        """`input ** exponent` in float64, or complex128 where one of them is complex."""
    def floor(self, /) -> Tensor:
        """`floor` of each element."""
    def floor_divide(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def fmax(self, other: Tensor, /) -> Tensor:
        """`fmax` of each element."""
    def fmin(self, other: Tensor, /) -> Tensor:
        """`fmin` of each element."""
    def fmod(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def frac(self, /) -> Tensor:
        """`frac` of each element."""
    def frexp(self) -> Frexp:
        """torch.frexp on every shard; see torch's documentation."""
    def full_tensor(self, *, grad_placements: Sequence[MeshPlacement] | None = None) -> Tensor:
        """All of a global tensor as a local one, on every rank."""
    def gather(
        self, dim: builtins.int, index: Tensor, *, sparse_grad: builtins.bool = False
    ) -> Tensor:
        """y[i][j][k] = input[i][index[i][j][k]][k] for dim 1, and so on for any dim."""
    def gcd(self, other: Tensor | complex | np.number[Any]) -> Tensor:
        """torch.gcd on every shard; see torch's documentation."""
    def ge(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def geometric_(self, p: builtins.float, *, generator: Generator | None = None) -> Self:
        """Every element becomes the number of trials until one succeeds, with probability `p` each."""
    def geqrf(self) -> Geqrf:
        """torch.geqrf on every shard; see torch's documentation."""
    def ger(self, vec2: Tensor) -> Tensor:
        """y[m, n] = a[m] * b[n]"""
    def get_device(self) -> builtins.int:
        """The index of the cuda device that holds this process's shard; -1 for the cpu."""
    def global_to_global(
        self,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        *,
        grad_sbp: Sbp | Iterable[Sbp] | None = None,
        check_meta: builtins.bool = False,
        copy: builtins.bool = False,
    ) -> Tensor:
        """This global tensor with another placement or sbp and the same value."""
    def greater(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def greater_equal(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def gt(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def half(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.float16; the same tensor when it is that already."""
    def hardshrink(self, lambd: builtins.float = 0.5) -> Tensor:
        """x where |x| > lambd, else 0."""
    def hash_tensor(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        *,
        keepdim: builtins.bool = False,
        mode: builtins.int = 0,
    ) -> Tensor:
        """torch.hash_tensor on every shard; see torch's documentation."""
    def heaviside(self, values: Tensor, /) -> Tensor:
        """`heaviside` of each element."""
    def hermitian(self) -> Tensor:
        """The conjugate transpose of a matrix: `x.H`."""
    def histc(
        self,
        bins: Tensor | builtins.int | Sequence[builtins.int] = 100,
        min: Tensor | complex | np.number[Any] = 0,
        max: Tensor | complex | np.number[Any] = 0,
    ) -> Tensor:
        """torch.histc on every shard; see torch's documentation."""
    def histogram(
        self,
        bins: Tensor | builtins.int | Sequence[builtins.int],
        *,
        range: Sequence[builtins.float] | None = None,
        weight: Tensor | None = None,
        density: builtins.bool = False,
    ) -> Histogram:
        """torch.histogram on every shard; see torch's documentation."""
    def hsplit(
        self, indices_or_sections: builtins.int | Sequence[builtins.int]
    ) -> tuple[Tensor, ...]:
        """`tensor_split` along dim 1, of vectors along dim 0, in equal parts."""
    def hypot(self, other: Tensor, /) -> Tensor:
        """`hypot` of each element."""
    def i0(self) -> Tensor:
        """torch.i0 on every shard; see torch's documentation."""
    def igamma(self, other: Tensor | complex | np.number[Any]) -> Tensor:
        """torch.igamma on every shard; see torch's documentation."""
    def igammac(self, other: Tensor | complex | np.number[Any]) -> Tensor:
        """torch.igammac on every shard; see torch's documentation."""
    def index(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: dims have no names; use x[positions]."""
    def index_add(
        self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: builtins.float = 1
    ) -> Tensor:
        """`input` plus alpha times the slices of `source`, added at `index` of `dim`, in order."""
    def index_copy(self, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
        """`input` with the slices of `source` at the positions `index` of `dim`."""
    def index_fill(
        self, dim: builtins.int, index: Tensor, value: Tensor | complex | np.number[Any]
    ) -> Tensor:
        """`input` with one value, a number or a 0-d tensor, at the positions `index` of `dim`."""
    def index_put(
        self, indices: Sequence[Tensor | None], values: Tensor, accumulate: builtins.bool = False
    ) -> Tensor:
        """`input` with input[indices] = values, or += for `accumulate`; builtins.bool masks are read first."""
    def index_reduce(
        self,
        dim: builtins.int,
        index: Tensor,
        source: Tensor,
        reduce: str,
        *,
        include_self: builtins.bool = True,
    ) -> Tensor:
        """The slices of `source` along `dim` reduced at the positions `index`, a vector."""
    def index_select(self, dim: builtins.int, index: Tensor) -> Tensor:
        """The elements of `dim` at `index`, a vector. A split of `dim` becomes a partial sum."""
    def indices(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def inner(self, other: Tensor) -> Tensor:
        """The sum of products over the last dim of both, for all pairs of the other dims."""
    def int(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.int32; the same tensor when it is that already."""
    def inverse(self) -> Tensor:
        """torch.inverse on every shard; see torch's documentation."""
    def is_conj(self) -> builtins.bool:
        """False: conjugation is never lazy."""
    def is_contiguous(self, memory_format: torch.memory_format = ...) -> builtins.bool:
        """Whether the tensor is contiguous in its base; a base itself is contiguous."""
    def is_neg(self) -> builtins.bool:
        """False: negation is never lazy."""
    def is_nonzero(self) -> builtins.bool:
        """Whether the one element is not zero. Raises OnefoldRuntimeError for another number."""
    def is_offloaded(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: tensors stay where they are; use y = x.cpu() and del x to free a device's memory, and y.cuda() to take it back."""
    def is_pinned(self) -> builtins.bool:
        """Whether the memory of all shards of this process is page-locked."""
    def is_same_size(self, other: Tensor) -> builtins.bool:
        """Whether both tensors have the same shape."""
    def is_set_to(self, tensor: Tensor) -> builtins.bool:
        """Whether both tensors have the same memory and layout."""
    def is_shared(self) -> builtins.bool:
        """Whether other processes of this machine can map the memory of this process's shards."""
    def isclose(
        self,
        other: Tensor,
        rtol: builtins.float = 1e-05,
        atol: builtins.float = 1e-08,
        equal_nan: builtins.bool = False,
    ) -> Tensor:
        """Whether |input - other| <= atol + rtol * |other|, element by element."""
    def isfinite(self, /) -> Tensor:
        """`isfinite` of each element."""
    def isinf(self, /) -> Tensor:
        """`isinf` of each element."""
    def isnan(self, /) -> Tensor:
        """`isnan` of each element."""
    def isneginf(self, /) -> Tensor:
        """`isneginf` of each element."""
    def isposinf(self, /) -> Tensor:
        """`isposinf` of each element."""
    def isreal(self) -> Tensor:
        """torch.isreal on every shard; see torch's documentation."""
    def istft(
        self,
        n_fft: builtins.int,
        hop_length: builtins.int | None = None,
        win_length: builtins.int | None = None,
        window: Tensor | None = None,
        center: builtins.float | builtins.bool = True,
        normalized: builtins.bool = False,
        onesided: builtins.bool | None = None,
        length: builtins.int | None = None,
        return_complex: builtins.bool = False,
    ) -> Tensor:
        """torch.istft on every shard; see torch's documentation."""
    def item(self) -> Any:
        """The value of a one-element tensor as a Python number."""
    def kron(self, other: Tensor | complex | np.number[Any]) -> Tensor:
        """torch.kron on every shard; see torch's documentation."""
    def kthvalue(
        self, k: builtins.int, dim: builtins.int = -1, keepdim: builtins.bool = False
    ) -> ValuesAndIndices:
        """The k-th smallest value along `dim` (k counts from 1), and its index."""
    def lcm(self, other: Tensor | complex | np.number[Any]) -> Tensor:
        """torch.lcm on every shard; see torch's documentation."""
    def ldexp(self, other: Tensor | complex | np.number[Any]) -> Tensor:
        """torch.ldexp on every shard; see torch's documentation."""
    def le(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def lerp(self, end: Tensor, weight: Tensor | complex | np.number[Any]) -> Tensor:
        """`input + weight * (end - input)`; the weight is a tensor or a number."""
    def less(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def less_equal(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def lgamma(self, /) -> Tensor:
        """`lgamma` of each element."""
    def load(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: tensors stay where they are; use y = x.cpu() and del x to free a device's memory, and y.cuda() to take it back."""
    def local_to_global(
        self,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        *,
        check_meta: builtins.bool = True,
        copy: builtins.bool = False,
    ) -> Tensor:
        """The global tensor of which this local tensor is this rank's part."""
    def log(self, /) -> Tensor:
        """`log` of each element."""
    def log10(self, /) -> Tensor:
        """`log10` of each element."""
    def log1p(self, /) -> Tensor:
        """`log1p` of each element."""
    def log2(self, /) -> Tensor:
        """`log2` of each element."""
    def log_normal_(
        self,
        mean: builtins.float = 1.0,
        std: builtins.float = 2.0,
        *,
        generator: Generator | None = None,
    ) -> Self:
        """Every element becomes the exponential of a normal number of this mean and deviation."""
    def log_softmax(self, dim: builtins.int, dtype: torch.dtype | None = None) -> Tensor:
        """The logarithm of `softmax(input, dim)`, computed without overflow."""
    def logaddexp(self, other: Tensor, /) -> Tensor:
        """`logaddexp` of each element."""
    def logaddexp2(self, other: Tensor, /) -> Tensor:
        """`logaddexp2` of each element."""
    def logcumsumexp(self, dim: builtins.int | Sequence[builtins.int]) -> Tensor:
        """torch.logcumsumexp on every shard; see torch's documentation."""
    def logdet(self) -> Tensor:
        """torch.logdet on every shard; see torch's documentation."""
    def logical_and(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def logical_not(self, /) -> Tensor:
        """`logical_not` of each element."""
    def logical_or(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def logical_xor(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def logit(self, eps: builtins.float | None = None) -> Tensor:
        """log(x / (1 - x)), with x clamped to [eps, 1 - eps] when `eps` is given."""
    def logsumexp(
        self, dim: builtins.int | Sequence[builtins.int] | None, keepdim: builtins.bool = False
    ) -> Tensor:
        """log(sum(exp(input))) over `dim`, computed without overflow."""
    def long(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.int64; the same tensor when it is that already."""
    def lstsq(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: torch has removed it; use linalg.lstsq(A, B)."""
    def lt(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def lu(
        self, pivot: builtins.bool = True, get_infos: builtins.bool = False
    ) -> tuple[Tensor, ...]:
        """The LU factors of matrices in one tensor, and the pivots; `get_infos` adds the codes."""
    def lu_solve(self, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
        """torch.lu_solve on every shard; see torch's documentation."""
    def masked_fill(self, mask: Tensor, value: Tensor | complex | np.number[Any]) -> Tensor:
        """`input` with `value` (a number or a 0-d tensor) where `mask` is True."""
    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """`input` with the elements where `mask` is true taken from `source`, in order."""
    def masked_select(self, mask: Tensor) -> Tensor:
        """The elements where `mask` is true, in one dim; the two broadcast against each other."""
    def matmul(
        self,
        other: Tensor,
        *,
        transpose_a: builtins.bool | None = None,
        transpose_b: builtins.bool | None = None,
        alpha: complex | np.number[Any] | None = None,
    ) -> Tensor:
        """The matrix product of two tensors, as torch.matmul: vectors, matrices, batches of them."""
    def matrix_exp(self) -> Tensor:
        """torch.matrix_exp on every shard; see torch's documentation."""
    def matrix_power(self, n: builtins.int) -> Tensor:
        """The n-th power of square matrices (batch dims in front), by repeated squaring."""
    @overload
    def max(self) -> Tensor:
        """The greatest value of all, or (values, indices) along `dim`; of two tensors, `maximum`."""
    @overload
    def max(self, dim: builtins.int, keepdim: builtins.bool = False) -> ValuesAndIndices:
        """The greatest value of all, or (values, indices) along `dim`; of two tensors, `maximum`."""
    @overload
    def max(self, dim: Tensor) -> Tensor:
        """The greatest value of all, or (values, indices) along `dim`; of two tensors, `maximum`."""
    def maximum(self, other: Tensor, /) -> Tensor:
        """`maximum` of each element."""
    def mean(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The mean over `dim` (None: over all), of a floating point or complex tensor."""
    @overload
    def median(self) -> Tensor:
        """The median of all, or (values, indices) along `dim`: the lower one of an even number."""
    @overload
    def median(self, dim: builtins.int, keepdim: builtins.bool = False) -> ValuesAndIndices:
        """The median of all, or (values, indices) along `dim`: the lower one of an even number."""
    @overload
    def min(self) -> Tensor:
        """The least value of all, or (values, indices) along `dim`; of two tensors, `minimum`."""
    @overload
    def min(self, dim: builtins.int, keepdim: builtins.bool = False) -> ValuesAndIndices:
        """The least value of all, or (values, indices) along `dim`; of two tensors, `minimum`."""
    @overload
    def min(self, dim: Tensor) -> Tensor:
        """The least value of all, or (values, indices) along `dim`; of two tensors, `minimum`."""
    def minimum(self, other: Tensor, /) -> Tensor:
        """`minimum` of each element."""
    def mm(self, mat2: Tensor) -> Tensor:
        """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""
    def mode(
        self, dim: builtins.int | Sequence[builtins.int] = -1, keepdim: builtins.bool = False
    ) -> Mode:
        """torch.mode on every shard; see torch's documentation."""
    def moveaxis(
        self,
        source: builtins.int | Sequence[builtins.int],
        destination: builtins.int | Sequence[builtins.int],
    ) -> Tensor:
        """Dims `source` moved to the positions `destination`; the others keep their order."""
    def movedim(
        self,
        source: builtins.int | Sequence[builtins.int],
        destination: builtins.int | Sequence[builtins.int],
    ) -> Tensor:
        """Dims `source` moved to the positions `destination`; the others keep their order."""
    def msort(self) -> Tensor:
        """The values in order along dim 0."""
    def mul(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def mul_(self, other: Tensor | complex | np.number[Any], **options: object) -> Self:
        """`mul` in place; see `onefold.mul`."""
    def multinomial(
        self,
        num_samples: builtins.int,
        replacement: builtins.bool = False,
        *,
        generator: Generator | None = None,
    ) -> Tensor:
        """Indices drawn from the distribution in each row of (N, K), or in (K): (N, S), or (S)."""
    def multiply(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def mv(self, vec: Tensor) -> Tensor:
        """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""
    def mvlgamma(self, p: builtins.float | str) -> Tensor:
        """torch.mvlgamma on every shard; see torch's documentation."""
    def nan_to_num(
        self,
        nan: builtins.float | None = None,
        posinf: builtins.float | None = None,
        neginf: builtins.float | None = None,
    ) -> Tensor:
        """`input` with nan as `nan` (0), and infinities as the given or the dtype's extreme numbers."""
    def nanmean(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The mean over `dim` of the elements that are numbers."""
    @overload
    def nanmedian(self) -> Tensor:
        """`median` of the values that are numbers."""
    @overload
    def nanmedian(self, dim: builtins.int, keepdim: builtins.bool = False) -> ValuesAndIndices:
        """`median` of the values that are numbers."""
    def nanquantile(
        self,
        q: Tensor | complex | np.number[Any],
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
        *,
        interpolation: str = "linear",
    ) -> Tensor:
        """torch.nanquantile on every shard; see torch's documentation."""
    def nansum(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The sum over `dim` of the elements that are numbers."""
    def narrow(self, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
        """`length` elements of dim `dim` from `start` on, which may count from the end."""
    def narrow_copy(self, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
        """What `narrow` gives, in memory of its own."""
    def ne(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def neg(self, /) -> Tensor:
        """`neg` of each element."""
    def negative(self, /) -> Tensor:
        """`neg` of each element."""
    def new(
        self,
        *data: object,
        dtype: torch.dtype | None = None,
        device: str | builtins.int | torch.device | PlacedDevice | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """`Tensor(*data)` with self's dtype, device or (broadcast) placement."""
    def new_empty(
        self,
        *size: builtins.int | Sequence[builtins.int],
        dtype: torch.dtype | None = None,
        device: str | builtins.int | torch.device | PlacedDevice | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Unset values of another shape with self's dtype, device or (broadcast) placement."""
    def new_empty_strided(
        self,
        size: Sequence[builtins.int],
        stride: Sequence[builtins.int],
        *,
        dtype: torch.dtype | None = None,
        device: str | builtins.int | torch.device | PlacedDevice | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """An uninitialized tensor with self's dtype, device or (broadcast) placement."""
    def new_full(
        self,
        size: Sequence[builtins.int],
        fill_value: Tensor | complex | np.number[Any],
        *,
        dtype: torch.dtype | None = None,
        device: str | builtins.int | torch.device | PlacedDevice | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """One value in another shape with self's dtype, device or (broadcast) placement."""
    def new_ones(
        self,
        *size: builtins.int | Sequence[builtins.int],
        dtype: torch.dtype | None = None,
        device: str | builtins.int | torch.device | PlacedDevice | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Ones of another shape with self's dtype, device or (broadcast) placement."""
    def new_tensor(
        self,
        data: object,
        *,
        dtype: torch.dtype | None = None,
        device: str | builtins.int | torch.device | PlacedDevice | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """A tensor of `data` with self's dtype, device or (broadcast) placement."""
    def new_zeros(
        self,
        *size: builtins.int | Sequence[builtins.int],
        dtype: torch.dtype | None = None,
        device: str | builtins.int | torch.device | PlacedDevice | None = None,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Zeros of another shape with self's dtype, device or (broadcast) placement."""
    def nextafter(self, other: Tensor | complex | np.number[Any]) -> Tensor:
        """torch.nextafter on every shard; see torch's documentation."""
    @overload
    def nonzero(self, *, as_tuple: Literal[False] = False) -> Tensor:
        """The indices of the elements that are not zero, one per row; `as_tuple`: one tensor per dim."""
    @overload
    def nonzero(self, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]:
        """The indices of the elements that are not zero, one per row; `as_tuple`: one tensor per dim."""
    def nonzero_static(
        self, *, size: builtins.int | Sequence[builtins.int], fill_value: builtins.int = -1
    ) -> Tensor:
        """torch.nonzero_static on every shard; see torch's documentation."""
    def norm(
        self,
        p: builtins.float | str | None = "fro",
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The vector norm of order `p` over `dim` (None: over all); 'fro' is order 2."""
    def normal_(
        self,
        mean: builtins.float = 0.0,
        std: builtins.float = 1.0,
        *,
        generator: Generator | None = None,
    ) -> Self:
        """Every element becomes a normal number of this mean and standard deviation."""
    def not_equal(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def numpy(self, *, force: builtins.bool = False) -> np.ndarray:
        """The logical value as a numpy array; see `whole` for when it communicates."""
    def offload(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: tensors stay where they are; use y = x.cpu() and del x to free a device's memory, and y.cuda() to take it back."""
    def orgqr(self, input2: Tensor) -> Tensor:
        """torch.orgqr on every shard; see torch's documentation."""
    def ormqr(
        self,
        input2: Tensor,
        input3: Tensor,
        left: builtins.bool = True,
        transpose: builtins.bool = False,
    ) -> Tensor:
        """torch.ormqr on every shard; see torch's documentation."""
    def outer(self, vec2: Tensor) -> Tensor:
        """y[m, n] = a[m] * b[n]"""
    def permute(
        self,
        *axes: builtins.int | Sequence[builtins.int],
        dims: builtins.int | Sequence[builtins.int] | None = None,
    ) -> Tensor:
        """The dims in the given order; a split moves with its dim."""
    def pin_memory(self) -> Tensor:
        """A copy in page-locked memory, from which copies to a GPU are faster; itself if it is there."""
    def pinverse(self, rcond: Tensor | complex | np.number[Any] = 1e-15) -> Tensor:
        """torch.pinverse on every shard; see torch's documentation."""
    def polygamma(self, n: builtins.int) -> Tensor: ...
    def positive(self) -> Tensor:
        """The tensor, as a view; raises OnefoldRuntimeError for builtins.bool."""
    def pow(self, exponent: Tensor | complex | np.number[Any]) -> Tensor: ...
    def prelu(self, weight: Tensor) -> Tensor:
        """x where it is positive, weight * x elsewhere; one weight, or one for each channel (dim 1)."""
    def prod(
        self,
        dim: builtins.int | None = None,
        keepdim: builtins.bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The product over `dim` (None: over all); integers and bools give int64."""
    def put(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """`input` with `source` at indices into the flattened tensor, added there if `accumulate`."""
    def qr(self, some: builtins.bool = True) -> Qr:
        """torch.qr on every shard; see torch's documentation."""
    def quantile(
        self,
        q: Tensor | complex | np.number[Any],
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
        *,
        interpolation: str = "linear",
    ) -> Tensor:
        """torch.quantile on every shard; see torch's documentation."""
    def quick_gelu(self, /) -> Tensor:
        """x * sigmoid(1.702 * x), close to gelu. Source: Hendrycks and Gimpel (2016)."""
    def rad2deg(self, /) -> Tensor:
        """Radians as degrees."""
    def random_(
        self,
        low: builtins.int | None = None,
        to: builtins.int | EllipsisType | None = ...,
        *,
        generator: Generator | None = None,
        **start: builtins.float,
    ) -> Self:
        """Every element becomes an integer of [low, to); `random_(to)` starts at 0."""
    def ravel(self) -> Tensor:
        """All elements in one dim: a view of a contiguous tensor, else a copy, as in torch."""
    def reciprocal(self, /) -> Tensor:
        """`reciprocal` of each element."""
    def record_stream(self, s: torch.Stream) -> None:
        """Keep the memory of this process's shards until stream `s` has finished its current work."""
    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[MeshPlacement] | None = None,
        *,
        async_op: builtins.bool = False,
        forward_dtype: torch.dtype | None = None,
        backward_dtype: torch.dtype | None = None,
    ) -> Tensor:
        """A global tensor in other placements, with the same value and a gradient: see `to_global`."""
    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call `hook(grad)` when this tensor's gradient is computed; a returned tensor replaces it."""
    def register_post_accumulate_grad_hook(
        self, hook: Callable[[Tensor], object]
    ) -> LeafHookHandle:
        """Call `hook(tensor)` when a backward pass has added all of this leaf's gradient to `.grad`."""
    def relu(self, /) -> Tensor:
        """x where x > 0, else 0."""
    def remainder(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def renorm(
        self,
        p: builtins.float | str,
        dim: builtins.int | Sequence[builtins.int],
        maxnorm: builtins.float,
    ) -> Tensor:
        """torch.renorm on every shard; see torch's documentation."""
    def repeat(
        self,
        *sizes: builtins.int | Sequence[builtins.int],
        repeats: builtins.int | Sequence[builtins.int] | None = None,
    ) -> Tensor:
        """The tensor repeated as a whole along each dim; more numbers than dims add dims in front."""
    def repeat_interleave(
        self,
        repeats: Tensor | builtins.int,
        dim: builtins.int | None = None,
        *,
        output_size: builtins.int | None = None,
    ) -> Tensor:
        """Each element of `dim` repeated in place: `repeats` times, or as often as its entry says."""
    def reshape(self, *shape: builtins.int | Sequence[builtins.int]) -> Tensor:
        """The elements, in row-major order, in another shape: a view wherever torch makes one."""
    def reshape_as(self, other: Tensor) -> Tensor:
        """`reshape` to the shape of another tensor."""
    def resize(self, *sizes: builtins.int | Sequence[builtins.int]) -> Tensor:
        """The elements in row-major order under another shape; torch deprecates it for `reshape`."""
    def resize_(
        self,
        *sizes: builtins.int | Sequence[builtins.int],
        size: builtins.int | Sequence[builtins.int] | None = None,
        memory_format: torch.memory_format = ...,
    ) -> Self:
        """Resize the tensor in place: the elements stay in row-major order, new ones are zeros."""
    def resize_as(self, tensor: Tensor) -> Tensor:
        """The elements under the shape of another tensor; torch deprecates it for `reshape`."""
    def resize_as_(
        self, the_template: Tensor, *, memory_format: torch.memory_format | None = None
    ) -> Self:
        """Resize the tensor in place to the shape of another one; see `resize_`."""
    def resolve_conj(self) -> Tensor:
        """The tensor itself, since conjugation is never lazy."""
    def resolve_neg(self) -> Tensor:
        """The tensor itself, since negation is never lazy."""
    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in its `.grad`."""
    def roll(
        self,
        shifts: builtins.int | Sequence[builtins.int],
        dims: builtins.int | Sequence[builtins.int] | None = None,
    ) -> Tensor:
        """A circular shift along `dims`; without `dims`, of the flattened tensor."""
    def rot90(self, k: builtins.int = 1, dims: Sequence[builtins.int] = ...) -> Tensor:
        """Rotated `k` times by 90 degrees in the plane of two dims, from the first to the second."""
    def round(self, *, decimals: builtins.int = 0) -> Tensor:
        """The nearest integer, or the nearest value with `decimals` decimals; halves go to even."""
    def row_indices(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def rsqrt(self, /) -> Tensor:
        """`rsqrt` of each element."""
    def scatter(
        self,
        dim: builtins.int,
        index: Tensor,
        src: Tensor | complex | np.number[Any] | None = None,
        *,
        value: complex | np.number[Any] | None = None,
        reduce: str | None = None,
    ) -> Tensor:
        """`input` with the values of `src` (a tensor or a number) at positions `index` along `dim`."""
    def scatter_add(self, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
        """`input` plus the values of `src` at positions `index` along `dim`, in a fixed order."""
    def scatter_reduce(
        self,
        dim: builtins.int,
        index: Tensor,
        src: Tensor,
        reduce: str,
        *,
        include_self: builtins.bool = True,
    ) -> Tensor:
        """The values of `src` reduced at the positions of `index`."""
    def select(self, dim: builtins.int, index: builtins.int) -> Tensor:
        """Element `index` of dim `dim`, which is removed."""
    def select_scatter(self, src: Tensor, dim: builtins.int, index: builtins.int) -> Tensor:
        """A copy of `input` in which `src` is the slice at one index of a dim."""
    def set_(
        self,
        source: Tensor | None = None,
        storage_offset: builtins.int = 0,
        size: Sequence[builtins.int] | None = None,
        stride: Sequence[builtins.int] | None = None,
    ) -> Self:
        """Make the tensor share the memory of `source`, or of a strided part; without one, empty."""
    def sgn(self, /) -> Tensor:
        """`sgn` of each element."""
    def share_memory_(self) -> Self:
        """Move this process's shards to memory that other processes of this machine can map."""
    def short(self, memory_format: torch.memory_format | None = None) -> Tensor:
        """`input` as torch.int16; the same tensor when it is that already."""
    def sigmoid(self, /) -> Tensor:
        """`sigmoid` of each element."""
    def sign(self, /) -> Tensor:
        """`sign` of each element."""
    def signbit(self, /) -> Tensor:
        """`signbit` of each element."""
    def sin(self, /) -> Tensor:
        """`sin` of each element."""
    def sinc(self, /) -> Tensor:
        """sin(pi x) / (pi x), and 1 where x is 0."""
    def sinh(self, /) -> Tensor:
        """`sinh` of each element."""
    def slice_scatter(
        self,
        src: Tensor,
        dim: builtins.int = 0,
        start: builtins.int | None = None,
        end: builtins.int | None = None,
        step: builtins.int = 1,
    ) -> Tensor:
        """A copy of `input` in which `src` is a slice along a dim."""
    def slogdet(self) -> Slogdet:
        """torch.slogdet on every shard; see torch's documentation."""
    def softmax(self, dim: builtins.int, dtype: torch.dtype | None = None) -> Tensor:
        """exp(x) divided by its sum over `dim`; computed in `dtype` when one is given."""
    def solve(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: torch has removed it; use linalg.solve(A, B), whose arguments are in the other order."""
    def sort(
        self,
        dim: builtins.int = -1,
        descending: builtins.bool = False,
        stable: builtins.bool = False,
    ) -> ValuesAndIndices:
        """The values along `dim` in order, and their indices. Equal values keep their order."""
    def sparse_dim(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def split(
        self,
        split_size_or_sections: builtins.int | Sequence[builtins.int] | None = None,
        dim: builtins.int = 0,
        *,
        split_size: builtins.int | Sequence[builtins.int] | None = None,
    ) -> tuple[Tensor, ...]:
        """Parts along `dim`: of one size (the last may be smaller), or of the sizes given."""
    def split_with_sizes(
        self, split_sizes: Sequence[builtins.int], dim: builtins.int = 0
    ) -> tuple[Tensor, ...]:
        """Parts of the sizes given along `dim`."""
    def sqrt(self, /) -> Tensor:
        """`sqrt` of each element."""
    def square(self, /) -> Tensor:
        """`square` of each element."""
    def square_relu(self, /) -> Tensor:
        """The square of relu: x * x where x > 0, else 0. Source: So et al., 'Primer' (2021)."""
    def squeeze(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """The tensor without its dims of size 1: all of them, or those named in `dim`."""
    def squeeze_(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Self:
        """The tensor without its dims of size 1: all of them, or those named in `dim`."""
    def std(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        unbiased: builtins.bool | None = None,
        keepdim: builtins.bool = False,
        *,
        correction: builtins.float | None = None,
    ) -> Tensor:
        """The standard deviation over `dim`: the root of `var`."""
    def stft(
        self,
        n_fft: builtins.int,
        hop_length: builtins.int | None = None,
        win_length: builtins.int | None = None,
        window: Tensor | None = None,
        center: builtins.float | builtins.bool = True,
        pad_mode: str = "reflect",
        normalized: builtins.bool = False,
        onesided: builtins.bool | None = None,
        return_complex: builtins.bool | None = None,
        align_to_window: builtins.bool | None = None,
    ) -> Tensor:
        """torch.stft on every shard; see torch's documentation."""
    def storage(self) -> TypedStorage:
        """The memory of this process's shard as elements; torch warns to use `untyped_storage`."""
    def storage_offset(self) -> builtins.int:
        """The offset of the first element in the memory of the base."""
    @overload
    def stride(self) -> tuple[builtins.int, ...]:
        """The strides in the memory of the base, of all dims or one."""
    @overload
    def stride(self, dim: builtins.int) -> builtins.int:
        """The strides in the memory of the base, of all dims or one."""
    def sub(
        self, other: Tensor | complex | np.number[Any], *, alpha: complex | np.number[Any] = 1
    ) -> Tensor:
        """`input - alpha * other`; either may be a Python number."""
    def sub_(self, other: Tensor | complex | np.number[Any], **options: object) -> Self:
        """`sub` in place; see `onefold.sub`."""
    def subtract(
        self, other: Tensor | complex | np.number[Any], *, alpha: complex | np.number[Any] = 1
    ) -> Tensor:
        """`input - alpha * other`; either may be a Python number."""
    def sum(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The sum over `dim` (None: over all); integers and bools are summed as int64."""
    def sum_to_size(self, *size: builtins.int | Sequence[builtins.int]) -> Tensor:
        """The sum over the dims along which `size` would broadcast to the input's shape."""
    def svd(self, some: builtins.bool = True, compute_uv: builtins.bool = True) -> Svd:
        """torch.svd on every shard; see torch's documentation."""
    def swapaxes(self, axis0: builtins.int, axis1: builtins.int) -> Tensor:
        """`transpose`, under numpy's name."""
    def swapaxes_(self, axis0: builtins.int, axis1: builtins.int) -> Self:
        """`transpose`, under numpy's name."""
    def swapdims(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Dims `dim0` and `dim1` exchanged; a split moves with its dim."""
    def swapdims_(self, dim0: builtins.int, dim1: builtins.int) -> Self:
        """Dims `dim0` and `dim1` exchanged; a split moves with its dim."""
    def symeig(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: torch has removed it; use linalg.eigh(x)."""
    def t(self) -> Tensor:
        """The transpose of a matrix; vectors and 0-d tensors stay as they are."""
    def t_(self) -> Self:
        """The transpose of a matrix; vectors and 0-d tensors stay as they are."""
    def take(self, index: Tensor) -> Tensor:
        """The elements at `index` of the flattened tensor."""
    def take_along_dim(self, indices: Tensor, dim: builtins.int | None = None) -> Tensor:
        """`gather` with broadcasting; without `dim`, of the flattened tensors."""
    def tan(self, /) -> Tensor:
        """`tan` of each element."""
    def tanh(self, /) -> Tensor:
        """`tanh` of each element."""
    def tensor_split(
        self,
        indices_or_sections: builtins.int | Sequence[builtins.int] | Tensor,
        dim: builtins.int = 0,
    ) -> tuple[Tensor, ...]:
        """Parts along `dim`: that many, the first ones larger by one, or those between the indices."""
    def tile(
        self,
        *sizes: builtins.int | Sequence[builtins.int],
        dims: builtins.int | Sequence[builtins.int] | None = None,
    ) -> Tensor:
        """`repeat` where fewer numbers than dims mean the last ones."""
    def to(
        self,
        *args: torch.dtype | DeviceLike | Tensor | None,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: builtins.bool = False,
        copy: builtins.bool = False,
        memory_format: torch.memory_format | None = None,
    ) -> Tensor:
        """Another dtype, device, or both: `x.to(dtype)`, `x.to(device)`, `x.to(other)`."""
    def to_consistent(self, *args: object, **kwargs: object) -> NoReturn:
        """Removed in OneFlow; raises an error that says so."""
    def to_dense(
        self, dtype: torch.dtype | None = None, *, masked_grad: builtins.bool | None = None
    ) -> Tensor:
        """The tensor itself, in `dtype` if that is given: all tensors are dense."""
    def to_global(
        self,
        placement: Placement | None = None,
        sbp: Sbp | Iterable[Sbp] | None = None,
        *,
        grad_sbp: Sbp | Iterable[Sbp] | None = None,
        check_meta: builtins.bool | None = None,
        copy: builtins.bool = False,
    ) -> Tensor:
        """This tensor as a global one: `local_to_global` of a local tensor, else `global_to_global`."""
    def to_local(
        self, *, grad_placements: Sequence[SupportsSbp] | None = None, copy: builtins.bool = False
    ) -> Tensor:
        """This process's shard as a local tensor."""
    def to_sparse(self, sparse_dim: builtins.int | None = None) -> SparseTensor:
        """The elements that are not 0, of which there may be any number: not in graphs."""
    def to_sparse_bsc(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def to_sparse_bsr(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def to_sparse_coo(self, sparse_dim: builtins.int | None = None) -> SparseTensor:
        """The elements that are not 0, of which there may be any number: not in graphs."""
    def to_sparse_csc(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def to_sparse_csr(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the tensor is dense; use to_sparse() for a sparse one in coordinate form."""
    def to_torch(self) -> torch.Tensor:
        """A torch tensor: of a local tensor sharing memory, of a global one the logical value."""
    def tolist(self) -> Any:
        """The logical value as nested Python lists."""
    def topk(
        self,
        k: builtins.int,
        dim: builtins.int = -1,
        largest: builtins.bool = True,
        sorted: builtins.bool = True,
    ) -> ValuesAndIndices:
        """The k largest (or smallest) values along `dim`, and their indices."""
    def trace(self) -> Tensor:
        """torch.trace on every shard; see torch's documentation."""
    def transpose(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Dims `dim0` and `dim1` exchanged; a split moves with its dim."""
    def transpose_(self, dim0: builtins.int, dim1: builtins.int) -> Self:
        """Dims `dim0` and `dim1` exchanged; a split moves with its dim."""
    def triangular_solve(
        self,
        A: Tensor,
        upper: builtins.bool = True,
        transpose: builtins.bool = False,
        unitriangular: builtins.bool = False,
    ) -> TriangularSolve:
        """torch.triangular_solve on every shard; see torch's documentation."""
    def tril(self, diagonal: builtins.int = 0) -> Tensor:
        """The last two dims up to and including a diagonal (> 0: above the main one), zeros above."""
    def triu(self, diagonal: builtins.int = 0) -> Tensor:
        """The last two dims from a diagonal on (> 0: above the main one), zeros below."""
    def true_divide(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def trunc(self, /) -> Tensor:
        """`trunc` of each element."""
    @overload
    def type(self, dtype: None = None) -> str:
        """The name of the tensor's type, which is torch's; with `dtype`, the tensor cast to that type."""
    @overload
    def type(self, dtype: Any, non_blocking: builtins.bool = False) -> Tensor:
        """The name of the tensor's type, which is torch's; with `dtype`, the tensor cast to that type."""
    def type_as(self, other: Tensor) -> Tensor:
        """`input` in the dtype of `other`."""
    def unbind(self, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """The slices along `dim`, which is removed."""
    def unflatten(self, dim: builtins.int, sizes: Sequence[builtins.int]) -> Tensor:
        """Dim `dim` as several dims of these sizes, of which one may be -1."""
    def unfold(self, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """Windows of `size` elements along a dim, every `step` elements, as a new last dim."""
    def uniform_(
        self,
        low: builtins.float = 0.0,
        to: builtins.float = 1.0,
        *,
        generator: Generator | None = None,
        **start: builtins.float,
    ) -> Self:
        """Every element becomes a number uniform in [low, to); `low` may be given as `from=`."""
    def unique(
        self,
        sorted: builtins.bool = True,
        return_inverse: builtins.bool = False,
        return_counts: builtins.bool = False,
        dim: builtins.int | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """The distinct values, and on request the index of each element's value and the counts."""
    def unique_consecutive(
        self,
        return_inverse: builtins.bool = False,
        return_counts: builtins.bool = False,
        dim: builtins.int | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """The first of each run of equal elements, and on request the runs of elements and lengths."""
    def unsafe_chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """`chunk`."""
    def unsafe_split(
        self,
        split_size_or_sections: builtins.int | Sequence[builtins.int] | None = None,
        dim: builtins.int = 0,
        *,
        split_size: builtins.int | Sequence[builtins.int] | None = None,
    ) -> tuple[Tensor, ...]:
        """Parts along `dim`: of one size (the last may be smaller), or of the sizes given."""
    def unsafe_split_with_sizes(
        self, split_sizes: Sequence[builtins.int], dim: builtins.int = 0
    ) -> tuple[Tensor, ...]:
        """Parts of the sizes given along `dim`."""
    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """The tensor with a new dim of size 1 at position `dim`."""
    def unsqueeze_(self, dim: builtins.int) -> Self:
        """The tensor with a new dim of size 1 at position `dim`."""
    def untyped_storage(self) -> UntypedStorage:
        """The memory of this process's shard, which in-place methods then leave to the caller."""
    def var(
        self,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        unbiased: builtins.bool | None = None,
        keepdim: builtins.bool = False,
        *,
        correction: builtins.float | None = None,
    ) -> Tensor:
        """The variance over `dim` (None: over all), with the count less `correction` (1) below."""
    def vdot(self, other: Tensor) -> Tensor:
        """The dot product of two vectors, the first of them conjugated."""
    def vector_norm(
        self,
        ord: builtins.float = 2,
        dim: builtins.int | Sequence[builtins.int] | None = None,
        keepdim: builtins.bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The vector norm of order `ord` over `dim` (None: over all), as torch.linalg.vector_norm."""
    def view(self, *shape: builtins.int | Sequence[builtins.int]) -> Tensor:
        """The tensor's elements, in row-major order, in another shape; one size may be -1."""
    def view_as(self, other: Tensor) -> Tensor:
        """The tensor in the shape of another."""
    def vsplit(
        self, indices_or_sections: builtins.int | Sequence[builtins.int]
    ) -> tuple[Tensor, ...]:
        """`tensor_split` along dim 0 of a tensor with at least 2 dims, in equal parts."""
    def xlogy(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def zero_(self) -> Self:
        """Every element becomes 0."""
    def __add__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __radd__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __sub__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __mul__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __rmul__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __truediv__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __matmul__(self, other: Tensor) -> Tensor: ...
    def __neg__(self, /) -> Tensor: ...
    def __pow__(self, exponent: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __floordiv__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __mod__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __abs__(self, /) -> Tensor: ...
    def __invert__(self, /) -> Tensor: ...
    def __and__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __rand__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __or__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __ror__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __xor__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __rxor__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __lshift__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __rshift__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __eq__(self, other: Tensor | complex | np.number[Any]) -> Tensor:  # type: ignore[override]
        ...
    def __ne__(self, other: Tensor | complex | np.number[Any]) -> Tensor:  # type: ignore[override]
        ...
    def __lt__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __le__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __gt__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __ge__(self, other: Tensor | complex | np.number[Any]) -> Tensor: ...
    def __getitem__(self, index: object) -> Tensor: ...
    def __setitem__(self, index: object, value: Tensor | complex | np.number[Any]) -> None: ...
    def __iadd__(self, other: Tensor | complex | np.number[Any], **options: object) -> Self: ...
    def __isub__(self, other: Tensor | complex | np.number[Any], **options: object) -> Self: ...
    def __imul__(self, other: Tensor | complex | np.number[Any], **options: object) -> Self: ...
    def __itruediv__(self, other: Tensor | complex | np.number[Any], **options: object) -> Self: ...
    def __repr__(self) -> str: ...
    def __format__(self, spec: str) -> str: ...
    def __bool__(self) -> builtins.bool: ...
    def __index__(self) -> builtins.int: ...
    def abs_(self, /) -> Self:
        """`abs` of each element."""
    def absolute_(self, /) -> Self:
        """`abs` of each element."""
    def acos_(self, /) -> Self:
        """`acos` of each element."""
    def acosh_(self, /) -> Self:
        """`acosh` of each element."""
    def addbmm_(
        self,
        batch1: Tensor,
        batch2: Tensor,
        *,
        beta: complex | np.number[Any] = 1,
        alpha: complex | np.number[Any] = 1,
    ) -> Self:
        """`beta * input + alpha * sum over the batch of (batch1 @ batch2)`."""
    def addcdiv_(
        self, tensor1: Tensor, tensor2: Tensor, *, value: complex | np.number[Any] = 1
    ) -> Self:
        """`input + value * tensor1 / tensor2`."""
    def addcmul_(
        self, tensor1: Tensor, tensor2: Tensor, *, value: complex | np.number[Any] = 1
    ) -> Self:
        """`input + value * tensor1 * tensor2`."""
    def addmm_(
        self, mat1: Tensor, mat2: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Self:
        """`beta * input + alpha * (mat1 @ mat2)` for matrices; input broadcasts to the product."""
    def addmv_(
        self, mat: Tensor, vec: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Self:
        """`beta * input + alpha * (mat @ vec)`; input broadcasts to the product."""
    def addr_(
        self,
        vec1: Tensor,
        vec2: Tensor,
        *,
        beta: complex | np.number[Any] = 1,
        alpha: complex | np.number[Any] = 1,
    ) -> Self:
        """`beta * input + alpha * outer(vec1, vec2)`."""
    def arccos_(self, /) -> Self:
        """`acos` of each element."""
    def arccosh_(self, /) -> Self:
        """`acosh` of each element."""
    def arcsin_(self, /) -> Self:
        """`asin` of each element."""
    def arcsinh_(self, /) -> Self:
        """`asinh` of each element."""
    def arctan_(self, /) -> Self:
        """`atan` of each element."""
    def arctan2_(self, other: Tensor, /) -> Self:
        """`atan2` of each element."""
    def arctanh_(self, /) -> Self:
        """`atanh` of each element."""
    def asin_(self, /) -> Self:
        """`asin` of each element."""
    def asinh_(self, /) -> Self:
        """`asinh` of each element."""
    def atan_(self, /) -> Self:
        """`atan` of each element."""
    def atan2_(self, other: Tensor, /) -> Self:
        """`atan2` of each element."""
    def atanh_(self, /) -> Self:
        """`atanh` of each element."""
    def baddbmm_(
        self, batch1: Tensor, batch2: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Self:
        """`beta * input + alpha * (batch1 @ batch2)` for batches; input broadcasts to the product."""
    def bitwise_and_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def bitwise_left_shift_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def bitwise_not_(self, /) -> Self:
        """`bitwise_not` of each element."""
    def bitwise_or_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def bitwise_right_shift_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def bitwise_xor_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def ceil_(self, /) -> Self:
        """`ceil` of each element."""
    def clamp_(
        self,
        min: Tensor | complex | np.number[Any] | None = None,
        max: Tensor | complex | np.number[Any] | None = None,
    ) -> Self:
        """`input` limited to [min, max]: numbers, tensors, or None for no limit."""
    def clamp_max_(self, max: Tensor | complex | np.number[Any] | None) -> Self:
        """`input`, but at most `max`."""
    def clamp_min_(self, min: Tensor | complex | np.number[Any] | None) -> Self:
        """`input`, but at least `min`."""
    def clip_(
        self,
        min: Tensor | complex | np.number[Any] | None = None,
        max: Tensor | complex | np.number[Any] | None = None,
    ) -> Self:
        """`input` limited to [min, max]: numbers, tensors, or None for no limit."""
    def conj_physical_(self) -> Self:
        """The complex conjugate; a real tensor itself."""
    def copysign_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def cos_(self, /) -> Self:
        """`cos` of each element."""
    def cosh_(self, /) -> Self:
        """`cosh` of each element."""
    def cumprod_(self, dim: builtins.int, *, dtype: torch.dtype | None = None) -> Self:
        """The product of each element and all before it along `dim`."""
    def cumsum_(self, dim: builtins.int, *, dtype: torch.dtype | None = None) -> Self:
        """The sum of each element and all before it along `dim`; integers and bools give int64."""
    def deg2rad_(self, /) -> Self:
        """Degrees as radians."""
    def digamma_(self, /) -> Self:
        """`digamma` of each element."""
    def divide_(
        self, other: Tensor | complex | np.number[Any], *, rounding_mode: str | None = None
    ) -> Self:
        """`input / other`; `rounding_mode` 'trunc' or 'floor' rounds, and keeps integers integers."""
    def eq_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def erf_(self, /) -> Self:
        """`erf` of each element."""
    def erfc_(self, /) -> Self:
        """`erfc` of each element."""
    def erfinv_(self, /) -> Self:
        """`erfinv` of each element."""
    def exp_(self, /) -> Self:
        """`exp` of each element."""
    def exp2_(self, /) -> Self:
        """`exp2` of each element."""
    def expm1_(self, /) -> Self:
        """`expm1` of each element."""
    def fix_(self, /) -> Self:
        """`trunc` of each element."""
    def float_power_(self, exponent: Tensor | complex | np.number[Any]) -> Self:
        """`input ** exponent` in float64, or complex128 where one of them is complex."""
    def floor_(self, /) -> Self:
        """`floor` of each element."""
    def floor_divide_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def fmod_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def frac_(self, /) -> Self:
        """`frac` of each element."""
    def gcd_(self, other: Tensor | complex | np.number[Any]) -> Self:
        """torch.gcd on every shard; see torch's documentation."""
    def ge_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def greater_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def greater_equal_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def gt_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def heaviside_(self, values: Tensor, /) -> Self:
        """`heaviside` of each element."""
    def hypot_(self, other: Tensor, /) -> Self:
        """`hypot` of each element."""
    def i0_(self) -> Self:
        """torch.i0 on every shard; see torch's documentation."""
    def igamma_(self, other: Tensor | complex | np.number[Any]) -> Self:
        """torch.igamma on every shard; see torch's documentation."""
    def igammac_(self, other: Tensor | complex | np.number[Any]) -> Self:
        """torch.igammac on every shard; see torch's documentation."""
    def index_add_(
        self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: builtins.float = 1
    ) -> Self:
        """`input` plus alpha times the slices of `source`, added at `index` of `dim`, in order."""
    def index_copy_(self, dim: builtins.int, index: Tensor, source: Tensor) -> Self:
        """`input` with the slices of `source` at the positions `index` of `dim`."""
    def index_fill_(
        self, dim: builtins.int, index: Tensor, value: Tensor | complex | np.number[Any]
    ) -> Self:
        """`input` with one value, a number or a 0-d tensor, at the positions `index` of `dim`."""
    def index_put_(
        self, indices: Sequence[Tensor | None], values: Tensor, accumulate: builtins.bool = False
    ) -> Self:
        """`input` with input[indices] = values, or += for `accumulate`; builtins.bool masks are read first."""
    def index_reduce_(
        self,
        dim: builtins.int,
        index: Tensor,
        source: Tensor,
        reduce: str,
        *,
        include_self: builtins.bool = True,
    ) -> Self:
        """The slices of `source` along `dim` reduced at the positions `index`, a vector."""
    def lcm_(self, other: Tensor | complex | np.number[Any]) -> Self:
        """torch.lcm on every shard; see torch's documentation."""
    def ldexp_(self, other: Tensor | complex | np.number[Any]) -> Self:
        """torch.ldexp on every shard; see torch's documentation."""
    def le_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def lerp_(self, end: Tensor, weight: Tensor | complex | np.number[Any]) -> Self:
        """`input + weight * (end - input)`; the weight is a tensor or a number."""
    def less_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def less_equal_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def lgamma_(self, /) -> Self:
        """`lgamma` of each element."""
    def log_(self, /) -> Self:
        """`log` of each element."""
    def log10_(self, /) -> Self:
        """`log10` of each element."""
    def log1p_(self, /) -> Self:
        """`log1p` of each element."""
    def log2_(self, /) -> Self:
        """`log2` of each element."""
    def logical_and_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def logical_not_(self, /) -> Self:
        """`logical_not` of each element."""
    def logical_or_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def logical_xor_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def logit_(self, eps: builtins.float | None = None) -> Self:
        """log(x / (1 - x)), with x clamped to [eps, 1 - eps] when `eps` is given."""
    def lt_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def masked_fill_(self, mask: Tensor, value: Tensor | complex | np.number[Any]) -> Self:
        """`input` with `value` (a number or a 0-d tensor) where `mask` is True."""
    def masked_scatter_(self, mask: Tensor, source: Tensor) -> Self:
        """`input` with the elements where `mask` is true taken from `source`, in order."""
    def multiply_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def mvlgamma_(self, p: builtins.float | str) -> Self:
        """torch.mvlgamma on every shard; see torch's documentation."""
    def nan_to_num_(
        self,
        nan: builtins.float | None = None,
        posinf: builtins.float | None = None,
        neginf: builtins.float | None = None,
    ) -> Self:
        """`input` with nan as `nan` (0), and infinities as the given or the dtype's extreme numbers."""
    def ne_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def neg_(self, /) -> Self:
        """`neg` of each element."""
    def negative_(self, /) -> Self:
        """`neg` of each element."""
    def nextafter_(self, other: Tensor | complex | np.number[Any]) -> Self:
        """torch.nextafter on every shard; see torch's documentation."""
    def not_equal_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def polygamma_(self, n: builtins.int) -> Self: ...
    def pow_(self, exponent: Tensor | complex | np.number[Any]) -> Self: ...
    def put_(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Self:
        """`input` with `source` at indices into the flattened tensor, added there if `accumulate`."""
    def quick_gelu_(self, /) -> Self:
        """x * sigmoid(1.702 * x), close to gelu. Source: Hendrycks and Gimpel (2016)."""
    def rad2deg_(self, /) -> Self:
        """Radians as degrees."""
    def reciprocal_(self, /) -> Self:
        """`reciprocal` of each element."""
    def relu_(self, /) -> Self:
        """x where x > 0, else 0."""
    def remainder_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def renorm_(
        self,
        p: builtins.float | str,
        dim: builtins.int | Sequence[builtins.int],
        maxnorm: builtins.float,
    ) -> Self:
        """torch.renorm on every shard; see torch's documentation."""
    def round_(self, *, decimals: builtins.int = 0) -> Self:
        """The nearest integer, or the nearest value with `decimals` decimals; halves go to even."""
    def rsqrt_(self, /) -> Self:
        """`rsqrt` of each element."""
    def scatter_(
        self,
        dim: builtins.int,
        index: Tensor,
        src: Tensor | complex | np.number[Any] | None = None,
        *,
        value: complex | np.number[Any] | None = None,
        reduce: str | None = None,
    ) -> Self:
        """`input` with the values of `src` (a tensor or a number) at positions `index` along `dim`."""
    def scatter_add_(self, dim: builtins.int, index: Tensor, src: Tensor) -> Self:
        """`input` plus the values of `src` at positions `index` along `dim`, in a fixed order."""
    def scatter_reduce_(
        self,
        dim: builtins.int,
        index: Tensor,
        src: Tensor,
        reduce: str,
        *,
        include_self: builtins.bool = True,
    ) -> Self:
        """The values of `src` reduced at the positions of `index`."""
    def sgn_(self, /) -> Self:
        """`sgn` of each element."""
    def sigmoid_(self, /) -> Self:
        """`sigmoid` of each element."""
    def sign_(self, /) -> Self:
        """`sign` of each element."""
    def sin_(self, /) -> Self:
        """`sin` of each element."""
    def sinc_(self, /) -> Self:
        """sin(pi x) / (pi x), and 1 where x is 0."""
    def sinh_(self, /) -> Self:
        """`sinh` of each element."""
    def sqrt_(self, /) -> Self:
        """`sqrt` of each element."""
    def square_(self, /) -> Self:
        """`square` of each element."""
    def square_relu_(self, /) -> Self:
        """The square of relu: x * x where x > 0, else 0. Source: So et al., 'Primer' (2021)."""
    def subtract_(
        self, other: Tensor | complex | np.number[Any], *, alpha: complex | np.number[Any] = 1
    ) -> Self:
        """`input - alpha * other`; either may be a Python number."""
    def tan_(self, /) -> Self:
        """`tan` of each element."""
    def tanh_(self, /) -> Self:
        """`tanh` of each element."""
    def tril_(self, diagonal: builtins.int = 0) -> Self:
        """The last two dims up to and including a diagonal (> 0: above the main one), zeros above."""
    def triu_(self, diagonal: builtins.int = 0) -> Self:
        """The last two dims from a diagonal on (> 0: above the main one), zeros below."""
    def true_divide_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def trunc_(self, /) -> Self:
        """`trunc` of each element."""
    def xlogy_(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def __ifloordiv__(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def __imod__(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def __ipow__(self, exponent: Tensor | complex | np.number[Any]) -> Self: ...
    def __iand__(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def __ior__(self, other: Tensor | complex | np.number[Any]) -> Self: ...
    def __ixor__(self, other: Tensor | complex | np.number[Any]) -> Self: ...
