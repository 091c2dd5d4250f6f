"""Dispatch plans: what is decided once for an op and inputs of given metas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, Protocol, TypeAlias, TypeVar, cast

import torch
from numpy import ndarray

from ..distributed import provenance
from ..distributed.world import world
from ..errors import MixedTensorsError, OnefoldError, OnefoldTypeError, PlacementError, user_line
from . import boxing
from .argument_errors import as_numbers, is_any_number
from .boxing import BoxingPlan
from .dispatch_counters import counters
from .meta import Meta
from .names import Function
from .op import Attributes, Kernel, Metas, Op, explain
from .shard_runner import local_runner, runner
from .signature_choice import choose
from .tensor import Tensor
from .views import OpStep

MAX_PLANS = 4096  # per op
KERNEL_ERRORS = (
    OnefoldError, RuntimeError, ValueError, TypeError, IndexError, OverflowError,
)  # fmt: skip


@dataclass(slots=True, init=False, eq=False)
class DispatchPlan:
    """The decisions for an op on inputs of given metas.

    The inputs in `boxes` are boxed. Then the op is `decomposed` into smaller ones, or `run`.
    """

    attrs: Attributes  # as `bind` gets them: the op's record, if it has one
    given: Attributes  # the same as `infer`, `rule` and `vjp` get it, after the tensors
    direct: bool  # whether nothing is boxed or decomposed
    run: Function  # shards of each input (and runtime numbers) -> shards
    kernel: Kernel | None  # the same for the only shard of each, where there is one output
    boxes: tuple[tuple[int, BoxingPlan], ...]  # by the index of the input
    decomposed: Function | None  # called with the op's arguments
    meta: Meta  # of the first output
    metas: tuple[Meta, ...]
    aliases: bool  # whether outputs may have memory of the inputs
    differentiable: bool
    # Of ops whose outputs are views.
    steps: tuple[OpStep, ...]  # to the outputs of a view op
    step: OpStep  # the first of them
    kept: tuple[object, ...]  # what the tape keeps of the arguments


class Clears(Protocol):
    """A cached function of functools."""

    def cache_clear(self) -> None: ...


C = TypeVar("C", bound=Clears)


ops: dict[str, list[Op]] = {}  # every op that has an entry, by name (a pair has several forms)
Plans: TypeAlias = dict[object, DispatchPlan]
_tables: list[Plans] = []
_caches: list[Clears] = []


def new_table() -> Plans:
    """A table of plans for one entry, counted and cleared with the others."""
    table: Plans = {}
    _tables.append(table)
    return table


def cleared_with_plans(function: C) -> C:
    """Mark a cached function whose results hold kernels, which `clear_plans` forgets too."""
    _caches.append(function)
    return function


def clear_plans() -> None:
    """Forget every plan."""
    for table in _tables:
        table.clear()
    for function in _caches:
        function.cache_clear()


def num_plans() -> int:
    """The number of plans that are kept."""
    return sum(len(table) for table in _tables)


def prepare(
    op: Op, call: Function, plans: Plans, key: object, args: Sequence[object], attrs: Attributes
) -> DispatchPlan:
    """Make the plan for a call of the entry `call`, keep it under `key`, and return it.

    Raises the op's error with its inputs and the user's line.
    """
    counters.misses += 1
    has_tensors = is_any_number(attrs)
    if has_tensors:  # whose values may change, so that no plan is kept
        attrs = as_numbers(tuple(attrs))
    _check_tensors(op, args)
    metas = tuple([arg.meta if isinstance(arg, Tensor) else None for arg in args])
    described = [arg.meta if isinstance(arg, Tensor) else arg for arg in args]
    try:
        plan = _make(op, metas, described, attrs)
    except KERNEL_ERRORS as error:
        raise explain(op, error, (*described, *attrs), user_line()) from error
    if op.makes_views:
        plan.steps = tuple([OpStep(op, call, plan.attrs, i) for i in range(op.num_outputs)])
        plan.step = plan.steps[0]
        first = next((moves.dst for index, moves in plan.boxes if index == 0), metas[0])
        plan.kept = (first, *plan.given)
    if has_tensors:
        return plan
    if len(plans) >= MAX_PLANS:
        for old in list(plans)[: MAX_PLANS // 2]:
            del plans[old]
        counters.evictions += MAX_PLANS // 2
    plans[key] = plan
    return plan


def failed(op: Op, error: Exception, args: Sequence[object]) -> OnefoldError:
    """The error of one kernel call: the kernel's message, with the inputs and the line.

    An error on global tensors is reported to the other ranks, whose data may be different.
    """
    described = [arg.meta if isinstance(arg, Tensor) else arg for arg in args]
    explained = explain(op, error, described, user_line())
    if any(isinstance(arg, Meta) and arg.is_global for arg in described):
        world().report_error(explained)
    return explained


def _make(op: Op, metas: Metas, described: list[object], attrs: Attributes) -> DispatchPlan:
    plan = DispatchPlan()
    attrs = plan.attrs = op.attributes(*attrs)
    plan.given = op.attribute_args(attrs)
    plan.direct = True
    plan.boxes = ()
    plan.decomposed = None
    plan.aliases = op.aliases
    plan.run = _never
    plan.kernel = None
    moves = op.boxing(metas, attrs)
    if moves is not None:
        plan.run = partial(boxing.run, moves, op=op.name)
        plan.aliases = moves.aliases
        plan.differentiable = moves.dst.is_floating
        plan.meta = moves.dst
        plan.metas = (moves.dst,)
        return plan
    inferred = op.infer(*described, *plan.given)
    logical = inferred if isinstance(inferred, tuple) else (inferred,)
    plan.differentiable = op.differentiable and any(meta.is_floating for meta in logical)
    placement = next((meta.placement for meta in metas if meta is not None), None)
    if placement is None:
        device = next(meta.device for meta in metas if meta is not None)
        plan.metas = tuple([_local(meta, device) for meta in logical])
        plan.meta = plan.metas[0]
        plan.run, plan.kernel = local_runner(op, metas, plan.metas, attrs)
        return plan
    plan.decomposed = op.decompose(metas, attrs)
    if plan.decomposed is not None:
        plan.direct = False
        return plan
    wanted, produced = choose(op, metas, described, plan.given, logical, placement)
    plan.metas = tuple(
        [
            Meta.of(m.shape, m.dtype, placement, nd_sbp)
            for m, nd_sbp in zip(logical, produced, strict=True)
        ]
    )
    plan.meta = plan.metas[0]
    boxed = list(metas)
    for index, (meta, nd_sbp) in enumerate(zip(metas, wanted, strict=True)):
        if meta is not None and meta.nd_sbp != nd_sbp:
            target = boxed[index] = meta.like(nd_sbp=nd_sbp)
            plan.boxes += ((index, boxing.plan(meta, target)),)
    if plan.boxes:
        plan.direct = False
        plan.decomposed = op.decompose(tuple(boxed), attrs)
        if plan.decomposed is not None:
            return plan
    plan.run, plan.kernel = runner(op, tuple(boxed), plan.metas, attrs, placement)
    if provenance.state.on:
        _follow(plan, op, described)
    return plan


def _local(meta: Meta, device: torch.device | None) -> Meta:
    """A meta of this shape and dtype on a device: often the one that was inferred."""
    if meta.placement is None and meta.device == device:
        return meta
    return Meta.of(meta.shape, meta.dtype, device=device)


def _follow(plan: DispatchPlan, op: Op, described: Sequence[object]) -> None:
    """Make a plan's calls record the origin of their results, which ranks compare."""
    given = [repr(arg) if isinstance(arg, Meta) else type(arg).__name__ for arg in described]
    what = provenance.mark(f"{op.name}({', '.join([*given, *map(repr, plan.attrs)])})")
    plan.run = provenance.tracked(plan.run, what)
    if plan.kernel is not None:
        plan.kernel = provenance.tracked(plan.kernel, what)


