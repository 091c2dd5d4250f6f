"""Capture: an interpreter that records the ops of the user's eager code as a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..engine import interpreter
from ..engine.autograd_tape import Differentiable, Edge, Leaf, Node, Output
from ..engine.checkpoint import checkpoint
from ..engine.convert import BOXING, global_to_global
from ..engine.dispatch_plan import DispatchPlan, bad_arguments, hashable, prepare
from ..engine.dispatcher import PACKED, arity, record
from ..engine.meta import Meta
from ..engine.op import Op
from ..engine.ops.arithmetic import mul
from ..engine.ops.cast import cast
from ..engine.ops.creation import Source, shards_of
from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.tensor import Shards, Tensor
from ..engine.views import base_of, link_all
from ..errors import PlacementError, user_line
from .amp import dtype_of_inputs
from .boxing_calls import boxing_calls
from .graph_config import GraphModule
from .ir import Clipping, Program, ProgramStep, Value, Variable
from .loss_scale import Read, scale_for
from .mutations import Mutations, Repeatable
from .pytree import tree_map
from .source_location import SourceLocation


class _Absent(tuple[torch.Tensor, ...]):
    """The shards of one tensor on a process that has none of them: empty, but not others'."""

    __slots__ = ()

    @classmethod
    def of(cls, shards: Shards) -> Shards:
        return shards if type(shards) is cls else cls()


