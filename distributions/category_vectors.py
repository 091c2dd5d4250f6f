"""Category vectors: what distributions of vectors with an element for each category share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import torch

from ..engine.tensor import Tensor
from . import constraints
from .categorical import Categorical
from .distribution import Distribution


class CategoryVectors(Distribution):
    """Vectors of K elements, of `probs` or `logits` of shape (..., K)."""

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        batch_shape, events = self._categorical.batch_shape, self._categorical.param_shape[-1:]
        super().__init__(batch_shape, events, validate_args)

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        new._categorical = self._categorical.expand(batch_shape)

    @property
    def probs(self) -> Tensor:
        """The probabilities of the categories."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Their logarithms."""
        return self._categorical.logits

    @property
    def param_shape(self) -> torch.Size:
        """The shape of `probs` and `logits`."""
        return self._categorical.param_shape
