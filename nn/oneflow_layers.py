"""Layers of OneFlow that torch does not have."""

from __future__ import annotations

import torch

from ..engine.argument_types import DeviceLike, TypedLayout
from ..engine.ops.activation import relu
from ..engine.ops.norm import rms_norm
from ..engine.ops.unary import square
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import ShapeError
from .module import Module
from .normalization import Scaled
from .running_norm import BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d


class QuickGELU(Module):
    """x * sigmoid(1.702 x), which is near `GELU`. Source: Hendrycks and Gimpel (2016)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (x * 1.702).sigmoid()


class SquareReLU(Module):
    """The square of x where x is positive, else 0. Source: So et al., "Primer" (2021)."""

    def forward(self, x: Tensor) -> Tensor:
        return square(relu(x))


class RMSLayerNorm(Scaled):
    """`RMSNorm` of the last dim, as T5 has it, with OneFlow's arguments."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        *,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        where: TypedLayout = {"dtype": dtype, "device": device, "placement": placement, "sbp": sbp}
        self._make_scale(hidden_size, where, weight=True)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, (self.hidden_size,), self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}"


class _FusedBatchNorm(BatchNorm):
    """relu(batch_norm(x) + addend), without the addend if there is none."""

    def forward(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        y = super().forward(x)
        return relu(y if addend is None else y + addend)


class FusedBatchNorm1d(_FusedBatchNorm, BatchNorm1d):
    """relu(batch_norm(x) + addend), without the addend if there is none; see `BatchNorm1d`."""


class FusedBatchNorm2d(_FusedBatchNorm, BatchNorm2d):
    """relu(batch_norm(x) + addend), without the addend if there is none; see `BatchNorm2d`."""


class FusedBatchNorm3d(_FusedBatchNorm, BatchNorm3d):
    """relu(batch_norm(x) + addend), without the addend if there is none; see `BatchNorm3d`."""


class CombinedMarginLoss(Module):
    """The cosines x (N, classes) with margins: cos(m1 * angle + m2) - m3 at each row's label.

    The result goes into a cross entropy. With m1 = 1 and m2 = m3 = 0 it is x. The classes may be
    split. Raises ShapeError unless the labels are (N,). Source: Deng et al., "ArcFace" (2019).
    """

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> None:
        super().__init__()
        self.m1 = m1
        self.m2 = m2
        self.m3 = m3

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        if x.ndim != 2 or label.shape != x.shape[:1]:
            raise ShapeError(
                "CombinedMarginLoss needs x (N, classes) and labels (N,), but got "
                f"{tuple(x.shape)} and {tuple(label.shape)}"
            )
        index = label.to(torch.int64).unsqueeze(1)
        of_label = x.gather(1, index)
        if (self.m1, self.m2) != (1.0, 0.0):
            of_label = (of_label.acos() * self.m1 + self.m2).cos()
        return x.scatter(1, index, of_label - self.m3)

    def extra_repr(self) -> str:
        return f"m1={self.m1}, m2={self.m2}, m3={self.m3}"
