"""Plans: what a twin does is noted once for each combination of layouts, and then done again.

A twin chooses tiles, splits and views by the shapes, strides and dtypes of its arguments: the same
each time. So a call with known layouts has no more to do than to allocate the results, read the
addresses and start the kernels; see `replay`.

A plan is made when its layouts are met for the second time, and holds no tensor. What cannot be
noted (see `tape`), or is given tensors at addresses that are no multiple of 16 bytes, is called as
it is; on AMD, where compiled code depends on the size of the memory around a tensor, all is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, wraps
from itertools import count
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from .launch import INTERPRETED, ON_AMD
from .replay import Replay
from .tape import Tape, note

Function = Callable[..., Any]

AT_ONCE = False  # whether a plan is made the first time; in tests
_MOST = 4096  # plans of one function
_MOST_MET = 512  # combinations of layouts without one: numbers may be new each time
_LONGEST = 16  # of longer lists it takes less time to do the work than to read all layouts
_BY_VALUE = {int, bool, str, NoneType, torch.dtype, torch.device, torch.memory_format}
_GROUPS = {tuple, list, torch.Size}


class _NoKey(Exception):
    """An argument is of a kind of which no plan is made."""


@cache
def planned(function: Function) -> Function:
    """The function, with plans for tensors, numbers, words, and short lists of them.

    With other arguments, or tensors that are given by name, it is called as it is.
    """
    if ON_AMD:
        return function
    plans: dict[Any, Function] = {}
    met: set[Any] = set()  # once

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            key = tuple(
                [
                    (arg.dtype, arg.shape, arg.stride(), arg.device)
                    if type(arg) is Tensor
                    else _key_of(arg)
                    for arg in args
                ]
            )
            if named:
                key += tuple([(name, _key_of(value)) for name, value in named.items()])
        except _NoKey:
            return function(*args, **named)
        plan = plans.get(key)
        if plan is not None:
            return plan(*args)
        if key not in met and not AT_ONCE:
            if len(met) >= _MOST_MET:
                met.clear()
            met.add(key)
            return function(*args, **named)
        met.discard(key)
        if len(plans) >= _MOST:
            plans.clear()
        bound = partial(function, **named) if named else function
        plans[key] = plan = _plan(bound, args, plans, key)
        return plan(*args)

    return call


def _plan(
    function: Function, args: Sequence[Any], plans: dict[Any, Function], key: Any
) -> Function:
    """The plan of a call, which puts a faster one in its place; the function where it has none."""
    replay = _noted(function, args)
    if replay is None:
        return function

    def slowly(*args: Any) -> Any:
        tensors = list(_tensors(args))
        if not replay.fits(tensors):
            return function(*args)
        result, forms = replay.once(tensors)
        if not INTERPRETED:
            plans[key] = replay.written(forms)
        return result

    return slowly


def _noted(function: Function, args: Sequence[Any]) -> Replay | None:
    """The replay of a call, or None where there can be none."""
    tensors = list(_tensors(args))
    if not tensors or any(x.device != tensors[0].device or x.requires_grad for x in tensors):
        return None
    tape = Tape(tensors)
    try:
        result = note(function, tape, _put(args, iter(tape.shadows)))
        return Replay(function, tape, result, _unpacked(args, count()))
    except Exception:  # noqa: BLE001 - what is wrong with the arguments the function itself says
        return None


def _key_of(arg: Any) -> Any:
    kind = type(arg)
    if kind in _BY_VALUE:
        return kind, arg
    if kind is float:
        return kind, arg or repr(arg)  # 0.0 and -0.0 are equal
    if kind in _GROUPS and len(arg) <= _LONGEST:
        return kind, *[_layout(part) if type(part) is Tensor else _key_of(part) for part in arg]
    raise _NoKey


def _layout(x: Tensor) -> Any:
    return x.dtype, x.shape, x.stride(), x.device


def _tensors(args: Sequence[Any]) -> Iterator[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif type(arg) in _GROUPS:
            yield from _tensors(arg)


def _put(args: Sequence[Any], tensors: Iterator[Any]) -> list[Any]:
    """The arguments with others in place of their tensors."""
    return [
        next(tensors)
        if isinstance(arg, Tensor)
        else type(arg)(_put(arg, tensors))
        if type(arg) in _GROUPS
        else arg
        for arg in args
    ]


def _unpacked(args: Sequence[Any], numbers: Iterator[int]) -> list[str]:
    """How the arguments unpack into tensors, as text."""
    return [
        f"x{next(numbers)}"
        if isinstance(arg, Tensor)
        else f"({''.join(f'{part}, ' for part in _unpacked(arg, numbers))})"
        if type(arg) in _GROUPS
        else "_"
        for arg in args
    ]
