"""Dispatch: (op, metas) -> plan, made once and replayed; the eager interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from ..errors import (
    MixedTensorsError,
    OnefoldError,
    OnefoldTypeError,
    PlacementError,
    user_line,
)
from .autograd import Node, Output
from . import boxing, interp
from .boxing import axis_cost
from .meta import Meta
from .op import Kernel, Local, Op, explain
from .placement import Placement
from .sbp import NdSbp, Sbp, broadcast
from .signature import Axis, Rule, Signature, all_broadcast
from .tensor import Tensor

MAX_PLANS = 4096  # per op

# Seconds per flop and per byte of a kernel: only their ratio to boxing costs matters.
FLOP_TIME = {"cpu": 2e-11, "cuda": 2e-15}
BYTE_TIME = {"cpu": 1e-10, "cuda": 3e-13}


class Plan:
    """What was decided once for an op on inputs of given metas."""

    __slots__ = ("differentiable", "instead", "meta", "metas", "run", "signature")

    run: Callable[..., Any]  # shards of each input (and runtime numbers) -> shards
    meta: Meta  # of the first output
    metas: tuple[Meta, ...]
    instead: Callable[..., Any] | None  # called with the op's arguments instead of `run`
    differentiable: bool
    signature: tuple[tuple[NdSbp | None, ...], tuple[NdSbp, ...]]


@dataclass
class Counters:
    """How often plans were found, made, and fell back to broadcast (see `profiler.dispatch`)."""

    misses: int = 0
    evictions: int = 0
    fallbacks: int = 0


counters = Counters()
ops: dict[str, list[Op]] = {}  # every op that has an entry, by name (a pair has several forms)
_tables: list[dict[Any, Plan]] = []
_warned: set[tuple[str, str]] = set()


def _new_table() -> dict[Any, Plan]:
    table: dict[Any, Plan] = {}
    _tables.append(table)
    return table


def clear_plans() -> None:
    """Forget every plan."""
    for table in _tables:
        table.clear()


def num_plans() -> int:
    return sum(len(table) for table in _tables)


# The entries: one hot path per arity. Written out because a generic one costs 0.4 us more.


def unary(op: Op) -> Callable[..., Any]:
    """The function that runs an op of one tensor and hashable attributes."""
    plans = _new_table()
    saves = op.saves is None or 0 in op.saves
    saves_output = op.saves_output
    aliases = op.aliases

    def call(x: Tensor, *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (x, *attrs))
        try:
            plan = plans.get((x.meta, attrs))
        except (AttributeError, TypeError):
            raise _bad_arguments(op, (x,), attrs) from None
        if plan is None:
            plan = _prepare(op, call, plans, (x.meta, attrs), (x,), attrs)
        if plan.instead is not None:
            return plan.instead(x, *attrs)
        y = Tensor(plan.run(x.shards), plan.meta)
        node = x.node
        if node is not None and interp.grad_enabled and plan.differentiable:
            if saves:
                args = (x, *attrs)
                version = x.version
            else:
                args = (x.meta, *attrs)
                version = 0
            y.node = Node(
                op, (node,), args, y.shards if saves_output else None, plan.meta, version
            )
        if aliases:
            x.shared = y.shared = True
        return y

    return _named(call, op)


def binary(op: Op) -> Callable[..., Any]:
    """The function that runs an op of two tensors and hashable attributes."""
    plans = _new_table()
    saves_a = op.saves is None or 0 in op.saves
    saves_b = op.saves is None or 1 in op.saves
    saves_output = op.saves_output

    def call(a: Tensor, b: Tensor, *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (a, b, *attrs))
        try:
            plan = plans.get((a.meta, b.meta, attrs))
        except (AttributeError, TypeError):
            raise _bad_arguments(op, (a, b), attrs) from None
        if plan is None:
            plan = _prepare(op, call, plans, (a.meta, b.meta, attrs), (a, b), attrs)
        if plan.instead is not None:
            return plan.instead(a, b, *attrs)
        y = Tensor(plan.run(a.shards, b.shards), plan.meta)
        left = a.node
        right = b.node
        if (
            (left is not None or right is not None)
            and interp.grad_enabled
            and plan.differentiable
        ):
            version = 0
            arg_a: Any = a.meta
            arg_b: Any = b.meta
            if saves_a:
                arg_a = a
                version = a.version
            if saves_b:
                arg_b = b
                version += b.version
            y.node = Node(
                op,
                (left, right),
                (arg_a, arg_b, *attrs),
                y.shards if saves_output else None,
                plan.meta,
                version,
            )
        return y

    return _named(call, op)


def ternary(op: Op) -> Callable[..., Any]:
    """The function that runs an op of three tensors (the last may be None) and attributes."""
    plans = _new_table()
    saves = tuple(op.saves is None or index in op.saves for index in range(3))
    saves_output = op.saves_output

    def call(a: Tensor, b: Tensor, c: Tensor | None, *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (a, b, c, *attrs))
        try:
            key = (a.meta, b.meta, None if c is None else c.meta, attrs)
            plan = plans.get(key)
        except (AttributeError, TypeError):
            raise _bad_arguments(op, (a, b, c), attrs) from None
        if plan is None:
            plan = _prepare(op, call, plans, key, (a, b, c), attrs)
        if plan.instead is not None:
            return plan.instead(a, b, c, *attrs)
        y = Tensor(plan.run(a.shards, b.shards, None if c is None else c.shards), plan.meta)
        if (
            interp.grad_enabled
            and plan.differentiable
            and (
                a.node is not None or b.node is not None or (c is not None and c.node is not None)
            )
        ):
            args, version = _kept((a, b, c), saves)
            parents = (a.node, b.node, None if c is None else c.node)
            out = y.shards if saves_output else None
            y.node = Node(op, parents, (*args, *attrs), out, plan.meta, version)
        return y

    return _named(call, op)


def _kept(
    tensors: Sequence[Tensor | None], saves: Sequence[bool]
) -> tuple[list[Tensor | Meta | None], int]:
    """What a node keeps of its inputs, and the sum of the kept ones' versions."""
    kept: list[Tensor | Meta | None] = []
    version = 0
    for tensor, save in zip(tensors, saves, strict=True):
        if tensor is None:
            kept.append(None)
        elif save:
            kept.append(tensor)
            version += tensor.version
        else:
            kept.append(tensor.meta)
    return kept, version


