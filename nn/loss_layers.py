"""Losses as modules."""

from __future__ import annotations

from ..engine.ops.cross_entropy import cross_entropy, nll_loss
from ..engine.ops.loss import mse_loss
from ..engine.tensor import Tensor
from .module import Module
from .torch_parameters import reduction_of


class _WeightedLoss(Module):
    """A loss with a weight for each class, which may ignore one of them."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction_of(reduction, size_average, reduce)


class NLLLoss(_WeightedLoss):
    """Negative log likelihood of log-probabilities."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class NLLLoss2d(NLLLoss):
    """`NLLLoss`, under the name it once had for images."""


class CrossEntropyLoss(_WeightedLoss):
    """Softmax and negative log likelihood in one; the class dim may be split without a gather."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, size_average=size_average, reduce=reduce)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        how = (self.ignore_index, self.reduction, self.label_smoothing)
        return cross_entropy(input, target, self.weight, *how)


class MSELoss(Module):
    """The mean (or sum) of squared differences."""

    def __init__(
        self,
        reduction: str = "mean",
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__()
        self.reduction = reduction_of(reduction, size_average, reduce)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return mse_loss(input, target, reduction=self.reduction)
