"""Updates of lists of local tensors by a rule for each element, in place.

A rule is one function, see `update_rules`: torch runs it tensor by tensor, Triton as one kernel
over all tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float
from functools import cache
from inspect import Parameter, signature

import torch

from .guarded_update import put, wide

Rule = Callable[..., tuple[torch.Tensor | None, ...]]
Numbers = Mapping[str, float | torch.Tensor]  # flags among them are bool
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # what Triton updates


def update_by_rule(
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
) -> None:
    """Update parameters by gradients, and what is kept of them: dense tensors of one dtype.

    It is computed in float32 for half precision. Gradients are first multiplied by `scale`, negated
    to `maximize`, and then `weight_decay` times the parameter is added. Numbers may be 0-d tensors
    on the device, as `scale` is, so a captured graph can be run with others; "lr" may be a 1-d one
    with a rate for each parameter. Where `found_inf`, on the device, is 1 and not 0, nothing
    changes.
    """
    like = params[0]
    worked = torch.promote_types(like.dtype, torch.float32)
    narrow, dtype = worked is not like.dtype, worked.to_real()
    given: dict[str, float | torch.Tensor] = {}
    for name, x in numbers.items():
        if isinstance(x, torch.Tensor):
            given[name] = x.to(like.device, dtype)
        else:  # rounded first, as Triton does
            given[name] = x if isinstance(x, bool) or dtype is torch.float64 else c_float(x).value
    rates = None if (lr := per_tensor(numbers)) is None else lr.to(like.device, dtype)
    nothing = [None] * len(params)
    columns = [states.get(name, nothing) for name in states_of(rule)]
    for index, (param, grad, *kept) in enumerate(zip(params, grads, *columns, strict=True)):
        p, g = (wide(param), wide(grad)) if narrow else (param, grad)
        if scale is not None:
            g = g * scale
        if maximize:
            g = -g
        if weight_decay is not None:
            g = g + weight_decay * p
        if rates is not None:
            given["lr"] = rates[index]
        before = [x if x is None else wide(x) for x in kept] if narrow else kept
        found = rule(p, g, *before, **given)
        for target, value in zip((param, *kept), found, strict=True):
            if target is not None and value is not None:
                put(target, value, found_inf)


def per_tensor(numbers: Numbers) -> torch.Tensor | None:
    """The learning rates, if each tensor has its own."""
    lr = numbers.get("lr")
    return lr if isinstance(lr, torch.Tensor) and lr.ndim == 1 else None


@cache
def states_of(rule: Rule) -> tuple[str, ...]:
    """The names of what a rule keeps of a parameter.

    >>> def rule(p, g, average, *, lr): ...
    >>> states_of(rule)
    ('average',)
    """
    given = signature(rule).parameters.values()
    return tuple([each.name for each in given if each.kind is Parameter.POSITIONAL_OR_KEYWORD][2:])
