"""Blob: the input and output of a job's ops while it is traced; one tensor, or one per part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, overload

import torch

from ..engine.argument_types import Number
from ..engine.convert import global_to_global
from ..engine.ops.arithmetic import add, div, mul, neg, rsub, sub
from ..engine.ops.getitem import getitem
from ..engine.ops.unary import reciprocal
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, broadcast, partial_sum, split
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError
from .distribute import Distribute
from .scope import current_devices
from .tracing import is_tracing, tracing

# The device of a part (None: all devices, consistently), and its index among pieces in time.
Key: TypeAlias = tuple[int | None, int | None]
WHOLE: Key = (None, None)


class Blob:
    """A value of a job.

    In the consistent view it is one global tensor. In the mirrored view there is one for each
    device, and after `unpack` one for each piece; an op then runs on each of them, and `shape` is
    that of one. `variable` says that it is a variable, which every part of an op takes whole;
    `whole` that it has all rows of the batch: it is fed to the job, or packed.
    """

    __slots__ = ("parts", "variable", "whole")

    def __init__(
        self, parts: Mapping[Key, Tensor], variable: bool = False, whole: bool = False
    ) -> None:
        self.parts = dict(parts)
        self.variable = variable
        self.whole = whole

    @classmethod
    def of(cls, tensor: Tensor, variable: bool = False) -> Blob:
        """A blob of the consistent view."""
        return cls({WHOLE: tensor}, variable)

    @property
    def first(self) -> Tensor:
        """The tensor of the first part."""
        return next(iter(self.parts.values()))

    @property
    def shape(self) -> tuple[int, ...]:
        """The static shape; in the mirrored view that of one device's part."""
        return tuple(self.first.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.first.dtype

    @property
    def parallel_size(self) -> int:
        """How many devices it is on."""
        return max(len({device for device, _ in self.parts}), self.first.placement.num_ranks)

    def with_distribute(self, distribute: Distribute) -> Blob:
        """The same value, laid out so."""
        return self.with_layouts(distribute, None)

    def with_gradient_distribute(self, distribute: Distribute) -> Blob:
        """The same value, whose gradient is laid out so."""
        return self.with_layouts(None, distribute)

    def with_layouts(self, forward: Distribute | None, backward: Distribute | None) -> Blob:
        """The same value with these layouts of itself and of its gradient."""
        for given in (forward, backward):
            if given is not None and not isinstance(given, Distribute):
                raise OnefoldTypeError(
                    "a layout is given as flow.distribute.split(axis), .broadcast() or .auto(), "
                    f"but got {given!r}"
                )

        _note_whole([self])

        def laid(x: Tensor) -> Tensor:
            now = x.sbp
            there = now if forward is None or forward.sbp is None else (forward.sbp,) * len(now)
            grad = None if backward is None or backward.sbp is None else backward.sbp
            return global_to_global(x, x.placement, there, grad_sbp=grad)

        return Blob({key: laid(x) for key, x in self.parts.items()}, self.variable)

    def __repr__(self) -> str:
        return f"Blob(shape={self.shape}, dtype={self.dtype}, parts={len(self.parts)})"

    def __bool__(self) -> bool:
        raise OnefoldRuntimeError(
            "a blob has no value while its job is traced, so it cannot decide an if or a loop; use "
            "flow.where, or decide by its shape"
        )

    def __neg__(self) -> Blob:
        return each(neg, self)

    def __add__(self, other: Blob | Number) -> Blob:
        return each(add, self, other)

    def __radd__(self, other: Blob | Number) -> Blob:
        return each(add, other, self)

    def __sub__(self, other: Blob | Number) -> Blob:
        return each(sub, self, other)

    def __rsub__(self, other: Blob | Number) -> Blob:
        return each(rsub, self, other)

    def __mul__(self, other: Blob | Number) -> Blob:
        return each(mul, self, other)

    def __rmul__(self, other: Blob | Number) -> Blob:
        return each(mul, other, self)

    def __truediv__(self, other: Blob | Number) -> Blob:
        return each(div, self, other)

    def __rtruediv__(self, other: Blob | Number) -> Blob:
        return each(mul, each(reciprocal, self), other)

    def __getitem__(self, index: object) -> Blob:
        return each(getitem, self, index)


@overload
def each(function: Callable[..., Tensor], *args: object, **options: object) -> Blob: ...
@overload
def each(
    function: Callable[..., tuple[Tensor, ...]], *args: object, **options: object
) -> tuple[Blob, ...]: ...
def each(function: Callable[..., Any], *args: object, **options: object) -> Any:
    """Run an op on the parts of its blobs, on the devices of the scope; gives a Blob, or several.

    Blobs may stand in lists among the arguments. Raises OnefoldTypeError without any blob.
    """
    blobs = list(_blobs((args, options)))
    if not blobs:
        name = getattr(function, "__name__", "op")
        raise OnefoldTypeError(
            f"{name} needs a blob, which a job's arguments and variables are, but got "
            f"{', '.join(type(arg).__name__ for arg in args)}"
        )
    _note_whole(blobs)
    devices = current_devices()
    results = {}
    for key in keys_of(blobs):
        place = place_of(devices, key)

        def tensor(x: object, key: Key = key, place: Placement = place) -> object:
            if isinstance(x, Blob):
                return moved(x, key, place)
            if isinstance(x, (list, tuple)):
                return type(x)([tensor(inner, key, place) for inner in x])
            return x

        given = {name: tensor(value) for name, value in options.items()}
        results[key] = function(*[tensor(arg) for arg in args], **given)
    return _combined(results)


def _note_whole(blobs: list[Blob]) -> None:
    if is_tracing() and any(blob.whole for blob in blobs):
        tracing("an op").accumulation.use_whole()


def keys_of(blobs: list[Blob]) -> list[Key]:
    """The parts of a result: every device and every piece that some of its operands have."""
    devices: list[int | None] = [*sorted({d for b in blobs for d, _ in b.parts if d is not None})]
    pieces: list[int | None] = [*sorted({p for b in blobs for _, p in b.parts if p is not None})]
    return [(device, piece) for device in devices or [None] for piece in pieces or [None]]


def place_of(devices: Placement, key: Key) -> Placement:
    """Where a part is: on all the devices, or on its own of them."""
    if key[0] is None:
        return devices
    if key[0] >= devices.num_ranks:
        raise OnefoldRuntimeError(
            f"a blob of the mirrored view has a part for device {key[0]}, but the scope has "
            f"{devices.num_ranks} devices"
        )
    return Placement(devices.device_type, [devices.flat_ranks[key[0]]])


def moved(blob: Blob, key: Key, place: Placement) -> Tensor:
    """The part of a blob that a part of an op takes, on the devices of that."""
    device, piece = key
    for candidate in (key, (device, None), (None, piece), WHOLE):
        found = blob.parts.get(candidate)
        if found is not None:
            break
    else:
        raise OnefoldRuntimeError(f"{blob!r} has no part for device {device} and piece {piece}")
    if found.placement is place:
        return found
    if device is not None and candidate[0] is None:
        # Each device takes the whole; the gradients are its addends, which are added up at the end.
        return global_to_global(found, place, broadcast, grad_sbp=_addends(found))
    spread = place.num_ranks > 1 and found.ndim and not blob.variable
    return global_to_global(found, place, split(0) if spread else broadcast)


def _addends(x: Tensor) -> NdSbp:
    return tuple(s if s.is_split else partial_sum for s in x.sbp)


def _combined(results: Mapping[Key, Any]) -> Any:
    first = next(iter(results.values()))
    if isinstance(first, (tuple, list)):
        return type(first)(
            _combined({key: value[i] for key, value in results.items()}) for i in range(len(first))
        )
    return Blob(results) if isinstance(first, Tensor) else first


def _blobs(tree: object) -> Iterator[Blob]:
    if isinstance(tree, Blob):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for inner in tree:
            yield from _blobs(inner)
    elif isinstance(tree, dict):
        yield from _blobs(list(tree.values()))
