"""The functions of torch.fft, torch.linalg, torch.signal.windows and torch.special, by name."""

from __future__ import annotations

from ..argument_errors import public_functions
from ..names import Function, all_names
from . import torch_rows  # noqa: F401  (it enters the functions)


def namespace(prefix: str) -> dict[str, Function]:
    """The functions registered under a prefix, by the rest of their names.

    >>> namespace("fft")["rfft"].__name__
    'rfft'
    """
    found = {}
    for name, function in sorted(all_names().items()):
        space, _, leaf = name.rpartition(".")
        if space == prefix:
            found[leaf] = function
    return public_functions(f"{__name__.partition('.')[0]}.{prefix}", found)


def unknown(prefix: str, name: str) -> AttributeError:
    """The error for a name that a namespace lacks."""
    return AttributeError(
        f"onefold.{prefix} has no function {name!r}; dir(onefold.{prefix}) lists all"
    )
