"""Clipping gradients by their total norm or by value, over any mix of layouts and placements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

import torch

from ..engine.grad_mode import no_grad
from ..engine.ops.where import clamp
from ..engine.sbp import Sbp, partial_max, partial_sum
from ..engine.tensor import Tensor, from_shards
from ..engine.values import from_torch, whole
from ..errors import OnefoldRuntimeError, OnefoldValueError
from ..kernels import optim_ref as kernels
from ..kernels.select import pick
from ..kernels.staging import can_be_late
from .device_scalar import DeviceScalar, free_to_read
from .gradient_layouts import aligned, not_in_build, with_gradients
from .tensor_norms import Local, numbers_of, powers


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
    params, grads = _with_gradients(parameters)
    total, found = clipped(aligned(params, grads), max_norm, norm_type, error_if_nonfinite)
    for param, grad in zip(params, found, strict=True):
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
    total = finite_norm(grads, norm_type, error_if_nonfinite, scale)
    factor = unless_one(clip_factor(total, max_norm))
    return total, grads if factor is None else [times(grad, factor) for grad in grads]


def finite_norm(
    grads: Sequence[Tensor],
    norm_type: float,
    error_if_nonfinite: bool,
    scale: DeviceScalar | None = None,
) -> DeviceScalar:
    """`total_norm`; with `error_if_nonfinite`, raises OnefoldRuntimeError unless it is finite."""
    total = total_norm(grads, norm_type, scale)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise OnefoldRuntimeError(
            f"the total norm of order {norm_type} of the gradients is {float(total)}, so it cannot "
            "be clipped; set error_if_nonfinite=False to scale by it anyway"
        )
    return total


def norm_of(total: DeviceScalar) -> Tensor:
    """A norm as users get it: a local 0-d tensor, without synchronization."""
    return from_torch(total.value.to(torch.get_default_dtype()))


def clip_factor(total: DeviceScalar, max_norm: float) -> DeviceScalar:
    """The factor of gradients of this norm."""
    return DeviceScalar((max_norm / (total.value + 1e-6)).clamp(max=1.0))


def unless_one(factor: DeviceScalar) -> DeviceScalar | None:
    """The factor, None if it is known to be 1: reading it costs less than a pass over gradients."""
    return None if free_to_read(factor) and float(factor) == 1.0 else factor


def times(gradient: Tensor, factor: DeviceScalar) -> Tensor:
    """A gradient times a number, without synchronization."""
    unique = {id(part): part for part in gradient.shards}
    found = {key: kernels.scaled([x], factor.on_device_of(x))[0] for key, x in unique.items()}
    return from_shards(tuple([found[id(part)] for part in gradient.shards]), gradient.meta)


@no_grad
def scale_to(parameters: Tensor | Iterable[Tensor], max_norm: float, total: DeviceScalar) -> None:
    """Scale the gradients, whose norm together is `total`, so that it is at most `max_norm`."""
    params, grads = _with_gradients(parameters)
    factor = unless_one(clip_factor(total, max_norm))
    for param, grad in zip(params, aligned(params, grads), strict=True):
        param.grad = grad if factor is None else times(grad, factor)


@no_grad
def clip_values(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient element to [-clip_value, clip_value]."""
    not_in_build("clip_grad_value_", "assign param.grad = param.grad.clamp(-value, value)")
    params, grads = _with_gradients(parameters)
    for param, grad in zip(params, aligned(params, grads), strict=True):
        param.grad = clamp(grad, -clip_value, clip_value)


def _with_gradients(
    parameters: Tensor | Iterable[Tensor],
) -> tuple[list[Tensor], list[Tensor]]:
    return with_gradients([parameters] if isinstance(parameters, Tensor) else parameters)


def total_norm(
    gradients: Sequence[Tensor], norm_type: float = 2.0, scale: DeviceScalar | None = None
) -> DeviceScalar:
    """The norm of all gradients together, each times `scale`, the same on every process.

    Each rank sums up its own shards; gradients of one layout are then reduced together. Nothing
    is read. The norm of order 0 is the number of gradients that are not 0, as in torch.
    """
    if math.isnan(norm_type):
        raise OnefoldValueError(f"norm_type must be a number or infinity, but got {norm_type}")
    local = partial(_LOCAL.get(norm_type, powers if norm_type > 0 else _powers), norm_type, scale)
    combined = partial_max if math.isinf(norm_type) else partial_sum
    vectors = _vectors(gradients, combined, local)
    if not vectors:
        return DeviceScalar.of(0.0)
    found = _together(vectors)
    if math.isinf(norm_type):
        return DeviceScalar(found.amax() if norm_type > 0 else -found.amax())
    if norm_type == 0:
        return DeviceScalar((found != 0).sum().double())
    return DeviceScalar(found.sum() ** (1.0 / norm_type))


def _powers(
    norm_type: float, scale: DeviceScalar | None, parts: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The sums of negative powers."""
    return torch.stack([(x**norm_type).sum() for x in _magnitudes(scale, parts)])


def _counts(
    norm_type: float, scale: DeviceScalar | None, parts: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The number of elements that are not 0."""
    return torch.stack([(x != 0).sum().double() for x in _magnitudes(scale, parts)])


def _least(
    norm_type: float, scale: DeviceScalar | None, parts: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The negated least magnitudes, to be reduced by the maximum over ranks."""
    found = _magnitudes(scale, parts)
    return torch.stack([-x.amin() if x.numel() else x.new_full((), -math.inf) for x in found])


def _magnitudes(scale: DeviceScalar | None, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    factors = [1.0 if scale is None else scale.on(part.device) for part in parts]
    return [x.abs().double() * f for x, f in zip(parts, factors, strict=True)]


_LOCAL = {0.0: _counts, -math.inf: _least}  # norms of their own; `powers` has the others


def found_inf(gradients: Sequence[Tensor]) -> DeviceScalar:
    """1 if some element is infinite or NaN, else 0, on every process; without synchronization."""
    # What is counted is summed up: a maximum over ranks may lose NaN.
    vectors = _vectors(gradients, partial_sum, _not_finite)
    if not vectors:
        return DeviceScalar.of(0.0)
    return DeviceScalar((_together(vectors).sum() > 0).double())


def _vectors(gradients: Sequence[Tensor], combined: Sbp, local: Local) -> list[torch.Tensor]:
    """The results of `local` for the gradients, reduced over ranks; a vector for each layout.

    Those of gradients without data have none either.
    """
    vectors = [found for _, found in numbers_of(gradients, combined, local)]
    return [
        torch.empty(found.shape, dtype=found.dtype, device="meta")
        if found.is_meta
        else whole(found)
        for found in vectors
    ]


def _together(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(vectors) == 1:
        return vectors[0]
    device = vectors[0].device
    return torch.cat([vector.to(device, non_blocking=can_be_late(device)) for vector in vectors])


def _not_finite(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return pick(kernels.not_finite, parts[0].device.type)(parts)
