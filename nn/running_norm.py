"""Batch and instance normalization: layers that may keep running statistics."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.nn.modules.batchnorm import _NormBase

from ..engine.argument_types import DeviceLike, TypedLayout
from ..engine.ops.batch_norm import batch_norm
from ..engine.ops.creation import ones, tensor, zeros
from ..engine.ops.group_norm import instance_norm
from ..engine.placement import Placement
from ..engine.sbp import SbpLike, broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldNotImplementedError, OnefoldValueError
from .module import Module
from .normalization import Scaled


class RunningNorm(Scaled):
    """Owns `weight`, `bias`, `running_mean`, `running_var`, each (num_features,) or None."""

    _version = 2
    ndims: ClassVar[tuple[int, ...]] = ()  # of inputs; a subclass of users has its own check
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        where: TypedLayout = {
            "dtype": dtype, "device": device, "placement": placement, "sbp": sbp
        }  # fmt: skip
        self._make_scale(num_features, where, weight=affine, bias=affine and bias)
        mean = variance = count = None
        if track_running_stats:
            mean, variance = zeros(num_features, **where), ones(num_features, **where)
            if placement is not None:
                where["sbp"] = (broadcast,) * placement.ndim
            where["dtype"] = torch.int64
            count = tensor(0, **where)
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", variance)
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if local_metadata.get("version", 1) < 2 and self.num_batches_tracked is not None:
            # Torch did not count batches before version 2.
            state_dict.setdefault(prefix + "num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def reset_running_stats(self) -> None:
        """Reset the running statistics."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and no statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_dim(self, input: Tensor) -> None:
        """Raises an error for an input with another number of dims; a subclass may have its own."""
        if not self.ndims:
            raise OnefoldNotImplementedError(
                f"{type(self).__name__} is a base: derive from BatchNorm2d or another layer, or "
                "define _check_input_dim(self, input)"
            )
        if input.ndim not in self.ndims:
            shown = " or ".join(f"{n}D" for n in self.ndims)
            raise OnefoldValueError(f"expected {shown} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        return str(_NormBase.extra_repr(self))  # type: ignore[arg-type]


class BatchNorm(RunningNorm):
    """Each channel normalized over the whole logical batch, however it is split over ranks."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        count = self.num_batches_tracked if self.track_running_stats else None
        if self.training and count is not None:
            count.add_(1)
            if self.momentum is None:
                return self._averaged(input, count)
        mean, variance = self.running_mean, self.running_var
        by_batch = self.training or (mean is None and variance is None)
        if self.training and not self.track_running_stats:
            mean = variance = None
        return self._normalized(input, mean, variance, by_batch, self.momentum or 0.0)

    def _averaged(self, input: Tensor, count: Tensor) -> Tensor:
        """Forward with running statistics that are averages over all batches so far."""
        running = [x for x in (self.running_mean, self.running_var) if x is not None]
        before = [x.clone() for x in running]
        y = self._normalized(input, self.running_mean, self.running_var, True, 1.0)
        share = 1.0 / count.to(torch.float32)
        for latest, average in zip(running, before, strict=True):
            latest.copy_(average.lerp(latest, share.to(latest.dtype)))
        return y

    def _normalized(
        self,
        input: Tensor,
        mean: Tensor | None,
        variance: Tensor | None,
        by_batch: bool,
        momentum: float,
    ) -> Tensor:
        return batch_norm(
            input, mean, variance, self.weight, self.bias, by_batch, momentum, self.eps
        )


class BatchNorm1d(BatchNorm):
    """Batch normalization of (N, C) or (N, C, L). Source: Ioffe and Szegedy (2015).

    The statistics are those of the whole logical batch, as SyncBatchNorm's are in torch.
    """

    ndims = (2, 3)


class BatchNorm2d(BatchNorm):
    """Batch normalization of (N, C, H, W); see `BatchNorm1d`."""

    ndims = (4,)


class BatchNorm3d(BatchNorm):
    """Batch normalization of (N, C, D, H, W); see `BatchNorm1d`."""

    ndims = (5,)


class SyncBatchNorm(BatchNorm):
    """Batch normalization of two dims or more: every batch normalization here is synchronized."""

    ndims = (2, 3, 4, 5)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: object = None,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype,
            bias=bias, placement=placement, sbp=sbp,
        )  # fmt: skip
        self.process_group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: object = None) -> Module:
        """The module itself: its batch normalizations are synchronized already."""
        return module


class _InstanceNorm(RunningNorm):
    """Each channel of each sample normalized on its own."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype,
            bias=bias, placement=placement, sbp=sbp,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        batched = not self.ndims or input.ndim == max(self.ndims)
        x = input if batched else input.unsqueeze(0)
        y = instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, self.momentum or 0.0, self.eps,
        )  # fmt: skip
        return y if batched else y.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of (N, C, L) or (C, L). Source: Ulyanov et al. (2016)."""

    ndims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of (N, C, H, W) or (C, H, W)."""

    ndims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of (N, C, D, H, W) or (C, D, H, W)."""

    ndims = (4, 5)
