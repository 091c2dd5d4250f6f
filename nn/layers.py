"""The first layers: linear, convolution, normalisation, embedding, dropout, activations, losses."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.grad_mode import no_grad
from ..engine.names import names
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from . import init
from .module import Module
from .parameter import Parameter


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


class Linear(Module):
    """y = x W^T + b with W of shape (out_features, in_features).

    >>> import onefold as flow
    >>> flow.nn.Linear(4, 2)(flow.ones(3, 4)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(
            init.empty_parameter((out_features, in_features), dtype, device, placement, sbp)
        )
        self.bias: Parameter | None
        if bias:
            self.bias = Parameter(_bias_like(self.weight, out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = init.default_bound(self.in_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return names.linear(x, self.weight, self.bias)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


def _bias_like(weight: Tensor, size: int) -> Tensor:
    """An unset bias on the weight's device; of a global weight, split where its dim 0 is."""
    if weight.is_local:
        return names.empty(size, dtype=weight.dtype, device=weight.device)  # type: ignore[no-any-return]
    layout = tuple(s if s.is_split and s.dim == 0 else broadcast for s in weight.sbp)
    return names.empty(size, dtype=weight.dtype, placement=weight.placement, sbp=layout)  # type: ignore[no-any-return]


class Conv2d(Module):
    """2-d convolution of (N, C, H, W) with weights (out_channels, in_channels / groups, kh, kw)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise OnefoldValueError(
                f"Conv2d: in_channels={in_channels} and out_channels={out_channels} must be "
                f"divisible by groups={groups}"
            )
        if padding_mode != "zeros":
            raise OnefoldValueError(
                f"Conv2d: padding_mode={padding_mode!r} is not supported, only 'zeros'; pad the "
                "input with nn.functional.pad first"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = padding if isinstance(padding, str) else _pair(padding)
        self.dilation = _pair(dilation)
        self.groups = groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(init.empty_parameter(shape, dtype, device, placement, sbp))
        self.bias: Parameter | None
        if bias:
            self.bias = Parameter(_bias_like(self.weight, out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = init.default_bound(init.fan_in_and_out(self.weight)[0])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return names.conv2d(  # type: ignore[no-any-return]
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}"
        )


class MaxPool2d(Module):
    """The largest value of each window."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        return names.max_pool2d(  # type: ignore[no-any-return]
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        return names.avg_pool2d(  # type: ignore[no-any-return]
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        return x.relu_() if self.inplace else names.relu(x)


class GELU(Module):
    """x times the normal distribution function of x, exactly or by the tanh approximation."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return names.gelu(x, approximate=self.approximate)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return names.silu(x)  # type: ignore[no-any-return]


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return names.tanh(x)  # type: ignore[no-any-return]


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return names.sigmoid(x)  # type: ignore[no-any-return]


class Softmax(Module):
    """Softmax over one dim."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return names.softmax(x, self.dim)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Identity(Module):
    """x."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """Join the dims from start_dim to end_dim."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        return names.flatten(x, self.start_dim, self.end_dim)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class LayerNorm(Module):
    """Normalisation over the last dims to mean 0 and variance 1, then weight and bias."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(shape)
        self.eps = eps
        self.weight: Parameter | None
        self.bias: Parameter | None
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            unset = None
            if wanted:
                unset = Parameter(
                    init.empty_parameter(self.normalized_shape, dtype, device, placement, sbp)
                )
            self.register_parameter(name, unset)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return names.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class Embedding(Module):
    """A table of num_embeddings rows looked up by index; split(0) makes it vocabulary-parallel."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise OnefoldValueError(
                f"Embedding: padding_idx must be within num_embeddings={num_embeddings}, but got "
                f"{padding_idx}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = (
            padding_idx + num_embeddings
            if padding_idx is not None and padding_idx < 0
            else padding_idx
        )
        shape = (num_embeddings, embedding_dim)
        self.weight = Parameter(init.empty_parameter(shape, dtype, device, placement, sbp))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, indices: Tensor) -> Tensor:
        return names.embedding(indices, self.weight, self.padding_idx)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class Dropout(Module):
    """Zero each element with probability p while training, and scale the others by 1/(1-p).

    The mask depends on the element's logical index, so it is the same for every layout.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise OnefoldValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        y = names.dropout(x, self.p, self.training)
        return x.copy_(y) if self.inplace else y

    def extra_repr(self) -> str:
        return f"p={self.p}"


class CrossEntropyLoss(Module):
    """Softmax and negative log likelihood in one; the class dim may be split without a gather."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return names.cross_entropy(  # type: ignore[no-any-return]
            x,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(Module):
    """Negative log likelihood of log-probabilities."""

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return names.nll_loss(  # type: ignore[no-any-return]
            x,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class MSELoss(Module):
    """The mean (or sum) of squared differences."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return names.mse_loss(x, target, reduction=self.reduction)  # type: ignore[no-any-return]
