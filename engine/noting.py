"""Notes what runs on global tensors in the trails that ranks compare; launched worlds only."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch

from ..distributed.trail import Trail, mark, trail_of
from ..distributed.world import world
from ..errors import user_line
from .generated import function
from .meta import Meta
from .names import Function
from .op import Attributes, Op
from .placement import Placement

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MOST_NAMED = 8
_PART = 1 << 18  # bytes


def shared_trail(placements: Iterable[Placement]) -> Trail | None:
    """The trail of these placements' ranks; None where no other process could compare it."""
    here = world()
    if not here.joins or here.size == 1 or here.rank is None:
        return None
    ranks = frozenset([rank for each in placements for rank in each.flat_ranks])
    return trail_of(ranks) if here.rank in ranks and len(ranks) > 1 else None


def _placements(metas: Iterable[Meta | None]) -> list[Placement]:
    return [meta.placement for meta in metas if meta is not None and meta.placement is not None]


def noted(
    run: Function,
    op: Op,
    metas: Sequence[Meta | None],
    outputs: Sequence[Meta],
    described: Sequence[object],
    attrs: Attributes,
) -> Function:
    """`run`, which a plan calls with the op's inputs, or a function that notes the call first."""
    trail = shared_trail(_placements((*metas, *outputs)))
    if trail is None:
        return run
    given = [repr(arg) if isinstance(arg, Meta) else type(arg).__name__ for arg in described]
    text = _ADDRESS.sub("", f"{op.name}({', '.join([*given, *map(repr, attrs)])})")
    numbers = tuple(
        [i for i, arg in enumerate(described) if arg is not None and not isinstance(arg, Meta)]
    )
    make = _maker(len(described) if len(described) <= _MOST_NAMED else None, numbers)
    noting: Function = make(run, trail.marks.append, trail.values.append, mark(text, user_line()))
    return noting


@lru_cache(maxsize=256)
def _maker(count: int | None, numbers: tuple[int, ...]) -> Function:
    """What makes the function around one of `count` arguments, some of which are numbers."""
    names = ["*x"] if count is None else [f"x{i}" for i in range(count)]
    values = [f"x[{i}]" if count is None else f"x{i}" for i in numbers]
    notes = "".join(f"        note_value((mark, {value}))\n" for value in values)
    text = (
        "def make(run, note, note_value, mark):\n"
        f"    def noted({', '.join(names)}):\n"
        "        note(mark)\n"
        f"{notes}"
        f"        return run({', '.join(names)})\n"
        "    return noted\n"
    )
    return function(text, "make", "noted call", {})


def note(what: str, metas: Iterable[Meta], *values: object) -> None:
    """Note something else than an op: what was done, and numbers that may be others each time."""
    found = list(metas)
    trail = shared_trail(_placements(found))
    if trail is not None:
        number = mark(_ADDRESS.sub("", what), user_line())
        trail.marks.append(number)
        if values:
            trail.values.append((number, values))


def fingerprint(data: torch.Tensor) -> int:
    """A number that tells tensors apart by their bytes: all, or the first and last of many."""
    if data.device.type != "cpu":
        return 0  # would wait for the device
    flat = data.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
    if len(flat) > 2 * _PART:
        flat = torch.cat((flat[:_PART], flat[-_PART:]))
    return zlib.crc32(flat.numpy().tobytes())
