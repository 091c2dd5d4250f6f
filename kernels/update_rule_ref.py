"""Updates of lists of local tensors by a rule for each element, in place.

A rule is one function, see `update_rules`: torch runs it tensor by tensor, Triton as one kernel
over all tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float
from functools import cache, partial
from inspect import Parameter, signature
from typing import TypedDict, Unpack

import torch

from .guarded_update import wide
from .update_pieces import Piece, pieces

Rule = Callable[..., tuple[torch.Tensor | None, ...]]
Numbers = Mapping[str, float | torch.Tensor]  # flags among them are bool


class Options(TypedDict, total=False):
    """What else an update takes.

    Gradients are first multiplied by `scale`, negated to `maximize`, and then `weight_decay` times
    the parameter is added. Where `found_inf`, on the device, is 1 and not 0, nothing changes.
    `copies`, all of one dtype, take the new parameters, too. With `memory`, float64 on the device,
    the values of the numbers are there in their order, and after them that of `weight_decay`; a
    captured graph can then be run with others.
    """

    weight_decay: float | None
    maximize: bool
    scale: torch.Tensor | None
    found_inf: torch.Tensor | None
    copies: Sequence[torch.Tensor] | None
    memory: torch.Tensor | None


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # what Triton updates


def update_by_rule(
    rule: Rule,
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    states: Mapping[str, Sequence[torch.Tensor]],
    numbers: Numbers,
    **options: Unpack[Options],
) -> None:
    """Update parameters by gradients, and what is kept of them: dense tensors of one dtype.

    It is computed in float32 for half precision. Numbers may be 0-d tensors on the device, so a
    captured graph can be run with others; "lr" may be a 1-d one with a rate for each parameter.
    """
    for write in writes_by_rule(rule, params, grads, states, numbers, **options):
        for change in write():
            change()


def writes_by_rule(
    rule: Rule,
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    states: Mapping[str, Sequence[torch.Tensor]],
    numbers: Numbers,
    *,
    weight_decay: float | None = None,
    maximize: bool = False,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
    copies: Sequence[torch.Tensor] | None = None,
    memory: torch.Tensor | None = None,
) -> list[Callable[[], list[Callable[[], object]]]]:
    """What computes the updates, some elements at a time, and gives the functions that write them.

    On the CPU they are as many as fit into the cache: of many small parameters, or of a part of a
    large one.
    """
    like = params[0]
    worked = torch.promote_types(like.dtype, torch.float32)
    narrow, dtype = worked is not like.dtype, worked.to_real()
    given: dict[str, float | torch.Tensor] = {}
    decay: float | torch.Tensor | None = weight_decay
    if memory is not None:
        names = shared(numbers)
        numbers = {**numbers, **dict(zip(names, memory, strict=False))}
        decay = None if weight_decay is None else memory[len(names)].to(dtype)
    for name, x in numbers.items():
        if isinstance(x, torch.Tensor):
            given[name] = x.to(like.device, dtype)
        else:  # rounded first, as Triton does
            given[name] = x if isinstance(x, bool) or dtype is torch.float64 else c_float(x).value
    rates = None if (lr := per_tensor(numbers)) is None else lr.to(like.device, dtype)

    def write(piece: Piece) -> list[Callable[[], object]]:
        row = [piece.joined(column) for column in range(len(columns) - 1)]
        p, g, *kept = [x if x is None or not narrow else wide(x) for x in row]
        assert p is not None and g is not None
        if scale is not None:
            g = g * scale
        if maximize:
            g = -g
        if decay is not None:
            g = g + decay * p
        own = given if rates is None else {**given, "lr": rates[piece.index]}
        found = rule(p, g, *kept, **own)
        new = found[0]
        values = [new, None, *found[1:], None if new is None else new.to(like.dtype)]
        return [
            change
            for column, value in zip(range(len(columns)), values, strict=True)
            if value is not None
            for change in piece.putting(column, value, found_inf)
        ]

    nothing = [None] * len(params)
    kept = [states.get(name, nothing) for name in states_of(rule)]
    columns = [params, grads, *kept, nothing if copies is None else copies]
    rows = [*zip(*columns, strict=True)]
    return [partial(write, piece) for piece in pieces(rows, rates is None)]


def per_tensor(numbers: Numbers) -> torch.Tensor | None:
    """The learning rates, if each tensor has its own."""
    lr = numbers.get("lr")
    return lr if isinstance(lr, torch.Tensor) and lr.ndim == 1 else None


def shared(numbers: Numbers) -> dict[str, float | torch.Tensor]:
    """The numbers that all tensors share: no flags, and no rates for each of them."""
    rates = per_tensor(numbers)
    return {name: x for name, x in numbers.items() if not (isinstance(x, bool) or x is rates)}


@cache
def states_of(rule: Rule) -> tuple[str, ...]:
    """The names of what a rule keeps of a parameter.

    >>> def rule(p, g, average, *, lr): ...
    >>> states_of(rule)
    ('average',)
    """
    given = signature(rule).parameters.values()
    return tuple([each.name for each in given if each.kind is Parameter.POSITIONAL_OR_KEYWORD][2:])
