"""Clipping of gradients, by their norm together or by value."""

from __future__ import annotations

from collections.abc import Iterable

from ...engine import interpreter
from ...engine.grad_mode import no_grad
from ...engine.tensor import Tensor
from ...engine.values import whole
from ...errors import warn
from ...optim.clip import clip_gradients, clip_values, finite_norm, norm_of, scale_to
from ...optim.device_scalar import DeviceScalar
from ...optim.gradient_layouts import not_in_build


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float | str = 2.0,
    fused: bool = False,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their norm together is at most max_norm; returns the norm.

    The norm is a local 0-d tensor. The host waits for it only with `error_if_nonfinite`: then a
    norm that is not finite raises OnefoldRuntimeError, and changes nothing. `norm_type` may be
    "inf" or any number. `fused` and `foreach` are accepted and ignored. Inside a graph's build()
    this is done when the call has made all gradients, those of every micro-batch: call it last
    there, and return the norm from build() to read it.
    """
    norm_type = float(norm_type)
    if (current := interpreter.get_current()) is not None and current.captures:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        return current.clip_gradients(given, max_norm, norm_type, error_if_nonfinite)
    return norm_of(clip_gradients(parameters, max_norm, norm_type, error_if_nonfinite))


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float | str = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """`clip_grad_norm_` by its old name, with torch's arguments; warns, as torch does."""
    warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
    )
    return clip_grad_norm_(
        parameters, max_norm, norm_type, error_if_nonfinite=error_if_nonfinite, foreach=foreach
    )


@no_grad
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float | str = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of tensors together, such as gradients of any layouts, as a local 0-d tensor.

    Raises OnefoldRuntimeError for a norm that is not finite if `error_if_nonfinite`.
    """
    not_in_build("get_total_norm", "clip_grad_norm_ returns the norm of all gradients there")
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return norm_of(finite_norm(given, float(norm_type), error_if_nonfinite))


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor | float,
    foreach: bool | None = None,
) -> None:
    """Scale all gradients, whose norm together is `total_norm`, so that it is at most max_norm."""
    not_in_build("clip_grads_with_norm_", "call clip_grad_norm_ there")
    if isinstance(total_norm, Tensor):
        total = DeviceScalar(whole(total_norm).double())
    else:
        total = DeviceScalar.of(total_norm)
    scale_to(parameters, float(max_norm), total)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamp every gradient element to [-clip_value, clip_value]."""
    clip_values(parameters, clip_value)
