"""Every op that users call, by its name.

Written by `make stubs`; do not edit.
"""

import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

import numpy as np
import torch
from torch.nn.functional import ScalingType, SwizzleType

from ..convert import SupportsSbp
from ..generator import Generator
from ..placed_device import PlacedDevice
from ..placement import Placement
from ..sbp import Sbp
from ..tensor import Tensor
from .argreduce import ValuesAndIndices
from .extremum import MinMax
from .float8 import Quantized
from .torch_results import (
    Cummax,
    Cummin,
    FractionalMaxPool2DWithIndices,
    FractionalMaxPool3DWithIndices,
    Frexp,
    Geqrf,
    Histogram,
    LuUnpack,
    Mode,
    NativeGroupNorm,
    NativeLayerNorm,
    Qr,
    Slogdet,
    Svd,
    TriangularSolve,
)

def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The product of two float8 matrices with one scale for each, or for each row and column."""

def _scaled_mm_v2(
    input: Tensor,
    mat2: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`scaled_mm` with recipes and swizzles as numbers."""

def abs(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`abs` of each element."""

def abs_(input: Tensor, /) -> Tensor:
    """`abs` of each element."""

def absolute(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`abs` of each element."""

def acos(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`acos` of each element."""

def acos_(input: Tensor, /) -> Tensor:
    """`acos` of each element."""

def acosh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`acosh` of each element."""

def acosh_(input: Tensor, /) -> Tensor:
    """`acosh` of each element."""

def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """The means of as many windows of (N, C, L) or (C, L) as asked for, as in torch."""

def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """The means of as many windows as asked for (None: as many as there are), as in torch."""

def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """The means of as many windows of (N, C, D, H, W) or (C, D, H, W); see `adaptive_avg_pool2d`."""

def adaptive_max_pool1d(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over the last 1 dims, of windows such that the result has `output_size`, as in torch."""

def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool1d` with the places of the maxima."""

def adaptive_max_pool2d(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over the last 2 dims, of windows such that the result has `output_size`, as in torch."""

def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool2d` with the places of the maxima."""

def adaptive_max_pool3d(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over the last 3 dims, of windows such that the result has `output_size`, as in torch."""

def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool3d` with the places of the maxima."""

def add(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    alpha: builtins.complex | np.number[Any] = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`input + alpha * other`; either may be a Python number."""

def addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: builtins.complex | np.number[Any] = 1,
    alpha: builtins.complex | np.number[Any] = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * sum over the batch of (batch1 @ batch2)`."""

def addcdiv(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    *,
    value: builtins.complex | np.number[Any] = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`input + value * tensor1 / tensor2`."""

def addcmul(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    *,
    value: builtins.complex | np.number[Any] = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`input + value * tensor1 * tensor2`."""

def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)` for matrices; input broadcasts to the product."""

def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * (mat @ vec)`; input broadcasts to the product."""

def addmv_(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (mat @ vec)`; input broadcasts to the product."""

def addr(
    input: Tensor,
    vec1: Tensor,
    vec2: Tensor,
    *,
    beta: builtins.complex | np.number[Any] = 1,
    alpha: builtins.complex | np.number[Any] = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * outer(vec1, vec2)`."""

def adjoint(input: Tensor) -> Tensor:
    """The last two dims exchanged, builtins.complex values conjugated."""

def affine_grid(
    theta: Tensor, size: int | Sequence[int], align_corners: bool | None = None
) -> Tensor:
    """torch.affine_grid on every shard; see torch's documentation."""

def alias_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy of the tensor."""

def all(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Whether every element over `dim` (None: over all) is not zero."""

def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are close (see `isclose`); the same result on every rank."""

def alpha_dropout(
    input: Tensor, p: float = 0.5, train: bool = False, *, training: bool | None = None
) -> Tensor:
    """As `flow.nn.functional.alpha_dropout`, without `inplace`."""

def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`alpha_dropout` in place."""

def amax(
    input: Tensor,
    dim: int | Sequence[int] | None = (),
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The greatest values over `dim` (none given: over all); ties share the gradient evenly."""

def amin(
    input: Tensor,
    dim: int | Sequence[int] | None = (),
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The least values over `dim` (none given: over all); ties share the gradient evenly."""

def aminmax(
    input: Tensor,
    *,
    dim: int | None = None,
    keepdim: bool = False,
    out: Sequence[Tensor] | None = None,
) -> MinMax:
    """The least and the greatest values, as (min, max)."""

def angle(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`angle` of each element."""

def any(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Whether an element over `dim` (None: over all) is not zero."""

def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... below end (integers give int64, as in torch)."""

def arccos(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`acos` of each element."""

def arccos_(input: Tensor, /) -> Tensor:
    """`acos` of each element."""

def arccosh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`acosh` of each element."""

def arccosh_(input: Tensor, /) -> Tensor:
    """`acosh` of each element."""

def arcsin(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`asin` of each element."""

def arcsin_(input: Tensor, /) -> Tensor:
    """`asin` of each element."""

def arcsinh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`asinh` of each element."""

def arcsinh_(input: Tensor, /) -> Tensor:
    """`asinh` of each element."""

def arctan(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`atan` of each element."""

def arctan2(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`atan2` of each element."""

def arctan_(input: Tensor, /) -> Tensor:
    """`atan` of each element."""

def arctanh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`atanh` of each element."""

def arctanh_(input: Tensor, /) -> Tensor:
    """`atanh` of each element."""

def argmax(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The index of the first greatest value along `dim` (None: in the flattened tensor)."""

def argmin(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The index of the first least value along `dim` (None: in the flattened tensor)."""

def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The indices that sort the values along `dim`."""

def argwhere(input: Tensor) -> Tensor:
    """The indices of the elements that are not zero, one per row."""

def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A view with this size and these strides of the base of `input`, or of itself if it has none."""

def as_strided_(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A view with this size and these strides of the base of `input`, or of itself if it has none."""

def as_strided_copy(
    input: Tensor,
    size: int | Sequence[int],
    stride: int | Sequence[int],
    storage_offset: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.as_strided_copy on every shard; see torch's documentation."""

def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: int | Sequence[int],
    stride: int | Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """torch.as_strided_scatter on every shard; see torch's documentation."""

def as_tensor(
    data: object,
    dtype: torch.dtype | None = None,
    *,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`data` as a tensor: itself, or sharing its memory, where dtype and device allow."""

def asarray(
    obj: object,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`obj` as a tensor: a tensor, an array, what has `__dlpack__` or a buffer, a number, a list."""

def asin(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`asin` of each element."""

def asin_(input: Tensor, /) -> Tensor:
    """`asin` of each element."""

def asinh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`asinh` of each element."""

def asinh_(input: Tensor, /) -> Tensor:
    """`asinh` of each element."""

def atan(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`atan` of each element."""

def atan2(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`atan2` of each element."""

def atan_(input: Tensor, /) -> Tensor:
    """`atan` of each element."""

def atanh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`atanh` of each element."""

def atanh_(input: Tensor, /) -> Tensor:
    """`atanh` of each element."""

@overload
def atleast_1d(input: Tensor, /) -> Tensor:
    """Each tensor with at least one dim."""

@overload
def atleast_1d(*tensors: Any) -> tuple[Tensor, ...]:
    """Each tensor with at least one dim."""

@overload
def atleast_2d(input: Tensor, /) -> Tensor:
    """Each tensor with at least two dims; a vector becomes a row."""

@overload
def atleast_2d(*tensors: Any) -> tuple[Tensor, ...]:
    """Each tensor with at least two dims; a vector becomes a row."""

@overload
def atleast_3d(input: Tensor, /) -> Tensor:
    """Each tensor with at least three dims; a vector becomes the middle one."""

@overload
def atleast_3d(*tensors: Any) -> tuple[Tensor, ...]:
    """Each tensor with at least three dims; a vector becomes the middle one."""

def attention_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
) -> Tensor:
    """Attention within each of several packed sequences."""

def avg_pool1d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of (N, C, L) or (C, L); see `avg_pool2d`."""

def avg_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of (N, C, H, W) or (C, H, W), as in torch."""

def avg_pool3d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W); see `avg_pool2d`."""

def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * (batch1 @ batch2)` for batches; input broadcasts to the product."""

def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector that torch.bartlett_window makes, in any layout."""

def batch_gather(input: Tensor, indices: Tensor) -> Tensor:
    """The elements at `indices` (..., k) of the dim after the common batch dims."""

def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalize each channel by the batch in training, else by running statistics."""

def bernoulli(
    input: Tensor,
    p: float | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """1 with the probability that each element is, else 0, in the dtype and layout of `input`."""

def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """torch.bilinear on every shard; see torch's documentation."""

def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross entropy of probabilities and targets in [0, 1], element by element, as in torch."""

def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int | str = 0,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(input), computed without overflow."""

def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of each value in a vector of non-negative integers."""

def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed, each with probability `prob`, in the dtype of `count`."""

def bitwise_and(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def bitwise_left_shift(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def bitwise_not(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_not` of each element."""

def bitwise_or(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def bitwise_right_shift(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def bitwise_xor(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector that torch.blackman_window makes, in any layout."""

def block_diag(*tensors: Tensor) -> Tensor:
    """torch.block_diag on every shard; see torch's documentation."""

def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""

def broadcast_like(
    x: Tensor, like_tensor: Tensor, broadcast_axes: Sequence[int] | None = None
) -> Tensor:
    """Expanded to the shape of another tensor; its dims in `broadcast_axes` may be missing in x."""

def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""

def broadcast_to(
    input: Tensor, *sizes: int | Sequence[int], size: int | Sequence[int] | None = None
) -> Tensor:
    """Dims of size 1, and new ones in front, repeated to these sizes; -1 keeps a dim's size."""

def bucketize(
    input: Tensor,
    boundaries: Tensor | builtins.complex | np.number[Any],
    *,
    out_int32: bool = False,
    right: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """torch.bucketize on every shard; see torch's documentation."""

def cartesian_prod(*tensors: Tensor) -> Tensor:
    """torch.cartesian_prod on every shard; see torch's documentation."""

def cast(input: Tensor, dtype: torch.dtype) -> Tensor:
    """`input` in `dtype`; the same tensor if it has that dtype already."""

def cat(
    tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None, out: Tensor | None = None
) -> Tensor:
    """The concatenation of the tensors along `dim`."""

def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float | str = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """torch.cdist on every shard; see torch's documentation."""

def ceil(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`ceil` of each element."""

def ceil_(input: Tensor, /) -> Tensor:
    """`ceil` of each element."""

def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x / alpha) - 1)."""

def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""

def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """`linalg.multi_dot` of any number of matrices, which torch has deprecated."""

def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """torch.channel_shuffle on every shard; see torch's documentation."""

def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """torch.cholesky on every shard; see torch's documentation."""

def cholesky_inverse(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """torch.cholesky_inverse on every shard; see torch's documentation."""

def cholesky_solve(
    input: Tensor, input2: Tensor, upper: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """torch.cholesky_solve on every shard; see torch's documentation."""

def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` parts of one size along `dim`; the last may be smaller."""

def clamp(
    input: Tensor,
    min: Tensor | builtins.complex | np.number[Any] | None = None,
    max: Tensor | builtins.complex | np.number[Any] | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input` limited to [min, max]: numbers, tensors, or None for no limit."""

def clamp_(
    input: Tensor,
    min: Tensor | builtins.complex | np.number[Any] | None = None,
    max: Tensor | builtins.complex | np.number[Any] | None = None,
) -> Tensor:
    """`input` limited to [min, max]: numbers, tensors, or None for no limit."""

def clamp_max(
    input: Tensor,
    max: Tensor | builtins.complex | np.number[Any] | None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input`, but at most `max`."""

def clamp_max_(input: Tensor, max: Tensor | builtins.complex | np.number[Any] | None) -> Tensor:
    """`input`, but at most `max`."""

def clamp_min(
    input: Tensor,
    min: Tensor | builtins.complex | np.number[Any] | None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input`, but at least `min`."""

def clamp_min_(input: Tensor, min: Tensor | builtins.complex | np.number[Any] | None) -> Tensor:
    """`input`, but at least `min`."""

def clip(
    input: Tensor,
    min: Tensor | builtins.complex | np.number[Any] | None = None,
    max: Tensor | builtins.complex | np.number[Any] | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input` limited to [min, max]: numbers, tensors, or None for no limit."""

def clip_(
    input: Tensor,
    min: Tensor | builtins.complex | np.number[Any] | None = None,
    max: Tensor | builtins.complex | np.number[Any] | None = None,
) -> Tensor:
    """`input` limited to [min, max]: numbers, tensors, or None for no limit."""

def clone(input: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    """A copy of `input` with memory of its own, in its memory format or another one."""

def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 1, of vectors as columns."""

def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """torch.combinations on every shard; see torch's documentation."""

def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.complex on every shard; see torch's documentation."""

def concat(
    tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None, out: Tensor | None = None
) -> Tensor:
    """The concatenation of the tensors along `dim`."""

def concatenate(
    tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None, out: Tensor | None = None
) -> Tensor:
    """The concatenation of the tensors along `dim`."""

def conj(input: Tensor) -> Tensor:
    """The builtins.complex conjugate, as a view; a real tensor itself."""

def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The builtins.complex conjugate; a real tensor itself."""

def conj_physical_(input: Tensor) -> Tensor:
    """The builtins.complex conjugate; a real tensor itself."""

def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`pad` with a constant."""

def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over (N, C, L) or (C, L); see `conv2d`."""

def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over (N, C, H, W) or (C, H, W) with weight (O, C / groups, kH, kW), as in torch."""

def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over (N, C, D, H, W) or (C, D, H, W); see `conv2d`."""

def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """torch.conv_tbc on every shard; see torch's documentation."""

def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Transposed convolution over (N, C, L) or (C, L); see `conv_transpose2d`."""

def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The gradient of conv2d for its input, as an op: weight (C, O / groups, kH, kW), as in torch."""

def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Transposed convolution over (N, C, D, H, W) or (C, D, H, W); see `conv_transpose2d`."""

def copysign(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of the rows, whose columns are observations."""

def cos(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`cos` of each element."""

def cos_(input: Tensor, /) -> Tensor:
    """`cos` of each element."""

def cosh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`cosh` of each element."""

def cosh_(input: Tensor, /) -> Tensor:
    """`cosh` of each element."""

def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 0
) -> Tensor:
    """torch.cosine_embedding_loss on every shard; see torch's documentation."""

def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """The cosine of the angle between x1 and x2 along `dim`; lengths are not less than eps."""

def count_nonzero(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The number of nonzero elements over `dim` (None: over all), as int64."""

def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of the rows, whose columns are observations."""

def cross(
    input: Tensor,
    other: Tensor | builtins.complex | np.number[Any],
    dim: int | Sequence[int] | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.cross on every shard; see torch's documentation."""

def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of logits (N, C, ...) or (C,) and targets, as in torch."""

def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int | str = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """torch.ctc_loss on every shard; see torch's documentation."""

def cummax(
    input: Tensor, dim: int | Sequence[int], *, out: Sequence[Tensor] | None = None
) -> Cummax:
    """torch.cummax on every shard; see torch's documentation."""

def cummin(
    input: Tensor, dim: int | Sequence[int], *, out: Sequence[Tensor] | None = None
) -> Cummin:
    """torch.cummin on every shard; see torch's documentation."""

def cumprod(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, out: Tensor | None = None
) -> Tensor:
    """The product of each element and all before it along `dim`."""

def cumsum(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, out: Tensor | None = None
) -> Tensor:
    """The sum of each element and all before it along `dim`; integers and bools give int64."""

def cumulative_trapezoid(
    y: Tensor,
    x: Tensor | None = None,
    *,
    dx: Tensor | builtins.complex | np.number[Any] | None = None,
    dim: int | Sequence[int] = -1,
) -> Tensor:
    """torch.cumulative_trapezoid on every shard; see torch's documentation."""

def deg2rad(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """Degrees as radians."""

def deg2rad_(input: Tensor, /) -> Tensor:
    """Degrees as radians."""

def det(input: Tensor) -> Tensor:
    """torch.det on every shard; see torch's documentation."""

def detach(input: Tensor) -> Tensor:
    """A view of the tensor without its history; a write to the view changes the tensor."""

def detach_(input: Tensor) -> Tensor:
    """Drop the history of the tensor; raises OnefoldRuntimeError for a view."""

def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector."""

def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Zeros with the last dim on the diagonal of two new dims `dim1` and `dim2`."""

def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with the elements of `input` on a diagonal."""

def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of dims `dim1` and `dim2`, as the last dim; `offset` > 0 lies above."""

def diagonal_copy(
    input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1, *, out: Tensor | None = None
) -> Tensor:
    """What `diagonal` gives, in memory of its own."""

def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of `input` in which `src` is the diagonal."""

def diff(
    input: Tensor,
    n: Tensor | int = 1,
    dim: int | Sequence[int] = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.diff on every shard; see torch's documentation."""

def digamma(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`digamma` of each element."""

def dist(
    input: Tensor, other: Tensor | builtins.complex | np.number[Any], p: float | str = 2
) -> Tensor:
    """torch.dist on every shard; see torch's documentation."""

def div(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`input / other`; `rounding_mode` 'trunc' or 'floor' rounds, and keeps integers integers."""

def div_(
    self: Tensor, other: Tensor | builtins.complex | np.number[Any], **options: object
) -> Tensor:
    """`div` in place; see `onefold.div`."""

def divide(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`input / other`; `rounding_mode` 'trunc' or 'floor' rounds, and keeps integers integers."""

def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""

def dropout(
    input: Tensor, p: float = 0.5, train: bool = True, *, training: bool | None = None
) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p), if `train`."""

def dropout1d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout of whole channels of (N, C, L), or (C, L); see `dropout`."""

def dropout2d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout of whole channels of (N, C, H, W), or (C, H, W); see `dropout`."""

def dropout3d(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout of whole channels of (N, C, D, H, W), or (C, D, H, W); see `dropout`."""

def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` in place."""

def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 2 of a tensor with at least 3 dims, in equal parts."""

def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 2."""

def einsum(equation: str | Tensor, *operands: Tensor | Sequence[Any]) -> Tensor:
    """Sums of products of the operands by an equation, as torch.einsum: 'bij,bjk->bik'."""

def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1)."""

def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a [rows, width] weight at [...] indices: [..., width]."""

def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(the reduced rows of each bag, the bag of each index, the sizes, the rows of the maxima)."""

def empty(
    *sizes: int | Sequence[int],
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """An uninitialized tensor; see `zeros`."""

def empty_like(
    input: Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Unset values in the shape, dtype and layout of input (partial becomes broadcast)."""

def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """An uninitialized tensor of this size and these strides."""

def eq(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; the same result on every rank."""

def erf(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`erf` of each element."""

def erf_(input: Tensor, /) -> Tensor:
    """`erf` of each element."""

def erfc(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`erfc` of each element."""

def erfc_(input: Tensor, /) -> Tensor:
    """`erfc` of each element."""

def erfinv(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`erfinv` of each element."""

def exp(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`exp` of each element."""

def exp2(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`exp2` of each element."""

def exp2_(input: Tensor, /) -> Tensor:
    """`exp2` of each element."""

def exp_(input: Tensor, /) -> Tensor:
    """`exp` of each element."""

def expand(
    input: Tensor, *sizes: int | Sequence[int], size: int | Sequence[int] | None = None
) -> Tensor:
    """Dims of size 1, and new ones in front, repeated to these sizes; -1 keeps a dim's size."""

def expand_copy(
    input: Tensor,
    *sizes: int | Sequence[int],
    size: int | Sequence[int] | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """What `expand` gives, in memory of its own."""

def expm1(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`expm1` of each element."""

def expm1_(input: Tensor, /) -> Tensor:
    """`expm1` of each element."""

def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Every element becomes a number of the exponential distribution of rate `lambd`, above 0."""

def eye(
    n: int,
    m: int | None = None,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere; n rows, m (default n) columns."""

def fake_quantize_per_channel_affine(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: Tensor,
    quant_min: Tensor,
    quant_max: Tensor,
) -> Tensor:
    """torch.fake_quantize_per_channel_affine on every shard; see torch's documentation."""

def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: Tensor, quant_max: Tensor
) -> Tensor:
    """torch.fake_quantize_per_tensor_affine on every shard; see torch's documentation."""

def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, train: bool = False, *, training: bool | None = None
) -> Tensor:
    """As `flow.nn.functional.feature_alpha_dropout`, without `inplace`."""

def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_alpha_dropout` in place."""

def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`dropout` of whole channels of (N, C, ...)."""

def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_dropout` in place."""

def fill(input: Tensor, value: Tensor | builtins.complex | np.number[Any]) -> Tensor:
    """The value in the shape, dtype and layout of `input`."""

def fill_(input: Tensor, value: Tensor | builtins.complex | np.number[Any]) -> Tensor:
    """Every element becomes `value` (a number or a one-element tensor)."""

def fix(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`trunc` of each element."""

def fix_(input: Tensor, /) -> Tensor:
    """`trunc` of each element."""

def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dims `start_dim` to `end_dim` as one; a 0-d tensor becomes 1-d."""

def flip(
    input: Tensor, *args: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """The tensor reversed along these dims, given one by one, as a tuple or by name."""

def fliplr(input: Tensor) -> Tensor:
    """The tensor reversed along dim 1."""

def flipud(input: Tensor) -> Tensor:
    """The tensor reversed along dim 0."""

def float_power(
    input: Tensor | builtins.complex | np.number[Any],
    exponent: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input ** exponent` in float64, or complex128 where one of them is builtins.complex."""

def floor(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`floor` of each element."""

def floor_(input: Tensor, /) -> Tensor:
    """`floor` of each element."""

def floor_divide(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def fmax(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`fmax` of each element."""

def fmin(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`fmin` of each element."""

def fmod(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def fold(
    input: Tensor,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """Add sliding windows, one per column of (N, C * kh * kw, L), where they overlap in an image."""

def frac(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`frac` of each element."""

def frac_(input: Tensor, /) -> Tensor:
    """`frac` of each element."""

def fractional_max_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | tuple[float, ...] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over the last 2 dims, of windows whose places are drawn at random, as in torch."""

def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> FractionalMaxPool2DWithIndices:
    """torch.fractional_max_pool2d_with_indices on every shard; see torch's documentation."""

def fractional_max_pool3d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | tuple[float, ...] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima over the last 3 dims, of windows whose places are drawn at random, as in torch."""

def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> FractionalMaxPool3DWithIndices:
    """torch.fractional_max_pool3d_with_indices on every shard; see torch's documentation."""

def frexp(input: Tensor, *, out: Sequence[Tensor] | None = None) -> Frexp:
    """torch.frexp on every shard; see torch's documentation."""

def frombuffer(
    buffer: object,
    *,
    dtype: torch.dtype,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """A vector that shares memory with an object of Python's buffer protocol."""

def full(
    size: int | Sequence[int],
    fill_value: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of shape `size` filled with one value (dtype by the value, as in torch)."""

def full_like(
    input: Tensor,
    fill_value: Tensor | builtins.complex | np.number[Any],
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """One value in the shape, dtype and layout of input (partial becomes broadcast)."""

def gather(
    input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None
) -> Tensor:
    """y[i][j][k] = input[i][index[i][j][k]][k] for dim 1, and so on for any dim."""

def gather_nd(input: Tensor, index: Tensor) -> Tensor:
    """The parts of `input` at coordinates of its first dims, which are the last dim of `index`."""

def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of targets under normal distributions of these means and `var`."""

def gcd(
    input: Tensor, other: Tensor | builtins.complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.gcd on every shard; see torch's documentation."""

def gcd_(input: Tensor, other: Tensor | builtins.complex | np.number[Any]) -> Tensor:
    """torch.gcd on every shard; see torch's documentation."""

def ge(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """gelu(gate) * up, with gelu's `approximate` 'none' or 'tanh'; see `swiglu`."""

def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), with the normal distribution function Phi or its 'tanh' approximation."""

def geqrf(input: Tensor, *, out: Sequence[Tensor] | None = None) -> Geqrf:
    """torch.geqrf on every shard; see torch's documentation."""

def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """y[m, n] = a[m] * b[n]"""

def get_device(self: Tensor) -> int:
    """The index of the cuda device that holds this process's shard; -1 for the cpu."""

def global_to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    *,
    grad_sbp: Sbp | Iterable[Sbp] | None = None,
    check_meta: bool = False,
    copy: bool = False,
) -> Tensor:
    """This global tensor with another placement or sbp and the same value."""

def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of the input along `dim` times the sigmoid of the second."""

def gradient(
    input: Tensor,
    *,
    spacing: Tensor | builtins.complex | np.number[Any] = 1,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """torch.gradient on every shard; see torch's documentation."""

def greater(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def greater_equal(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: int | str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """torch.grid_sample on every shard; see torch's documentation."""

def grid_sampler(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int | str,
    padding_mode: int | str,
    align_corners: bool,
) -> Tensor:
    """torch.grid_sampler on every shard; see torch's documentation."""

def grid_sampler_2d(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int | str,
    padding_mode: int | str,
    align_corners: bool,
) -> Tensor:
    """torch.grid_sampler_2d on every shard; see torch's documentation."""

def grid_sampler_3d(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int | str,
    padding_mode: int | str,
    align_corners: bool,
) -> Tensor:
    """torch.grid_sampler_3d on every shard; see torch's documentation."""

def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Tensor:
    """As `flow.nn.functional.group_norm`."""

def gru(
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Tensor | Sequence[Tensor],
    has_biases: bool | Sequence[Tensor],
    num_layers: int,
    dropout: float,
    train: float,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """A whole GRU network, as torch.gru: the output and the last state."""

def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """One step of gated recurrent units, as torch.gru_cell: input (N, I), state (N, H)."""

def gt(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: Tensor | builtins.complex | np.number[Any] = 0.54,
    beta: float = 0.46,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector that torch.hamming_window makes, in any layout."""

def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The Hann window, sin^2(pi n / N) with N = window_length (one less unless `periodic`)."""

def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """x where |x| > lambd, else 0."""

def hardsigmoid(input: Tensor, /) -> Tensor:
    """x / 6 + 1 / 2, clamped to [0, 1]."""

def hardswish(input: Tensor, /) -> Tensor:
    """x * hardsigmoid(x)"""

def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x clamped to [min_val, max_val]."""

def hash_tensor(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    keepdim: bool = False,
    mode: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """torch.hash_tensor on every shard; see torch's documentation."""

def heaviside(input: Tensor, values: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`heaviside` of each element."""

def hermitian(input: Tensor) -> Tensor:
    """The conjugate transpose of a matrix: `x.H`."""

def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int | str = 0
) -> Tensor:
    """torch.hinge_embedding_loss on every shard; see torch's documentation."""

def histc(
    input: Tensor,
    bins: Tensor | int | Sequence[int] = 100,
    min: Tensor | builtins.complex | np.number[Any] = 0,
    max: Tensor | builtins.complex | np.number[Any] = 0,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.histc on every shard; see torch's documentation."""

def histogram(
    input: Tensor,
    bins: Tensor | int | Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Sequence[Tensor] | None = None,
) -> Histogram:
    """torch.histogram on every shard; see torch's documentation."""

def histogramdd(
    input: Tensor,
    bins: int | Sequence[int] | Sequence[Tensor],
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(the histogram of points, one in each row, with a dim for each column; the edges of the bins)"""

def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 1, of vectors along dim 0, in equal parts."""

def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 1, of vectors along dim 0."""

def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Half the squared error where the error is below delta, else delta (|error| - delta / 2)."""

def hypot(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`hypot` of each element."""

def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.i0 on every shard; see torch's documentation."""

def i0_(input: Tensor) -> Tensor:
    """torch.i0 on every shard; see torch's documentation."""

def igamma(
    input: Tensor, other: Tensor | builtins.complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.igamma on every shard; see torch's documentation."""

def igammac(
    input: Tensor, other: Tensor | builtins.complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.igammac on every shard; see torch's documentation."""

def im2col(
    input: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The sliding windows of (N, C, H, W) or (C, H, W), one per column: (N, C * kh * kw, L)."""

def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view."""

def in_top_k(targets: Tensor, predictions: Tensor, k: int) -> Tensor:
    """Whether fewer than `k` of the predictions (N, C) exceed that of each target (N)."""

def index_add(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`input` plus alpha times the slices of `source`, added at `index` of `dim`, in order."""

def index_add_(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """`input` plus alpha times the slices of `source`, added at `index` of `dim`, in order."""

def index_copy(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """`input` with the slices of `source` at the positions `index` of `dim`."""

def index_fill(
    input: Tensor, dim: int, index: Tensor, value: Tensor | builtins.complex | np.number[Any]
) -> Tensor:
    """`input` with one value, a number or a 0-d tensor, at the positions `index` of `dim`."""

def index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`input` with input[indices] = values, or += for `accumulate`; bool masks are read first."""

def index_put_(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`input` with input[indices] = values, or += for `accumulate`; bool masks are read first."""

def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """The slices of `source` along `dim` reduced at the positions `index`, a vector."""

def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements of `dim` at `index`, a vector. A split of `dim` becomes a partial sum."""

def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of products over the last dim of both, for all pairs of the other dims."""

def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalize each channel of each sample by its own statistics, then scale and shift."""

def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """(N, C, ...) resized in the last one to three dims, to a size or by a factor."""

def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.inverse on every shard; see torch's documentation."""

def is_complex(input: Tensor) -> bool:
    """Whether the dtype is builtins.complex."""

def is_conj(input: Tensor) -> bool:
    """False: conjugation is never lazy."""

def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating; builtins.complex ones are not."""

def is_neg(input: Tensor) -> bool:
    """False: negation is never lazy."""

def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero. Raises OnefoldRuntimeError for another number."""

def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both tensors have the same shape."""

def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""

def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Whether |input - other| <= atol + rtol * |other|, element by element."""

def isfinite(input: Tensor, /) -> Tensor:
    """`isfinite` of each element."""

def isin(
    elements: Tensor,
    test_elements: Tensor,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """torch.isin on every shard; see torch's documentation."""

def isinf(input: Tensor, /) -> Tensor:
    """`isinf` of each element."""

def isnan(input: Tensor, /) -> Tensor:
    """`isnan` of each element."""

def isneginf(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`isneginf` of each element."""

def isposinf(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`isposinf` of each element."""

def isreal(input: Tensor) -> Tensor:
    """torch.isreal on every shard; see torch's documentation."""

def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: float | bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """torch.istft on every shard; see torch's documentation."""

def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector that torch.kaiser_window makes, in any layout."""

def kl_div(
    input: Tensor, target: Tensor, reduction: int | str = 0, *, log_target: bool = False
) -> Tensor:
    """The Kullback-Leibler divergence of log probabilities `input` from `target`, as in torch."""

def kron(
    input: Tensor, other: Tensor | builtins.complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.kron on every shard; see torch's documentation."""

def kthvalue(
    input: Tensor,
    k: int,
    dim: int = -1,
    keepdim: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> ValuesAndIndices:
    """The k-th smallest value along `dim` (k counts from 1), and its index."""

def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The absolute error, its mean, or its sum; see `mse_loss`."""

def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """As `flow.nn.functional.layer_norm`."""

def lcm(
    input: Tensor, other: Tensor | builtins.complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.lcm on every shard; see torch's documentation."""

def lcm_(input: Tensor, other: Tensor | builtins.complex | np.number[Any]) -> Tensor:
    """torch.lcm on every shard; see torch's documentation."""

def ldexp(
    input: Tensor, other: Tensor | builtins.complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.ldexp on every shard; see torch's documentation."""

def ldexp_(input: Tensor, other: Tensor | builtins.complex | np.number[Any]) -> Tensor:
    """torch.ldexp on every shard; see torch's documentation."""

def le(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""

def lerp(
    input: Tensor,
    end: Tensor,
    weight: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input + weight * (end - input)`; the weight is a tensor or a number."""

def lerp_(input: Tensor, end: Tensor, weight: Tensor | builtins.complex | np.number[Any]) -> Tensor:
    """`input + weight * (end - input)`; the weight is a tensor or a number."""

def less(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def less_equal(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def lgamma(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`lgamma` of each element."""

def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`, as torch.nn.functional.linear, for input of any number of dims."""

def linear_cross_entropy(
    input: Tensor, weight: Tensor, target: Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """`cross_entropy(linear(input, weight), target)` for inputs (..., h) and weight (classes, h)."""

def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` evenly spaced values from start to end, both included."""

def local_response_norm(
    input: Tensor,
    size: int | Sequence[int],
    alpha: Tensor | builtins.complex | np.number[Any] = 0.0001,
    beta: float = 0.75,
    k: float = 1.0,
) -> Tensor:
    """torch.local_response_norm on every shard; see torch's documentation."""

def local_to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    *,
    check_meta: bool = True,
    copy: bool = False,
) -> Tensor:
    """The global tensor of which this local tensor is this rank's part."""

def log(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`log` of each element."""

def log10(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`log10` of each element."""

def log10_(input: Tensor, /) -> Tensor:
    """`log10` of each element."""

def log1p(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`log1p` of each element."""

def log1p_(input: Tensor, /) -> Tensor:
    """`log1p` of each element."""

def log2(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`log2` of each element."""

def log2_(input: Tensor, /) -> Tensor:
    """`log2` of each element."""

def log_(input: Tensor, /) -> Tensor:
    """`log` of each element."""

def log_sigmoid(input: Tensor, /) -> Tensor:
    """log(sigmoid(x))"""

def log_softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The logarithm of `softmax(input, dim)`, computed without overflow."""

def logaddexp(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`logaddexp` of each element."""

def logaddexp2(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`logaddexp2` of each element."""

def logcumsumexp(input: Tensor, dim: int | Sequence[int], *, out: Tensor | None = None) -> Tensor:
    """torch.logcumsumexp on every shard; see torch's documentation."""

def logdet(input: Tensor) -> Tensor:
    """torch.logdet on every shard; see torch's documentation."""

def logical_and(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def logical_not(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`logical_not` of each element."""

def logical_or(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def logical_xor(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] when `eps` is given."""

def logit_(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] when `eps` is given."""

def logsigmoid(input: Tensor, /) -> Tensor:
    """log(sigmoid(x))"""

def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` values from base**start to base**end, evenly spaced on a logarithmic scale."""

def logsumexp(
    input: Tensor,
    dim: int | Sequence[int] | None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """log(sum(exp(input))) over `dim`, computed without overflow."""

def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The root of the sum of powers (`norm_type`) of each window of the last 1 dims, as in torch."""

def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The root of the sum of powers (`norm_type`) of each window of the last 2 dims, as in torch."""

def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The root of the sum of powers (`norm_type`) of each window of the last 3 dims, as in torch."""

def lstm(
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Tensor | Sequence[Tensor],
    has_biases: bool | Sequence[Tensor],
    num_layers: int,
    dropout: float,
    train: float,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """A whole LSTM network, as torch.lstm: the output and the last states."""

def lstm_cell(
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, as torch.lstm_cell: input (N, I), each state (N, H)."""

def lt(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """The LU factors of matrices in one tensor, and the pivots; `get_infos` adds the codes."""

def lu_solve(
    input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """torch.lu_solve on every shard; see torch's documentation."""

def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> LuUnpack:
    """torch.lu_unpack on every shard; see torch's documentation."""

def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 0
) -> Tensor:
    """torch.margin_ranking_loss on every shard; see torch's documentation."""

def masked_fill(
    input: Tensor, mask: Tensor, value: Tensor | builtins.complex | np.number[Any]
) -> Tensor:
    """`input` with `value` (a number or a 0-d tensor) where `mask` is True."""

def masked_fill_(
    input: Tensor, mask: Tensor, value: Tensor | builtins.complex | np.number[Any]
) -> Tensor:
    """`input` with `value` (a number or a 0-d tensor) where `mask` is True."""

def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the elements where `mask` is true taken from `source`, in order."""

def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where `mask` is true, in one dim; the two broadcast against each other."""

def matmul(
    input: Tensor,
    other: Tensor,
    *,
    out: Tensor | None = None,
    transpose_a: bool | None = None,
    transpose_b: bool | None = None,
    alpha: builtins.complex | np.number[Any] | None = None,
) -> Tensor:
    """The matrix product of two tensors, as torch.matmul: vectors, matrices, batches of them."""

def matrix_exp(input: Tensor) -> Tensor:
    """torch.matrix_exp on every shard; see torch's documentation."""

def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The n-th power of square matrices (batch dims in front), by repeated squaring."""

def matrix_transpose(input: Tensor) -> Tensor:
    """The last two dims exchanged: `x.mT`; a 0-d tensor stays as it is."""

@overload
def max(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The greatest value of all, or (values, indices) along `dim`; of two tensors, `maximum`."""

@overload
def max(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None
) -> ValuesAndIndices:
    """The greatest value of all, or (values, indices) along `dim`; of two tensors, `maximum`."""

@overload
def max(input: Tensor, dim: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The greatest value of all, or (values, indices) along `dim`; of two tensors, `maximum`."""

@overload
def max_pool1d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The maximum of each window of (N, C, L) or (C, L); see `max_pool2d`."""

@overload
def max_pool1d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The maximum of each window of (N, C, L) or (C, L); see `max_pool2d`."""

def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> Tensor | tuple[Tensor, Tensor]:
    """`max_pool1d` with the places of the maxima."""

@overload
def max_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The maximum of each window of (N, C, H, W) or (C, H, W), as in torch."""

@overload
def max_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The maximum of each window of (N, C, H, W) or (C, H, W), as in torch."""

def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> Tensor | tuple[Tensor, Tensor]:
    """`max_pool2d` with the places of the maxima."""

@overload
def max_pool3d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor:
    """The maximum of each window of (N, C, D, H, W) or (C, D, H, W); see `max_pool2d`."""

@overload
def max_pool3d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]:
    """The maximum of each window of (N, C, D, H, W) or (C, D, H, W); see `max_pool2d`."""

def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> Tensor | tuple[Tensor, Tensor]:
    """`max_pool3d` with the places of the maxima."""

def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros with `input` at the places in its planes that `max_pool1d` gave, as in torch."""

def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros with `input` at the places in its planes that `max_pool2d` gave, as in torch."""

def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros with `input` at the places in its planes that `max_pool3d` gave, as in torch."""

def maximum(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`maximum` of each element."""

def mean(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The mean over `dim` (None: over all), of a floating point or builtins.complex tensor."""

@overload
def median(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The median of all, or (values, indices) along `dim`: the lower one of an even number."""

@overload
def median(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None
) -> ValuesAndIndices:
    """The median of all, or (values, indices) along `dim`: the lower one of an even number."""

def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Grids of coordinates: tensor i varies along dim i; 'xy' exchanges the first two dims."""

@overload
def min(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The least value of all, or (values, indices) along `dim`; of two tensors, `minimum`."""

@overload
def min(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None
) -> ValuesAndIndices:
    """The least value of all, or (values, indices) along `dim`; of two tensors, `minimum`."""

@overload
def min(input: Tensor, dim: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The least value of all, or (values, indices) along `dim`; of two tensors, `minimum`."""

def minimum(input: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`minimum` of each element."""

def mish(input: Tensor, /) -> Tensor:
    """x * tanh(softplus(x))"""

def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""

def mode(
    input: Tensor,
    dim: int | Sequence[int] = -1,
    keepdim: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> Mode:
    """torch.mode on every shard; see torch's documentation."""

def moveaxis(
    input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]
) -> Tensor:
    """Dims `source` moved to the positions `destination`; the others keep their order."""

def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Dims `source` moved to the positions `destination`; the others keep their order."""

def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The squared error, its mean, or its sum, as in torch."""

def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The values in order along dim 0."""

def mul(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The function of `nn.MultiheadAttention`: its output, and its weights or None."""

def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: float | str = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | str | None = None,
    reduction: str = "mean",
) -> Tensor:
    """torch.multi_margin_loss on every shard; see torch's documentation."""

def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | str | None = None,
    reduction: str = "mean",
) -> Tensor:
    """torch.multilabel_margin_loss on every shard; see torch's documentation."""

def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | str | None = None,
    reduction: str = "mean",
) -> Tensor:
    """torch.multilabel_soft_margin_loss on every shard; see torch's documentation."""

def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Indices drawn from the distribution in each row of (N, K), or in (K): (N, S), or (S)."""

def multiply(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""

def mvlgamma(input: Tensor, p: float | str, *, out: Tensor | None = None) -> Tensor:
    """torch.mvlgamma on every shard; see torch's documentation."""

def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input` with nan as `nan` (0), and infinities as the given or the dtype's extreme numbers."""

def nan_to_num_(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """`input` with nan as `nan` (0), and infinities as the given or the dtype's extreme numbers."""

def nanmean(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The mean over `dim` of the elements that are numbers."""

@overload
def nanmedian(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`median` of the values that are numbers."""

@overload
def nanmedian(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Sequence[Tensor] | None = None
) -> ValuesAndIndices:
    """`median` of the values that are numbers."""

def nanquantile(
    input: Tensor,
    q: Tensor | builtins.complex | np.number[Any],
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """torch.nanquantile on every shard; see torch's documentation."""

def nansum(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The sum over `dim` of the elements that are numbers."""

def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements of dim `dim` from `start` on, which may count from the end."""

def narrow_copy(
    input: Tensor, dim: int, start: int, length: int, *, out: Tensor | None = None
) -> Tensor:
    """What `narrow` gives, in memory of its own."""

def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(`batch_norm`, the mean of each channel, 1 / its deviation); of no elements if not training."""

def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """torch.native_channel_shuffle on every shard; see torch's documentation."""

def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(`dropout`, a bool mask of what is kept); `train=None` drops, as True does."""

def native_group_norm(
    input: Tensor, weight: Tensor, bias: Tensor, N: int, C: int, HxW: int, group: int, eps: float
) -> NativeGroupNorm:
    """torch.native_group_norm on every shard; see torch's documentation."""

def native_layer_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor, bias: Tensor, eps: float
) -> NativeLayerNorm:
    """torch.native_layer_norm on every shard; see torch's documentation."""

def ne(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def neg(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`neg` of each element."""

def neg_(input: Tensor, /) -> Tensor:
    """`neg` of each element."""

def negative(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`neg` of each element."""

def negative_(input: Tensor, /) -> Tensor:
    """`neg` of each element."""

def new_empty(
    self: Tensor,
    *size: int | Sequence[int],
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Unset values of another shape with self's dtype, device or (broadcast) placement."""

def new_zeros(
    self: Tensor,
    *size: int | Sequence[int],
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros of another shape with self's dtype, device or (broadcast) placement."""

def nextafter(
    input: Tensor, other: Tensor | builtins.complex | np.number[Any], *, out: Tensor | None = None
) -> Tensor:
    """torch.nextafter on every shard; see torch's documentation."""

def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of targets under log probabilities (N, C, ...), as in torch."""

@overload
def nonzero(
    input: Tensor, *, as_tuple: Literal[False] = False, out: Tensor | None = None
) -> Tensor:
    """The indices of the elements that are not zero, one per row; `as_tuple`: one tensor per dim."""

@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero, one per row; `as_tuple`: one tensor per dim."""

def nonzero_static(
    input: Tensor, *, size: int | Sequence[int], fill_value: int = -1, out: Tensor | None = None
) -> Tensor:
    """torch.nonzero_static on every shard; see torch's documentation."""

def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The vector norm of order `p` over `dim` (None: over all); 'fro' is order 2."""

def normal(
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    size: int | Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers of this mean and standard deviation."""

def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Every element becomes a normal number of this mean and standard deviation."""

def normalize(
    input: Tensor, p: float = 2.0, dim: int | Sequence[int] | None = 1, eps: float = 1e-12
) -> Tensor:
    """`input` divided by its norm of order `p` over `dim`, or by `eps` where that is larger."""

def not_equal(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def numel(input: Tensor) -> int:
    """The number of elements of the logical tensor."""

def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """[...] of classes to [..., num_classes] of 0 and 1 (int64); -1: the largest class plus one."""

def ones(
    *sizes: int | Sequence[int],
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones; see `zeros`."""

def ones_like(
    input: Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones in the shape, dtype and layout of input (partial becomes broadcast)."""

def orgqr(input: Tensor, input2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.orgqr on every shard; see torch's documentation."""

def ormqr(
    input: Tensor,
    input2: Tensor,
    input3: Tensor,
    left: bool = True,
    transpose: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.ormqr on every shard; see torch's documentation."""

def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """y[m, n] = a[m] * b[n]"""

def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Padding, the last dim first: pad = (left, right, top, bottom, ...), as torch's F.pad."""

def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Attention of new tokens to earlier ones, whose keys and values are in pages of a cache."""

def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float | str = 2.0, eps: float = 1e-06, keepdim: bool = False
) -> Tensor:
    """torch.pairwise_distance on every shard; see torch's documentation."""

def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """The principal components of the rows of A: U, S and V of `svd_lowrank` of A less its mean."""

def pdist(input: Tensor, p: float | str = 2.0) -> Tensor:
    """torch.pdist on every shard; see torch's documentation."""

def permute(
    input: Tensor, *axes: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """The dims in the given order; a split moves with its dim."""

def permute_copy(
    input: Tensor,
    *axes: int | Sequence[int],
    dims: int | Sequence[int] | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """What `permute` gives, in memory of its own."""

def pinverse(input: Tensor, rcond: Tensor | builtins.complex | np.number[Any] = 1e-15) -> Tensor:
    """torch.pinverse on every shard; see torch's documentation."""

def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[..., c * r * r, h, w] to [..., c, h * r, w * r], as torch's (Shi et al., 2016)."""

def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """[..., c, h * r, w * r] to [..., c * r * r, h, w]: the inverse of `pixel_shuffle`."""

def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Samples of Poisson distributions with these rates, in the dtype and layout of `input`."""

def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int | str
) -> Tensor:
    """torch.poisson_nll_loss on every shard; see torch's documentation."""

def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """torch.polar on every shard; see torch's documentation."""

def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of order `n` of digamma; the method is `x.polygamma(n)`."""

def positive(input: Tensor) -> Tensor:
    """The tensor, as a view; raises OnefoldRuntimeError for bool."""

def pow(
    input: Tensor | builtins.complex | np.number[Any],
    exponent: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where it is positive, weight * x elsewhere; one weight, or one for each channel (dim 1)."""

def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The product over `dim` (None: over all); integers and bools give int64."""

def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with `source` at indices into the flattened tensor, added there if `accumulate`."""

def qr(input: Tensor, some: bool = True, *, out: Sequence[Tensor] | None = None) -> Qr:
    """torch.qr on every shard; see torch's documentation."""

def quantile(
    input: Tensor,
    q: Tensor | builtins.complex | np.number[Any],
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """torch.quantile on every shard; see torch's documentation."""

def quantize_fp8(
    input: Tensor, block: int | tuple[int, int] = 128, dtype: torch.dtype = torch.float8_e4m3fn
) -> Quantized:
    """Matrices as numbers of 8 bits, and a float32 scale for each block of them."""

def quick_gelu(input: Tensor, /) -> Tensor:
    """x * sigmoid(1.702 * x), close to gelu. Source: Hendrycks and Gimpel (2016)."""

def rad2deg(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """Radians as degrees."""

def rad2deg_(input: Tensor, /) -> Tensor:
    """Radians as degrees."""

def rand(
    *sizes: int | Sequence[int],
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1); the same for every layout."""

def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in the shape, dtype and layout of input (partial becomes broadcast)."""

def randint(
    low: int = 0,
    high: int | Sequence[int] | None = None,
    size: int | Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high); `randint(high, size)` starts at 0."""

def randint_like(
    input: Tensor,
    low: int = 0,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high), laid out as input (partial becomes broadcast); see `randint`."""

def randn(
    *sizes: int | Sequence[int],
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal numbers; the same for every layout."""

def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal numbers in the shape, dtype and layout of input (partial becomes broadcast)."""

def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A random permutation of 0 .. n-1, the same for every layout."""

def range(
    start: float,
    end: float,
    step: float = 1,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... up to end, which is included; torch deprecates it for `arange`."""

def ravel(input: Tensor) -> Tensor:
    """All elements in one dim: a view of a contiguous tensor, else a copy, as in torch."""

def real(input: Tensor) -> Tensor:
    """The real part, as a view; a real tensor itself."""

def reciprocal(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`reciprocal` of each element."""

def reciprocal_(input: Tensor, /) -> Tensor:
    """`reciprocal` of each element."""

def relu(input: Tensor, /) -> Tensor:
    """x where x > 0, else 0."""

def relu6(input: Tensor) -> Tensor:
    """x clamped to [0, 6]."""

def relu_(input: Tensor, /) -> Tensor:
    """x where x > 0, else 0."""

def remainder(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def renorm(
    input: Tensor,
    p: float | str,
    dim: int | Sequence[int],
    maxnorm: float,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.renorm on every shard; see torch's documentation."""

def repeat(
    self: Tensor, *sizes: int | Sequence[int], repeats: int | Sequence[int] | None = None
) -> Tensor:
    """The tensor repeated as a whole along each dim; more numbers than dims add dims in front."""

def repeat_interleave(
    input: Tensor, repeats: Tensor | int, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element of `dim` repeated in place: `repeats` times, or as often as its entry says."""

def reshape(input: Tensor, *shape: int | Sequence[int]) -> Tensor:
    """The elements, in row-major order, in another shape: a view wherever torch makes one."""

def resize_as_(
    input: Tensor, the_template: Tensor, *, memory_format: torch.memory_format | None = None
) -> Tensor:
    """Resize the tensor in place to the shape of another one; see `resize_`."""

def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself, since conjugation is never lazy."""

def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself, since negation is never lazy."""

def result_type(
    tensor: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
) -> torch.dtype:
    """The dtype of the result of arithmetic on the two."""

def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root mean square over the last dims, then scale, as in torch."""

def rnn_relu(
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Tensor | Sequence[Tensor],
    has_biases: bool | Sequence[Tensor],
    num_layers: int,
    dropout: float,
    train: float,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """A whole RNN with RELU network, as torch.rnn_relu: the output and the last state."""

def rnn_relu_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """relu(W_ih x + b_ih + W_hh h + b_hh): input (N, I), state (N, H)."""

def rnn_tanh(
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Tensor | Sequence[Tensor],
    has_biases: bool | Sequence[Tensor],
    num_layers: int,
    dropout: float,
    train: float,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """A whole RNN with TANH network, as torch.rnn_tanh: the output and the last state."""

def rnn_tanh_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """tanh(W_ih x + b_ih + W_hh h + b_hh): input (N, I), state (N, H)."""

def roc_auc_score(label: Tensor, pred: Tensor) -> Tensor:
    """The area under the ROC curve, of one element, in float32."""

def roll(
    input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """A circular shift along `dims`; without `dims`, of the flattened tensor."""

def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = ...) -> Tensor:
    """Rotated `k` times by 90 degrees in the plane of two dims, from the first to the second."""

def rotary(
    input: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False, seq_dim: int = -2
) -> Tensor:
    """Rotary position embedding: pairs of features rotated by an angle for each position."""

def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest integer, or the nearest value with `decimals` decimals; halves go to even."""

def round_(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest integer, or the nearest value with `decimals` decimals; halves go to even."""

def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 0, of vectors as rows."""

def rrelu(
    input: Tensor,
    lower: float = 0.125,
    upper: float = 0.3333333333333333,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """As `flow.nn.functional.rrelu`, without `inplace`."""

def rrelu_(
    input: Tensor,
    lower: float = 0.125,
    upper: float = 0.3333333333333333,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`rrelu` in place. Raises OnefoldValueError for a generator other than the default one."""

def rsqrt(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`rsqrt` of each element."""

def rsqrt_(input: Tensor, /) -> Tensor:
    """`rsqrt` of each element."""

def rsub(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    alpha: builtins.complex | np.number[Any] = 1,
) -> Tensor:
    """`other - alpha * input`."""

def scalar_tensor(
    s: builtins.complex | np.number[Any],
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A 0-d tensor of a number, in the default dtype unless another is given."""

def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: int | None = None,
) -> Tensor:
    """softmax(query key^T * scale + mask) value, as in torch."""

def scaled_matmul(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    *,
    block: int = 128,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """The product of two matrices that `quantize_fp8` gave, summed in float32."""

def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | Sequence[Tensor],
    scale_recipe_a: ScalingType | Sequence[ScalingType],
    scale_b: Tensor | Sequence[Tensor],
    scale_recipe_b: ScalingType | Sequence[ScalingType],
    swizzle_a: SwizzleType | Sequence[SwizzleType] | None = None,
    swizzle_b: SwizzleType | Sequence[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of two float8 matrices whose scales are as the recipes say."""

def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | builtins.complex | np.number[Any] | None = None,
    *,
    value: builtins.complex | np.number[Any] | None = None,
    reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """`input` with the values of `src` (a tensor or a number) at positions `index` along `dim`."""

def scatter_add(
    input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """`input` plus the values of `src` at positions `index` along `dim`, in a fixed order."""

def scatter_nd(index: Tensor, update: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros of this shape with `update` at coordinates; duplicates are summed."""

def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """The values of `src` reduced at the positions of `index`."""

def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """torch.searchsorted on every shard; see torch's documentation."""

def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Element `index` of dim `dim`, which is removed."""

def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` in which `src` is the slice at one index of a dim."""

def selu(input: Tensor) -> Tensor:
    """elu with the scales that keep mean 0 and variance 1."""

def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""

def sgn(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`sgn` of each element."""

def sigmoid(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`sigmoid` of each element."""

def sigmoid_(input: Tensor, /) -> Tensor:
    """`sigmoid` of each element."""

def sign(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`sign` of each element."""

def signbit(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`signbit` of each element."""

def silu(input: Tensor, /) -> Tensor:
    """x * sigmoid(x)"""

def sin(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`sin` of each element."""

def sin_(input: Tensor, /) -> Tensor:
    """`sin` of each element."""

def sinc(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """sin(pi x) / (pi x), and 1 where x is 0."""

def sinc_(input: Tensor, /) -> Tensor:
    """sin(pi x) / (pi x), and 1 where x is 0."""

def sinh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`sinh` of each element."""

def sinh_(input: Tensor, /) -> Tensor:
    """`sinh` of each element."""

def slice(input: Tensor, slice_tup_list: Sequence[Sequence[int | None]]) -> Tensor:
    """The part of `input` from (start, stop, step) of each of its first dims, None for the ends."""

def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """A copy of `input` in which `src` is a slice along a dim."""

def slice_update(
    input: Tensor, update: Tensor, slice_tup_list: Sequence[Sequence[int | None]]
) -> Tensor:
    """`input` with `update` written in place to the part that `slice` selects."""

def slogdet(input: Tensor, *, out: Sequence[Tensor] | None = None) -> Slogdet:
    """torch.slogdet on every shard; see torch's documentation."""

def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """The squared error over 2 beta where the error is below beta, else |error| - beta / 2."""

def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | str | None = None,
    reduction: str = "mean",
) -> Tensor:
    """torch.soft_margin_loss on every shard; see torch's documentation."""

def softmax(
    input: Tensor, dim: int, dtype: torch.dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """exp(x) divided by its sum over `dim`; computed in `dtype` when one is given."""

def softmin(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """`softmax(-input, dim)`."""

def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x where beta * x > threshold."""

def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""

def softsign(input: Tensor, /) -> Tensor:
    """x / (1 + |x|)"""

def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> ValuesAndIndices:
    """The values along `dim` in order, and their indices. Equal values keep their order."""

def split(
    tensor: Tensor,
    split_size_or_sections: int | Sequence[int] | None = None,
    dim: int = 0,
    *,
    split_size: int | Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """Parts along `dim`: of one size (the last may be smaller), or of the sizes given."""

def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of the sizes given along `dim`."""

def split_with_sizes_copy(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """What `split_with_sizes` gives, in memory of its own."""

def sqrt(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`sqrt` of each element."""

def sqrt_(input: Tensor, /) -> Tensor:
    """`sqrt` of each element."""

def square(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`square` of each element."""

def square_(input: Tensor, /) -> Tensor:
    """`square` of each element."""

def square_relu(input: Tensor, /) -> Tensor:
    """The square of relu: x * x where x > 0, else 0. Source: So et al., 'Primer' (2021)."""

def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The tensor without its dims of size 1: all of them, or those named in `dim`."""

def squeeze_copy(
    input: Tensor, dim: int | Sequence[int] | None = None, *, out: Tensor | None = None
) -> Tensor:
    """What `squeeze` gives, in memory of its own."""

def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape along a new dim `dim`."""

def std(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The standard deviation over `dim`: the root of `var`."""

def std_mean(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """(std, mean) over `dim`."""

def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: float | bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """torch.stft on every shard; see torch's documentation."""

def sub(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    alpha: builtins.complex | np.number[Any] = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`input - alpha * other`; either may be a Python number."""

def subtract(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    alpha: builtins.complex | np.number[Any] = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`input - alpha * other`; either may be a Python number."""

def sum(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The sum over `dim` (None: over all); integers and bools are summed as int64."""

def sum_to_size(input: Tensor, *size: int | Sequence[int]) -> Tensor:
    """The sum over the dims along which `size` would broadcast to the input's shape."""

def svd(
    input: Tensor,
    some: bool = True,
    compute_uv: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> Svd:
    """torch.svd on every shard; see torch's documentation."""

def svd_lowrank(
    A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The `q` largest singular values of A - M, with their vectors: U, S and V, approximately."""

def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose`, under numpy's name."""

def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Dims `dim0` and `dim1` exchanged; a split moves with its dim."""

def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, of two tensors of one shape, in one pass over memory."""

def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and 0-d tensors stay as they are."""

def t_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """What `t` gives, in memory of its own."""

def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements at `index` of the flattened tensor."""

def take_along_dim(
    input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None
) -> Tensor:
    """`gather` with broadcasting; without `dim`, of the flattened tensors."""

def tan(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`tan` of each element."""

def tan_(input: Tensor, /) -> Tensor:
    """`tan` of each element."""

def tanh(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`tanh` of each element."""

def tanh_(input: Tensor, /) -> Tensor:
    """`tanh` of each element."""

def tanhshrink(input: Tensor, /) -> Tensor:
    """x - tanh(x)"""

def tensor(
    data: object,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with a copy of `data` (nested lists, numbers, numpy arrays, torch tensors)."""

def tensor_scatter_nd_update(tensor: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of `tensor` with `updates` at coordinates of its first dims; see `gather_nd`."""

def tensor_split(
    input: Tensor, indices_or_sections: int | Sequence[int] | Tensor, dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `dim`: that many, the first ones larger by one, or those between the indices."""

def tensordot(
    a: Tensor,
    b: Tensor,
    dims: int | Sequence[int | Sequence[int]] = 2,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Sum the products of a and b over `dims`: a count (last of a, first of b) or two lists."""

def threshold(
    input: Tensor, threshold: float, value: float, *, out: Tensor | None = None
) -> Tensor:
    """x where x > threshold, else value."""

def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place."""

def tile(
    input: Tensor, *sizes: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """`repeat` where fewer numbers than dims mean the last ones."""

def to_global(
    self: Tensor,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    *,
    grad_sbp: Sbp | Iterable[Sbp] | None = None,
    check_meta: bool | None = None,
    copy: bool = False,
) -> Tensor:
    """This tensor as a global one: `local_to_global` of a local tensor, else `global_to_global`."""

def to_local(
    self: Tensor, *, grad_placements: Sequence[SupportsSbp] | None = None, copy: bool = False
) -> Tensor:
    """This process's shard as a local tensor."""

def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> ValuesAndIndices:
    """The k largest (or smallest) values along `dim`, and their indices."""

def trace(input: Tensor) -> Tensor:
    """torch.trace on every shard; see torch's documentation."""

def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Dims `dim0` and `dim1` exchanged; a split moves with its dim."""

def transpose_copy(input: Tensor, dim0: int, dim1: int, *, out: Tensor | None = None) -> Tensor:
    """What `transpose` gives, in memory of its own."""

def trapezoid(
    y: Tensor,
    x: Tensor | None = None,
    *,
    dx: Tensor | builtins.complex | np.number[Any] | None = None,
    dim: int | Sequence[int] = -1,
) -> Tensor:
    """torch.trapezoid on every shard; see torch's documentation."""

def trapz(
    y: Tensor,
    x: Tensor | None = None,
    *,
    dx: Tensor | builtins.complex | np.number[Any] | None = None,
    dim: int | Sequence[int] = -1,
) -> Tensor:
    """torch.trapz on every shard; see torch's documentation."""

def triangular_solve(
    input: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> TriangularSolve:
    """torch.triangular_solve on every shard; see torch's documentation."""

def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The last two dims up to and including a diagonal (> 0: above the main one), zeros above."""

def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """[2, n]: the rows and columns of the lower triangle of a matrix."""

def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float | str = 2,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: int | str = 0,
) -> Tensor:
    """torch.triplet_margin_loss on every shard; see torch's documentation."""

def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0); d is the 2-norm by default."""

def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The last two dims from a diagonal on (> 0: above the main one), zeros below."""

def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """[2, n]: the rows and columns of the upper triangle of a matrix."""

def true_divide(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def trunc(input: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """`trunc` of each element."""

def trunc_(input: Tensor, /) -> Tensor:
    """`trunc` of each element."""

def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along `dim`, which is removed."""

def unbind_copy(
    input: Tensor, dim: int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """What `unbind` gives, in memory of its own."""

def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dim `dim` as several dims of these sizes, of which one may be -1."""

def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements along a dim, every `step` elements, as a new last dim."""

def unfold_copy(
    input: Tensor, dimension: int, size: int, step: int, *, out: Tensor | None = None
) -> Tensor:
    """A copy of the result of the method `unfold`."""

def uniform_(
    self: Tensor,
    low: float = 0.0,
    to: float = 1.0,
    *,
    generator: Generator | None = None,
    **start: float,
) -> Tensor:
    """Every element becomes a number uniform in [low, to); `low` may be given as `from=`."""

def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The distinct values, and on request the index of each element's value and the counts."""

def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The first of each run of equal elements, and on request the runs of elements and lengths."""

def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """torch.unravel_index on every shard; see torch's documentation."""

def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk`."""

def unsafe_split(
    tensor: Tensor,
    split_size_or_sections: int | Sequence[int] | None = None,
    dim: int = 0,
    *,
    split_size: int | Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """Parts along `dim`: of one size (the last may be smaller), or of the sizes given."""

def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts of the sizes given along `dim`."""

def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """The tensor with a new dim of size 1 at position `dim`."""

def unsqueeze_copy(input: Tensor, dim: int, *, out: Tensor | None = None) -> Tensor:
    """What `unsqueeze` gives, in memory of its own."""

def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """torch.vander on every shard; see torch's documentation."""

def var(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The variance over `dim` (None: over all), with the count less `correction` (1) below."""

def var_mean(
    input: Tensor,
    dim: int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """(var, mean) over `dim`."""

def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The dot product of two vectors, the first of them conjugated."""

def vector_norm(
    input: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The vector norm of order `ord` over `dim` (None: over all), as torch.linalg.vector_norm."""

def view(input: Tensor, *shape: int | Sequence[int]) -> Tensor:
    """The tensor's elements, in row-major order, in another shape; one size may be -1."""

def view_as_complex(input: Tensor) -> Tensor:
    """torch.view_as_complex on every shard; see torch's documentation."""

def view_as_real(input: Tensor) -> Tensor:
    """torch.view_as_real on every shard; see torch's documentation."""

def view_copy(input: Tensor, size: Sequence[int], *, out: Tensor | None = None) -> Tensor:
    """A copy of the result of the method `view`."""

def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 0 of a tensor with at least 2 dims, in equal parts."""

def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The concatenation along dim 0, of vectors as rows."""

@overload
def where(condition: Tensor) -> tuple[Tensor, ...]:
    """`input` where the condition holds, else `other`; both may be Python numbers."""

@overload
def where(
    condition: Tensor,
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`input` where the condition holds, else `other`; both may be Python numbers."""

def xlogy(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def xlogy_(
    input: Tensor | builtins.complex | np.number[Any],
    other: Tensor | builtins.complex | np.number[Any],
) -> Tensor: ...
def zero_(input: Tensor) -> Tensor:
    """Every element becomes 0."""

def zeros(
    *sizes: int | Sequence[int],
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros."""

def zeros_like(
    input: Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros in the shape, dtype and layout of input (partial becomes broadcast)."""