def with_number(op: Op, number_first: bool) -> Callable[..., Any]:
    """The function that runs an op of a tensor and a Python number, in either order.

    Plans depend on the number's type, never on its value.
    """
    plans = _new_table()
    saves = op.saves is None or (1 if number_first else 0) in op.saves
    saves_output = op.saves_output

    def call(a: Any, b: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (a, b))
        x, number = (b, a) if number_first else (a, b)
        key = (x.meta, type(number))
        plan = plans.get(key)
        if plan is None:
            plan = _prepare(op, call, plans, key, (a, b), ())
        if plan.instead is not None:
            return plan.instead(a, b)
        shards = plan.run(number, x.shards) if number_first else plan.run(x.shards, number)
        y = Tensor(shards, plan.meta)
        node = x.node
        if node is not None and interp.grad_enabled and plan.differentiable:
            kept = x if saves else x.meta
            y.node = Node(
                op,
                (None, node) if number_first else (node,),
                (number, kept) if number_first else (kept, number),
                y.shards if saves_output else None,
                plan.meta,
                x.version if saves else 0,
            )
        return y

    return _named(call, op)


def general(op: Op) -> Callable[..., Any]:
    """The function that runs any op: a tuple of tensors (None where absent), then attributes."""
    plans = _new_table()
    several = op.num_outputs != 1

    def call(tensors: tuple[Tensor | None, ...], *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (tensors, *attrs))
        try:
            key = (*[None if t is None else t.meta for t in tensors], attrs)
            plan = plans.get(key)
        except (AttributeError, TypeError):
            raise _bad_arguments(op, tensors, attrs) from None
        if plan is None:
            plan = _prepare(op, call, plans, key, tensors, attrs, packed=True)
        if plan.instead is not None:
            return plan.instead(tensors, *attrs)
        shards = plan.run(*[None if t is None else t.shards for t in tensors])
        tape = interp.grad_enabled and plan.differentiable
        if tape:
            tape = any(t is not None and t.node is not None for t in tensors)
        if not several:
            y = Tensor(shards, plan.meta)
            if tape:
                y.node = _node(op, plan, tensors, attrs, shards)
            return y
        return _several(op, plan, tensors, attrs, shards, tape)

    return _named(call, op)


