"""Gradient scalers: the loss is scaled up for backward, so that small gradients survive float16."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..engine.grad_mode import no_grad
from ..engine.names import names
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from .clip import total_norm
from .gradients import aligned

__all__ = ["GradScaler", "StaticGradScaler"]

LARGEST = 2.0**127  # the largest power of two in float32


class StaticGradScaler:
    """A constant scale, for `Graph.set_grad_scaler`: results change only where digits were lost.

    The loss's backward starts from the scale, and the gradients are divided by it before they are
    clipped and used. Source: Micikevicius et al., "Mixed precision training" (2018).

    >>> StaticGradScaler(128.0).scale
    128.0
    """

    def __init__(self, scale_factor: float) -> None:
        self._scale = _positive("scale_factor", scale_factor)

    @property
    def scale(self) -> float:
        """What the next backward starts from."""
        return self._scale

    @no_grad
    def unscale(self, params: Sequence[Tensor]) -> bool:
        """Divide the gradients of these parameters; returns whether to use them."""
        for param in params:
            if param.grad is not None:
                param.grad = names.mul(param.grad, 1.0 / self._scale)
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self._scale}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave; raises OnefoldValueError for anything else."""
        self._check(state_dict)
        self._scale = float(state_dict["scale"])

    def _check(self, state_dict: Mapping[str, Any]) -> None:
        own = self.state_dict()
        if set(state_dict) != set(own):
            raise OnefoldValueError(
                f"the state of a {type(self).__name__} has {sorted(own)}, but the given one has "
                f"{sorted(state_dict)}"
            )
        _positive("scale", state_dict["scale"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self._scale})"


class GradScaler(StaticGradScaler):
    """A scale that follows the gradients, for `Graph.set_grad_scaler`.

    A step in which some gradient is infinite or NaN is skipped, on every rank of the parameters'
    placements alike, and the scale is multiplied by `backoff_factor`; after `growth_interval` good
    steps in a row by `growth_factor`. Learning rate schedules count skipped steps too.

    >>> GradScaler(init_scale=1024.0).scale
    1024.0
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        super().__init__(_positive("init_scale", init_scale))
        if not _positive("growth_factor", growth_factor) > 1:
            raise OnefoldValueError(f"growth_factor must be above 1, but got {growth_factor}")
        if not _positive("backoff_factor", backoff_factor) < 1:
            raise OnefoldValueError(f"backoff_factor must be below 1, but got {backoff_factor}")
        if isinstance(growth_interval, bool) or not isinstance(growth_interval, int):
            raise OnefoldTypeError(f"growth_interval must be an integer, not {growth_interval!r}")
        if growth_interval < 1:
            raise OnefoldValueError(
                f"growth_interval must be at least 1, but got {growth_interval}"
            )
        self._growth = float(growth_factor)
        self._backoff = float(backoff_factor)
        self._interval = growth_interval
        self._good_steps = 0  # since the scale changed, or a step was skipped

    @no_grad
    def unscale(self, params: Sequence[Tensor]) -> bool:
        """Divide the gradients of these parameters, and adapt the scale; False if not finite.

        The gradients are boxed to their parameters' layouts; all ranks decide alike.
        """
        params = [param for param in params if param.grad is not None]
        for param, gradient in zip(params, aligned(params), strict=True):
            param.grad = gradient
        super().unscale(params)
        # Infinities and NaN survive a sum; a maximum over ranks may lose NaN.
        finite = math.isfinite(total_norm([p.grad for p in params if p.grad is not None], 1.0))
        self._good_steps = self._good_steps + 1 if finite else 0
        if not finite:
            self._scale *= self._backoff
        elif self._good_steps == self._interval:
            self._scale = min(self._scale * self._growth, LARGEST)
            self._good_steps = 0
        return finite

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self._scale, "good_steps": self._good_steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._good_steps = int(state_dict["good_steps"])


def _positive(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OnefoldTypeError(f"{what} must be a number, but got {value!r}")
    if not 0 < value < math.inf:
        raise OnefoldValueError(f"{what} must be positive and finite, but got {value}")
    return float(value)