def _never(*args: object) -> NoReturn:
    raise AssertionError("the plan of a decomposed op was run")


def _check_tensors(op: Op, args: Sequence[object]) -> None:
    """Raise MixedTensorsError or PlacementError unless all tensors can be combined."""
    metas = [arg.meta for arg in args if isinstance(arg, Tensor)]
    first = metas[0]
    for meta in metas:
        if meta.placement is first.placement and meta.device == first.device:
            continue
        if any(other.is_global is not first.is_global for other in metas):
            raise MixedTensorsError(
                f"{op.name}: got local and global tensors together: "
                f"{'; '.join(map(repr, metas))}. Make the local ones global "
                "with .to_global(placement=..., sbp=...), or the global ones local with "
                f".to_local(). Called at {user_line()}"
            )
        if first.is_global:
            raise PlacementError(
                "Expected all tensors to be on the same placement, but found at least two "
                f"placements, {first.placement!r} and {meta.placement!r}! (in {op.name}, "
                f"at {user_line()}). Move one of them first: "
                f"x.to_global(placement={first.placement!r}, sbp=...)"
            )
        raise PlacementError(
            f"{op.name}: expected all local tensors on one device, but found {first.device} "
            f"and {meta.device}. Move one with .to(device). Called at {user_line()}"
        )


def bad_arguments(op: Op, args: Sequence[object], attrs: Attributes) -> OnefoldError:
    """The error for arguments that cannot be the key of a plan."""
    for index, arg in enumerate(args):
        if not isinstance(arg, Tensor) and arg is not None:
            return _not_a_tensor(op.name, index, arg)
    return OnefoldTypeError(
        f"{op.name}: attributes must be hashable, but got {attrs!r}. Called at {user_line()}"
    )


def override(op: Op, args: Sequence[object]) -> object:
    """The result of an op that an argument's class overrides, such as that of a sparse tensor.

    Raises the error of `bad_arguments` if no argument's class does.
    """
    result = result_of_override(op.name, args)
    if result is None:
        raise bad_arguments(op, args, ()) from None
    return result


def result_of_override(name: str, args: Sequence[object]) -> object | None:
    """The result of the function `name` by the `op_overrides` of an argument's class, or None."""
    for arg in args:
        overrides = getattr(type(arg), "op_overrides", None)
        if overrides is not None and name in overrides:
            return cast("object", overrides[name](*args))
    return None


def check_tensors(what: str, *args: object) -> None:
    """Raise OnefoldTypeError unless all arguments of a function are onefold tensors."""
    for index, arg in enumerate(args):
        if not isinstance(arg, Tensor):
            raise _not_a_tensor(what, index, arg)


def _not_a_tensor(what: str, index: int, arg: object) -> OnefoldTypeError:
    name = {torch.Tensor: "torch", ndarray: "numpy"}.get(type(arg))
    hint = f" Convert it with onefold.from_{name}(x)." if name else ""
    return OnefoldTypeError(
        f"{what}: argument {index} must be an onefold Tensor, but got "
        f"{type(arg).__module__}.{type(arg).__qualname__}.{hint} Called at {user_line()}"
    )


def hashable(op: Op, args: Sequence[object], attrs: Attributes) -> Attributes:
    """The attributes with lists as tuples. Raises the error of `bad_arguments` for other types."""
    changed = tuple(tuple(attr) if isinstance(attr, list) else attr for attr in attrs)
    if changed == attrs or not all(arg is None or isinstance(arg, Tensor) for arg in args):
        raise bad_arguments(op, args, attrs) from None
    return changed
