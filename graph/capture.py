"""Capture: an interpreter that records the ops of the user's eager code as a program."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import torch

from ..distributed import provenance
from ..engine import interpreter
from ..engine.amp_rules import in_mixed_precision
from ..engine.autograd_tape import Differentiable, Edge, Leaf, Node, Output
from ..engine.checkpoint import checkpoint
from ..engine.convert import BOXING
from ..engine.dispatch_plan import DispatchPlan, bad_arguments, hashable, prepare
from ..engine.dispatcher import PACKED, arity, record
from ..engine.meta import Box, Meta
from ..engine.op import Gradients, Needs, Op
from ..engine.ops.arithmetic import mul
from ..engine.ops.cast import cast
from ..engine.ops.creation import Maker, Source, shards_of
from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.shard_runner import distinct_from_equal
from ..engine.tensor import Tensor
from ..engine.views import link_all
from ..errors import PlacementError, user_line
from .boxing_calls import boxing_calls
from .captured_values import CapturedValues, Repeatable
from .graph_config import GraphModule
from .ir import Clipping, ProgramStep, Value, captured, value_in
from .pytree import tree_map
from .saved_activations import SavedActivations, is_activation
from .stage_parameters import shared_by_stages, to_stage, with_shared_parameters

# What gives the scale of a loss, from which backward starts, at every run of a program.
Read: TypeAlias = Callable[[torch.device, torch.dtype], torch.Tensor]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The module that a step belongs to, its stage, and other facts of its origin."""

    scope: str = ""  # the path of the module
    stage: int | None = None  # the stage that the module was put on
    ranks: Placement | None = None  # the stage's
    backward: bool = False  # whether in the gradient of one of the module's ops
    gradient_of: int = 0  # then the number of the value whose maker is differentiated
    recomputation: int = 0  # the number of the checkpointed call that is recomputed, 0 for none
    checkpointed: bool = False  # whether inside a checkpointed module
    saved: SavedActivations | None = None  # what that one keeps, while it runs first
    offloaded: bool = False  # whether inside a module whose activations wait on the host
    as_called: bool = False  # whether the dtypes of ops are what they are called with


