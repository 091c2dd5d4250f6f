"""Runs a bound kernel on the shards that this process owns. Replicas are computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .generated import function
from .meta import Meta
from .op import Kernel, Local, Op
from .placement import Placement
from .sbp import broadcast

MOST_NAMED = 8  # tensors of an op whose function names them


def single(op: Op, local: Local, attrs: tuple[Any, ...]) -> Callable[..., Any]:
    """The function from the inputs' shards to the outputs' where each tensor has one shard."""
    present = tuple([meta is not None for meta in local.inputs])
    if len(present) > MOST_NAMED:
        return _any_single(op.bind(local, attrs), op.num_outputs != 1)
    if getattr(op.bind, "__func__", None) is Op.bind:  # with no function around the kernel
        make = _maker(present, op.num_outputs, len(attrs))
        return make(local.pick(op.kernel), *attrs)
    make = _maker(present, op.num_outputs, 0)
    return make(op.bind(local, attrs))


@lru_cache(maxsize=1024)
def _maker(
    present: tuple[bool, ...], outputs: int, attributes: int
) -> Callable[..., Callable[..., Any]]:
    """What makes the function that calls a kernel: by which arguments are tensors, not values."""
    text = _source(present, outputs, attributes)
    return function(text, "make", "kernel on one shard", {})


def _source(present: tuple[bool, ...], outputs: int, attributes: int) -> str:
    """The text of the function that makes it: it does what `_any_single` does for any number.

    >>> print(_source((True, False), 1, 1))
    def make(kernel, a0):
        def run(x0, x1):
            return (kernel(x0[0], x1, a0),)
        return run
    """
    inputs = [f"x{i}" for i in range(len(present))]
    bound = [f"a{i}" for i in range(attributes)]
    given = [f"{x}[0]" if is_tensor else x for x, is_tensor in zip(inputs, present, strict=True)]
    call = f"kernel({', '.join([*given, *bound])})"
    made = [f"y{i}" for i in range(outputs)]
    work = [f"return ({call},)"]
    if outputs != 1:
        work = [f"{', '.join(made)} = {call}", f"return {', '.join(f'({y},)' for y in made)}"]
    lines = [
        f"def make({', '.join(['kernel', *bound])}):",
        f"    def run({', '.join(inputs)}):",
        *[f"        {line}" for line in work],
        "    return run",
    ]
    return "\n".join(lines)


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