class Capture(interpreter.Interpreter):
    """Writes every op down instead of running it, and keeps the tape as eager does.

    A captured tensor has a Value in the place of its shards. Tensors from outside become
    variables of the program; what the program does to them in place becomes its assigns.
    """

    @property
    def captures(self) -> bool:
        return True

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
        self.program = Program()
        self._numbers = numbers  # of the values that there are
        self._lines = lines  # where in the user's program a step is written
        self._views = views  # the graph settings of modules, by the modules' identities
        self._named = {id(tensor): name for name, tensor in named.items()}
        self._loss_scale = loss_scale  # asked in every run of the program
        self._amp = amp  # the dtype of matrix products in mixed precision
        self._paths = paths  # module paths, by the modules' identities
        self._plans: dict[Any, DispatchPlan] = {}
        self._variables: dict[int, Variable] = {}
        self._mutations = Mutations()
        self._token = object()  # tells its values from those of other captures
        self.where = SourceLocation()
        self.differentiated = ""  # the module of the op whose gradient was the last
        self._repetitions = 0
        for tensor in named.values():
            self._variable(tensor)

    # Values.

    def input(self, meta: Meta, name: str) -> Tensor:
        """A captured tensor for an input of the program."""
        value = self._value(meta, name)
        self.program.inputs.append(value)
        return Tensor(value, meta)  # type: ignore[arg-type]

    def value_of(self, tensor: Tensor) -> Value:
        """The value of a tensor at this point of the program."""
        shards: Any = tensor.shards
        if type(shards) is not Value:
            return self._variable(tensor).value
        if type(shards.owner) is Clipping:
            raise shards.owner.used()
        if shards.owner is not self._token:
            raise shards.stray()
        return shards

    def adopt(self, value: Value) -> Tensor:
        """A captured tensor for a value of the program that this one continues."""
        value.owner = self._token
        return Tensor(value, value.meta)  # type: ignore[arg-type]

    def continued(self, value: Value) -> Value:
        """A new value like one of the program that this one continues."""
        made = self._value(value.meta)
        made.scope, made.line = value.scope, value.line
        return made

    def _value(self, meta: Meta, name: str = "") -> Value:
        self._numbers += 1
        return Value(self._numbers, meta, name, self._token)

    def _variable(self, tensor: Tensor) -> Variable:
        # By its shards, which a detached alias has too.
        if not tensor.shards:
            tensor.shards = _Absent.of(tensor.shards)
        found = self._variables.get(id(tensor.shards))
        if found is None:
            name = self._named.get(id(tensor), f"outside.{len(self._variables)}")
            found = Variable(self._value(tensor.meta, name), tensor)
            self._variables[id(tensor.shards)] = found
            self.program.variables.append(found)
        return found

    def before_sharing(self, tensor: Tensor) -> None:
        shards: Any = tensor.shards
        if type(shards) is not Value:
            self._variable(tensor)

    def before_change(self, tensor: Tensor) -> None:
        shards: Any = tensor.shards
        if type(shards) is not Value:
            self._variable(tensor)
            self._mutations.note(tensor)

    def name_of(self, tensor: Tensor) -> str:
        """How a tensor from outside is called in the program."""
        return self._variables[id(self._mutations.shards_before(tensor))].value.name

    def record_gradient(self, tensor: Tensor, grad: Tensor) -> None:
        """Keep the gradient of a tensor from outside as a result of the program."""
        shards = self._mutations.shards_before(tensor)
        variable = self._variables[id(shards)]
        self.program.gradients.append((variable, self.value_of(grad)))

    def finish(self) -> None:
        """Turn in-place changes of outside tensors into assigns, and undo them."""
        for tensor in self._mutations.tensors():
            if base_of(tensor) is not None:
                continue  # it follows when its base, which has changed too, is assigned
            now = self.value_of(tensor)
            shards = self._mutations.shards_before(tensor)
            variable = self._variables[id(shards)]
            if now is not variable.value:
                self.program.assigns.append((variable, now))
        self.undo()

    def undo(self) -> None:
        """Give every tensor from outside back what it had before the capture."""
        self._mutations.undo()

    # Modules.

    def call_module(
        self,
        module: Any,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        where = replace(self.where, scope=self._paths.get(id(module), self.where.scope))
        view = self._views.get(id(module))
        if view is not None:
            where = replace(
                where,
                stage=where.stage if view.stage_id is None else view.stage_id,
                ranks=view.stage_placement or where.ranks,
            )
        with self.within(where):
            if view is not None and view.stage_placement is not None:
                args = tree_map(args, partial(_to_stage, view.stage_placement))
            if view is not None and view.activation_checkpointing and not where.checkpointed:
                block = partial(self._checkpoint, where)
                return checkpoint(Repeatable(self._mutations, forward, block), *args, **kwargs)
            return forward(*args, **kwargs)

    @contextmanager
    def within(self, where: SourceLocation) -> Iterator[None]:
        """The block in which steps are written down as being there."""
        before, self.where = self.where, where
        try:
            yield
        finally:
            self.where = before

    def _checkpoint(self, where: SourceLocation) -> AbstractContextManager[None]:
        """The block in which a checkpointed module runs; modules inside it are not so again."""
        there = replace(
            self.where, scope=where.scope, stage=where.stage, ranks=where.ranks, checkpointed=True
        )
        return self.within(there)

    def calling(self) -> AbstractContextManager[None]:
        """The block in which ops are parts of another op, so that its dtypes decide."""
        return self.within(replace(self.where, as_called=True))

    def gradient(self, scope: str, of: int = 0) -> AbstractContextManager[None]:
        """The block in which a gradient is made that belongs to the module `scope`."""
        where = replace(self.where, scope=scope, backward=True, stage=None, of=of, as_called=True)
        return self.within(where)

    def adding(self, edge: Edge) -> AbstractContextManager[None]:
        """In the module that made the tensor; for a leaf, in the one whose gradient came last."""
        node = edge.node if isinstance(edge, Output) else edge
        op = node.op if isinstance(node, Node) else None
        return self.gradient(op.scope if isinstance(op, _InScope) else self.differentiated)

    def repetition(self) -> AbstractContextManager[None]:
        self._repetitions += 1
        again = replace(self.where, again=self._repetitions, backward=True, of=0, as_called=False)
        return self.within(again)

    def start_backward(self, gradient: Tensor) -> Tensor:
        if self._loss_scale is None:
            return gradient
        meta, maker = scale_for(gradient.meta, self._loss_scale)
        scale = self._source(Source("loss_scale"), meta, maker, False)
        with self.calling():
            return mul(gradient, scale)

    def clip_gradients(
        self,
        params: Sequence[Tensor],
        max_norm: float,
        norm_type: float,
        error_if_nonfinite: bool,
    ) -> Tensor:
        made = tuple([param for param in params if param.grad is not None])
        gradients = tuple([param.grad for param in made])
        clipping = Clipping(made, max_norm, norm_type, error_if_nonfinite, self._lines(), gradients)
        self.program.clippings.append(clipping)
        meta = Meta.of((), torch.get_default_dtype(), device=torch.device("cpu"))
        return Tensor(Value(0, meta, "norm", clipping), meta)  # type: ignore[arg-type]

    # Ops.

    def run(self, call: Callable[..., Any], op: Any, args: tuple[Any, ...]) -> Any:
        if type(op) is Source:
            return self._source(op, *args)
        return self._op(call, op, args)

    def _op(self, call: Callable[..., Any], op: Op, args: tuple[Any, ...]) -> Any:
        number = arity[call]
        packed = number == PACKED
        slots = args[0] if packed else args[:number]
        attrs = args[1:] if packed else args[number:]
        if any(isinstance(slot, torch.Tensor) for slot in slots):
            raise bad_arguments(op, slots, attrs)
        if self._amp is not None and not self.where.as_called:
            slots = self._cast(op.name, slots, self._amp)
        kinds = [slot.meta if isinstance(slot, Tensor) else type(slot) for slot in slots]
        try:
            plan = self._plans.get((call, *kinds, attrs))
        except TypeError:
            attrs = hashable(op, slots, attrs)
            plan = self._plans.get((call, *kinds, attrs))
        if plan is None:
            key = (call, *kinds, attrs)
            try:
                plan = prepare(op, call, self._plans, key, slots, attrs)
            except PlacementError as error:
                raise self._misplaced(error, slots) from error
        base = slots[0]
        slots = self._boxed(op, plan, slots)
        if plan.decomposed is not None:
            with self.calling():
                made = plan.decomposed(slots, *attrs) if packed else plan.decomposed(*slots, *attrs)
            return link_all(made, base, plan.steps) if op.makes_views else made
        if op is BOXING:
            values = self._move(slots[0], plan.meta, op.name, asked=True)
        else:
            values = self._step(
                op.name, call, slots, plan.attrs, plan.metas, plan.run, op.num_outputs != 1,
                plan.aliases, op=op,
            )  # fmt: skip
        made = self._tensors(op, plan, slots, values)
        return link_all(made, base, plan.steps) if op.makes_views else made

    def _boxed(self, op: Op, plan: DispatchPlan, slots: tuple[Any, ...]) -> tuple[Any, ...]:
        """The slots in the layouts that the plan asks for, as `dispatch.box_inputs` gives them."""
        boxed = list(slots)
        for index, moves in plan.boxes:
            (value,) = self._move(slots[index], moves.dst, op.name, asked=False)
            boxed[index] = Tensor(value, moves.dst, slots[index].node)  # type: ignore[arg-type]
        return tuple(boxed)

    def _move(self, x: Tensor, target: Meta, op_name: str, asked: bool) -> tuple[Value, ...]:
        way = boxing_calls(x.meta, target, op_name)
        return self._step("boxing", BOXING, (x,), (), (target,), asked=asked, **way)

    def _misplaced(self, error: PlacementError, slots: tuple[Any, ...]) -> PlacementError:
        """The error for an op on several placements, where a stage says which one is right."""
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

    def _cast(self, op_name: str, slots: tuple[Any, ...], low: torch.dtype) -> tuple[Any, ...]:
        metas = [slot.meta for slot in slots if isinstance(slot, Tensor)]
        dtype = dtype_of_inputs(op_name, metas, low)
        if dtype is None:
            return slots
        return tuple([self._as(dtype, slot) for slot in slots])

    def _as(self, dtype: torch.dtype, slot: Any) -> Any:
        if not isinstance(slot, Tensor) or not slot.meta.is_floating:
            return slot
        shards: Any = slot.shards
        where = self.where
        if type(shards) is not Value:
            where = replace(where, again=0)  # a parameter's cast is kept, and shared
        with self.within(where):
            return cast(slot, dtype)

    def _step(
        self,
        name: str,
        origin: object,
        slots: tuple[Any, ...],
        attrs: tuple[Any, ...],
        metas: tuple[Meta, ...],
        run: Callable[..., Any],
        several: bool = False,
        aliases: bool = False,
        repeatable: bool = True,
        op: Op | None = None,
        asked: bool = True,
        start: Callable[..., Any] | None = None,
    ) -> tuple[Value, ...]:
        inputs = tuple([self.value_of(s) if isinstance(s, Tensor) else s for s in slots])
        outputs = tuple([self._value(meta) for meta in metas])
        where = self.where
        line = self._lines()
        for value in outputs:
            value.scope, value.line = where.scope, line
        self.program.steps.append(
            ProgramStep(
                name, origin, inputs, attrs, outputs, run, several=several, scope=where.scope,
                backward=where.backward, again=where.again, stage=where.stage, of=where.of,
                line=line, aliases=aliases, start=start, repeatable=repeatable, op=op, asked=asked,
            )
        )  # fmt: skip
        return outputs

    def _tensors(
        self,
        op: Op,
        plan: DispatchPlan,
        slots: tuple[Any, ...],
        values: tuple[Value, ...],
    ) -> Any:
        """The op's captured results, on the tape as the dispatcher puts them there."""
        several = op.num_outputs != 1
        made: list[Any] = [Tensor(v, v.meta) for v in values]  # type: ignore[arg-type]
        if interpreter.grad_enabled and plan.differentiable:
            out: Any = values if several else values[0]
            node = record(op, plan, slots, out, _InScope(op, self, values[0]))
            for index, tensor in enumerate(made):
                if node is None or not several:
                    tensor.node = node
                elif tensor.meta.is_floating:
                    tensor.node = Output(node, index)
        return tuple(made) if several else made[0]

    def _source(self, op: Source, meta: Meta, maker: Any, requires_grad: bool) -> Tensor:
        run = partial(shards_of, meta, maker)
        (value,) = self._step(op.name, op, (), (), (meta,), run, repeatable=False)
        y = Tensor(value, meta)  # type: ignore[arg-type]
        if requires_grad:
            y.node = Leaf(y)
        return y


class _InScope:
    """An op on the tape whose gradient belongs to the module that the op belongs to."""

    __slots__ = ("capture", "made", "name", "op", "scope")

    def __init__(self, op: Differentiable, capture: Capture, made: Value) -> None:
        self.op = op
        self.name = op.name
        self.capture = capture
        self.scope = capture.where.scope
        self.made = made.number

    def vjp(self, needs: Sequence[object], dy: Any, y: Any, *args: Any) -> Any:
        self.capture.differentiated = self.scope
        with self.capture.gradient(self.scope, self.made):
            return self.op.vjp(needs, dy, y, *args)


def _to_stage(placement: Placement, x: Tensor) -> Tensor:
    """What a stage is called with, on its ranks; in its own sbp where the meshes are alike."""
    if not x.is_global or x.placement is placement:
        return x
    nd_sbp = x.sbp if x.placement.ndim == placement.ndim else (broadcast,) * placement.ndim
    return global_to_global(x, placement, nd_sbp)