class Capture(CapturedValues):
    """Records every op instead of running it, and keeps the tape as eager mode does."""

    def __init__(
        self,
        named: Mapping[str, Tensor],
        paths: Mapping[int, str],
        views: Mapping[int, GraphModule],
        amp: torch.dtype | None = None,
        loss_scale: Read | None = None,
        lines: Callable[[], str] = user_line,
        numbers: int = 0,
    ) -> None:
        super().__init__(named, numbers)
        self._lines = lines  # where in the user's program a step is written
        self._views = views  # the graph settings of modules, by the modules' identities
        self._shared = shared_by_stages(views.values())
        self._loss_scale = loss_scale  # asked in every run of the program
        self._amp = amp  # the dtype of matrix products in mixed precision
        self._paths = paths  # module paths, by the modules' identities
        self._plans: dict[object, DispatchPlan] = {}
        self.where = SourceLocation()
        self.differentiated = ""  # the module of the op whose gradient was the last
        self._recomputations = 0

    @property
    def keeps_masks(self) -> bool:
        return False  # a pass finds which are kept, with the names and recomputations as they are

    # Modules.

    def call_module(
        self,
        module: object,
        forward: Callable[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> R:
        where = replace(self.where, scope=self._paths.get(id(module), self.where.scope))
        view = self._views.get(id(module))
        if view is not None:
            where = replace(
                where,
                stage=where.stage if view.stage_id is None else view.stage_id,
                ranks=view.stage_placement or where.ranks,
                offloaded=where.offloaded or view.activation_offloading,
            )
        if self._shared and where.ranks is not None:
            forward = with_shared_parameters(module, where.ranks, self._shared, forward)
        with self.within(where):
            if view is not None and view.stage_placement is not None:
                args = tree_map(args, partial(to_stage, view.stage_placement))
            if view is not None and view.activation_checkpointing and not where.checkpointed:
                names = view.saved_activations
                saved = SavedActivations(names, where.scope) if names else None
                block = partial(self._checkpoint, where, saved)
                repeatable = Repeatable(self.mutations, forward, block)
                result = checkpoint(repeatable, *args, **kwargs)
                if saved is not None:
                    saved.check()
                return result
            return forward(*args, **kwargs)

    @contextmanager
    def within(self, where: SourceLocation) -> Iterator[None]:
        """A block whose steps are recorded with this location."""
        before, self.where = self.where, where
        try:
            yield
        finally:
            self.where = before

    def _checkpoint(
        self, where: SourceLocation, saved: SavedActivations | None
    ) -> AbstractContextManager[None]:
        """A block for a checkpointed module; modules inside it are not checkpointed again."""
        there = replace(
            self.where, scope=where.scope, stage=where.stage, ranks=where.ranks, checkpointed=True,
            offloaded=where.offloaded, saved=None if self.where.recomputation else saved,
        )  # fmt: skip
        return self.within(there)

    def calling(self) -> AbstractContextManager[None]:
        """A block in which ops are parts of another op, which determines their dtypes."""
        return self.within(replace(self.where, as_called=True))

    def gradient(self, scope: str, of: int = 0) -> AbstractContextManager[None]:
        """A block that computes a gradient which belongs to the module `scope`."""
        where = replace(
            self.where, scope=scope, backward=True, stage=None, gradient_of=of, as_called=True
        )
        return self.within(where)

    def adding(self, edge: Edge) -> AbstractContextManager[None]:
        """In the module that made the tensor; for a leaf, in the one whose gradient came last."""
        node = edge.node if isinstance(edge, Output) else edge
        op = node.op if isinstance(node, Node) else None
        return self.gradient(op.scope if isinstance(op, _InScope) else self.differentiated)

    def recomputing(self) -> AbstractContextManager[None]:
        self._recomputations += 1
        where = replace(
            self.where,
            recomputation=self._recomputations,
            backward=True,
            gradient_of=0,
            as_called=False,
        )
        return self.within(where)

    def start_backward(self, gradient: Tensor) -> Tensor:
        if self._loss_scale is None:
            return gradient
        read, dtype = self._loss_scale, gradient.dtype
        meta = gradient.meta.like(shape=(), nd_sbp=(broadcast,) * len(gradient.meta.nd_sbp))

        def maker(_: Box, device: torch.device) -> torch.Tensor:
            return read(device, dtype).clone()  # what is in a program may be written

        scale = self._source(Source("loss_scale"), meta, maker, False)
        with self.calling():
            return mul(gradient, scale)

    def clip_gradients(
        self, params: Sequence[Tensor], max_norm: float, norm_type: float, error_if_nonfinite: bool
    ) -> Tensor:
        made = tuple([param for param in params if param.grad is not None])
        gradients = tuple([param.grad for param in made])
        clipping = Clipping(made, max_norm, norm_type, error_if_nonfinite, self._lines(), gradients)
        self.program.clippings.append(clipping)
        meta = Meta.of((), torch.get_default_dtype(), device=torch.device("cpu"))
        return captured(Value(0, meta, "norm", clipping))

    # Ops.

    def dtype_of_products(self, device_type: str) -> torch.dtype | None:
        return self._amp

    def run(self, call: Callable[..., R], op: object, args: tuple[Any, ...]) -> R:
        if isinstance(op, Source):
            return typing.cast("R", self._source(op, *args))
        assert isinstance(op, Op)
        return typing.cast("R", self._op(call, op, args))

    def _op(self, call: Callable[..., object], op: Op, args: tuple[Any, ...]) -> object:
        number = arity[call]
        packed = number == PACKED
        slots: tuple[object, ...] = args[0] if packed else args[:number]
        attrs = args[1:] if packed else args[number:]
        if any(isinstance(slot, torch.Tensor) for slot in slots):
            raise bad_arguments(op, slots, attrs)
        if self._amp is not None and not self.where.as_called:
            slots, attrs = in_mixed_precision(op.name, slots, attrs, self._amp, self._as)
        kinds = [slot.meta if isinstance(slot, Tensor) else type(slot) for slot in slots]
        key = (call, *kinds, attrs, distinct_from_equal(attrs))
        try:
            plan = self._plans.get(key)
        except TypeError:
            attrs = hashable(op, slots, attrs)
            key = (call, *kinds, attrs, distinct_from_equal(attrs))
            plan = self._plans.get(key)
        if plan is None:
            try:
                plan = prepare(op, call, self._plans, key, slots, attrs)
            except PlacementError as error:
                raise self._misplaced(error, slots) from error
        base = slots[0] if isinstance(slots[0], Tensor) else None
        slots = self._boxed(op, plan, slots)
        if plan.decomposed is not None:
            with self.calling():
                made = plan.decomposed(slots, *attrs) if packed else plan.decomposed(*slots, *attrs)
            return link_all(made, base, plan.steps) if op.makes_views else made
        if op is BOXING:
            assert base is not None
            values = self._move(base, plan.meta, op.name, asked=True)
        else:
            values = self._add(
                op.name, call, slots, plan.attrs, plan.metas, run=provenance.untracked(plan.run),
                several=op.num_outputs != 1, aliases=plan.aliases, op=op,
            )  # fmt: skip
        made = self._tensors(op, plan, slots, values)
        return link_all(made, base, plan.steps) if op.makes_views else made

    def _boxed(self, op: Op, plan: DispatchPlan, slots: tuple[object, ...]) -> tuple[object, ...]:
        """The slots in the layouts of the plan, as by `dispatcher.box_inputs`."""
        boxed = list(slots)
        for index, moves in plan.boxes:
            x = boxed[index]
            assert isinstance(x, Tensor)
            (value,) = self._move(x, moves.dst, op.name, asked=False)
            boxed[index] = captured(value, x.node)
        return tuple(boxed)

    def _move(self, x: Tensor, target: Meta, op_name: str, asked: bool) -> tuple[Value, ...]:
        way = boxing_calls(x.meta, target, op_name)
        return self._add("boxing", BOXING, (x,), (), (target,), asked=asked, **way)

    def _misplaced(self, error: PlacementError, slots: tuple[object, ...]) -> PlacementError:
        """The error for an op on several placements, which names the placement of the stage."""
        where = self.where
        if where.stage is None or where.ranks is None:
            return error
        for slot in slots:
            if not isinstance(slot, Tensor) or not slot.is_global:
                continue
            value, placement = self.value_of(slot), slot.placement
            if value.name and placement is not where.ranks:
                return PlacementError(
                    f"{value!r} is on ranks {list(placement.flat_ranks)}, but {where.scope} is on "
                    f"stage {where.stage} with ranks {list(where.ranks.flat_ranks)}; make it "
                    f"there, or move it with .to_global(placement, sbp) before it is used. {error}"
                )
        return error

    def _as(self, dtype: torch.dtype, slot: object) -> object:
        if not isinstance(slot, Tensor) or not slot.meta.is_floating:
            return slot
        where = self.where
        if value_in(slot) is None:
            where = replace(where, recomputation=0)  # a parameter's cast is kept, and shared
        with self.within(where):
            return cast(slot, dtype)

    def _add(
        self,
        name: str,
        origin: object,
        slots: Sequence[object],
        attrs: tuple[object, ...],
        metas: Sequence[Meta],
        **rest: Any,
    ) -> tuple[Value, ...]:
        """Record a step on tensors, with fields of a `ProgramStep`, at the current location.

        Returns the values that it makes.
        """
        inputs = tuple([self.value_of(x) if isinstance(x, Tensor) else x for x in slots])
        outputs = tuple([self._value(meta) for meta in metas])
        where, line = self.where, self._lines()
        for value in outputs:
            value.scope, value.line = where.scope, line
        step = ProgramStep(
            name, origin, inputs, attrs, outputs, scope=where.scope, backward=where.backward,
            recomputation=where.recomputation, stage=where.stage, gradient_of=where.gradient_of,
            checkpointed=where.checkpointed and not where.backward, line=line,
            offloaded=(True,) * len(outputs) if where.offloaded else (), **rest,
        )  # fmt: skip
        if where.saved is not None and is_activation(step, self.variable_numbers):
            step = replace(step, saved=where.saved.has(where.scope, step.name))
        self.program.steps.append(step)
        return outputs

    def _tensors(
        self, op: Op, plan: DispatchPlan, slots: tuple[object, ...], values: tuple[Value, ...]
    ) -> Tensor | tuple[Tensor, ...]:
        """The op's captured results, recorded on the tape as by the dispatcher."""
        several = op.num_outputs != 1
        made = [captured(value) for value in values]
        if interpreter.is_grad_enabled() and plan.differentiable:
            out = values if several else values[0]
            node = record(op, plan, slots, out, _InScope(op, self, values[0]))
            for index, tensor in enumerate(made):
                if node is None or not several or op.one_gradient:
                    tensor.node = None if index else node
                elif tensor.meta.is_floating:
                    tensor.node = Output(node, index)
        return tuple(made) if several else made[0]

    def _source(self, op: Source, meta: Meta, maker: Maker, requires_grad: bool) -> Tensor:
        run = partial(shards_of, meta, maker)
        (value,) = self._add(op.name, op, (), (), (meta,), run=run, repeatable=False)
        y = captured(value)
        if requires_grad:
            y.node = Leaf(y)
        return y


class _InScope:
    """An op on the tape whose gradient belongs to the op's module."""

    __slots__ = ("capture", "made", "name", "op", "scope")

    def __init__(self, op: Differentiable, capture: Capture, made: Value) -> None:
        self.op = op
        self.name = op.name
        self.capture = capture
        self.scope = capture.where.scope
        self.made = made.number

    def vjp(self, needs: Needs, dy: object, y: object, *args: object) -> Gradients:
        self.capture.differentiated = self.scope
        with self.capture.gradient(self.scope, self.made):
            gradients: Gradients = self.op.vjp(needs, dy, y, *args)
            return gradients
