"""Between placements: the ways from a layout on some ranks to a layout on others."""

from __future__ import annotations

from ..meta import Meta
from .steps import Route, Step


def cross_steps(src: Meta, dst: Meta) -> tuple[Step, ...]:
    """Steps between two placements of one device type."""
    return (Route(src, dst, axes=(0,), scatter=True),)
