"""Checks of integer and boolean settings."""

from __future__ import annotations

from ..errors import OnefoldTypeError, OnefoldValueError


def integer(
    what: str, value: object, least: int | None = None, most: int | None = None, advice: str = ""
) -> int:
    """The value, if it is an integer from `least` to `most`; `what` names it in errors.

    Raises OnefoldTypeError or OnefoldValueError, which end with the advice.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise OnefoldTypeError(f"{what} must be an integer, but got {value!r}{advice}")
    if (least is not None and value < least) or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"one of {least} to {most}"
        raise OnefoldValueError(f"{what} must be {allowed}, but got {value}{advice}")
    return value


def strings(what: str, value: object) -> tuple[str, ...]:
    """The value, if it is a tuple or list of strings. Raises OnefoldTypeError otherwise."""
    if not isinstance(value, (tuple, list)) or not all(isinstance(each, str) for each in value):
        raise OnefoldTypeError(f"{what} must be a tuple of names, but got {value!r}")
    return tuple(value)


def switch(what: str, value: object) -> bool:
    """The value, if it is True or False. Raises OnefoldTypeError otherwise."""
    if not isinstance(value, bool):
        raise OnefoldTypeError(f"{what} must be True or False, but got {value!r}")
    return value
