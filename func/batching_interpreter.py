"""Batching: an interpreter that runs each op of a function of rows once, for all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NoReturn, TypeVar, cast
from weakref import ref

import torch

from ..engine import interpreter
from ..engine.autograd import hooks, retained
from ..engine.autograd_tape import Leaf, Node, Output, saved_hooks
from ..engine.convert import BOXING
from ..engine.dispatch_plan import DispatchPlan, bad_arguments, hashable, new_table, prepare
from ..engine.dispatcher import PACKED, arity, record
from ..engine.interpreter import Interpreter, Through
from ..engine.meta import Meta
from ..engine.op import Gradients, Op
from ..engine.ops.creation import Source
from ..engine.sbp import Sbp, broadcast, split
from ..engine.shard_runner import distinct_from_equal
from ..engine.tensor import Tensor, from_shards
from ..engine.values import whole
from ..engine.views import link_all
from ..errors import OnefoldRuntimeError
from .batched_call import BatchedCall, Results, run_by_rows
from .batching_rules import run_by_rule, small_form

R = TypeVar("R")
_PLANS = new_table()  # of calls on rows: their shapes, dtypes and errors


class NotBatched(OnefoldRuntimeError):
    """A function does what cannot be done for all rows at once; it is then called for each."""


class Row:
    """What a tensor that stands for one row holds in place of shards: the tensor of all rows."""

    __slots__ = ("given", "mapped", "owner", "tensor")

    def __init__(self, owner: Batching, tensor: Tensor, mapped: bool, given: bool = False) -> None:
        self.owner = owner
        self.tensor = tensor
        self.mapped = mapped  # whether it has rows, along dim 0; else it is the same for each
        self.given = given  # whether it is an argument of the function

    def _refuse(self, *_: object) -> NoReturn:
        raise self.owner.refused("it uses the memory of a tensor")

    __len__ = __iter__ = __getitem__ = _refuse

    def __bool__(self) -> bool:
        return True


class _Given:
    """The op on the tape of a row of an argument that requires a gradient."""

    name = "row"

    def __init__(self, owner: Batching) -> None:
        self.owner = owner

    def vjp(self, *args: object) -> Gradients:
        raise self.owner.refused("it differentiates beyond its arguments")


class Batching(Through):
    """Runs ops on tensors that stand for rows, by rules or else row by row, with `inner`.

    What only a call for each row can do (read values that differ, draw random numbers, change
    tensors from outside) is refused with `NotBatched`, before anything has changed.
    """

    def __init__(self, inner: Interpreter | None, size: int, draws: Sequence[object]) -> None:
        super().__init__(inner)
        self.size = size
        self.refusal = ""
        self.looped: list[str] = []  # the ops that were run row by row
        self._start = next(interpreter.sequence)
        self._draws = draws
        self._saved_hooks = len(saved_hooks.items())
        self._tracked = False  # whether a tensor of all rows requires a gradient
        self._arguments: list[Tensor] = []
        self._constants: list[ref[Tensor]] = []
        self._written: dict[int, Tensor] = {}

    @property
    def batches(self) -> bool:
        return True

    def refused(self, reason: str) -> NotBatched:
        """The error by which the function is called for each row instead."""
        self.refusal = self.refusal or reason
        return NotBatched(
            f"the function is called for each row, since {reason}; a tensor that it has made "
            "cannot be used outside of it"
        )

    # Tensors.

    def argument(self, x: Tensor) -> Tensor:
        """The tensor that stands for a row of `x`, whose rows lie along dim 0."""
        self._arguments.append(x)
        made = from_shards(cast("Any", Row(self, x, True, True)), row_meta(x.meta))
        if x.node is not None:
            self._tracked = True
            made.node = Node(_Given(self), (x.node,), (), None, made.meta)
        return made

    def shards_of_arguments(self) -> set[int]:
        """The identities of the shards of all arguments."""
        return {id(x.shards) for x in self._arguments}

    def check_retained(self) -> None:
        """Refuse where a backward pass of rows might add to the `.grad` of an edge from outside."""
        if any(edge.seq < self._start for edge in retained):
            raise self.refused("a tensor that was computed keeps its gradient")

    def has_hooks(self) -> bool:
        """Whether a hook waits for a gradient that arrives at a tensor of all rows instead."""
        return self._tracked and any(edge.seq > self._start for edge in hooks)

    def row_of(self, x: Tensor) -> Row | None:
        """What a tensor of this interpreter stands for."""
        shards: object = x.shards
        return shards if type(shards) is Row and shards.owner is self else None

    def value_of(self, x: Tensor) -> tuple[Tensor, bool]:
        """The tensor of all rows, or the one that is the same for each; whether it has rows."""
        row = self.row_of(x)
        if row is None:
            if x.node is None:
                return x, False
            if x.node.seq > self._start:  # its place on the tape is one of the rows
                return from_shards(x.shards, x.meta), False
            self._tracked = True
            return x, False
        made = row.tensor
        if made.node is not None:
            if x.node is None:
                return from_shards(made.shards, made.meta), row.mapped
            self._tracked = True
        elif self._tracked and x.node is not None and id(x) in self._written:
            raise self.refused("it writes off the tape into what requires a gradient")
        return made, row.mapped

    def _made(self, tensor: Tensor, mapped: bool) -> Tensor:
        meta = row_meta(tensor.meta) if mapped else tensor.meta
        made = from_shards(cast("Any", Row(self, tensor, mapped)), meta)
        if not mapped:
            self._constants.append(ref(made))
        return made

    def finish(self) -> None:
        """Give tensors that are the same for each row their values: the function may keep them."""
        for each in self._constants:
            x = each()
            row = None if x is None else self.row_of(x)
            if x is not None and row is not None and not row.mapped:
                x.shards, x.shared = row.tensor.shards, True
                row.tensor.shared = True
                if not isinstance(x.node, Leaf):
                    x.node = row.tensor.node

    def value_of_row(self, tensor: Tensor) -> torch.Tensor | None:
        row = self.row_of(tensor)
        with interpreter.using(self.inner):
            if row is None:
                return self._to.value_of_row(tensor)
            value = whole(row.tensor)
        if not row.mapped:
            return value
        first = value[:1]
        same = value == first
        if value.dtype.is_floating_point or value.dtype.is_complex:
            same |= value.isnan() & first.isnan()
        if not bool(same.all()):
            raise self.refused("it reads a value that is not the same for each row")
        return first[0].clone()

    # Ops.

    def run(self, call: Callable[..., R], op: object, args: tuple[Any, ...]) -> R:
        if self._draws:
            raise self.refused("it draws random numbers")
        if len(saved_hooks.items()) != self._saved_hooks:
            raise self.refused("it decides what backward keeps")
        if isinstance(op, Source):
            return cast("R", self._source(call, *args))
        assert isinstance(op, Op)
        number = arity[call]
        slots: tuple[Any, ...] = args[0] if number == PACKED else args[:number]
        attrs: tuple[Any, ...] = args[1:] if number == PACKED else args[number:]
        if op is BOXING:
            return cast("R", self._boxed(call, op, slots, attrs))
        if any(isinstance(slot, torch.Tensor) for slot in slots):
            raise bad_arguments(op, slots, attrs)
        plan = _plan_for(call, op, slots, attrs)
        made = self._in_parts(call, op, plan, slots)
        if made is None:
            made = self._run(call, op, plan, slots, number == PACKED)
        if op.makes_views:
            return cast("R", link_all(made, slots[0], plan.steps))
        return cast("R", made)

    def _in_parts(
        self, call: Callable[..., object], op: Op, plan: DispatchPlan, slots: tuple[Any, ...]
    ) -> object:
        """The result by smaller ops, where the op has no form of its own for rows."""
        form = small_form(op, plan.attrs)
        if form is None or not any(self._is_mapped(slot) for slot in slots):
            return None
        return form(call, slots, *plan.attrs)

    def _is_mapped(self, slot: object) -> bool:
        row = self.row_of(slot) if isinstance(slot, Tensor) else None
        return row is not None and row.mapped

    def _run(
        self,
        call: Callable[..., Any],
        op: Op,
        plan: DispatchPlan,
        slots: tuple[Any, ...],
        packed: bool,
    ) -> Tensor | tuple[Tensor, ...]:
        pairs = [
            self.value_of(slot) if isinstance(slot, Tensor) else (slot, False) for slot in slots
        ]
        values = [value for value, _ in pairs]
        mapped = [has_rows for _, has_rows in pairs]
        batched = True in mapped
        metas = [slot.meta if isinstance(slot, Tensor) else slot for slot in slots]
        before = interpreter.get_current()
        interpreter.set_current(self.inner)
        try:
            results: Results
            if batched:
                asked = BatchedCall(
                    call, op, values, mapped, metas, plan.attrs, plan.metas, self.size, packed
                )
                results = self._batched(asked)
            else:
                results = call(tuple(values), *plan.attrs) if packed else call(*values, *plan.attrs)
        finally:
            interpreter.set_current(before)
        several = op.num_outputs != 1
        outputs = (results,) if isinstance(results, Tensor) else results
        made = [self._made(y, batched) for y in outputs]
        if interpreter.is_grad_enabled() and plan.differentiable:
            self._record(op, plan, slots, made, several)
        return tuple(made) if several else made[0]

    def _batched(self, call: BatchedCall) -> Results:
        results = run_by_rule(call)
        if results is not None:
            return results
        self.looped.append(call.op.name)
        try:
            return run_by_rows(call)
        except Exception as error:
            raise self.refused(f"{call.op.name} failed: {error}") from error

    def _record(
        self,
        op: Op,
        plan: DispatchPlan,
        slots: tuple[Any, ...],
        made: Sequence[Tensor],
        several: bool,
    ) -> None:
        """Record a call on the tape of the rows, as the dispatcher does."""
        rows: list[Any] = [y.shards for y in made]
        rows += [None] * (op.num_outputs - len(rows))  # those that the entry does not return
        node = record(op, plan, slots, tuple(rows) if several else rows[0])
        if node is None:
            return
        metas = [*[y.meta for y in made], *plan.metas[len(made) :]]
        node.meta = tuple(metas) if several else metas[0]
        if not several or op.one_gradient:
            made[0].node = node
            return
        for index, y in enumerate(made):
            if y.meta.is_floating:
                y.node = Output(node, index)

    def _source(
        self, call: Callable[..., Any], meta: Meta, maker: object, requires_grad: bool
    ) -> Tensor:
        with interpreter.using(self.inner):
            made = call(meta, maker, False)
        y = self._made(made, False)
        if requires_grad:
            y.node = Leaf(y)
        return y

    def _boxed(
        self, call: Callable[..., Any], op: Op, slots: tuple[Any, ...], attrs: tuple[Any, ...]
    ) -> Tensor:
        (x,), (target, grad_sbp) = slots, attrs
        value, mapped = self.value_of(x)
        wanted, back = target, grad_sbp
        if mapped:
            wanted = target.like(
                shape=(self.size, *target.shape), nd_sbp=tuple(map(_behind_rows, target.nd_sbp))
            )
            back = grad_sbp and tuple(map(_behind_rows, grad_sbp))
        with interpreter.using(self.inner):
            made = self._made(call(value, wanted, back), mapped)
        if interpreter.is_grad_enabled() and x.node is not None:
            given = op.attribute_args(op.attributes(*attrs))
            made.node = Node(op, (x.node,), (x.meta, *given), None, made.meta)
        return made

    # What else a function does.

    def before_change(self, tensor: Tensor) -> None:
        row = self.row_of(tensor)
        if row is None or row.given:
            raise self.refused("it changes a tensor that it has not made")
        self._written[id(tensor)] = tensor

    def before_sharing(self, tensor: Tensor) -> None:
        if self.row_of(tensor) is None:
            if tensor.node is not None and tensor.node.seq < self._start:
                self._tracked = True
            self._to.before_sharing(tensor)

    def before_gradient(self, tensor: Tensor) -> None:
        if self.row_of(tensor) is None:
            raise self.refused("it sets the .grad of a tensor that it has not made")

    def before_functions(self, *functions: object) -> None:
        if self._tracked and interpreter.is_grad_enabled():
            raise self.refused("it calls functions that record gradients themselves")
        self._to.before_functions(*functions)

    def start_backward(self, gradient: Tensor) -> Tensor:
        raise self.refused("it calls backward()")

    def run_vjp(self, node: Node, vjp: Callable[..., R], args: tuple[Any, ...]) -> R:
        if node.seq < self._start and node.args is None:  # each row would need what was freed
            _, _, y, *saved = args
            node.args = tuple(saved)
            node.out = _shards_in(y)
            raise self.refused("it frees what was kept for backward")
        return vjp(*args)

    def repeated_under(self, interpreter: Interpreter | None) -> Interpreter | None:
        return interpreter


def _shards_in(y: object) -> object:
    """The outputs that a node keeps, from those that its vjp got."""
    if isinstance(y, tuple):
        kept = [_shards_in(part) for part in y]
        return None if kept.count(None) == len(kept) else tuple(kept)
    return y.shards if isinstance(y, Tensor) else None


@lru_cache(maxsize=4096)
def row_meta(meta: Meta) -> Meta:
    """The meta of a row of a tensor whose rows lie along dim 0."""
    return meta.like(shape=meta.shape[1:], nd_sbp=tuple(map(_without_rows, meta.nd_sbp)))


def _without_rows(sbp: Sbp) -> Sbp:
    if sbp.kind != "S":
        return sbp
    return split(sbp.dim - 1) if sbp.dim else broadcast


def _behind_rows(sbp: Sbp) -> Sbp:
    return split(sbp.dim + 1) if sbp.kind == "S" else sbp


@lru_cache(maxsize=4096)
def _local(meta: Meta) -> Meta:
    """A local meta of the same shape: layouts are those of the tensors of all rows."""
    return Meta.of(meta.shape, meta.dtype, device=torch.device(meta.device_type))


def _plan_for(
    call: Callable[..., object], op: Op, slots: tuple[Any, ...], attrs: tuple[Any, ...]
) -> DispatchPlan:
    """The shapes and dtypes of a call on rows. Raises the op's errors for these."""
    if any(isinstance(slot, Tensor) and slot.is_global for slot in slots):
        slots = tuple(
            [from_shards((), _local(x.meta)) if isinstance(x, Tensor) else x for x in slots]
        )
    kinds = [slot.meta if isinstance(slot, Tensor) else type(slot) for slot in slots]
    key = (call, *kinds, attrs, distinct_from_equal(attrs))
    try:
        plan = _PLANS.get(key)
    except TypeError:
        attrs = hashable(op, slots, attrs)
        key = (call, *kinds, attrs, distinct_from_equal(attrs))
        plan = _PLANS.get(key)
    return plan or prepare(op, call, _PLANS, key, slots, attrs)
