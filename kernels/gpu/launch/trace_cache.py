"""Cache of traces: a function is traced once for each combination of layouts, then replayed.

The function around a Triton kernel chooses tiles, splits and views by the shapes, strides and
dtypes of its arguments, so the choices are the same in each call. A call with known layouts only
allocates the results, reads the addresses and starts the kernels; see `host_replay`.

A trace is made when its layouts have been seen several times, and holds no tensor. It is valid for
all values of the runtime scalars; see `symbolic_numbers`. A place that calls the function with
tensors of the same shapes each time needs no look-up; see `inline_cache`. The function is called as
it is if it is not traceable (see `launch_trace`), if the address of a tensor is not a multiple of
16 bytes, and always on AMD, where compiled code depends on the size of the memory around a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, wraps
from itertools import count
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from ...attention_ref import Pairs
from ...cross_entropy_ref import Classes
from .host_replay import Replay
from .inline_cache import Found, call_site
from .jit_kernel import INTERPRETED, ON_AMD
from .launch_trace import LaunchTrace, NotTraceable, leaves, record, with_tensors
from .symbolic_numbers import Number, ScalarPlaces, ValueNeeded, symbol

Function = Callable[..., Any]
Arguments = Sequence[Any]  # of a function that is traced
Plans = dict[object, Function]

TRACED_AFTER = 15  # calls with the same layouts, which take about as long as making the trace
_MOST = 4096  # traces of one function, and layouts without one; numbers may be new each time
_LONGEST = 16  # for longer lists, reading all layouts takes longer than the function
_BY_VALUE = {
    Classes,
    Pairs,
    int,
    bool,
    str,
    NoneType,
    type,
    torch.dtype,
    torch.device,
    torch.memory_format,
}
_NUMBERS = {int, float}
_GROUPS = (tuple, list)


class _NoKey(Exception):
    """An argument has a type that cannot be part of a key."""


@cache
def replayed(function: Function) -> Function:
    """The function with a cache of traces, for tensors, numbers, strings and short lists of them.

    With other arguments the function is called as it is.
    """
    return traced(function)


def traced(function: Function, scalars: Sequence[str] = ()) -> Function:
    """`replayed` with a cache of its own, which lives as long as what is returned.

    `scalars` are names of runtime scalars besides those that the function declares.
    """
    if ON_AMD:
        return function
    plans: Plans = {}
    calls: dict[object, int] = {}  # by key: those before there is a trace
    places = ScalarPlaces(function, scalars)

    def key_of(args: Arguments, names: tuple[str, ...], scalars: set[int]) -> object:
        return (
            names,
            *[
                (arg.dtype, arg.shape, arg.stride(), arg.device)
                if type(arg) is Tensor
                else _key_of(arg, place in scalars)
                for place, arg in enumerate(args)
            ],
        )

    @wraps(function)
    def call(*args: object, **named: object) -> object:
        names, scalars = tuple(named), places.positional
        if names:
            scalars = places.among(len(args), names)
            args = (*args, *named.values())
        try:
            key = key_of(args, names, scalars)
        except _NoKey:
            return _by_name(function, names)(*args)
        plan = plans.get(key)
        if plan is not None:
            return plan(*args)
        before = calls.get(key, 0)
        if before < TRACED_AFTER:
            if len(calls) >= _MOST:
                for old in list(calls)[: _MOST // 2]:
                    calls.pop(old, None)
            calls[key] = before + 1
            return _by_name(function, names)(*args)
        calls.pop(key, None)
        if len(plans) >= _MOST:
            plans.clear()
        bound = _by_name(function, names)
        replay = _recorded(bound, args, scalars)
        # Tracing may have found scalars whose values are read, which then belong to the key.
        key = key_of(args, names, scalars)
        plan = plans[key] = bound if replay is None else _first(bound, replay, plans, key)
        return plan(*args)

    def find(args: Arguments) -> Found | None:
        try:
            plan = plans.get(key_of(args, (), places.positional))
        except _NoKey:
            return None
        return getattr(plan, "found", None)

    vars(call).update(call_site=partial(call_site, call, find), around=partial(_around, function))
    return call


def _around(function: Function, call: Function) -> Function:
    """A call site of its own for a function of the engine around `function`, as `Local.around`."""
    scalars = getattr(function, "runtime_scalars", ())
    site: Function = vars(traced(call, scalars))["call_site"]()
    return site


def _by_name(function: Function, names: tuple[str, ...]) -> Function:
    """The function with positional arguments, of which the last are passed by these names."""
    if not names:
        return function
    count = len(names)

    def call(*args: object) -> object:
        return function(*args[:-count], **dict(zip(names, args[-count:], strict=True)))

    return call


def _first(function: Function, replay: Replay, plans: Plans, key: object) -> Function:
    """The first replay of a trace, which replaces itself by generated code."""

    def slowly(*args: object) -> object:
        tensors = _tensors(args)
        if not replay.fits(tensors):
            return function(*args)
        result, forms = replay.once(tensors, args)
        if not INTERPRETED:
            plans[key] = written = replay.written(forms)
            vars(written)["found"] = Found(replay, forms)
        return result

    return slowly


def _recorded(function: Function, args: Arguments, scalars: set[int]) -> Replay | None:
    """The replay of a call, or None if the function is not traceable.

    It is valid for all values of the runtime scalars, whose positions are in `scalars`. Those that
    the function turns out to read are removed.
    """
    while True:
        left = [i for i in sorted(scalars) if i < len(args) and type(args[i]) in _NUMBERS]
        try:
            return _replay(function, args, left)
        except ValueNeeded as needed:
            scalars.discard(needed.place)
        except NotTraceable:
            return None
        except Exception:  # noqa: BLE001 - the real call raises the error again
            if not left:
                return None
            scalars.difference_update(left)


def _replay(function: Function, args: Arguments, left: Sequence[int]) -> Replay:
    """Trace a call, with symbolic numbers at the positions in `left`."""
    tensors = _tensors(args)
    devices = [x.device for x in tensors] or [x for x in args if type(x) is torch.device]
    if len(set(devices)) != 1 or any(x.requires_grad for x in tensors):
        raise NotTraceable
    trace = LaunchTrace(tensors, devices[0])
    fakes = iter(trace.fake_tensors)
    given = [with_tensors(arg, lambda _: next(fakes)) for arg in args]
    names = _unpacked(args, count())
    for i in left:
        given[i] = symbol(args[i], Number(i))
        names[i] = f"n{i}"
    return Replay(function, trace, record(function, trace, given), names)


def _key_of(arg: Any, is_scalar: bool = False) -> object:
    """The part of an argument that belongs to the key; of a runtime scalar, the type."""
    kind = type(arg)
    if is_scalar and kind in _NUMBERS:
        return kind
    if kind in _BY_VALUE:
        return kind, arg
    if kind is float:
        return kind, arg or repr(arg)  # 0.0 and -0.0 are equal
    if kind is tuple and _BY_VALUE.issuperset(kinds := tuple(map(type, arg))):
        return kinds, arg
    if kind is Tensor:
        return arg.dtype, arg.shape, arg.stride(), arg.device
    if kind is slice:
        return kind, arg.start, arg.stop, arg.step
    if isinstance(arg, _GROUPS) and len(arg) <= _LONGEST:
        return kind, *map(_key_of, arg)
    raise _NoKey


def _tensors(args: Arguments) -> list[Tensor]:
    return [x for x in leaves(args) if isinstance(x, Tensor)]


def _unpacked(args: Arguments, numbers: Iterator[int]) -> list[str]:
    """How the arguments unpack into tensors, as text."""
    return [
        f"x{next(numbers)}"
        if isinstance(arg, Tensor)
        else f"({''.join(f'{part}, ' for part in _unpacked(arg, numbers))})"
        if isinstance(arg, _GROUPS) and _tensors(arg)
        else "_"
        for arg in args
    ]
