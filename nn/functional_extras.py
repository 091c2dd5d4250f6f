"""Functions of torch.nn.functional, and of OneFlow's, that are composed of other functions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine.inplace import assign_result
from ..engine.ops.cat_split import cat
from ..engine.ops.cross_entropy import cross_entropy
from ..engine.ops.grouped import grouped_rows, grouped_sums
from ..engine.ops.interpolate import interpolate
from ..engine.ops.like import rand_like, zeros_like
from ..engine.ops.where import where
from ..engine.tensor import Tensor
from ..errors import ShapeError, warn


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
    return assign_result(input, "elu", alpha)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place."""
    return assign_result(input, "hardtanh", min_val, max_val)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
    return assign_result(input, "leaky_relu", negative_slope)


def relu_(input: Tensor) -> Tensor:
    """`relu` in place."""
    return assign_result(input, "relu")


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A softmax of logits with Gumbel noise at temperature `tau`: nearly one-hot samples.

    With `hard` the samples are one-hot, and have the gradient of the others. The noise depends on
    the logical index, so it is the same for every layout. Sources: Jang et al. (2016); Maddison
    et al. (2016).
    """
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.", UserWarning)
    noise = rand_like(logits.detach()).log().neg().log().neg()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    one_hot = zeros_like(soft.detach()).scatter(dim, soft.detach().argmax(dim, True), 1.0)
    return one_hot - soft.detach() + soft


def _interpolated(
    name: str,
    input: Tensor,
    size: int | Sequence[int] | None,
    scale_factor: float | Sequence[float] | None,
    mode: str,
    align_corners: bool | None,
) -> Tensor:
    warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        UserWarning,
    )
    y: Tensor = interpolate(input, size, scale_factor, mode, align_corners)
    return y


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` by its old name; warns, as torch does."""
    return _interpolated("upsample", input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    """`interpolate` to the nearest value, by its old name; warns, as torch does."""
    return _interpolated("upsample_nearest", input, size, scale_factor, "nearest", None)


def upsample_bilinear(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    """`interpolate` by bilinear functions with aligned corners; warns, as torch does."""
    return _interpolated("upsample_bilinear", input, size, scale_factor, "bilinear", True)


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Products of matrices in groups, which a 2-dimensional operand has one after the other.

    `offs` are the ends of the groups: rows of a (M, K) with b (groups, K, N), columns of b with
    a (groups, M, K), and terms of the sum where both are 2-dimensional, which gives (groups, M, N).
    Two operands of 3 dims are multiplied as `bmm` does. Rows after the last end become 0. The ends
    are read on the device: the host does not wait for them. Raises ShapeError for other dims.
    """
    ndims = mat_a.ndim, mat_b.ndim
    if not set(ndims) <= {2, 3} or (offs is None) != (ndims == (3, 3)):
        raise ShapeError(
            "grouped_mm needs matrices (2 dims) or groups of matrices (3 dims), and `offs` where "
            f"one has 2 dims, but got {ndims[0]} and {ndims[1]} dims and offs={offs}"
        )
    if offs is None:
        made = mat_a.bmm(mat_b)
    elif ndims == (2, 3):
        made = grouped_rows(mat_a, mat_b, offs)
    elif ndims == (3, 2):
        made = grouped_rows(mat_b.t(), mat_a.mT, offs).t()
    else:
        made = grouped_sums(mat_a.t(), mat_b, offs)
    made = made if bias is None else made + bias
    return made if out_dtype is None else made.to(out_dtype)


# OneFlow's.


def depend(input: Tensor, depend: Tensor | Sequence[Tensor]) -> Tensor:
    """The input. Steps of a graph run in program order, so no dependency has to be declared."""
    return input


def sparse_softmax_cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """The cross entropy of each row of logits (N, classes), for labels (N,) of any integers."""
    wanted = labels if labels.dtype == torch.int64 else labels.to(torch.int64)
    return cross_entropy(logits, wanted, reduction="none")


def ctc_greedy_decoder(
    log_probs: Tensor, input_lengths: Tensor, merge_repeated: bool = True
) -> tuple[Tensor, Tensor]:
    """(labels (N, T), scores (N, 1)) of the most probable classes of log_probs (T, N, classes).

    The last class is the blank, which is left out, as is a class that repeats the one before with
    `merge_repeated`. Labels end with zeros. The score is the negative sum of the greatest
    log-probabilities within `input_lengths` (N,). Raises ShapeError when the shapes do not fit.
    """
    if log_probs.ndim != 3 or tuple(input_lengths.shape) != (log_probs.shape[1],):
        raise ShapeError(
            "ctc_greedy_decoder needs log_probs (T, N, classes) and input_lengths (N,), but got "
            f"{tuple(log_probs.shape)} and {tuple(input_lengths.shape)}"
        )
    time, _, classes = log_probs.shape
    best, label = log_probs.transpose(0, 1).max(2)  # (N, T)
    step = zeros_like(label[:1]) + zeros_like(label[0]).add(1).cumsum(0).sub(1)  # (1, T)
    within = step < input_lengths.unsqueeze(1)
    kept = within.logical_and(label != classes - 1)
    if merge_repeated and time > 1:
        fresh = label[:, 1:] != label[:, :-1]
        first = zeros_like(fresh[:, :1]).logical_not()
        kept = kept.logical_and(cat([first, fresh], 1))
    place = where(kept, kept.to(torch.int64).cumsum(1).sub(1), time)  # after the end: dropped
    labels = zeros_like(cat([label, label[:, :1]], 1)).scatter(1, place, label)
    score = where(within, best, 0.0).sum(1, keepdim=True).neg()
    return labels[:, :time], score


EXTRAS = {
    each.__name__: each
    for each in (
        elu_, hardtanh_, leaky_relu_, relu_, gumbel_softmax,
        upsample, upsample_nearest, upsample_bilinear, grouped_mm, depend,
        sparse_softmax_cross_entropy, ctc_greedy_decoder,
    )
}  # fmt: skip
