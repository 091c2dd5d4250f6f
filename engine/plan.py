"""Making a plan: what was decided once for an op on inputs of given metas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import (
    MixedTensorsError,
    OnefoldError,
    OnefoldTypeError,
    PlacementError,
    user_line,
)
from . import boxing, interp
from .choice import choose
from .counters import counters
from .meta import Meta
from .op import Local, Op, explain
from .runner import runner, single
from .sbp import NdSbp
from .tensor import Tensor
from .views import OpStep

MAX_PLANS = 4096  # per op
KERNEL_ERRORS = (OnefoldError, RuntimeError, ValueError, TypeError, IndexError)


class Plan:
    """What was decided once for an op on inputs of given metas."""

    __slots__ = ("differentiable", "instead", "meta", "metas", "run", "signature", "steps")

    run: Callable[..., Any]  # shards of each input (and runtime numbers) -> shards
    meta: Meta  # of the first output
    metas: tuple[Meta, ...]
    instead: Callable[..., Any] | None  # called with the op's arguments instead of `run`
    differentiable: bool
    signature: tuple[tuple[NdSbp | None, ...], tuple[NdSbp, ...]]
    steps: tuple[OpStep, ...]  # of outputs that are views


ops: dict[str, list[Op]] = {}  # every op that has an entry, by name (a pair has several forms)
_tables: list[dict[Any, Plan]] = []


def new_table() -> dict[Any, Plan]:
    """A table of plans for one entry, counted and cleared with the others."""
    table: dict[Any, Plan] = {}
    _tables.append(table)
    return table


def clear_plans() -> None:
    """Forget every plan."""
    for table in _tables:
        table.clear()


def num_plans() -> int:
    """How many plans are kept."""
    return sum(len(table) for table in _tables)


def prepare(
    op: Op,
    call: Callable[..., Any],
    plans: dict[Any, Plan],
    key: Any,
    args: Sequence[Any],
    attrs: tuple[Any, ...],
    packed: bool = False,
) -> Plan:
    """Make the plan for a call, keep it under `key`, and return it.

    `call` is the entry, which a plan with boxing calls again; `packed` says that it takes its
    tensors in one tuple. Raises the op's error with its inputs and the user's line.
    """
    counters.misses += 1
    _check_tensors(op, args, attrs)
    metas = tuple(arg.meta if isinstance(arg, Tensor) else None for arg in args)
    described = [arg.meta if isinstance(arg, Tensor) else arg for arg in args]
    try:
        plan = _make(op, call, metas, described, attrs, packed)
    except KERNEL_ERRORS as error:
        raise failed(op, error, (*described, *attrs)) from error
    if op.aliases:
        plan.steps = tuple([OpStep(op, call, attrs, packed, i) for i in range(op.num_outputs)])
    if len(plans) >= MAX_PLANS:
        for old in list(plans)[: MAX_PLANS // 2]:
            del plans[old]
        counters.evictions += MAX_PLANS // 2
    plans[key] = plan
    return plan


def failed(op: Op, error: Exception, args: Sequence[Any]) -> OnefoldError:
    """The error of one op call: what the op or its kernel said, with the inputs and the line."""
    described = [arg.meta if isinstance(arg, Tensor) else arg for arg in args]
    return explain(op, error, described, user_line())


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
        plan.run = single(op, Local(0, metas, plan.metas, None), attrs)
        return plan
    plan.instead = op.instead(metas, attrs)
    if plan.instead is not None:
        return plan
    wanted, produced = choose(op, metas, described, attrs, logical, placement)
    plan.signature = (wanted, produced)
    plan.metas = tuple(
        Meta.of(m.shape, m.dtype, placement, nd_sbp)
        for m, nd_sbp in zip(logical, produced, strict=True)
    )
    plan.meta = plan.metas[0]
    if any(
        meta is not None and meta.nd_sbp != nd_sbp
        for meta, nd_sbp in zip(metas, wanted, strict=True)
    ):
        plan.instead = _rerouted(op, call, metas, wanted, packed)
    else:
        plan.run = runner(op, metas, plan.metas, attrs, placement)
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


class _Relayout:
    """Boxing that is no step of its own on the tape, as an op."""

    name = "relayout"


RELAYOUT = _Relayout()


def relayout(x: Tensor, target: Meta, op_name: str = "boxing") -> Tensor:
    """`x` in another layout on its own placement; as far as gradients go it is the same tensor.

    The gradient then needs no boxing back: it arrives in whatever layout it was produced in.
    """
    assert x.meta.placement is target.placement
    if interp.current is not None:
        return interp.current.run(relayout, RELAYOUT, (x, target, op_name))  # type: ignore[no-any-return]
    plan = boxing.plan(x.meta, target)
    moved = Tensor(boxing.run(plan, x.shards, op=op_name), target, x.node)
    if plan.aliases:
        x.shared = moved.shared = True
    return moved


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


def bad_arguments(op: Op, args: Sequence[Any], attrs: tuple[Any, ...]) -> OnefoldError:
    """The error for arguments that no plan can be looked up for."""
    for index, arg in enumerate(args):
        if not isinstance(arg, Tensor) and arg is not None:
            hint = (
                " Convert it with onefold.from_torch(x)." if isinstance(arg, torch.Tensor) else ""
            )
            return OnefoldTypeError(
                f"{op.name}: argument {index} must be an onefold Tensor, but got "
                f"{type(arg).__module__}.{type(arg).__qualname__}.{hint} Called at {user_line()}"
            )
    return OnefoldTypeError(
        f"{op.name}: attributes must be hashable, but got {attrs!r}. Called at {user_line()}"
    )


def hashable(op: Op, args: Sequence[Any], attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The attributes with lists as tuples; the error of `bad_arguments` if that is no help."""
    changed = tuple(tuple(attr) if isinstance(attr, list) else attr for attr in attrs)
    if changed == attrs or not all(isinstance(arg, Tensor) for arg in args):
        raise bad_arguments(op, args, attrs) from None
    return changed
