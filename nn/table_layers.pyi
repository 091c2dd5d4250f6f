"""The layers of `layer_table`, as classes.

Written by `make stubs`; do not edit.
"""

from collections.abc import Callable
from typing import Any

import torch

from ..engine.tensor import Tensor
from .module import Module

class TableLayer(Module): ...

LAYERS: dict[str, type[TableLayer]]
BASES: dict[str, type[TableLayer]]

class CELU(TableLayer):
    """`celu` as a layer; see torch.nn.CELU."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ELU(TableLayer):
    """`elu` as a layer; see torch.nn.ELU."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class GELU(TableLayer):
    """`gelu` as a layer; see torch.nn.GELU."""

    def __init__(self, approximate: str = "none") -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class GLU(TableLayer):
    """`glu` as a layer; see torch.nn.GLU."""

    def __init__(self, dim: int = -1) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Hardshrink(TableLayer):
    """`hardshrink` as a layer; see torch.nn.Hardshrink."""

    def __init__(self, lambd: float = 0.5) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Hardsigmoid(TableLayer):
    """`hardsigmoid` as a layer; see torch.nn.Hardsigmoid."""

    def __init__(self, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Hardswish(TableLayer):
    """`hardswish` as a layer; see torch.nn.Hardswish."""

    def __init__(self, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Hardtanh(TableLayer):
    """`hardtanh` as a layer; see torch.nn.Hardtanh."""

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class LeakyReLU(TableLayer):
    """`leaky_relu` as a layer; see torch.nn.LeakyReLU."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class LogSigmoid(TableLayer):
    """`logsigmoid` as a layer; see torch.nn.LogSigmoid."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class LogSoftmax(TableLayer):
    """`log_softmax` as a layer; see torch.nn.LogSoftmax."""

    def __init__(self, dim: int | None = None) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Mish(TableLayer):
    """`mish` as a layer; see torch.nn.Mish."""

    def __init__(self, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReLU6(TableLayer):
    """`relu6` as a layer; see torch.nn.ReLU6."""

    def __init__(self, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReLU(TableLayer):
    """`relu` as a layer; see torch.nn.ReLU."""

    def __init__(self, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class RReLU(TableLayer):
    """`rrelu` as a layer; see torch.nn.RReLU."""

    def __init__(
        self, lower: float = 0.125, upper: float = 0.3333333333333333, inplace: bool = False
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class SELU(TableLayer):
    """`selu` as a layer; see torch.nn.SELU."""

    def __init__(self, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class SiLU(TableLayer):
    """`silu` as a layer; see torch.nn.SiLU."""

    def __init__(self, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Sigmoid(TableLayer):
    """`sigmoid` as a layer; see torch.nn.Sigmoid."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Softmax(TableLayer):
    """`softmax` as a layer; see torch.nn.Softmax."""

    def __init__(self, dim: int | None = None) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Softmax2d(TableLayer):
    """`softmax` as a layer; see torch.nn.Softmax2d."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Softmin(TableLayer):
    """`softmin` as a layer; see torch.nn.Softmin."""

    def __init__(self, dim: int | None = None) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Softplus(TableLayer):
    """`softplus` as a layer; see torch.nn.Softplus."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Softshrink(TableLayer):
    """`softshrink` as a layer; see torch.nn.Softshrink."""

    def __init__(self, lambd: float = 0.5) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Softsign(TableLayer):
    """`softsign` as a layer; see torch.nn.Softsign."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Tanh(TableLayer):
    """`tanh` as a layer; see torch.nn.Tanh."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Tanhshrink(TableLayer):
    """`tanhshrink` as a layer; see torch.nn.Tanhshrink."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Threshold(TableLayer):
    """`threshold` as a layer; see torch.nn.Threshold."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class AdaptiveAvgPool1d(TableLayer):
    """`adaptive_avg_pool1d` as a layer; see torch.nn.AdaptiveAvgPool1d."""

    def __init__(self, output_size: int | tuple[int | None, ...] | None) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class AdaptiveAvgPool2d(TableLayer):
    """`adaptive_avg_pool2d` as a layer; see torch.nn.AdaptiveAvgPool2d."""

    def __init__(self, output_size: int | tuple[int | None, ...] | None) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class AdaptiveAvgPool3d(TableLayer):
    """`adaptive_avg_pool3d` as a layer; see torch.nn.AdaptiveAvgPool3d."""

    def __init__(self, output_size: int | tuple[int | None, ...] | None) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class AdaptiveMaxPool1d(TableLayer):
    """`adaptive_max_pool1d` as a layer; see torch.nn.AdaptiveMaxPool1d."""

    def __init__(
        self, output_size: int | tuple[int | None, ...] | None, return_indices: bool = False
    ) -> None: ...
    def forward(self, input: Tensor) -> Any: ...

class AdaptiveMaxPool2d(TableLayer):
    """`adaptive_max_pool2d` as a layer; see torch.nn.AdaptiveMaxPool2d."""

    def __init__(
        self, output_size: int | tuple[int | None, ...] | None, return_indices: bool = False
    ) -> None: ...
    def forward(self, input: Tensor) -> Any: ...

class AdaptiveMaxPool3d(TableLayer):
    """`adaptive_max_pool3d` as a layer; see torch.nn.AdaptiveMaxPool3d."""

    def __init__(
        self, output_size: int | tuple[int | None, ...] | None, return_indices: bool = False
    ) -> None: ...
    def forward(self, input: Tensor) -> Any: ...

class AvgPool1d(TableLayer):
    """`avg_pool1d` as a layer; see torch.nn.AvgPool1d."""

    def __init__(
        self,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] | None = None,
        padding: int | tuple[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class AvgPool3d(TableLayer):
    """`avg_pool3d` as a layer; see torch.nn.AvgPool3d."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int, int],
        stride: int | tuple[int, int, int] | None = None,
        padding: int | tuple[int, int, int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class FractionalMaxPool2d(TableLayer):
    """`fractional_max_pool2d` as a layer; see torch.nn.FractionalMaxPool2d."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        output_size: int | tuple[int, int] | None = None,
        output_ratio: float | tuple[float, float] | None = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None: ...
    def forward(self, input: Tensor) -> Any: ...

class FractionalMaxPool3d(TableLayer):
    """`fractional_max_pool3d` as a layer; see torch.nn.FractionalMaxPool3d."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int, int],
        output_size: int | tuple[int, int, int] | None = None,
        output_ratio: float | tuple[float, float, float] | None = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None: ...
    def forward(self, input: Tensor) -> Any: ...

class LPPool1d(TableLayer):
    """`lp_pool1d` as a layer; see torch.nn.LPPool1d."""

    def __init__(
        self,
        norm_type: float,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        ceil_mode: bool = False,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class LPPool2d(TableLayer):
    """`lp_pool2d` as a layer; see torch.nn.LPPool2d."""

    def __init__(
        self,
        norm_type: float,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        ceil_mode: bool = False,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class LPPool3d(TableLayer):
    """`lp_pool3d` as a layer; see torch.nn.LPPool3d."""

    def __init__(
        self,
        norm_type: float,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        ceil_mode: bool = False,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class MaxPool1d(TableLayer):
    """`max_pool1d` as a layer; see torch.nn.MaxPool1d."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None: ...
    def forward(self, input: Tensor) -> Any: ...

class MaxPool3d(TableLayer):
    """`max_pool3d` as a layer; see torch.nn.MaxPool3d."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None: ...
    def forward(self, input: Tensor) -> Any: ...

class MaxUnpool1d(TableLayer):
    """`max_unpool1d` as a layer; see torch.nn.MaxUnpool1d."""

    def __init__(
        self,
        kernel_size: int | tuple[int],
        stride: int | tuple[int] | None = None,
        padding: int | tuple[int] = 0,
    ) -> None: ...
    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor: ...

class MaxUnpool2d(TableLayer):
    """`max_unpool2d` as a layer; see torch.nn.MaxUnpool2d."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
    ) -> None: ...
    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor: ...

class MaxUnpool3d(TableLayer):
    """`max_unpool3d` as a layer; see torch.nn.MaxUnpool3d."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int, int],
        stride: int | tuple[int, int, int] | None = None,
        padding: int | tuple[int, int, int] = 0,
    ) -> None: ...
    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor: ...

class CircularPad1d(TableLayer):
    """`pad` as a layer; see torch.nn.CircularPad1d."""

    def __init__(self, padding: int | tuple[int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class CircularPad2d(TableLayer):
    """`pad` as a layer; see torch.nn.CircularPad2d."""

    def __init__(self, padding: int | tuple[int, int, int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class CircularPad3d(TableLayer):
    """`pad` as a layer; see torch.nn.CircularPad3d."""

    def __init__(self, padding: int | tuple[int, int, int, int, int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ConstantPad1d(TableLayer):
    """`pad` as a layer; see torch.nn.ConstantPad1d."""

    def __init__(self, padding: int | tuple[int, int], value: float) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ConstantPad2d(TableLayer):
    """`pad` as a layer; see torch.nn.ConstantPad2d."""

    def __init__(self, padding: int | tuple[int, int, int, int], value: float) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ConstantPad3d(TableLayer):
    """`pad` as a layer; see torch.nn.ConstantPad3d."""

    def __init__(
        self, padding: int | tuple[int, int, int, int, int, int], value: float
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReflectionPad1d(TableLayer):
    """`pad` as a layer; see torch.nn.ReflectionPad1d."""

    def __init__(self, padding: int | tuple[int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReflectionPad2d(TableLayer):
    """`pad` as a layer; see torch.nn.ReflectionPad2d."""

    def __init__(self, padding: int | tuple[int, int, int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReflectionPad3d(TableLayer):
    """`pad` as a layer; see torch.nn.ReflectionPad3d."""

    def __init__(self, padding: int | tuple[int, int, int, int, int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReplicationPad1d(TableLayer):
    """`pad` as a layer; see torch.nn.ReplicationPad1d."""

    def __init__(self, padding: int | tuple[int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReplicationPad2d(TableLayer):
    """`pad` as a layer; see torch.nn.ReplicationPad2d."""

    def __init__(self, padding: int | tuple[int, int, int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ReplicationPad3d(TableLayer):
    """`pad` as a layer; see torch.nn.ReplicationPad3d."""

    def __init__(self, padding: int | tuple[int, int, int, int, int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ZeroPad1d(TableLayer):
    """`pad` as a layer; see torch.nn.ZeroPad1d."""

    def __init__(self, padding: int | tuple[int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ZeroPad2d(TableLayer):
    """`pad` as a layer; see torch.nn.ZeroPad2d."""

    def __init__(self, padding: int | tuple[int, int, int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ZeroPad3d(TableLayer):
    """`pad` as a layer; see torch.nn.ZeroPad3d."""

    def __init__(self, padding: int | tuple[int, int, int, int, int, int]) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class ChannelShuffle(TableLayer):
    """`channel_shuffle` as a layer; see torch.nn.ChannelShuffle."""

    def __init__(self, groups: int) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Fold(TableLayer):
    """`fold` as a layer; see torch.nn.Fold."""

    def __init__(
        self,
        output_size: int | tuple[int, ...],
        kernel_size: int | tuple[int, ...],
        dilation: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        stride: int | tuple[int, ...] = 1,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class PixelShuffle(TableLayer):
    """`pixel_shuffle` as a layer; see torch.nn.PixelShuffle."""

    def __init__(self, upscale_factor: int) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class PixelUnshuffle(TableLayer):
    """`pixel_unshuffle` as a layer; see torch.nn.PixelUnshuffle."""

    def __init__(self, downscale_factor: int) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Unflatten(TableLayer):
    """`unflatten` as a layer; see torch.nn.Unflatten."""

    def __init__(
        self, dim: int, unflattened_size: torch.Size | list[int] | tuple[int, ...]
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Unfold(TableLayer):
    """`im2col` as a layer; see torch.nn.Unfold."""

    def __init__(
        self,
        kernel_size: int | tuple[int, ...],
        dilation: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        stride: int | tuple[int, ...] = 1,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Upsample(TableLayer):
    """`interpolate` as a layer; see torch.nn.Upsample."""

    def __init__(
        self,
        size: int | tuple[int, ...] | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class UpsamplingBilinear2d(TableLayer):
    """`interpolate` as a layer; see torch.nn.UpsamplingBilinear2d."""

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        scale_factor: float | tuple[float, float] | None = None,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class UpsamplingNearest2d(TableLayer):
    """`interpolate` as a layer; see torch.nn.UpsamplingNearest2d."""

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        scale_factor: float | tuple[float, float] | None = None,
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class AlphaDropout(TableLayer):
    """`alpha_dropout` as a layer; see torch.nn.AlphaDropout."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout(TableLayer):
    """`dropout` as a layer; see torch.nn.Dropout."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout1d(TableLayer):
    """`dropout1d` as a layer; see torch.nn.Dropout1d."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout2d(TableLayer):
    """`dropout2d` as a layer; see torch.nn.Dropout2d."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class Dropout3d(TableLayer):
    """`dropout3d` as a layer; see torch.nn.Dropout3d."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class FeatureAlphaDropout(TableLayer):
    """`feature_alpha_dropout` as a layer; see torch.nn.FeatureAlphaDropout."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class CosineSimilarity(TableLayer):
    """`cosine_similarity` as a layer; see torch.nn.CosineSimilarity."""

    def __init__(self, dim: int = 1, eps: float = 1e-08) -> None: ...
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor: ...

class LocalResponseNorm(TableLayer):
    """`local_response_norm` as a layer; see torch.nn.LocalResponseNorm."""

    def __init__(
        self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0
    ) -> None: ...
    def forward(self, input: Tensor) -> Tensor: ...

class PairwiseDistance(TableLayer):
    """`pairwise_distance` as a layer; see torch.nn.PairwiseDistance."""

    def __init__(self, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False) -> None: ...
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor: ...

class BCELoss(TableLayer):
    """`binary_cross_entropy` as a layer; see torch.nn.BCELoss."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class BCEWithLogitsLoss(TableLayer):
    """`binary_cross_entropy_with_logits` as a layer; see torch.nn.BCEWithLogitsLoss."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class CTCLoss(TableLayer):
    """`ctc_loss` as a layer; see torch.nn.CTCLoss."""

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None: ...
    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor: ...

class CosineEmbeddingLoss(TableLayer):
    """`cosine_embedding_loss` as a layer; see torch.nn.CosineEmbeddingLoss."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor: ...

class GaussianNLLLoss(TableLayer):
    """`gaussian_nll_loss` as a layer; see torch.nn.GaussianNLLLoss."""

    def __init__(
        self, *, full: bool = False, eps: float = 1e-06, reduction: str = "mean"
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor: ...

class HingeEmbeddingLoss(TableLayer):
    """`hinge_embedding_loss` as a layer; see torch.nn.HingeEmbeddingLoss."""

    def __init__(
        self,
        margin: float = 1.0,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class HuberLoss(TableLayer):
    """`huber_loss` as a layer; see torch.nn.HuberLoss."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class KLDivLoss(TableLayer):
    """`kl_div` as a layer; see torch.nn.KLDivLoss."""

    def __init__(
        self,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class L1Loss(TableLayer):
    """`l1_loss` as a layer; see torch.nn.L1Loss."""

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class MarginRankingLoss(TableLayer):
    """`margin_ranking_loss` as a layer; see torch.nn.MarginRankingLoss."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor: ...

class MultiLabelMarginLoss(TableLayer):
    """`multilabel_margin_loss` as a layer; see torch.nn.MultiLabelMarginLoss."""

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class MultiLabelSoftMarginLoss(TableLayer):
    """`multilabel_soft_margin_loss` as a layer; see torch.nn.MultiLabelSoftMarginLoss."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class MultiMarginLoss(TableLayer):
    """`multi_margin_loss` as a layer; see torch.nn.MultiMarginLoss."""

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class PoissonNLLLoss(TableLayer):
    """`poisson_nll_loss` as a layer; see torch.nn.PoissonNLLLoss."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: Any = None,
        eps: float = 1e-08,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, log_input: Tensor, target: Tensor) -> Tensor: ...

class SmoothL1Loss(TableLayer):
    """`smooth_l1_loss` as a layer; see torch.nn.SmoothL1Loss."""

    def __init__(
        self,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class SoftMarginLoss(TableLayer):
    """`soft_margin_loss` as a layer; see torch.nn.SoftMarginLoss."""

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None: ...
    def forward(self, input: Tensor, target: Tensor) -> Tensor: ...

class TripletMarginLoss(TableLayer):
    """`triplet_margin_loss` as a layer; see torch.nn.TripletMarginLoss."""

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-06,
        swap: bool = False,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor: ...

class TripletMarginWithDistanceLoss(TableLayer):
    """`triplet_margin_with_distance_loss` as a layer; see torch.nn.TripletMarginWithDistanceLoss."""

    def __init__(
        self,
        *,
        distance_function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None: ...
    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor: ...
