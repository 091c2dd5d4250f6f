"""Adam, with weight decay added to the gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..engine.tensor import Tensor
from ..kernels import adam_ref as kernels
from .adamw import AdamW
from .coupled_decay import decayed_apart
from .device_scalar import Given
from .optimizer import Group


class Adam(AdamW):
    """Kingma and Ba, "Adam: a method for stochastic optimization" (2015).

    The arguments are AdamW's, and `weight_decay` is L2, as torch's Adam has it.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.Adam([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([0.5, 0.5], dtype=float32)
    """

    kernel: Callable[..., None] = staticmethod(kernels.adam)

    def _update(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        for part in decayed_apart(group, params, grads, states, given):
            super()._update(*part)
