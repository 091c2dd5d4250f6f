"""Clipping gradients by their total norm or by value, over any mix of layouts and placements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..engine.grad_mode import no_grad
from ..engine.names import names
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError


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
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    params = [param for param in given if param.grad is not None]
    total = total_norm([param.grad for param in params if param.grad is not None], norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise OnefoldRuntimeError(
            f"the total norm of order {norm_type} of the gradients is {total}, so it cannot be "
            "clipped; set error_if_nonfinite=False to scale by it anyway"
        )
    scale = max_norm / (total + 1e-6)
    if scale < 1.0 or math.isnan(scale):
        for param in params:
            assert param.grad is not None
            param.grad = names.mul(param.grad, scale)
    return total


@no_grad
def clip_values(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient element to [-clip_value, clip_value]."""
    for param in [parameters] if isinstance(parameters, Tensor) else parameters:
        if param.grad is not None:
            param.grad = names.clamp(param.grad, -clip_value, clip_value)


def total_norm(gradients: Sequence[Tensor], norm_type: float) -> float:
    """The norm of all gradients together; tensors of one placement are read together."""
    by_place: dict[object, list[Tensor]] = {}
    for grad in gradients:
        norm = names.norm(grad, norm_type)
        by_place.setdefault(grad.meta.placement or grad.meta.device, []).append(norm)
    norms: list[float] = []
    for found in by_place.values():
        norms.extend(names.tolist(names.stack(found)) if len(found) > 1 else [found[0].item()])
    if math.isinf(norm_type):
        return float(max(norms, default=0.0))
    return float(sum(norm**norm_type for norm in norms) ** (1.0 / norm_type))
