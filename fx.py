"""Names of torch.fx that programs hold (`flow.fx`): there is no symbolic tracing."""

from __future__ import annotations

from typing import TypeVar

from .compat.missing_names import FX
from .graph.unsupported import missing_attribute

__all__ = ["has_side_effect", "wrap"]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it

T = TypeVar("T")


def wrap(fn_or_name: T) -> T:
    """`fn_or_name` itself: an `nn.Graph` captures the ops that a function calls.

    >>> import onefold as flow
    >>> @flow.fx.wrap
    ... def double(x):
    ...     return x * 2
    >>> double(flow.ones(2))
    tensor([2., 2.])
    """
    return fn_or_name


def has_side_effect(fn: T) -> T:
    """`fn` itself."""
    return fn


def __getattr__(name: str) -> object:
    raise missing_attribute(FX, __name__, name)
