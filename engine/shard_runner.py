"""Running a bound kernel on the shards that this process owns; replicas compute once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .meta import Meta
from .op import Kernel, Local, Op
from .placement import Placement
from .sbp import broadcast


def single(op: Op, local: Local, attrs: tuple[Any, ...]) -> Callable[..., Any]:
    """The function from the inputs' shards to the outputs' where each tensor has one shard."""
    present = tuple([meta is not None for meta in local.inputs])
    if op.num_outputs == 1:
        if not op.depends_on_position and (present, len(attrs)) in _WITH_ATTRIBUTES:
            return _WITH_ATTRIBUTES[present, len(attrs)](local.pick(op.kernel), *attrs)
        if present in _SINGLE:
            return _SINGLE[present](op.bind(local, attrs))
    elif present == (True, True, True):
        return _three_single(op.bind(local, attrs))
    return _any_single(op.bind(local, attrs), op.num_outputs != 1)


# The commonest cases, by which arguments are tensors (the others are numbers).
_SINGLE: dict[tuple[bool, ...], Callable[[Kernel], Callable[..., Any]]] = {
    (True,): lambda kernel: lambda x: (kernel(x[0]),),
    (True, True): lambda kernel: lambda a, b: (kernel(a[0], b[0]),),
    (True, False): lambda kernel: lambda a, b: (kernel(a[0], b),),
    (False, True): lambda kernel: lambda a, b: (kernel(a, b[0]),),
    (True, True, True): lambda kernel: lambda a, b, c: (kernel(a[0], b[0], c[0]),),
}

# The same for a number of attributes, whose kernels then need no function around them.
_WITH_ATTRIBUTES: dict[tuple[tuple[bool, ...], int], Callable[..., Callable[..., Any]]] = {
    ((True,), 1): lambda kernel, p: lambda x: (kernel(x[0], p),),
    ((True,), 2): lambda kernel, p, q: lambda x: (kernel(x[0], p, q),),
    ((True, True), 1): lambda kernel, p: lambda a, b: (kernel(a[0], b[0], p),),
}


def _three_single(kernel: Kernel) -> Callable[..., Any]:
    """Of three tensors, with several outputs."""

    def run(a: Any, b: Any, c: Any) -> Any:
        return tuple([(result,) for result in kernel(a[0], b[0], c[0])])

    return run


def _any_single(kernel: Kernel, several: bool) -> Callable[..., Any]:
    def run(*inputs: Any) -> Any:
        return (kernel(*[_first(shards) for shards in inputs]),)

    def run_several(*inputs: Any) -> Any:
        results = kernel(*[_first(shards) for shards in inputs])
        return tuple([(result,) for result in results])

    return run_several if several else run


def _first(shards: Any) -> Any:
    return shards[0] if type(shards) is tuple else shards


def runner(
    op: Op,
    metas: tuple[Meta | None, ...],
    outputs: tuple[Meta, ...],
    attrs: tuple[Any, ...],
    placement: Placement,
) -> Callable[..., Any]:
    """The function from input shards to output shards for the ranks this process owns."""
    several = op.num_outputs != 1
    owned = placement.owned
    if not owned:
        empty: Any = ((),) * len(outputs) if several else ()
        return lambda *inputs: empty
    if len(owned) == 1:
        return single(op, Local(owned[0], metas, outputs, placement), attrs)
    kernels = {}
    sources = _distinct(metas, outputs, placement)
    for position in set(sources):
        kernels[position] = op.bind(Local(position, metas, outputs, placement), attrs)
    index_of = {position: index for index, position in enumerate(owned)}
    steps = [(position, index_of[position], kernels[position]) for position in sorted(kernels)]

    def run(*inputs: Any) -> Any:
        results = {
            position: kernel(*[s[index] if type(s) is tuple else s for s in inputs])
            for position, index, kernel in steps
        }
        if several:
            return tuple(
                tuple([results[position][i] for position in sources]) for i in range(len(outputs))
            )
        return tuple([results[position] for position in sources])

    return run


def _distinct(
    metas: tuple[Meta | None, ...], outputs: tuple[Meta, ...], placement: Placement
) -> list[int]:
    """For each owned position, the position whose result it shares: replicas compute once.

    Along an axis where every input and output is broadcast all ranks hold the same values, so a
    process that owns several of them (a virtual world) runs the kernel for one.
    """
    involved = [meta for meta in (*metas, *outputs) if meta is not None]
    replicated = [
        axis
        for axis in range(placement.ndim)
        if all(meta.nd_sbp[axis] is broadcast for meta in involved)
    ]
    owned = set(placement.owned)
    found = []
    for position in placement.owned:
        group = placement.group(position, replicated)
        found.append(min(member for member in group if member in owned))
    return found