def _several(
    op: Op,
    plan: Plan,
    tensors: Sequence[Tensor | None],
    attrs: tuple[Any, ...],
    shards: Any,
    tape: bool,
) -> tuple[Tensor, ...]:
    outputs = tuple(Tensor(part, meta) for part, meta in zip(shards, plan.metas, strict=True))
    if tape:
        node = _node(op, plan, tensors, attrs, shards)
        for index, output in enumerate(outputs):
            if output.meta.is_floating:
                output.node = Output(node, index)
    if op.aliases:
        for tensor in (*tensors, *outputs):
            if tensor is not None:
                tensor.shared = True
    return outputs


def _node(
    op: Op, plan: Plan, tensors: Sequence[Tensor | None], attrs: tuple[Any, ...], shards: Any
) -> Node:
    saves = [op.saves is None or index in op.saves for index in range(len(tensors))]
    kept, version = _kept(tensors, saves)
    return Node(
        op,
        tuple([None if t is None else t.node for t in tensors]),
        (*kept, *attrs),
        shards if op.saves_output else None,
        plan.metas if op.num_outputs != 1 else plan.meta,
        version,
    )


def _named(call: Callable[..., Any], op: Op) -> Callable[..., Any]:
    ops.setdefault(op.name, []).append(op)
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.__doc__
    return call


# Making a plan.


