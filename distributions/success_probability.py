"""Success probability: the parameter of yes-no trials, as a probability or as log-odds."""

from __future__ import annotations

import torch

from ..engine.tensor import Tensor
from .discrete import logits_to_probs, probs_to_logits
from .distribution import Distribution
from .lazy_property import lazy_property


class SuccessProbability(Distribution):
    """Of `probs` or `logits` one is set; the other follows when it is first asked for."""

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities of success, or of 1."""
        return logits_to_probs(self.logits, is_binary=True)

    @lazy_property
    def logits(self) -> Tensor:
        """log(p / (1 - p)), finite also where p is 0 or 1."""
        return probs_to_logits(self.probs, is_binary=True)

    @property
    def param_shape(self) -> torch.Size:
        """The shape of `probs` and `logits`."""
        return self._batch_shape
