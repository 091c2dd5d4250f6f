"""Clipping gradients by their total norm or by value, over any mix of layouts and placements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..engine.convert import box
from ..engine.grad_mode import no_grad
from ..engine.meta import Meta
from ..engine.names import names
from ..engine.sbp import broadcast, partial_max, partial_sum
from ..engine.tensor import Tensor
from ..engine.values import whole
from ..errors import OnefoldRuntimeError, OnefoldValueError
from ..kernels import optim as kernels
from ..kernels.select import pick
from .gradients import aligned, not_in_build


@no_grad
def clip_gradients(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> float:
    """Scale the gradients so that their norm together is at most `max_norm`; returns the norm.

    Raises OnefoldRuntimeError for a norm that is not finite, if `error_if_nonfinite`.
    """
    groups = '{"params": ..., "clip_grad_max_norm": ...} as a group of the optimizer'
    not_in_build("clip_grad_norm_", f"{groups} lets every call clip")
    params = _with_gradients(parameters)
    grads = aligned(params)
    total = total_norm(grads, norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise OnefoldRuntimeError(
            f"the total norm of order {norm_type} of the gradients is {total}, so it cannot be "
            "clipped; set error_if_nonfinite=False to scale by it anyway"
        )
    scale = max_norm / (total + 1e-6)
    if scale < 1.0 or math.isnan(scale):
        grads = [names.mul(grad, scale) for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    return total


@no_grad
def clip_values(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient element to [-clip_value, clip_value]."""
    not_in_build("clip_grad_value_", "assign param.grad = param.grad.clamp(-value, value)")
    params = _with_gradients(parameters)
    for param, grad in zip(params, aligned(params), strict=True):
        param.grad = names.clamp(grad, -clip_value, clip_value)


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    return [param for param in given if param.grad is not None]


def total_norm(gradients: Sequence[Tensor], norm_type: float = 2.0) -> float:
    """The norm of all gradients together, the same on every process.

    Each rank sums up its own shards; gradients of one layout are then reduced and read together.
    Raises OnefoldValueError unless `norm_type` is positive (infinity is allowed).
    """
    if not norm_type > 0:
        raise OnefoldValueError(f"norm_type must be positive or infinity, but got {norm_type}")
    alike: dict[Any, list[Tensor]] = {}
    for gradient in map(_reduced, gradients):
        meta = gradient.meta
        alike.setdefault((meta.placement, meta.nd_sbp, meta.device), []).append(gradient)
    powers: list[float] = []
    for found in alike.values():
        powers.extend(whole(_powers(found, norm_type)).tolist())
    if math.isinf(norm_type):
        return float(max(powers, default=0.0))
    return float(math.fsum(powers) ** (1.0 / norm_type))


def _reduced(gradient: Tensor) -> Tensor:
    nd_sbp = tuple(broadcast if sbp.is_partial else sbp for sbp in gradient.meta.nd_sbp)
    if nd_sbp == gradient.meta.nd_sbp:
        return gradient
    return box(gradient, gradient.meta.like(nd_sbp=nd_sbp))


def _powers(gradients: Sequence[Tensor], norm_type: float) -> Tensor:
    """For gradients laid out alike, each one's norm to the power norm_type, as one vector."""
    meta = gradients[0].meta
    shape = (len(gradients),)
    if meta.placement is None:
        layout = Meta.of(shape, torch.float64, device=meta.device)
    else:
        joined = partial_max if math.isinf(norm_type) else partial_sum
        nd_sbp = tuple(joined if sbp.is_split else broadcast for sbp in meta.nd_sbp)
        layout = Meta.of(shape, torch.float64, meta.placement, nd_sbp)
    columns = zip(*[gradient.shards for gradient in gradients], strict=True)
    found = [pick(kernels.powers, p[0].device.type)(p, norm_type) for p in columns]
    return Tensor(tuple(found), layout)
