"""Utilities for parameters: gradient clipping, parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

from ..engine import interpreter
from ..engine.grad_mode import no_grad
from ..engine.inplace import assign
from ..engine.ops.cat_split import cat
from ..engine.ops.slicing import narrow
from ..engine.ops.view import reshape
from ..engine.tensor import Tensor
from ..errors import ShapeError
from ..optim.clip import clip_gradients, clip_values, norm_of


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    fused: bool = False,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients so that their norm together is at most max_norm; returns the norm.

    The norm is a local 0-d tensor, which nothing waits for unless `error_if_nonfinite`: then a
    norm that is not finite raises OnefoldRuntimeError, and changes nothing. `fused` is accepted
    and ignored. Inside a graph's build() this is done when the call has made all gradients, those
    of every micro-batch: call it last there, and return the norm from build() to read it.
    """
    if interpreter.current is not None and interpreter.capturing():
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        return interpreter.current.clip_gradients(given, max_norm, norm_type, error_if_nonfinite)  # type: ignore[no-any-return]
    return norm_of(clip_gradients(parameters, max_norm, norm_type, error_if_nonfinite))


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient element to [-clip_value, clip_value]."""
    clip_values(parameters, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters one after the other in one vector."""
    return cat([reshape(param, (-1,)) for param in parameters], 0)


@no_grad
def vector_to_parameters(vector: Tensor, parameters: Iterable[Tensor]) -> None:
    """Take the parameters' values from one vector, the inverse of parameters_to_vector."""
    parameters = list(parameters)
    total = sum(param.numel() for param in parameters)
    if vector.numel() != total:
        raise ShapeError(
            f"vector_to_parameters: the vector has {vector.numel()} elements, but the parameters "
            f"have {total}"
        )
    start = 0
    for param in parameters:
        part = narrow(vector, 0, start, param.numel())
        assign(param, reshape(part, param.shape), "vector_to_parameters")
        start += param.numel()
