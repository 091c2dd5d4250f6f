"""Losses of OneFlow's `flow._C`, whose reduction is the last argument or one by its place."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..engine.tensor import Tensor
from ..errors import ShapeError
from ..nn import functional as F
from ..nn.oneflow_layers import CombinedMarginLoss


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of input (N, C, ...), with classes or probabilities as the target."""
    return F.cross_entropy(
        input,
        target if target.is_floating_point() else target.to(torch.int64),
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def sparse_softmax_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """The cross entropy of each row of logits (..., C), for labels (...); the classes may be split.

    Raises ShapeError when the labels have other dims than the rows.
    """
    if logits.shape[:-1] != label.shape:
        raise ShapeError(
            "sparse_softmax_cross_entropy needs logits (..., C) and labels (...), but got "
            f"{tuple(logits.shape)} and {tuple(label.shape)}"
        )
    classes = label.to(torch.int64).reshape(-1)
    rows = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), classes, reduction="none")
    return rows.reshape(label.shape)


def softmax_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """The cross entropy of each row of logits (..., C), for probabilities of the same shape."""
    return (F.log_softmax(logits, -1) * label).sum(-1).neg()


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of classes, given log-probabilities (N, C, ...)."""
    classes = target.to(torch.int64)
    return F.nll_loss(input, classes, weight, ignore_index=ignore_index, reduction=reduction)


def smooth_l1_loss(
    logits: Tensor, label: Tensor, beta: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """`l1_loss` where differences are greater than beta, else squares."""
    return F.smooth_l1_loss(logits, label, reduction=reduction, beta=beta)


def kl_div_loss(
    input: Tensor, target: Tensor, log_target: bool = False, reduction: str = "mean"
) -> Tensor:
    """The divergence of Kullback and Leibler of log-probabilities from a target."""
    return F.kl_div(input, target, reduction=reduction, log_target=log_target)


def binary_cross_entropy_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross entropy of probabilities of one class."""
    return F.binary_cross_entropy(input, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The cross entropy of the sigmoid of the input."""
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=reduction, pos_weight=pos_weight
    )


def margin_ranking_loss(
    input_1: Tensor,
    input_2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin - target * (input_1 - input_2))."""
    return F.margin_ranking_loss(input_1, input_2, target, margin, reduction=reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    max_target_length: int,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Connectionist temporal classification of log_probs (T, N, C); the longest target is found."""
    return F.ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank=blank,
        reduction=reduction,
        zero_infinity=zero_infinity,
    )


def combined_margin_loss(
    x: Tensor, label: Tensor, m1: float = 1.0, m2: float = 0.5, m3: float = 0.0
) -> Tensor:
    """The cosines x (N, C) with margins at each row's label; see nn.CombinedMarginLoss."""
    made: Tensor = CombinedMarginLoss(m1, m2, m3)(x, label)
    return made


LOSSES: dict[str, Callable[..., Tensor]] = {
    each.__name__: each
    for each in (
        cross_entropy, sparse_softmax_cross_entropy, softmax_cross_entropy, nll_loss,
        smooth_l1_loss, kl_div_loss, binary_cross_entropy_loss,
        binary_cross_entropy_with_logits_loss, margin_ranking_loss, ctc_loss, combined_margin_loss,
    )
} | {"sparse_softmax_cross_entropy_ms": sparse_softmax_cross_entropy}  # fmt: skip
