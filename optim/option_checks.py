"""Checks of the options of update rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import OnefoldTypeError, OnefoldValueError


def check_options(who: str, options: Mapping[str, Any]) -> None:
    """Raise OnefoldValueError for a number that is negative or NaN; dampening may be any number.

    Betas must be in [0, 1).
    """
    for name, value in options.items():
        if value is None or (isinstance(value, (tuple, list)) and name != "betas"):
            continue  # no number; who takes several has a check of its own
        if name == "betas":
            if len(value) != 2 or not all(0.0 <= beta < 1.0 for beta in value):
                raise OnefoldValueError(
                    f"{who}: betas must be two numbers in [0, 1), but got {value}"
                )
        elif name != "dampening" and not value >= 0:
            raise OnefoldValueError(f"{who}: {name} must be >= 0, but got {value}")


def positive(what: str, value: object) -> float:
    """The number; raises OnefoldTypeError or OnefoldValueError unless it is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OnefoldTypeError(f"{what} must be a number, but got {value!r}")
    if not 0 < value < math.inf:
        raise OnefoldValueError(f"{what} must be positive and finite, but got {value}")
    return float(value)
