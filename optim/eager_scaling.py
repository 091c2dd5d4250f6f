"""Gradient scaling in eager programs: scaled losses, and steps by unscaled gradients."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from functools import partial
from typing import Any, TypeVar, overload

import torch

from ..engine.commit import Change, finish
from ..engine.grad_mode import no_grad
from ..engine.meta import Meta
from ..engine.ops.arithmetic import mul
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor, from_shards
from ..engine.values import from_torch, item
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from .clip import found_inf, times
from .device_scalar import DeviceScalar, Given
from .gradient_layouts import not_in_build
from .optimizer import Optimizer
from .option_checks import positive

T = TypeVar("T")


class _Stage(Enum):
    """What was done for an optimizer since the last `update()`."""

    UNSCALED = auto()
    STEPPED = auto()


class EagerScaling:
    """The methods of a gradient scaler for eager programs, with torch's semantics.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> optimizer, scaler = flow.optim.SGD([w], lr=0.5), flow.amp.GradScaler(init_scale=8.0)
    >>> scaler.scale(w.sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.tolist(), w.grad.tolist()
    ([0.5, 0.5], [1.0, 1.0])
    """

    may_skip = False  # whether an update may be skipped
    _scale: DeviceScalar
    _enabled = True

    def __init__(self) -> None:
        self._stages: dict[Optimizer, _Stage] = {}
        self._found: dict[Optimizer, DeviceScalar] = {}  # where unscaled: 1 if not finite

    def adapt(self, found: DeviceScalar) -> list[Change]:
        """Update the scale after a step; `found` says whether the step is skipped."""
        return []

    def is_enabled(self) -> bool:
        """Whether anything is scaled."""
        return self._enabled

    def get_scale(self) -> float:
        """The factor of the next loss; reading it waits for the steps before."""
        return float(self._scale) if self._enabled else 1.0

    @overload
    def scale(self, outputs: Tensor) -> Tensor: ...
    @overload
    def scale(self, outputs: list[T]) -> list[T]: ...
    @overload
    def scale(self, outputs: tuple[T, ...]) -> tuple[T, ...]: ...
    def scale(self, outputs: Any) -> Any:
        """The loss, or each tensor in lists and tuples, times the scale; without synchronization.

        Raises OnefoldTypeError for what is no tensor, OnefoldRuntimeError inside `Graph.build`.
        """
        if not self._enabled:
            return outputs
        not_in_build("scaler.scale(loss)", "graph.set_grad_scaler(scaler) scales what is in it")
        if isinstance(outputs, Tensor):
            return mul(outputs, self._scale_for(outputs))
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(each) for each in outputs])
        if isinstance(outputs, Iterable):
            return map(self.scale, outputs)
        raise OnefoldTypeError(
            f"scale(outputs): outputs must be a Tensor or an iterable of them, but got {outputs!r}"
        )

    def _scale_for(self, x: Tensor) -> Tensor:
        """The scale as a 0-d tensor for arithmetic with `x`."""
        if x.is_local:
            return from_torch(self._scale.on(x.shards[0].device, torch.float32))
        placement = x.placement
        meta = Meta.of((), torch.float32, placement, (broadcast,) * placement.ndim)
        devices = [placement.device(placement.flat_ranks[at]) for at in placement.owned]
        made = from_shards(tuple([self._scale.on(at, torch.float32) for at in devices]), meta)
        made.shared = True
        return made

    @no_grad
    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale, before they are clipped or looked at.

        `step` does it otherwise. Gradients are laid out as their parameters are first, so that all
        ranks see what is not finite. Raises OnefoldRuntimeError the second time before `update()`,
        and where there is no gradient; OnefoldValueError for gradients in float16, which have lost
        digits already: parameters should be float32 under autocast.
        """
        if not self._enabled:
            return
        stage = self._stages.get(optimizer)
        if stage is _Stage.STEPPED:
            raise OnefoldRuntimeError("unscale_() is being called after step().")
        if stage is _Stage.UNSCALED:
            raise OnefoldRuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        chosen = [pair for group in optimizer.lay_gradients() for pair in zip(*group, strict=True)]
        if not chosen:
            raise OnefoldRuntimeError(
                "No inf checks were recorded for this optimizer: no parameter has a gradient."
            )
        if any(grad.dtype is torch.float16 for _, grad in chosen):
            raise OnefoldValueError("Attempting to unscale FP16 gradients.")
        found = found_inf([grad for _, grad in chosen])
        factor = DeviceScalar(self._scale.value.double().reciprocal())
        for param, grad in chosen:
            param.grad = times(grad, factor)
        self._found[optimizer] = found
        self._stages[optimizer] = _Stage.UNSCALED

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step()` by unscaled gradients; it changes nothing where one is not finite.

        The decision is the same on every rank and stays on the device, so nothing waits for it.
        Raises OnefoldRuntimeError the second time before `update()`, and for a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise OnefoldRuntimeError(
                "Closure use is not currently supported if GradScaler is enabled."
            )
        stage = self._stages.get(optimizer)
        if stage is _Stage.STEPPED:
            raise OnefoldRuntimeError("step() has already been called since the last update().")
        try:
            self._step(optimizer, stage)
        except KeyboardInterrupt:
            self._forget(optimizer, stage)
            raise
        return None

    def _step(self, optimizer: Optimizer, stage: _Stage | None) -> None:
        if stage is None:
            self.unscale_(optimizer)
        found = self._found[optimizer] if self.may_skip else None
        stepped = partial(self._stages.__setitem__, optimizer, _Stage.STEPPED)
        own = optimizer.has_rule and type(optimizer).step is Optimizer.step
        if not own:  # the step is Python code of users, which the host may skip
            if found is None or not float(found):
                optimizer.step()
            stepped()
            return
        given = Given(found_inf=found)
        step = partial(optimizer.step_by, given, [lambda: [stepped]])
        optimizer.with_step_hooks(lambda *_, **__: step(), (optimizer,), {})

    def _forget(self, optimizer: Optimizer, stage: _Stage | None) -> None:
        """After a step that an interrupt prevented, gradients must be computed again."""
        if stage is None and self._stages.get(optimizer) is not _Stage.STEPPED:
            self._stages.pop(optimizer, None)
            self._found.pop(optimizer, None)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Update the scale by the steps since the last `update()`, or set a new one.

        Raises OnefoldRuntimeError where there was no step.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            value = item(new_scale) if isinstance(new_scale, Tensor) else new_scale
            scale = {"_scale": DeviceScalar.of(positive("new_scale", value))}
            changes: list[Change] = [partial(self.__dict__.update, scale)]
        elif not self._found:
            raise OnefoldRuntimeError("No inf checks were recorded prior to update.")
        else:
            first, *others = self._found.values()
            device = first.value.device
            total = sum([other.on(device) for other in others], start=first.on(device))
            changes = self.adapt(DeviceScalar(total))
        finish([lambda: [*changes, self._stages.clear, self._found.clear]])
