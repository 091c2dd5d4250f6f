"""Advanced: blobs on one device each, for programs that place every part themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engine.convert import global_to_global
from ..engine.ops.arithmetic import add
from ..engine.ops.cat_split import cat
from ..engine.ops.slicing import narrow
from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from .blob import WHOLE, Blob, each, moved
from .scope import current_devices, on_devices


def distribute_split(x: Blob, axis: int = 0, name: str | None = None) -> list[Blob]:
    """A blob for each device: its part along a dim, of which there are equal ones."""
    places = _places()
    size = x.shape[axis]
    if size % len(places):
        raise OnefoldValueError(
            f"distribute_split cannot cut {size} along dim {axis} into {len(places)} equal parts"
        )
    step = size // len(places)
    return [
        _at(each(narrow, x, axis, index * step, step), place) for index, place in enumerate(places)
    ]


def distribute_clone(x: Blob, name: str | None = None) -> list[Blob]:
    """A blob for each device: the whole."""
    return [_at(x, place) for place in _places()]


def distribute_concat(xs: Sequence[Blob], axis: int = 0, name: str | None = None) -> Blob:
    """The blobs of the devices, one after the other."""
    return each(cat, _one_each("distribute_concat", xs), axis)


def distribute_add(xs: Sequence[Blob], name: str | None = None) -> Blob:
    """The sum of the devices' blobs."""

    def total(parts: list[Tensor]) -> Tensor:
        found = parts[0]
        for part in parts[1:]:
            found = add(found, part)
        return found

    return each(total, _one_each("distribute_add", xs))


def distribute_map(xs: Blob | Sequence[Blob], f: Callable[..., Blob], axis: int = 0) -> Blob:
    """What `f` gives for each device's part of the blobs, on that device, one after the other."""
    given = [xs] if isinstance(xs, Blob) else list(xs)
    parts = [distribute_split(x, axis) for x in given]
    found = []
    for place, *some in zip(_places(), *parts, strict=True):
        with on_devices(place):
            found.append(f(*some))
    return distribute_concat(found, axis)


def _places() -> list[Placement]:
    devices = current_devices()
    return [Placement(devices.device_type, [rank]) for rank in devices.flat_ranks]


def _at(x: Blob, place: Placement) -> Blob:
    tensor = moved(x, WHOLE, current_devices())
    return Blob.of(global_to_global(tensor, place, broadcast))


def _one_each(who: str, xs: Sequence[Blob]) -> list[Blob]:
    count = len(_places())
    if len(xs) != count:
        raise OnefoldValueError(
            f"{who} needs a blob for each of {count} devices, but got {len(xs)}"
        )
    return list(xs)
