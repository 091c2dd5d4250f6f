"""Gradient scalers: scale the loss for backward, so that small gradients survive float16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, overload

import torch

from ..engine.argument_errors import with_argument_errors
from ..engine.argument_types import DeviceLike
from ..engine.commit import Change
from ..engine.grad_mode import no_grad
from ..engine.placed_device import PlacedDevice
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from ..kernels.staging import can_be_late
from .clip import found_inf
from .device_scalar import DeviceScalar
from .eager_scaling import EagerScaling
from .option_checks import positive

__all__ = ["GradScaler", "StaticGradScaler"]


class StaticGradScaler(EagerScaling):
    """A constant scale: results change only where gradients would underflow.

    The loss's backward starts from the scale, and the gradients are divided by it before they are
    clipped and used. For `Graph.set_grad_scaler`, or for eager programs as torch's scaler.
    Source: Micikevicius et al., "Mixed precision training" (2018).

    >>> StaticGradScaler(128.0).get_scale()
    128.0
    """

    def __init__(self, scale_factor: float) -> None:
        super().__init__()
        self._scale = DeviceScalar.of(positive("scale_factor", scale_factor))

    def on(self, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """The scale on this device, for the backward of a graph."""
        return self._scale.on(device, dtype)

    def factor(self) -> DeviceScalar:
        """The factor by which gradients are unscaled."""
        return DeviceScalar(self._scale.value.double().reciprocal())

    @no_grad
    def found_inf(self, gradients: Sequence[Tensor]) -> DeviceScalar:
        """1 if some gradient is not finite, else 0, on all ranks; without synchronization."""
        return found_inf(gradients)

    def state_dict(self) -> dict[str, float]:
        return {"scale": float(self._scale)}

    @with_argument_errors
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
        positive("scale", state_dict["scale"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.get_scale()})"


class GradScaler(StaticGradScaler):
    """A scale that follows the gradients.

    In eager programs `scaler.scale(loss).backward()`, `scaler.step(optimizer)` and
    `scaler.update()`, as torch's; for a graph `graph.set_grad_scaler(scaler)`. A step in which some
    gradient is infinite or NaN is skipped, on every rank of the parameters' placements alike, and
    the scale is multiplied by `backoff_factor`; after `growth_interval` good steps in a row by
    `growth_factor`. Learning rate schedules of graphs count skipped steps too. The first argument
    may be a device, as torch's, or the first scale, as OneFlow's; the scale is where the gradients
    are. Raises OnefoldTypeError or OnefoldValueError for invalid factors and intervals.

    >>> GradScaler(init_scale=1024.0).get_scale()
    1024.0
    """

    may_skip = True

    @overload
    def __init__(
        self,
        device: DeviceLike = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None: ...
    def __init__(self, *args: Any, device: DeviceLike = "cuda", **options: Any) -> None:
        if args and isinstance(args[0], (str, torch.device, PlacedDevice)):
            args = args[1:]
        unknown = options.keys() - set(_OPTIONS)
        if unknown or len(args) > len(_OPTIONS) or options.keys() & set(_NAMES[: len(args)]):
            raise OnefoldTypeError(
                f"GradScaler takes device and {', '.join(_OPTIONS)}, each once, but got "
                f"{[*args]} and {options}"
            )
        given = {**_OPTIONS, **dict(zip(_OPTIONS, args, strict=False)), **options}
        self._enabled = bool(given["enabled"])
        super().__init__(positive("init_scale", given["init_scale"]))
        self.set_growth_factor(given["growth_factor"])
        self.set_backoff_factor(given["backoff_factor"])
        self.set_growth_interval(given["growth_interval"])
        self._good_steps = torch.zeros((), dtype=torch.int32)  # since a change, or a skipped step

    def get_growth_factor(self) -> float:
        """The factor of the scale after good steps."""
        return self._growth

    def set_growth_factor(self, new_factor: float) -> None:
        if not positive("growth_factor", new_factor) > 1:
            raise OnefoldValueError(f"growth_factor must be above 1, but got {new_factor}")
        self._growth = float(new_factor)

    def get_backoff_factor(self) -> float:
        """The factor of the scale after a skipped step."""
        return self._backoff

    def set_backoff_factor(self, new_factor: float) -> None:
        if not positive("backoff_factor", new_factor) < 1:
            raise OnefoldValueError(f"backoff_factor must be below 1, but got {new_factor}")
        self._backoff = float(new_factor)

    def get_growth_interval(self) -> int:
        """The number of good steps after which the scale grows."""
        return self._interval

    def set_growth_interval(self, new_interval: int) -> None:
        if isinstance(new_interval, bool) or not isinstance(new_interval, int):
            raise OnefoldTypeError(f"growth_interval must be an integer, not {new_interval!r}")
        if new_interval < 1:
            raise OnefoldValueError(f"growth_interval must be at least 1, but got {new_interval}")
        self._interval = new_interval

    def adapt(self, found: DeviceScalar) -> list[Change]:
        device = found.value.device
        scale = self._scale.on(device, torch.float32).clone()
        good_steps = self._good_steps.to(device, copy=True, non_blocking=can_be_late(device))
        torch._amp_update_scale_(
            scale,
            good_steps,
            found.on(device, torch.float32),
            self._growth,
            self._backoff,
            self._interval,
        )
        values = {"_scale": DeviceScalar(scale), "_good_steps": good_steps}
        return [partial(self.__dict__.update, values)]

    def state_dict(self) -> dict[str, float]:
        """The state of torch's scaler, by the same names; empty if it is not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth,
            "backoff_factor": self._backoff,
            "growth_interval": self._interval,
            "_growth_tracker": int(self._good_steps),
        }

    @with_argument_errors
    def load_state_dict(self, state_dict: Mapping[str, float]) -> None:
        """Restore what `state_dict` gave, or torch's; raises OnefoldValueError for anything else.

        A scaler that is not enabled takes nothing.
        """
        if not self._enabled:
            return
        self._check(state_dict)
        scale, growth, backoff, interval, good_steps = (
            state_dict[key] for key in self.state_dict()
        )
        made = GradScaler(scale, growth, backoff, int(interval))  # raises for invalid values
        self._scale = made._scale
        self._growth, self._backoff, self._interval = made._growth, made._backoff, made._interval
        self._good_steps = torch.tensor(int(good_steps), dtype=torch.int32)


_OPTIONS: dict[str, Any] = {
    "init_scale": 2.0**16,
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 2000,
    "enabled": True,
}
_NAMES = tuple(_OPTIONS)
