"""LinearCrossEntropyLoss: a last layer and its cross entropy, without the memory for all logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from ..engine.argument_types import DeviceLike
from ..engine.ops.cross_entropy import cross_entropy
from ..engine.ops.linear_cross_entropy import linear_cross_entropy as fused
from ..engine.ops.matmul import linear
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, ShapeError
from .linear import Linear
from .module import Module


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """Torch's settings of chunks, accepted without effect: the op chooses its own chunks."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: torch.dtype | None = None


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target)` with torch's parameters.

    The input is (in_features,) or (N, in_features), `linear_weight` is (classes, *out_features,
    in_features), and targets are class indices (N, *out_features) or probabilities (N, classes,
    *out_features). For class indices without out_features, bias, class weights and smoothing, the
    logits are made in chunks of rows. Raises ShapeError when the shapes do not fit, and
    OnefoldRuntimeError for an `ignore_index` of probabilities.
    """
    _check_shapes(input, linear_weight, linear_bias)
    classes, *outputs, features = linear_weight.shape
    logits_shape = (*input.shape[:-1], classes, *outputs)
    if tuple(target.shape) == logits_shape and ignore_index is not None:
        raise OnefoldRuntimeError(
            "ignore_index cannot be specified when target contains probabilities"
        )
    ignored = -100 if ignore_index is None else ignore_index
    plain = linear_bias is None and weight is None and not label_smoothing and not outputs
    indices = not target.is_floating_point() and tuple(target.shape) == tuple(input.shape[:-1])
    if plain and indices and input.ndim == 2 and reduction in ("mean", "sum"):
        return fused(input, linear_weight, target, ignored, reduction)
    rows = math.prod(outputs, start=classes)
    matrix = linear_weight.reshape(rows, features) if outputs else linear_weight
    bias = linear_bias.reshape(rows) if linear_bias is not None and outputs else linear_bias
    logits = linear(input, matrix, bias)
    logits = logits.reshape(logits_shape) if outputs else logits
    return cross_entropy(logits, target, weight, ignored, reduction, label_smoothing)


def _check_shapes(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    shape = tuple(weight.shape)
    if input.ndim not in (1, 2) or weight.ndim < 2 or input.shape[-1] != shape[-1]:
        raise ShapeError(
            "linear_cross_entropy needs an input (in_features,) or (N, in_features) and a weight "
            f"(classes, *out_features, in_features), but got {tuple(input.shape)} and {shape}"
        )
    if bias is not None and tuple(bias.shape) != shape[:-1]:
        raise ShapeError(
            f"linear_cross_entropy: expected linear_bias shape {shape[:-1]}, got "
            f"{tuple(bias.shape)}"
        )
    if len(shape) > 2 and input.ndim == 1:
        raise ShapeError(
            f"linear_cross_entropy: a weight of shape {shape} requires batched input, (N, "
            f"{shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )


class LinearCrossEntropyLoss(Module):
    """The cross entropy of `linear(input)`; see `nn.functional.linear_cross_entropy`.

    Raises ShapeError for class weights of another shape than (num_classes,), and
    OnefoldRuntimeError for a smoothing outside of [0, 1].
    """

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ShapeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise OnefoldRuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        self.register_buffer("weight", weight)
        self.reduction = reduction
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        rows = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, rows, bias, device, dtype, placement=placement, sbp=sbp)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        matrix: Tensor = self.linear.weight
        bias: Tensor | None = self.linear.bias
        if self.out_features:
            shape = (self.num_classes, *self.out_features)
            matrix = matrix.reshape(*shape, self.linear.in_features)
            bias = None if bias is None else bias.reshape(shape)
        return linear_cross_entropy(
            input,
            matrix,
            target,
            linear_bias=bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        settings = {
            "in_features": self.linear.in_features,
            "num_classes": self.num_classes,
            "out_features": self.out_features,
            "bias": self.linear.bias is not None,
            "reduction": self.reduction,
            "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing,
            "options": self.options,
        }
        return ", ".join(f"{name}={value}" for name, value in settings.items())
