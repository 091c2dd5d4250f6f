"""Fourier transforms, under the names of `torch.fft`.

Written by `make stubs`; do not edit.
"""

from collections.abc import Iterable, Sequence

import torch

from .engine.placed_device import PlacedDevice
from .engine.placement import Placement
from .engine.sbp import Sbp
from .engine.tensor import Tensor

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

def fft(
    input: Tensor,
    n: Tensor | int | None = None,
    dim: int | Sequence[int] = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.fft on every shard; see torch's documentation."""

def fft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = ...,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.fft2 on every shard; see torch's documentation."""

def fftfreq(
    n: Tensor | int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector that torch.fft.fftfreq makes, in any layout."""

def fftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.fftn on every shard; see torch's documentation."""

def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """torch.fft.fftshift on every shard; see torch's documentation."""

def hfft(
    input: Tensor,
    n: Tensor | int | None = None,
    dim: int | Sequence[int] = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.hfft on every shard; see torch's documentation."""

def hfft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = ...,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.hfft2 on every shard; see torch's documentation."""

def hfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.hfftn on every shard; see torch's documentation."""

def ifft(
    input: Tensor,
    n: Tensor | int | None = None,
    dim: int | Sequence[int] = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.ifft on every shard; see torch's documentation."""

def ifft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = ...,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.ifft2 on every shard; see torch's documentation."""

def ifftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.ifftn on every shard; see torch's documentation."""

def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """torch.fft.ifftshift on every shard; see torch's documentation."""

def ihfft(
    input: Tensor,
    n: Tensor | int | None = None,
    dim: int | Sequence[int] = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.ihfft on every shard; see torch's documentation."""

def ihfft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = ...,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.ihfft2 on every shard; see torch's documentation."""

def ihfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.ihfftn on every shard; see torch's documentation."""

def irfft(
    input: Tensor,
    n: Tensor | int | None = None,
    dim: int | Sequence[int] = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.irfft on every shard; see torch's documentation."""

def irfft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = ...,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.irfft2 on every shard; see torch's documentation."""

def irfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.irfftn on every shard; see torch's documentation."""

def rfft(
    input: Tensor,
    n: Tensor | int | None = None,
    dim: int | Sequence[int] = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.rfft on every shard; see torch's documentation."""

def rfft2(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] = ...,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.rfft2 on every shard; see torch's documentation."""

def rfftfreq(
    n: Tensor | int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | PlacedDevice | None = None,
    placement: Placement | None = None,
    sbp: Sbp | Iterable[Sbp] | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The vector that torch.fft.rfftfreq makes, in any layout."""

def rfftn(
    input: Tensor,
    s: int | Sequence[int] | None = None,
    dim: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """torch.fft.rfftn on every shard; see torch's documentation."""
