"""AdaptiveLogSoftmaxWithLoss: a softmax of many classes, of which the rare ones are in clusters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from ..engine import interpreter
from ..engine.argument_types import DeviceLike
from ..engine.ops.argreduce import argmax
from ..engine.ops.cat_split import cat
from ..engine.ops.gather import gather
from ..engine.ops.softmax import log_softmax
from ..engine.ops.where import clamp, where
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldValueError
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module


class AdaptiveOutput(NamedTuple):
    """The log-probability of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of classes that are sorted by frequency; the rare ones are in clusters.

    The head scores the classes below `cutoffs[0]` and each cluster; cluster i projects its input
    to `in_features / div_value**(i + 1)` features first. Every cluster is computed for every row,
    so that no shape depends on the targets: the layer runs under every layout and in graphs. Raises
    OnefoldValueError for cutoffs that do not increase between 1 and n_classes - 1. Source: Grave
    et al., "Efficient softmax approximation for GPUs" (2017).
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise OnefoldValueError("cutoffs should be a sequence of length larger than 0")
        increasing = all(low < high for low, high in pairwise([0, *cutoffs, n_classes]))
        if not increasing or any(int(cutoff) != cutoff for cutoff in cutoffs):
            raise OnefoldValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                f"order, where each value is between 1 and n_classes-1, but got {cutoffs} for "
                f"{n_classes} classes"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters

        def linear(inputs: int, outputs: int, bias: bool) -> Linear:
            return Linear(inputs, outputs, bias, device, dtype, placement=placement, sbp=sbp)

        self.head = linear(in_features, self.head_size, head_bias)
        self.tail = ModuleList()
        for index, (low, high) in enumerate(pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (index + 1))
            parts = linear(in_features, width, False), linear(width, high - low, False)
            self.tail.append(Sequential(*parts))

    def reset_parameters(self) -> None:
        """Initialize all weights again, as `Linear` does."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> AdaptiveOutput:
        """(log-probabilities (N,), loss) for inputs (N, in_features) and targets (N,).

        Or for one input (in_features,) and its target (). Raises OnefoldRuntimeError for other
        shapes and, outside of a graph, for targets that are no class.
        """
        self._check(input_, target_)
        if target_.ndim == 0:
            output, loss = self.forward(input_.unsqueeze(0), target_.unsqueeze(0))
            return AdaptiveOutput(output.squeeze(0), loss)
        head = log_softmax(self.head(input_), 1)
        index = clamp(target_, 0, self.shortlist_size - 1)
        inside: Tensor | None = None  # the log-probability within the cluster
        for number, (low, high) in enumerate(pairwise(self.cutoffs)):
            among = (target_ >= low).logical_and(target_ < high)
            place = clamp(target_ - low, 0, high - low - 1).unsqueeze(1)
            found = gather(log_softmax(self.tail[number](input_), 1), 1, place).squeeze(1)
            part = where(among, found, 0.0)
            inside = part if inside is None else inside + part
            index = where(among, self.shortlist_size + number, index)
        output = gather(head, 1, index.unsqueeze(1)).squeeze(1)
        if inside is not None:
            output = output + inside
        return AdaptiveOutput(output, -output.mean())

    def _check(self, x: Tensor, target: Tensor) -> None:
        if target.ndim > 1:
            raise OnefoldRuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if x.ndim != target.ndim + 1:
            raise OnefoldRuntimeError(
                f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found "
                f"inputs with size {tuple(x.shape)}"
            )
        if target.shape != x.shape[:-1]:
            raise OnefoldRuntimeError(
                "Input and target should have the same size in the batch dimension."
            )
        if interpreter.capturing() or not target.numel():
            return
        low, high = target.min().item(), target.max().item()
        if low < 0 or high >= self.n_classes:
            raise OnefoldRuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{low}, {high}] were found."
            )

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities (N, n_classes) of all classes."""
        head = log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for number, cluster in enumerate(self.tail):
            lead = head[:, self.shortlist_size + number].unsqueeze(1)
            parts.append(log_softmax(cluster(input), 1) + lead)
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The class (N,) of the highest probability."""
        return argmax(self.log_prob(input), 1)