def _prepare(
    op: Op,
    call: Callable[..., Any],
    plans: dict[Any, Plan],
    key: Any,
    args: Sequence[Any],
    attrs: tuple[Any, ...],
    packed: bool = False,
) -> Plan:
    counters.misses += 1
    _check_tensors(op, args, attrs)
    metas = tuple(arg.meta if isinstance(arg, Tensor) else None for arg in args)
    described = [arg.meta if isinstance(arg, Tensor) else arg for arg in args]
    try:
        plan = _make(op, call, metas, described, attrs, packed)
    except (OnefoldError, RuntimeError, ValueError, TypeError, IndexError) as error:
        raise explain(op, error, (*described, *attrs), user_line()) from error
    if len(plans) >= MAX_PLANS:
        for old in list(plans)[: MAX_PLANS // 2]:
            del plans[old]
        counters.evictions += MAX_PLANS // 2
    plans[key] = plan
    return plan


def _make(
    op: Op,
    call: Callable[..., Any],
    metas: tuple[Meta | None, ...],
    described: list[Any],
    attrs: tuple[Any, ...],
    packed: bool,
) -> Plan:
    placement = next((meta.placement for meta in metas if meta is not None), None)
    plan = Plan()
    plan.run = _never
    plan.instead = None
    inferred = op.infer(*described, *attrs)
    logical = inferred if isinstance(inferred, tuple) else (inferred,)
    plan.differentiable = op.differentiable and any(meta.is_floating for meta in logical)
    if placement is None:
        device = next(meta.device for meta in metas if meta is not None)
        plan.metas = tuple(Meta.of(m.shape, m.dtype, device=device) for m in logical)
        plan.meta = plan.metas[0]
        plan.signature = (tuple(() for _ in metas), tuple(() for _ in logical))
        kernel = op.bind(Local(0, metas, plan.metas, None), attrs)
        plan.run = _single_of(kernel, metas, op.num_outputs != 1)
        return plan
    wanted, produced = choose(op, metas, described, attrs, logical, placement)
    plan.signature = (wanted, produced)
    plan.metas = tuple(
        Meta.of(m.shape, m.dtype, placement, nd_sbp)
        for m, nd_sbp in zip(logical, produced, strict=True)
    )
    plan.meta = plan.metas[0]
    plan.instead = op.instead(metas, attrs)
    if plan.instead is None and any(
        meta is not None and meta.nd_sbp != nd_sbp
        for meta, nd_sbp in zip(metas, wanted, strict=True)
    ):
        plan.instead = _rerouted(op, call, metas, wanted, packed)
    if plan.instead is None:
        plan.run = _runner(op, metas, plan.metas, attrs, placement)
    return plan


def _never(*args: Any) -> Any:
    raise AssertionError("a plan with `instead` is not run itself")


def _rerouted(
    op: Op,
    call: Callable[..., Any],
    metas: tuple[Meta | None, ...],
    wanted: tuple[NdSbp | None, ...],
    packed: bool,
) -> Callable[..., Any]:
    """Box each input to the layout wanted, then call the op again (it now fits)."""
    targets = tuple(
        None if meta is None or meta.nd_sbp == nd_sbp else meta.like(nd_sbp=nd_sbp)
        for meta, nd_sbp in zip(metas, wanted, strict=True)
    )
    count = len(targets)

    def box(tensors: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            tensor if target is None else relayout(tensor, target, op.name)
            for tensor, target in zip(tensors, targets, strict=True)
        )

    def boxed(*args: Any) -> Any:
        return call(*box(args[:count]), *args[count:])

    def boxed_packed(tensors: Sequence[Any], *attrs: Any) -> Any:
        return call(box(tensors), *attrs)

    return boxed_packed if packed else boxed


def relayout(x: Tensor, target: Meta, op_name: str = "boxing") -> Tensor:
    """`x` in another layout on its own placement; as far as gradients go it is the same tensor.

    The gradient then needs no boxing back: it arrives in whatever layout it was produced in.
    """
    assert x.meta.placement is target.placement
    plan = boxing.plan(x.meta, target)
    moved = Tensor(boxing.run(plan, x.shards, op=op_name), target, x.node)
    if plan.aliases:
        x.shared = moved.shared = True
    return moved


# Choosing a signature.


def choose(
    op: Op,
    metas: Sequence[Meta | None],
    described: Sequence[Any],
    attrs: tuple[Any, ...],
    outputs: Sequence[Meta],
    placement: Placement,
) -> tuple[tuple[NdSbp | None, ...], tuple[NdSbp, ...]]:
    """The layouts that the inputs must have and the outputs get: least modelled time, per axis.

    Axes are decided one by one: the time of boxing each input along the axis plus the op's own
    time, which a signature that splits something divides by the axis' size. An axis on which
    every input is broadcast stays so: nothing there asks for another layout. Ties prefer the
    inputs' present layout, then split over broadcast, then the order of the rule.
    """
    tensors = [(i, meta) for i, meta in enumerate(metas) if meta is not None]
    kind = placement.device_type
    moved = sum(meta.nbytes for _, meta in tensors) + sum(meta.nbytes for meta in outputs)
    work = op.flops(metas, outputs) * FLOP_TIME[kind] + moved * BYTE_TIME[kind]
    seen = _Seen(described, metas)
    chosen: list[Signature] = []
    plain = all_broadcast(len(tensors), len(outputs))
    for axis, parts in enumerate(placement.shape):
        present = tuple(meta.nd_sbp[axis] for _, meta in tensors)
        best = plain
        if any(sbp is not broadcast for sbp in present):
            rule = [*op.rule(Axis(parts, seen.ragged()), *seen.args, *attrs), plain]
            sizes = [_bytes_along(meta, axis) for _, meta in tensors]
            share = work / (placement.num_ranks / parts)
            best = _cheapest(rule, present, sizes, parts, share)
            if best is plain:
                _note_fallback(op, rule, present)
        chosen.append(best)
        seen.split(best, parts)
    wanted: list[NdSbp | None] = [None] * len(metas)
    for place, (i, _) in enumerate(tensors):
        wanted[i] = tuple(signature.inputs[place] for signature in chosen)
    produced = tuple(
        tuple(signature.outputs[i] for signature in chosen) for i in range(len(outputs))
    )
    return tuple(wanted), produced


def _bytes_along(meta: Meta, axis: int) -> float:
    """Bytes of the tensor over one group of the axis: what the other axes leave of it."""
    assert meta.placement is not None
    others = prod(
        parts
        for other, parts in enumerate(meta.placement.shape)
        if other != axis and meta.nd_sbp[other].kind == "S"
    )
    return meta.nbytes / others


def _cheapest(
    rule: Rule, present: tuple[Sbp, ...], sizes: list[float], parts: int, work: float
) -> Signature:
    best: tuple[tuple[float, int, int], Signature] | None = None
    for signature in rule:
        cost = work / parts if signature.shares_work else work
        matches = 0
        for have, want, size in zip(present, signature.inputs, sizes, strict=True):
            if have is want:
                matches += 1
            else:
                cost += axis_cost(have, want, parts, size)
        rank = (cost, -matches, not signature.shares_work)
        if best is None or rank < best[0]:
            best = rank, signature
    assert best is not None
    return best[1]


class _Seen:
    """The tensor arguments as the next axis sees them: split already by the axes before it."""

    def __init__(self, described: Sequence[Any], metas: Sequence[Meta | None]) -> None:
        self.args = list(described)
        self._places = [i for i, meta in enumerate(metas) if meta is not None]
        self._ragged: list[set[int]] = [set() for _ in self._places]

    def ragged(self) -> tuple[frozenset[int], ...]:
        return tuple(map(frozenset, self._ragged))

    def split(self, signature: Signature, parts: int) -> None:
        for place, ragged, sbp in zip(self._places, self._ragged, signature.inputs, strict=True):
            if sbp.kind == "S":
                meta: Meta = self.args[place]
                size, rest = divmod(meta.shape[sbp.dim], parts)
                shape = list(meta.shape)
                shape[sbp.dim] = size + (rest > 0)
                self.args[place] = meta.like(shape=shape)
                if rest:
                    ragged.add(sbp.dim)


def _note_fallback(op: Op, rule: Rule, present: tuple[Sbp, ...]) -> None:
    """Say once per op and call site that an op had no rule for a layout and gathers its inputs."""
    if len(rule) > 1:
        return
    counters.fallbacks += 1
    site = (op.name, user_line())
    if site not in _warned:
        _warned.add(site)
        warnings.warn(
            f"{op.name} has no signature but broadcast for inputs laid out as "
            f"({', '.join(sbp.short for sbp in present)}), so they are gathered first, at "
            f"{site[1]}. Lay the inputs out as broadcast to make this visible in your program.",
            FallbackWarning,
            stacklevel=2,
        )


class FallbackWarning(UserWarning):
    """An op without a useful rule gathers its inputs."""


# Running kernels on the shards of this process.


def _single(kernel: Kernel, several: bool) -> Callable[..., Any]:
    def run(*inputs: Any) -> Any:
        return (kernel(*[_first(shards) for shards in inputs]),)

    def run_several(*inputs: Any) -> Any:
        results = kernel(*[_first(shards) for shards in inputs])
        return tuple([(result,) for result in results])

    return run_several if several else run


def _first(shards: Any) -> Any:
    return shards[0] if type(shards) is tuple else shards


# The commonest cases of `_single`, by which arguments are tensors (the others are numbers).
_SINGLE: dict[tuple[bool, ...], Callable[[Kernel], Callable[..., Any]]] = {
    (True,): lambda kernel: lambda x: (kernel(x[0]),),
    (True, True): lambda kernel: lambda a, b: (kernel(a[0], b[0]),),
    (True, False): lambda kernel: lambda a, b: (kernel(a[0], b),),
    (False, True): lambda kernel: lambda a, b: (kernel(a, b[0]),),
    (True, True, True): lambda kernel: lambda a, b, c: (kernel(a[0], b[0], c[0]),),
}


def _runner(
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
    kernels = {}
    shared = None if op.depends_on_position else op.bind(_local(metas, outputs, 0, placement), attrs)
    sources = _distinct(metas, outputs, placement)
    for position in set(sources):
        kernels[position] = shared or op.bind(_local(metas, outputs, position, placement), attrs)
    if len(owned) == 1:
        return _single_of(kernels[owned[0]], metas, several)
    index_of = {position: index for index, position in enumerate(owned)}
    steps = [(position, index_of[position], kernels[position]) for position in sorted(kernels)]

    def run(*inputs: Any) -> Any:
        results = {
            position: kernel(*[s[index] if type(s) is tuple else s for s in inputs])
            for position, index, kernel in steps
        }
        if several:
            return tuple(
                tuple([results[position][i] for position in sources])
                for i in range(len(outputs))
            )
        return tuple([results[position] for position in sources])

    return run


def _local(
    metas: tuple[Meta | None, ...], outputs: tuple[Meta, ...], position: int, placement: Placement
) -> Local:
    return Local(position, metas, outputs, placement)


def _single_of(
    kernel: Kernel, metas: tuple[Meta | None, ...], several: bool
) -> Callable[..., Any]:
    present = tuple(meta is not None for meta in metas)
    special = None if several else _SINGLE.get(present)
    return _single(kernel, several) if special is None else special(kernel)


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


# Bad calls.


def _check_tensors(op: Op, args: Sequence[Any], attrs: tuple[Any, ...]) -> None:
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    if len({tensor.is_global for tensor in tensors}) > 1:
        raise MixedTensorsError(
            f"{op.name}: got local and global tensors together: "
            f"{'; '.join(repr(tensor.meta) for tensor in tensors)}. Make the local ones global "
            "with .to_global(placement=..., sbp=...), or the global ones local with .to_local(). "
            f"Called at {user_line()}"
        )
    first = tensors[0].meta
    for tensor in tensors[1:]:
        if first.is_global and tensor.meta.placement is not first.placement:
            raise PlacementError(
                "Expected all tensors to be on the same placement, but found at least two "
                f"placements, {first.placement!r} and {tensor.meta.placement!r}! (in {op.name}, "
                f"at {user_line()}). Move one of them first: "
                f"x.to_global(placement={first.placement!r}, sbp=...)"
            )
        if not first.is_global and tensor.meta.device != first.device:
            raise PlacementError(
                f"{op.name}: expected all local tensors on one device, but found {first.device} "
                f"and {tensor.meta.device}. Move one with .to(device). Called at {user_line()}"
            )


def _bad_arguments(op: Op, args: Sequence[Any], attrs: tuple[Any, ...]) -> OnefoldError:
    for index, arg in enumerate(args):
        if not isinstance(arg, Tensor) and arg is not None:
            hint = " Convert it with onefold.from_torch(x)." if isinstance(arg, torch.Tensor) else ""
            return OnefoldTypeError(
                f"{op.name}: argument {index} must be an onefold Tensor, but got "
                f"{type(arg).__name__}.{hint} Called at {user_line()}"
            )
    return OnefoldTypeError(
        f"{op.name}: attributes must be hashable, but got {attrs!r}. Called at {user_line()}"
    )
