"""Runs a bound kernel on the shards that this process owns. Replicas are computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from ..kernels.select import uses_triton
from .generated import function
from .meta import Meta, blank_shards
from .names import Function
from .op import Attributes, Bound, Kernel, Local, Metas, Op
from .placement import Placement
from .sbp import broadcast

MAX_NAMED = 8  # tensors that a generated function takes as named parameters


def _single(bound: Kernel, present: tuple[bool, ...], num_outputs: int) -> Function:
    """The function from the inputs' shards to the outputs' where each tensor has one shard.

    `present` tells which arguments are tensors.
    """
    if len(present) > MAX_NAMED:
        return _any_single(bound, num_outputs != 1)
    kernel, args = (bound.kernel, bound.args) if isinstance(bound, Bound) else (bound, ())
    run = _maker(present, num_outputs, len(args))(kernel, *args)
    if num_outputs == 1:
        vars(run)["kernel_call"] = KernelCall(kernel, present, tuple(args))
    return run


class KernelCall(NamedTuple):
    """The call inside the function of `_single`, for generated code that inlines it."""

    kernel: Kernel
    present: tuple[bool, ...]  # which arguments are tensors, not values
    args: tuple[object, ...]  # that follow


@lru_cache(maxsize=1024)
def _maker(present: tuple[bool, ...], outputs: int, attributes: int) -> Callable[..., Function]:
    """The factory of functions that call a kernel, by which arguments are tensors, not values."""
    text = _source(present, outputs, attributes)
    return function(text, "make", "kernel on one shard", {})


def _source(present: tuple[bool, ...], outputs: int, attributes: int) -> str:
    """The source of that factory. Its functions do what those of `_any_single` do.

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


def _function(kernel: Kernel, num_inputs: int) -> Kernel:
    """A kernel with its arguments bound."""
    if not isinstance(kernel, Bound):
        return kernel
    if not kernel.args:
        return kernel.kernel
    if num_inputs > MAX_NAMED:
        return kernel
    return _function_maker(num_inputs, len(kernel.args))(kernel.kernel, *kernel.args)


@lru_cache(maxsize=1024)
def _function_maker(tensors: int, attributes: int) -> Callable[..., Kernel]:
    """The factory of functions that call a kernel with bound arguments, without star arguments."""
    inputs = ", ".join(f"x{i}" for i in range(tensors))
    bound = ", ".join(f"a{i}" for i in range(attributes))
    text = f"def make(kernel, {bound}):\n    return lambda {inputs}: kernel({inputs}, {bound})\n"
    return function(text, "make", "kernel with bound arguments", {})


def _any_single(kernel: Kernel, several: bool) -> Function:
    def run(*inputs: object) -> tuple[object, ...]:
        return (kernel(*[_first(shards) for shards in inputs]),)

    def run_several(*inputs: object) -> tuple[object, ...]:
        results = kernel(*[_first(shards) for shards in inputs])
        return tuple([(result,) for result in results])

    return run_several if several else run


def _first(shards: object) -> object:
    return shards[0] if type(shards) is tuple else shards


def runner(
    op: Op,
    metas: Metas,
    outputs: tuple[Meta, ...],
    attrs: Attributes,
    placement: Placement | None,
) -> tuple[Function, Kernel | None]:
    """The function from input shards to output shards for the ranks this process owns.

    If each tensor has one shard and the op one output, also the kernel as a function of these.
    """
    several = op.num_outputs != 1
    if not outputs[0].has_data:
        return (partial(_blanks, outputs) if several else partial(_blank, outputs[0])), None
    owned = (0,) if placement is None else placement.owned
    if not owned:
        empty = ((),) * len(outputs) if several else ()
        return lambda *inputs: empty, None
    if placement is None or len(owned) == 1:
        bound = op.bind(Local(owned[0], metas, outputs, placement), attrs)
        kernel = None if several else _function(bound, len(metas))
        return _single(bound, tuple([meta is not None for meta in metas]), op.num_outputs), kernel
    kernels = {}
    sources = _distinct(metas, outputs, placement)
    for position in set(sources):
        bound = op.bind(Local(position, metas, outputs, placement), attrs)
        kernels[position] = _function(bound, len(metas))
    index_of = {position: index for index, position in enumerate(owned)}
    steps = [(position, index_of[position], kernels[position]) for position in sorted(kernels)]

    def run(*inputs: object) -> tuple[object, ...]:
        results = {
            position: kernel(*[s[index] if type(s) is tuple else s for s in inputs])
            for position, index, kernel in steps
        }
        if several:
            return tuple(
                tuple([results[position][i] for position in sources]) for i in range(len(outputs))
            )
        return tuple([results[position] for position in sources])

    return run, None


def local_runner(
    op: Op, metas: Metas, outputs: tuple[Meta, ...], attrs: Attributes
) -> tuple[Function, Kernel | None]:
    """`runner` for local tensors; plans share the functions where no shape is bound."""
    first = outputs[0]
    # A Triton kernel has a call site of its own in each plan.
    if type(op).bind is not Op.bind or not first.has_data or uses_triton(first.device_type):
        return runner(op, metas, outputs, attrs, None)
    present = tuple([meta is not None for meta in metas])
    return _shared_runner(op, present, attrs, tuple(map(distinct_from_equal, attrs)))


def distinct_from_equal(value: object) -> object:
    """What tells a value from others that are equal to it, such as 1, 1.0 and True."""
    if type(value) is tuple:
        return tuple(map(distinct_from_equal, value))
    return repr(value) if isinstance(value, (float, complex)) else type(value)


@lru_cache(maxsize=4096)
def _shared_runner(
    op: Op, present: tuple[bool, ...], attrs: Attributes, kinds: tuple[object, ...]
) -> tuple[Function, Kernel | None]:
    bound = Bound(op.kernel, *attrs)
    kernel = None if op.num_outputs != 1 else _function(bound, len(present))
    return _single(bound, present, op.num_outputs), kernel


def _blank(output: Meta, *inputs: object) -> tuple[object, ...]:
    """Replaces a kernel where tensors have no data."""
    return blank_shards(output)


def _blanks(outputs: tuple[Meta, ...], *inputs: object) -> tuple[object, ...]:
    return tuple([blank_shards(output) for output in outputs])


def _distinct(metas: Metas, outputs: tuple[Meta, ...], placement: Placement) -> list[int]:
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
