"""Sbp: the layout of a tensor along one mesh axis (split, broadcast or partial)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TypeAlias

from ..errors import SbpError

__all__ = [
    "NdSbp",
    "Sbp",
    "broadcast",
    "partial_max",
    "partial_min",
    "partial_sum",
    "sbp",
    "split",
]

# Which collective operation joins the addends of a partial layout.
REDUCTION = {"P": "sum", "PMAX": "max", "PMIN": "min"}


class Sbp:
    """The layout of a tensor along one axis of its placement.

    Equal layouts are one object, so comparison and hashing are by identity.

    >>> split(0)
    onefold.sbp.split(dim=0)
    >>> broadcast() is broadcast
    True
    """

    __slots__ = ("dim", "kind")

    kind: str  # "S", "B", "P", "PMAX" or "PMIN"
    dim: int  # the tensor dim that is split; -1 unless kind is "S"

    def __init__(self) -> None:
        raise SbpError(
            "an sbp is not built directly; use sbp.split(dim), sbp.broadcast or sbp.partial_sum"
        )

    def __call__(self) -> Sbp:
        if self.kind == "S":
            raise SbpError(f"{self!r} is a layout already; write it without calling it")
        return self

    @property
    def is_split(self) -> bool:
        return self.kind == "S"

    @property
    def is_broadcast(self) -> bool:
        return self.kind == "B"

    @property
    def is_partial(self) -> bool:
        """True for partial sums, maxima and minima."""
        return self.kind in REDUCTION

    @property
    def reduction(self) -> str:
        """The reduction of the addends of a partial layout: "sum", "max" or "min"."""
        return REDUCTION[self.kind]

    @property
    def short(self) -> str:
        """The usual abbreviation: S0, B, P."""
        return f"S{self.dim}" if self.kind == "S" else self.kind

    def __repr__(self) -> str:
        if self.kind == "S":
            return f"onefold.sbp.split(dim={self.dim})"
        names = {"B": "broadcast", "P": "partial_sum", "PMAX": "partial_max", "PMIN": "partial_min"}
        return f"onefold.sbp.{names[self.kind]}"

    def __reduce__(self) -> tuple[object, ...]:
        return _intern, (self.kind, self.dim)


sbp = Sbp  # the type's public name is `flow.sbp.sbp`
NdSbp: TypeAlias = tuple[Sbp, ...]
SbpLike: TypeAlias = Sbp | Iterable[Sbp]  # what users may pass: one for all axes, or one per axis


_interned: dict[tuple[str, int], Sbp] = {}


@cache
def _intern(kind: str, dim: int) -> Sbp:
    self = object.__new__(Sbp)
    self.kind = kind
    self.dim = dim
    return _interned.setdefault((kind, dim), self)  # `cache` may let two threads in at once


broadcast = _intern("B", -1)
partial_sum = _intern("P", -1)
partial_max = _intern("PMAX", -1)
partial_min = _intern("PMIN", -1)


def split(dim: int | None = None, *, axis: int | None = None) -> Sbp:
    """Split tensor dim `dim` over an axis, in balanced parts (`axis` is the older keyword).

    Raises SbpError for a negative or non-integer dim.

    >>> split(dim=1).short
    'S1'
    """
    if dim is None:
        dim = axis
    elif axis is not None:
        raise SbpError(f"sbp.split got both dim={dim} and axis={axis}; give dim only")
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise SbpError(f"sbp.split(dim) needs an integer, but got {dim!r}")
    if dim < 0:
        raise SbpError(
            f"Split axis must not be negative, but got {dim}! "
            "Count dims from 0, for instance sbp.split(x.ndim - 1) for the last one."
        )
    return _intern("S", dim)


def as_nd_sbp(value: object, mesh_ndim: int) -> NdSbp:
    """`value` (one sbp, or one per axis) as a tuple with `mesh_ndim` entries.

    Raises SbpError when an entry is not an sbp or the length differs from the mesh's.
    """
    entries = (value,) if isinstance(value, Sbp) else value
    if not isinstance(entries, Iterable) or isinstance(entries, str):
        raise SbpError(
            f"sbp must be an onefold.sbp.sbp or a tuple of them, but got {value!r} "
            f"({type(value).__name__}); write for instance flow.sbp.split(0)"
        )
    entries = tuple(entries)
    for entry in entries:
        if entry is split:
            raise SbpError("sbp.split needs the dim to split: write sbp.split(0)")
        if not isinstance(entry, Sbp):
            raise SbpError(
                f"every entry of sbp must be an onefold.sbp.sbp, but got {entry!r} in {value!r}"
            )
    if len(entries) != mesh_ndim:
        raise SbpError(
            f"sbp must have one entry per axis of the placement: the placement's ranks have "
            f"{mesh_ndim} axes, but sbp has length {len(entries)}: {short(entries)}. "
            f"Give {mesh_ndim} entries, one per axis."
        )
    return entries


def without_partial(nd_sbp: NdSbp) -> NdSbp:
    """The nd_sbp with broadcast where it is partial: the layout of a value that is reduced."""
    return tuple([broadcast if entry.is_partial else entry for entry in nd_sbp])


def short(nd_sbp: Iterable[Sbp]) -> str:
    """An nd_sbp in the usual abbreviation, for messages and tables.

    >>> short((split(0), broadcast))
    '(S0, B)'
    """
    return "(" + ", ".join(entry.short for entry in nd_sbp) + ")"


def parse(text: str) -> NdSbp:
    """The nd_sbp that `short` abbreviates; the inverse for tables and tests.

    >>> parse("(S0, B)") == (split(0), broadcast)
    True
    """
    kinds = {"B": broadcast, "P": partial_sum, "PMAX": partial_max, "PMIN": partial_min}
    words = re.findall(r"\w+", text)
    return tuple(kinds[word] if word in kinds else split(int(word[1:])) for word in words)
