"""Named params: parameters that an optimizer gets as pairs of a name and a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import OnefoldValueError


def without_names(given: Sequence[Any]) -> tuple[list[Any], list[str] | None]:
    """The parameters, and their names, if each of them is a pair; None: none is.

    Raises OnefoldValueError where only some are.

    >>> without_names([("weight", 1), ("bias", 2)])
    ([1, 2], ['weight', 'bias'])
    """
    params = [each[1] if isinstance(each, tuple) else each for each in given]
    names = [each[0] for each in given if isinstance(each, tuple)]
    if not names:
        return params, None
    if len(names) != len(params):
        raise OnefoldValueError(
            "all optimizer params should be with/without names. Some param names are missing: "
            f"{len(params) - len(names)} of the {len(params)} params of the group have no name"
        )
    return params, names


def check_alike(group: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> None:
    """Raise OnefoldValueError where only some groups of an optimizer have names."""
    named = "param_names" in group
    if any(("param_names" in other) is not named for other in others):
        raise OnefoldValueError(
            "all optimizer param groups should be with/without names. cannot add param group "
            f"{'with' if named else 'without'} names to the optimizer"
        )
