"""Calls of modules with the parts of a batch, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["parallel_apply"]


def parallel_apply(
    modules: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[Mapping[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """What each module gives for its inputs.

    >>> import onefold as flow
    >>> parallel_apply([flow.nn.Identity()], [flow.ones(2)])
    [tensor([1., 1.])]
    """
    found = []
    for module, given, kwargs in zip(
        modules, inputs, kwargs_tup or [{}] * len(modules), strict=True
    ):
        args = given if isinstance(given, (list, tuple)) else (given,)
        found.append(module(*args, **kwargs))
    return found
