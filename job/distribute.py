"""Distribute: the layout of a blob or a variable over its devices."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.sbp import Sbp, broadcast as _broadcast, split as _split
from ..errors import OnefoldTypeError
from .scope import consistent_view, mirrored_view


@dataclass(frozen=True)
class Distribute:
    """A layout over the devices; without an sbp the engine chooses."""

    sbp: Sbp | None

    def __repr__(self) -> str:
        if self.sbp is None:
            return "distribute.auto()"
        return (
            f"distribute.split({self.sbp.dim})" if self.sbp.is_split else "distribute.broadcast()"
        )


def split(axis: int) -> Distribute:
    """Each device has a part along `axis`."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise OnefoldTypeError(f"distribute.split needs an integer axis, but got {axis!r}")
    return Distribute(_split(axis))


def broadcast() -> Distribute:
    """Each device has the whole."""
    return Distribute(_broadcast)


def auto() -> Distribute:
    """The engine chooses."""
    return Distribute(None)


# The views, in the words of the first generation.
mirrored_strategy, consistent_strategy = mirrored_view, consistent_view
