"""Options of torch's optimizers that select one of its implementations. Here there is one only."""

from __future__ import annotations

from ..errors import OnefoldRuntimeError, OnefoldValueError


def accept(
    who: str,
    *,
    foreach: bool | None = None,
    fused: bool | None = None,
    differentiable: bool = False,
) -> None:
    """Accept options that do not change results: updates are always fused, on the device.

    Raises OnefoldValueError for `differentiable`, and OnefoldRuntimeError, as torch does, where
    `foreach` and `fused` are both True.
    """
    if differentiable:
        raise OnefoldValueError(
            f"{who}: differentiable=True is not supported, because updates write into the memory "
            "of the parameters; compute the new values by ops, and use functional_call"
        )
    if foreach and fused:
        raise OnefoldRuntimeError(f"{who}: `fused` and `foreach` cannot be `True` together.")
