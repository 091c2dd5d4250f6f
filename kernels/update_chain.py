"""Update rules that work on each element alone, on lists of local tensors, in place.

A rule is one function in torch's pointwise functions and operators. It is traced once into a
chain: torch runs the chain link by link, Triton as one kernel that is generated from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from .guarded_update import gradient, put, wide
from .optim_ref import Tensors
from .pointwise_chain_ref import At, Chain, Link, several
from .select import pick

# (parameter, gradient, states..., numbers by name) -> (parameter, states...)
Rule = Callable[..., tuple[Any, ...]]


def update_by_rule(
    rule: Rule,
    columns: Sequence[Tensors],
    numbers: Mapping[str, float | torch.Tensor],
    *,
    maximize: bool = False,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """Update parameters by gradients: `columns` has the lists of both, and those of each state.

    It is computed in float32 for half precision. `numbers` may be on the device; so nothing is
    compiled anew when one changes. `scale` and `found_inf` as in `optim.adamw`.
    """
    like = wide(columns[0][0])
    run = pick(several, like.device.type)(chain_of(rule, len(columns), tuple(numbers)))
    given = [
        torch.as_tensor(x, dtype=torch.float64).to(like.device, like.dtype)
        for x in numbers.values()
    ]
    for row in zip(*columns, strict=True):
        param, grad, *states = row
        g = gradient(grad, scale)
        found = run(wide(param), -g if maximize else g, *map(wide, states), *given)
        for target, value in zip((param, *states), found, strict=True):
            put(target, value, found_inf)


@cache
def chain_of(rule: Rule, tensors: int, names: tuple[str, ...]) -> Chain:
    """The rule as a chain from so many tensors, and numbers of these names.

    >>> chain_of(lambda p, g, lr: (p - lr * g,), 2, ("lr",)).outputs
    (4,)
    """
    links: list[Link] = []
    values = [_Traced(number, links, tensors + len(names)) for number in range(tensors)]
    named = {
        name: _Traced(tensors + i, links, tensors + len(names)) for i, name in enumerate(names)
    }
    outputs = rule(*values, **named)
    return Chain(tensors + len(names), tuple(links), tuple([each.number for each in outputs]))


class _Traced:
    """A value of a rule that is being traced: what is done with it becomes a link."""

    def __init__(self, number: int, links: list[Link], inputs: int) -> None:
        self.number = number
        self._links = links
        self._inputs = inputs

    def _link(self, function: Callable[..., Any], *args: Any) -> _Traced:
        given = tuple([At(arg.number) if isinstance(arg, _Traced) else arg for arg in args])
        self._links.append(Link(function, given))
        return _Traced(self._inputs + len(self._links) - 1, self._links, self._inputs)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> _Traced:
        assert not kwargs, f"a rule calls {func.__name__} with keywords; give them by position"
        first = next(arg for arg in args if isinstance(arg, cls))
        return first._link(func, *args)

    def __add__(self, other: Any) -> _Traced:
        return self._link(torch.add, self, other)

    def __sub__(self, other: Any) -> _Traced:
        return self._link(torch.sub, self, other)

    def __mul__(self, other: Any) -> _Traced:
        return self._link(torch.mul, self, other)

    def __truediv__(self, other: Any) -> _Traced:
        return self._link(torch.div, self, other)

    def __neg__(self) -> _Traced:
        return self._link(torch.neg, self)

    def __rsub__(self, other: float) -> _Traced:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__
