"""`functional_call` by its old name."""

from __future__ import annotations

from typing import Any

from ...engine.tensor import Tensor
from ...errors import warn
from .. import functional_call as newer
from ..module import Module

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`flow.func.functional_call` by its old name; warns, as torch does."""
    warn(
        "`nn.utils.stateless.functional_call` is deprecated: use `func.functional_call` instead",
        FutureWarning,
    )
    return newer.functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
