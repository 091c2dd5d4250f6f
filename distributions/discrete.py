"""The two forms in which probabilities are given to a discrete distribution."""

from __future__ import annotations

import torch

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from .broadcast_parameters import Parameter


def one_of(what: str, probs: Parameter | None, logits: Parameter | None) -> tuple[str, Parameter]:
    """The name and the value of the one that is given; OnefoldValueError for both or none."""
    if probs is not None and logits is None:
        return "probs", probs
    if logits is not None and probs is None:
        return "logits", logits
    raise OnefoldValueError(
        f"{what}: give either probs or logits, but got {'none' if probs is None else 'both'}"
    )


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities that are neither 0 nor 1, by the smallest step of the dtype."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logits: of the last dim, or with `is_binary` of each element alone."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Their logarithms, or with `is_binary` log(p / (1 - p)); finite also where p is 0 or 1."""
    p = clamp_probs(probs)
    return p.log() - (-p).log1p() if is_binary else p.log()
