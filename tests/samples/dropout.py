"""Samples of dropout: the reference draws the mask of the whole tensor itself."""

from typing import Any

import torch

from onefold.engine.generator import manual_seed
from onefold.engine.names import names
from onefold.kernels.random_ref import dropout_mask
from onefold.testing import Sample, T


def seeded(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        manual_seed(5)
        return getattr(names, name)(*args, **kwargs)

    return call


def mask(shape: tuple[int, ...], p: float, dtype: torch.dtype) -> torch.Tensor:
    origin = (0,) * len(shape)
    draw: Any = {"seed": 5, "call": 0, "device": "cpu"}
    return dropout_mask(shape, origin, shape, p=p, dtype=dtype, **draw)


def elements(x: torch.Tensor, p: float = 0.5, training: bool = True) -> torch.Tensor:
    return x * mask(tuple(x.shape), p, x.dtype) if training else x * 1


def channels(x: torch.Tensor, p: float, batched: bool = True) -> torch.Tensor:
    lead = 2 if batched else 1
    shape = x.shape[:lead]
    return x * mask(tuple(shape), p, x.dtype).view(*shape, *[1] * (x.ndim - lead))


def with_mask(x: torch.Tensor, p: float, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    return elements(x, p), mask(tuple(x.shape), p, x.dtype) > 0


def alpha(x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    low = -1.0507009873554804 * 1.6732632423543772
    a = ((1 - p) * (1 + p * low**2)) ** -0.5
    kept = mask(tuple(x.shape), p, x.dtype) > 0
    return a * torch.where(kept, x, low) - a * p * low


def of(name: str, reference: Any, *args: Any, **kwargs: Any) -> Sample:
    return Sample(name, args, kwargs, torch=reference, call=seeded(name))


SAMPLES = [
    of("dropout", elements, T(6, 4), 0.4),
    of("dropout", elements, T(5, 7)),
    of("dropout", elements, T(3, 5, 2), 1.0),
    of("dropout", elements, T(6, 4), 0.4, training=False),
    of("dropout", elements, T(6, 4, dtype=torch.float32), 0.3),
    of("dropout", elements, T(0, 4), 0.3),
    of("dropout1d", channels, T(6, 4, 3), 0.4),
    of("dropout2d", channels, T(5, 3, 2, 2), 0.4),
    of("dropout3d", lambda x, p: channels(x, p, False), T(6, 2, 3, 2), 0.4),
    of("feature_dropout", lambda x, p, train: channels(x, p), T(5, 3, 2, 2), 0.4, True),
    of("native_dropout", with_mask, T(6, 4), 0.4, True),
    of("alpha_dropout", alpha, T(6, 4), 0.4, training=True),
]
