"""Losses as modules."""

from __future__ import annotations

from ..engine.ops.cross_entropy import cross_entropy, nll_loss
from ..engine.ops.loss import mse_loss
from ..engine.tensor import Tensor
from .module import Module
from .torch_parameters import reduction_of


class _Loss(Module):
    """A loss that is reduced, for classes of users; `reduction` follows the old arguments."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.reduction = reduction_of(reduction, size_average, reduce)


class _WeightedLoss(_Loss):
    """A loss with weights, kept as the buffer `weight`."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class _ClassLoss(_WeightedLoss):
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
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index


class NLLLoss(_ClassLoss):
    """Negative log likelihood of log-probabilities."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class NLLLoss2d(NLLLoss):
    """`NLLLoss`, under the name it once had for images."""


class CrossEntropyLoss(_ClassLoss):
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


class MSELoss(_Loss):
    """The mean (or sum) of squared differences."""

    def __init__(
        self,
        reduction: str = "mean",
        *,
        size_average: bool | None = None,
        reduce: bool | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return mse_loss(input, target, reduction=self.reduction)
