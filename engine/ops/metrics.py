"""Metrics of predictions: in_top_k and roc_auc_score."""

from __future__ import annotations

import torch

from ...errors import ShapeError
from ..names import register_function
from ..tensor import Tensor, tensor_ops
from .cast import cast
from .dims import unsqueeze
from .gather import gather
from .reduce import sum
from .sorting import sort
from .view import reshape


@register_function
def in_top_k(targets: Tensor, predictions: Tensor, k: int) -> Tensor:
    """Whether fewer than `k` of the predictions (N, C) exceed that of each target (N)."""
    if targets.ndim != 1 or predictions.ndim != 2 or len(targets) != len(predictions):
        raise ShapeError(
            f"in_top_k: targets (N) and predictions (N, C) are needed, but have shapes "
            f"{tuple(targets.shape)} and {tuple(predictions.shape)}"
        )
    chosen = gather(predictions, 1, unsqueeze(cast(targets, torch.int64), 1))
    return sum(predictions > chosen, 1) < k


@register_function
def roc_auc_score(label: Tensor, pred: Tensor) -> Tensor:
    """The area under the ROC curve, of one element, in float32.

    It is the probability that a sample with label 1 has a greater prediction than one with label 0,
    where equal ones count half. Source: Mann and Whitney (1947).

    >>> import onefold as flow
    >>> flow.roc_auc_score(flow.tensor([0, 0, 1, 1]), flow.tensor([0.1, 0.4, 0.35, 0.8]))
    tensor([0.7500])
    """
    if label.meta.numel != pred.meta.numel:
        raise ShapeError(
            f"roc_auc_score: label and pred must have equally many elements, but have shapes "
            f"{tuple(label.shape)} and {tuple(pred.shape)}"
        )
    positive, scores = cast(reshape(label, -1), torch.float64), reshape(pred, -1)
    ordered = sort(scores).values
    below = tensor_ops.searchsorted(ordered, scores)
    not_above = tensor_ops.searchsorted(ordered, scores, right=True)
    ranks = cast(below + not_above + 1, torch.float64) / 2
    ones = sum(positive, 0, True)
    wins = sum(ranks * positive, 0, True) - ones * (ones + 1) / 2
    return cast(wins / (ones * (len(scores) - ones)), torch.float32)
