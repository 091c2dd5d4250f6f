"""Functions of OneFlow's `flow._C` whose arguments differ from those of the public function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..engine.ops.ranges import arange
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldValueError, ShapeError
from ..nn import functional as F

# Creation.


def constant(
    shape: Sequence[int],
    value: float,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> Tensor:
    """A tensor of one value."""
    return tensor_ops.full(shape, value, dtype=dtype, device=device)


def global_constant(
    shape: Sequence[int],
    value: float,
    *,
    dtype: torch.dtype | None = None,
    placement: Placement,
    sbp: SbpLike,
) -> Tensor:
    """A global tensor of one value."""
    return tensor_ops.full(shape, value, dtype=dtype, placement=placement, sbp=sbp)


def global_empty(
    shape: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    placement: Placement,
    sbp: SbpLike,
) -> Tensor:
    """A global tensor without values."""
    return tensor_ops.empty(shape, dtype=dtype, placement=placement, sbp=sbp)


def one_hot(
    input: Tensor, num_classes: int = -1, on_value: float = 1, off_value: float = 0
) -> Tensor:
    """`on_value` at each class of [..., num_classes], `off_value` elsewhere.

    The result is float32 if a value is a float, else int64.
    """
    hot: Tensor = F.one_hot(input.to(torch.int64), num_classes)
    if (on_value, off_value) == (1, 0) and not isinstance(on_value + off_value, float):
        return hot
    return tensor_ops.where(hot.bool(), on_value, off_value)


# Elements and reductions.


def identity(input: Tensor) -> Tensor:
    """The input; mixed precision casts it where it is used, which makes other identities."""
    return input


def cast(x: Tensor, dtype: torch.dtype, pin_memory: bool = False) -> Tensor:
    """x in another dtype."""
    return x.to(dtype)


def reduce_sum(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum over all dims, or some."""
    return tensor_ops.sum(x, dim, keepdim)


def reduce_mean(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The mean over all dims, or some."""
    return tensor_ops.mean(x, dim, keepdim)


def reduce_max(x: Tensor, axis: Any, keepdim: bool = False) -> Tensor:
    """The greatest element along some dims."""
    return tensor_ops.amax(x, axis, keepdim)


def reduce_min(x: Tensor, axis: Any, keepdim: bool = False) -> Tensor:
    """The least element along some dims."""
    return tensor_ops.amin(x, axis, keepdim)


def top_k(input: Tensor, k: int, sorted: bool = True) -> Tensor:
    """The indices of the k greatest elements of the last dim."""
    return tensor_ops.topk(input, k, -1, True, sorted)[1]


def arg_sort(input: Tensor, direction: str) -> Tensor:
    """The indices that sort the last dim, in the direction "ASCENDING" or "DESCENDING"."""
    if direction not in ("ASCENDING", "DESCENDING"):
        raise OnefoldValueError(
            f"arg_sort: direction must be 'ASCENDING' or 'DESCENDING', but got {direction!r}"
        )
    return tensor_ops.argsort(input, -1, direction == "DESCENDING")


def normalize(
    input: Tensor,
    p: float = 2.0,
    dim: int = 1,
    eps: float = 1e-12,
    use_l2_norm_kernel: bool = True,
) -> Tensor:
    """Parts of the input divided by their norms."""
    return F.normalize(input, p, dim, eps)


# Products.


def batch_matmul(
    a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0
) -> Tensor:
    """The products of batches of matrices, of which the last dims may be swapped first."""
    return tensor_ops.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, alpha=alpha)


def gelu_with_approximate(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x, or its approximation "tanh"."""
    return F.gelu(x, approximate=approximate)


# Shapes.


def transpose(input: Tensor, perm: Sequence[int] | int, dim1: int | None = None) -> Tensor:
    """The dims in the order `perm`, or two dims swapped."""
    if isinstance(perm, int):
        return tensor_ops.transpose(input, perm, dim1)
    return tensor_ops.permute(input, perm)


def scatternd(indices: Tensor, updates: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros with `updates` at coordinates."""
    return tensor_ops.scatter_nd(indices, updates, shape)


def tensor_scatter_nd_update(
    tensor: Tensor, indices: Tensor, updates: Tensor, inplace: bool = False
) -> Tensor:
    """`tensor` with `updates` at coordinates: a copy, or the tensor itself."""
    made: Tensor = tensor_ops.tensor_scatter_nd_update(tensor, indices, updates)
    return tensor.copy_(made) if inplace else made


def pixel_shuffle(input: Tensor, h_upscale_factor: int, w_upscale_factor: int) -> Tensor:
    """(N, c * h * w, H, W) to (N, c, H * h, W * w).

    Raises ShapeError unless the input has 4 dims and h * w divides the channels.
    """
    h, w = h_upscale_factor, w_upscale_factor
    if input.ndim != 4 or input.shape[1] % (h * w):
        raise ShapeError(
            f"pixel_shuffle needs (N, channels, H, W) with channels divisible by {h * w}, but got "
            f"{tuple(input.shape)}"
        )
    batch, channels, height, width = input.shape
    parts = input.reshape(batch, channels // (h * w), h, w, height, width)
    made = parts.permute(0, 1, 4, 2, 5, 3)
    return made.reshape(batch, channels // (h * w), height * h, width * w)


def fused_dot_feature_interaction(
    features: Sequence[Tensor],
    output_concat: Tensor | None = None,
    self_interaction: bool = False,
    output_padding: int = 0,
    pooling: str = "none",
) -> Tensor:
    """The products of every two vectors of features (N, fields, size), which are put together.

    They stand in a row, below the diagonal of the matrix of products, and with it for
    `self_interaction`, after `output_concat` (N, k) and before `output_padding` zeros. With the
    pooling "sum" their sum (N, 1) is the result. Raises OnefoldValueError for another pooling.
    Source: Naumov et al., "DLRM" (2019).
    """
    if pooling not in ("none", "sum"):
        raise OnefoldValueError(f"pooling must be 'none' or 'sum', but got {pooling!r}")
    vectors = tensor_ops.cat(list(features), 1)
    if pooling == "sum":
        whole = vectors.sum(1)
        return (whole * whole - (vectors * vectors).sum(1)).sum(1, keepdim=True) * 0.5
    products = vectors @ vectors.transpose(1, 2)
    count = vectors.shape[1]
    below = torch.tril_indices(count, count, 0 if self_interaction else -1)
    place = (below[0] * count + below[1]).tolist()
    parts = [products.flatten(1)[:, place]]
    if output_concat is not None:
        parts.insert(0, output_concat)
    row = tensor_ops.cat(parts, 1)
    return F.pad(row, (0, output_padding)) if output_padding else row


FORMS: dict[str, Callable[..., Tensor]] = {
    each.__name__: each
    for each in (
        constant, global_constant, global_empty, one_hot, identity, cast, reduce_sum, reduce_mean,
        reduce_max, reduce_min, top_k, arg_sort, normalize, transpose, scatternd,
        tensor_scatter_nd_update, pixel_shuffle, fused_dot_feature_interaction, batch_matmul,
        gelu_with_approximate,
    )
} | {
    "amp_black_identity": identity,
    "amp_white_identity": identity,
    "global_arange": arange,
}  # fmt: skip
