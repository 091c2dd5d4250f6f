"""Gradient scalers: scale the loss for backward, so that small gradients survive float16."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

import torch

from ..engine.grad_mode import no_grad
from ..engine.refusal import refusing
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from .clip import found_inf
from .device_scalar import DeviceScalar, Given

__all__ = ["GradScaler", "StaticGradScaler"]


_EAGER = (
    "gradient scalers are for graphs: give it to graph.set_grad_scaler. In eager programs use "
    'flow.autocast("cuda", dtype=flow.bfloat16), which needs no scaler'
)


class Scale(float):
    """A scale as a number; called as torch's `scaler.scale(loss)` it says what to do instead."""

    def __call__(self, outputs: object) -> NoReturn:
        raise OnefoldTypeError(f"scale(loss): {_EAGER}")


class StaticGradScaler:
    """A constant scale, for `Graph.set_grad_scaler`: results change only where digits were lost.

    The loss's backward starts from the scale, and the gradients are divided by it before they are
    clipped and used. Source: Micikevicius et al., "Mixed precision training" (2018).

    >>> StaticGradScaler(128.0).scale
    128.0
    """

    may_skip = False  # whether an update may be skipped

    def __init__(self, scale_factor: float) -> None:
        self._scale = DeviceScalar.of(_positive("scale_factor", scale_factor))

    @property
    def scale(self) -> Scale:
        """What the next backward starts from; reading it waits for the steps before."""
        return Scale(self._scale)

    def on(self, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """The scale there, for the backward of a graph."""
        return self._scale.on(device, dtype)

    def given(self, gradients: Sequence[Tensor]) -> Given:
        """What the update by these gradients is given."""
        return Given(scale=DeviceScalar(self._scale.value.double().reciprocal()))

    def adapt(self, found: DeviceScalar) -> None:
        """Let the scale follow a step, where `found` says whether it is skipped."""

    def state_dict(self) -> dict[str, float]:
        return {"scale": float(self._scale)}

    @refusing
    def load_state_dict(self, state_dict: Mapping[str, float]) -> None:
        """Restore what `state_dict` gave; raises OnefoldValueError for anything else."""
        self._check(state_dict)
        self._scale = DeviceScalar.of(float(state_dict["scale"]))

    def _check(self, state_dict: Mapping[str, float]) -> None:
        own = self.state_dict()
        if set(state_dict) != set(own):
            raise OnefoldValueError(
                f"the state of a {type(self).__name__} has {sorted(own)}, but the given one has "
                f"{sorted(state_dict)}"
            )
        _positive("scale", state_dict["scale"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale})"


class GradScaler(StaticGradScaler):
    """A scale that follows the gradients, for `Graph.set_grad_scaler`.

    A step in which some gradient is infinite or NaN is skipped, on every rank of the parameters'
    placements alike, and the scale is multiplied by `backoff_factor`; after `growth_interval` good
    steps in a row by `growth_factor`. Learning rate schedules count skipped steps too. There is no
    device argument, since the scale is where the gradients are. Raises OnefoldTypeError or
    OnefoldValueError for factors and intervals that are none.

    >>> GradScaler(init_scale=1024.0).scale
    1024.0
    """

    may_skip = True

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if isinstance(init_scale, (str, torch.device)):
            raise OnefoldTypeError(f"GradScaler({init_scale!r}) would have a device, but {_EAGER}")
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
        self._good_steps = torch.zeros((), dtype=torch.int32)  # since a change, or a skipped step

    @no_grad
    def given(self, gradients: Sequence[Tensor]) -> Given:
        """The factor that unscales, and whether a gradient is not finite, neither of them read.

        All ranks decide alike.
        """
        return super().given(gradients)._replace(found_inf=found_inf(gradients))

    @no_grad
    def adapt(self, found: DeviceScalar) -> None:
        device = found.value.device
        scale = self._scale.on(device, torch.float32).clone()
        self._good_steps = self._good_steps.to(device, non_blocking=True)
        torch._amp_update_scale_(
            scale,
            self._good_steps,
            found.on(device, torch.float32),
            self._growth,
            self._backoff,
            self._interval,
        )
        self._scale = DeviceScalar(scale)

    def state_dict(self) -> dict[str, float]:
        return {"scale": float(self._scale), "good_steps": int(self._good_steps)}

    @refusing
    def load_state_dict(self, state_dict: Mapping[str, float]) -> None:
        super().load_state_dict(state_dict)
        self._good_steps = torch.tensor(int(state_dict["good_steps"]), dtype=torch.int32)


def _positive(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OnefoldTypeError(f"{what} must be a number, but got {value!r}")
    if not 0 < value < math.inf:
        raise OnefoldValueError(f"{what} must be positive and finite, but got {value}")
    return float(value)
