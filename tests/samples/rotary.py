"""Samples of rotary position embedding."""

from typing import Any

import torch

from onefold.testing import Sample, T


def rotary(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    seq_dim: int = -2,
) -> torch.Tensor:
    """As complex numbers, times cos + i sin."""
    x = x.movedim(seq_dim, -2)
    turned, rest = x.tensor_split([2 * cos.shape[-1]], -1)
    if interleaved:
        pairs = turned.unflatten(-1, (-1, 2))
    else:
        pairs = turned.unflatten(-1, (2, -1)).transpose(-1, -2)
    factor = torch.complex(cos, sin)
    if cos.ndim == 3:
        factor = factor.reshape(len(x), *[1] * (x.ndim - 3), *factor.shape[1:])
    z = torch.complex(pairs[..., 0], pairs[..., 1]) * factor
    y = torch.stack((z.real, z.imag), -1)
    y = y if interleaved else y.transpose(-1, -2)
    return torch.cat((y.flatten(-2), rest), -1).movedim(-2, seq_dim)


def of(x: tuple[int, ...], table: tuple[int, ...], **kw: Any) -> Sample:
    return Sample("rotary", (T(*x), T(*table), T(*table)), kw, torch=rotary)


SAMPLES = [
    of((2, 3, 5, 8), (5, 4)),
    of((2, 3, 6, 8), (6, 4), interleaved=True),
    of((2, 6, 3, 9), (6, 4), seq_dim=1),
    of((2, 6, 3, 9), (6, 3), interleaved=True, seq_dim=-3),
    of((4, 3, 6, 8), (4, 6, 4)),
    of((4, 6, 3, 8), (4, 6, 4), seq_dim=1, interleaved=True),
    of((6, 4), (6, 2)),
    of((5, 7, 4), (5, 2), seq_dim=0),
    of((0, 3, 4), (3, 2)),
]
