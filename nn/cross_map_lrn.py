"""CrossMapLRN2d: local response normalization as the Lua version of torch computed it."""

from __future__ import annotations

import torch

from ..engine.argument_types import TypedLayout
from ..engine.ops.creation import tensor
from ..engine.ops.einsum import einsum
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from .module import Module


class CrossMapLRN2d(Module):
    """x / (k + alpha / size * the sum of squares over near channels)**beta, for x (N, C, H, W).

    The values are those of torch's class, whose windows keep channel 0 for every channel; the
    gradients are those of these values. `LocalResponseNorm` has the windows of the paper. Raises
    OnefoldValueError for inputs that are not 4-dimensional.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise OnefoldValueError(
                f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead."
            )
        near = _windows(input.shape[1], int((self.size - 1) / 2 + 1))
        layout: TypedLayout = {"dtype": input.dtype}
        if input.is_local:
            layout["device"] = input.device
        else:
            sbp = (broadcast,) * input.placement.ndim
            layout |= {"placement": input.placement, "sbp": sbp}
        total = einsum("oc,nchw->nohw", tensor(near, **layout), input * input)
        return input * (total * (self.alpha / self.size) + self.k) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _windows(channels: int, reach: int) -> torch.Tensor:
    """The channels (dim 1) in the sum of each channel (dim 0): those nearer than `reach`.

    Torch adds a channel at the right and drops one at the left as it goes on, but never channel 0.
    """
    at = torch.arange(channels)
    near = (at[:, None] - at).abs() < reach
    near[:, 0] = True
    return near.double()
