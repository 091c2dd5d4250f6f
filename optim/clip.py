"""Clipping gradients by their total norm or by value, over any mix of layouts and placements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from ..engine.convert import box
from ..engine.grad_mode import no_grad
from ..engine.meta import Meta
from ..engine.ops.where import clamp
from ..engine.sbp import Sbp, broadcast, partial_max, partial_sum
from ..engine.tensor import Tensor
from ..engine.values import from_torch, whole
from ..errors import OnefoldRuntimeError, OnefoldValueError
from ..kernels import optim_ref as kernels
from ..kernels.select import pick
from .device_scalar import DeviceScalar, Given, free_to_read
from .gradient_layouts import aligned, not_in_build


@no_grad
def clip_gradients(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> DeviceScalar:
    """Scale the gradients so that their norm together is at most `max_norm`; returns the norm.

    Waits for the norm only if `error_if_nonfinite`, and then raises OnefoldRuntimeError for one
    that is not finite.
    """
    params = _with_gradients(parameters)
    total, grads = clipped(aligned(params), max_norm, norm_type, error_if_nonfinite)
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    return total


def clipped(
    grads: Sequence[Tensor],
    max_norm: float,
    norm_type: float,
    error_if_nonfinite: bool,
    scale: DeviceScalar | None = None,
) -> tuple[DeviceScalar, Sequence[Tensor]]:
    """The norm of gradients together, and the gradients scaled so that it is at most `max_norm`.

    They are the given ones if that is known to change nothing. With `scale` the norm is that of
    the gradients times it.
    """
    total = total_norm(grads, norm_type, scale)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise OnefoldRuntimeError(
            f"the total norm of order {norm_type} of the gradients is {float(total)}, so it cannot "
            "be clipped; set error_if_nonfinite=False to scale by it anyway"
        )
    factor = unless_one(clip_factor(total, max_norm))
    return total, grads if factor is None else [_times(grad, factor) for grad in grads]


def norm_of(total: DeviceScalar) -> Tensor:
    """A norm as users get it: a local 0-d tensor, for which nothing waits."""
    return from_torch(total.value.to(torch.get_default_dtype()))


def clip_factor(total: DeviceScalar, max_norm: float) -> DeviceScalar:
    """What gradients of this norm are multiplied by."""
    return DeviceScalar((max_norm / (total.value + 1e-6)).clamp(max=1.0))


def unless_one(factor: DeviceScalar) -> DeviceScalar | None:
    """The factor, None if it is known to be 1: a pass over gradients costs more than a look."""
    return None if free_to_read(factor) and float(factor) == 1.0 else factor


def _times(gradient: Tensor, factor: DeviceScalar) -> Tensor:
    number = Given(scale=factor)
    unique = {id(part): part for part in gradient.shards}
    found = {
        key: kernels.scaled([part], number.on(part)["scale"])[0] for key, part in unique.items()
    }
    return Tensor(tuple([found[id(part)] for part in gradient.shards]), gradient.meta)


@no_grad
def clip_values(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient element to [-clip_value, clip_value]."""
    not_in_build("clip_grad_value_", "assign param.grad = param.grad.clamp(-value, value)")
    params = _with_gradients(parameters)
    for param, grad in zip(params, aligned(params), strict=True):
        param.grad = clamp(grad, -clip_value, clip_value)


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    return [param for param in given if param.grad is not None]


def total_norm(
    gradients: Sequence[Tensor], norm_type: float = 2.0, scale: DeviceScalar | None = None
) -> DeviceScalar:
    """The norm of all gradients together, each times `scale`, the same on every process.

    Each rank sums up its own shards; gradients of one layout are then reduced together. Nothing
    is read. Raises OnefoldValueError unless `norm_type` is positive (infinity is allowed).
    """
    if not norm_type > 0:
        raise OnefoldValueError(f"norm_type must be positive or infinity, but got {norm_type}")
    combined = partial_max if math.isinf(norm_type) else partial_sum
    vectors = _vectors(gradients, combined, partial(_powers, norm_type, scale))
    if not vectors:
        return DeviceScalar.of(0.0)
    powers = _together(vectors)
    if math.isinf(norm_type):
        return DeviceScalar(powers.amax())
    return DeviceScalar(powers.sum() ** (1.0 / norm_type))


def found_inf(gradients: Sequence[Tensor]) -> DeviceScalar:
    """1 if some element is infinite or NaN, else 0, the same on every process; nothing is read."""
    # What is counted is summed up: a maximum over ranks may lose NaN.
    vectors = _vectors(gradients, partial_sum, _not_finite)
    if not vectors:
        return DeviceScalar.of(0.0)
    return DeviceScalar((_together(vectors).sum() > 0).double())


Local = Callable[[Sequence[torch.Tensor]], torch.Tensor]  # shards to one float64 number for each


def _vectors(gradients: Sequence[Tensor], combined: Sbp, local: Local) -> list[torch.Tensor]:
    """What `local` gives for the gradients, reduced over ranks; a vector for each layout."""
    alike: dict[Any, list[Tensor]] = {}
    for gradient in map(_reduced, gradients):
        meta = gradient.meta
        alike.setdefault((meta.placement, meta.nd_sbp, meta.device), []).append(gradient)
    return [whole(_numbers(found, combined, local)) for found in alike.values()]


def _together(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(vectors) == 1:
        return vectors[0]
    device = vectors[0].device
    return torch.cat([vector.to(device, non_blocking=True) for vector in vectors])


def _reduced(gradient: Tensor) -> Tensor:
    nd_sbp = tuple(broadcast if sbp.is_partial else sbp for sbp in gradient.meta.nd_sbp)
    if nd_sbp == gradient.meta.nd_sbp:
        return gradient
    return box(gradient, gradient.meta.like(nd_sbp=nd_sbp))


def _numbers(gradients: Sequence[Tensor], combined: Sbp, local: Local) -> Tensor:
    """For gradients laid out alike, what `local` gives for each one, as one vector."""
    meta = gradients[0].meta
    shape = (len(gradients),)
    if meta.placement is None:
        layout = Meta.of(shape, torch.float64, device=meta.device)
    else:
        nd_sbp = tuple(combined if sbp.is_split else broadcast for sbp in meta.nd_sbp)
        layout = Meta.of(shape, torch.float64, meta.placement, nd_sbp)
    columns = zip(*[gradient.shards for gradient in gradients], strict=True)
    return Tensor(tuple([local(parts) for parts in columns]), layout)


def _powers(
    norm_type: float, scale: DeviceScalar | None, parts: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Each part's norm, times `scale`, to the power norm_type."""
    number = Given(scale=scale).on(parts[0])["scale"]
    return pick(kernels.powers, parts[0].device.type)(parts, norm_type, number)  # type: ignore[no-any-return]


def _not_finite(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return pick(kernels.not_finite, parts[0].device.type)(parts)  # type: ignore[no-any-return]
