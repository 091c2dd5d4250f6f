"""Samples of gated activations."""

import torch
import torch.nn.functional as F

from onefold.testing import Sample, T


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def geglu(gate: torch.Tensor, up: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return F.gelu(gate, approximate=approximate) * up


SAMPLES = [
    Sample("swiglu", (T(6, 4), T(6, 4)), torch=swiglu),
    Sample("swiglu", (T(5, 3, 2), T(5, 3, 2)), torch=swiglu),
    Sample("swiglu", (T(0, 4), T(0, 4)), torch=swiglu),
    Sample("geglu", (T(6, 4), T(6, 4)), torch=geglu),
    Sample("geglu", (T(5, 7), T(5, 7)), {"approximate": "tanh"}, torch=geglu),
]
