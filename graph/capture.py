"""Capture: the interpreter under which the program's own eager code writes down a Program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch

from ..engine import boxing, interp
from ..engine.convert import BOXING, global_to_global
from ..engine.dispatch import PACKED, arity
from ..engine.meta import Meta
from ..engine.op import Op
from ..engine.ops.creation import Source, shards_of
from ..engine.placement import Placement
from ..engine.plan import RELAYOUT, Plan, bad_arguments, hashable, prepare
from ..engine.sbp import NdSbp, broadcast
from ..engine.tape import Differentiable, Edge, Leaf, Node, Output
from ..engine.tensor import Tensor
from ..errors import PlacementError, user_line
from .config import GraphModule
from .ir import Program, Step, Value, Variable
from .nest import rebuild_any


class Capture(interp.Interpreter):
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
    ) -> None:
        self.program = Program()
        self._views = views  # the graph settings of modules, by the modules' identities
        self._named = {id(tensor): name for name, tensor in named.items()}
        self._paths = paths  # module paths, by the modules' identities
        self._plans: dict[Any, Plan] = {}
        self._variables: dict[int, Variable] = {}
        self._changed: dict[int, tuple[Tensor, Any, bool, int, Any]] = {}
        self._numbers = 0
        self.scope = ""  # the module in which the program is
        self.backward = False  # whether in the gradient of one of its ops
        self.stage: int | None = None  # the stage that the module was put on
        self._ranks: Placement | None = None  # the stage's
        self.of = 0  # in a gradient: the number of the value whose maker it is the gradient of
        self.differentiated = ""  # the module of the op whose gradient was the last
        self._again = 0  # the number of the function that is run again, 0 for none
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
        return shards if type(shards) is Value else self._variable(tensor).value

    def _value(self, meta: Meta, name: str = "") -> Value:
        self._numbers += 1
        return Value(self._numbers, meta, name)

    def _variable(self, tensor: Tensor) -> Variable:
        # By its shards, which a detached twin has too; all without shards have the same ().
        key = id(tensor.shards) if tensor.shards else id(tensor)
        found = self._variables.get(key)
        if found is None:
            name = self._named.get(id(tensor), f"outside.{len(self._variables)}")
            found = Variable(self._value(tensor.meta, name), tensor)
            self._variables[key] = found
            self.program.variables.append(found)
        return found

    def before_change(self, tensor: Tensor) -> None:
        shards: Any = tensor.shards
        if type(shards) is not Value and id(tensor) not in self._changed:
            self._variable(tensor)
            kept = (tensor, shards, tensor.shared, tensor.version, tensor.node)
            self._changed[id(tensor)] = kept

    def note_gradient(self, tensor: Tensor, grad: Tensor) -> None:
        """Keep the gradient of a tensor from outside as a result of the program."""
        shards = self._changed[id(tensor)][1] if id(tensor) in self._changed else tensor.shards
        variable = self._variables[id(shards) if shards else id(tensor)]
        self.program.gradients.append((variable, self.value_of(grad)))

    def finish(self) -> None:
        """Turn in-place changes of outside tensors into assigns, and undo them."""
        for tensor, shards, *_ in self._changed.values():
            now = self.value_of(tensor)
            key = id(shards) if shards else id(tensor)
            variable = self._variables[key]
            if now is not variable.value:
                self.program.assigns.append((variable, now))
        self.undo()

    def undo(self) -> None:
        """Give every tensor from outside back what it had before the capture."""
        for tensor, shards, shared, version, node in self._changed.values():
            tensor.shards, tensor.shared, tensor.version = shards, shared, version
            tensor.node = node
        self._changed.clear()

    # Modules.

    @contextmanager
    def module(self, module: Any, args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        before = self.scope, self.stage, self._ranks
        self.scope = self._paths.get(id(module), self.scope)
        view = self._views.get(id(module))
        if view is not None:
            if view.stage_id is not None:
                self.stage = view.stage_id
            if view.stage_placement is not None:
                self._ranks = view.stage_placement
                args = rebuild_any(args, partial(_to_stage, view.stage_placement))
        try:
            yield args
        finally:
            self.scope, self.stage, self._ranks = before

    @contextmanager
    def gradient(self, scope: str, of: int = 0) -> Iterator[None]:
        """The block in which a gradient is made that belongs to the module `scope`."""
        before = self.scope, self.backward, self.stage, self.of
        self.scope, self.backward, self.stage, self.of = scope, True, None, of
        try:
            yield
        finally:
            self.scope, self.backward, self.stage, self.of = before

    def adding(self, edge: Edge) -> AbstractContextManager[None]:
        """In the module that made the tensor; for a leaf, in the one whose gradient came last."""
        node = edge.node if isinstance(edge, Output) else edge
        op = node.op if isinstance(node, Node) else None
        return self.gradient(op.scope if isinstance(op, _InScope) else self.differentiated)

    @contextmanager
    def repetition(self) -> Iterator[None]:
        self._repetitions += 1
        before, self._again = self._again, self._repetitions
        try:
            yield
        finally:
            self._again = before

    # Ops.

    def run(self, call: Callable[..., Any], op: Any, args: tuple[Any, ...]) -> Any:
        if op is BOXING:
            return self._box(*args)
        if op is RELAYOUT:
            return self._relayout(*args)
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
        kinds = [slot.meta if isinstance(slot, Tensor) else type(slot) for slot in slots]
        try:
            plan = self._plans.get((call, *kinds, attrs))
        except TypeError:
            attrs = hashable(op, slots, attrs)
            plan = self._plans.get((call, *kinds, attrs))
        if plan is None:
            key = (call, *kinds, attrs)
            try:
                plan = prepare(op, call, self._plans, key, slots, attrs, packed)
            except PlacementError as error:
                raise self._misplaced(error, slots) from error
        if plan.instead is not None:
            return plan.instead(slots, *attrs) if packed else plan.instead(*slots, *attrs)
        several = op.num_outputs != 1
        values = self._step(op.name, call, slots, attrs, plan.metas, plan.run, several, op.aliases)
        return self._tensors(op, plan, slots, attrs, values)

    def _misplaced(self, error: PlacementError, slots: tuple[Any, ...]) -> PlacementError:
        """The error for an op on several placements, where a stage says which one is right."""
        if self.stage is None or self._ranks is None:
            return error
        for slot in slots:
            if not isinstance(slot, Tensor) or not slot.is_global:
                continue
            value, placement = self.value_of(slot), slot.placement
            if value.name and placement is not self._ranks:
                return PlacementError(
                    f"{value!r} is on ranks {list(placement.flat_ranks)}, but {self.scope} is on "
                    f"stage {self.stage} with ranks {list(self._ranks.flat_ranks)}; make it there, "
                    f"or move it with .to_global(placement, sbp) before it is used. {error}"
                )
        return error

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
    ) -> tuple[Value, ...]:
        inputs = tuple([self.value_of(s) if isinstance(s, Tensor) else s for s in slots])
        outputs = tuple([self._value(meta) for meta in metas])
        self.program.steps.append(
            Step(
                name, origin, inputs, attrs, outputs, run, several=several, scope=self.scope,
                backward=self.backward, again=self._again, stage=self.stage, of=self.of,
                line=user_line(), aliases=aliases, repeatable=repeatable,
            )
        )  # fmt: skip
        return outputs

    def _tensors(
        self,
        op: Op,
        plan: Plan,
        slots: tuple[Any, ...],
        attrs: tuple[Any, ...],
        values: tuple[Value, ...],
    ) -> Any:
        """The op's captured results, on the tape as the dispatcher puts them there."""
        several = op.num_outputs != 1
        made: list[Any] = [Tensor(v, v.meta) for v in values]  # type: ignore[arg-type]
        parents = tuple([s.node if isinstance(s, Tensor) else None for s in slots])
        if interp.grad_enabled and plan.differentiable and any(p is not None for p in parents):
            kept = [
                s.meta
                if isinstance(s, Tensor) and op.saves is not None and i not in op.saves
                else s
                for i, s in enumerate(slots)
            ]
            out: Any = (values if several else values[0]) if op.saves_output else None
            meta = plan.metas if several else plan.meta
            node = Node(_InScope(op, self, values[0]), parents, (*kept, *attrs), out, meta)
            for index, tensor in enumerate(made):
                if not several:
                    tensor.node = node
                elif tensor.meta.is_floating:
                    tensor.node = Output(node, index)
        return tuple(made) if several else made[0]

    def _box(self, x: Tensor, target: Meta, grad_sbp: NdSbp | None) -> Tensor:
        if target is x.meta and grad_sbp is None:
            return x
        y = self._moved(x, target, "to_global")
        if x.node is not None and interp.grad_enabled:
            op = _InScope(BOXING, self, self.value_of(y))
            y.node = Node(op, (x.node,), (x.meta, grad_sbp), None, target)
        return y

    def _relayout(self, x: Tensor, target: Meta, op_name: str) -> Tensor:
        y = self._moved(x, target, op_name)
        y.node = x.node
        return y

    def _moved(self, x: Tensor, target: Meta, op_name: str) -> Tensor:
        plan = boxing.plan(x.meta, target)
        run = partial(boxing.run, plan, op=op_name)
        (value,) = self._step("boxing", BOXING, (x,), (), (target,), run, aliases=plan.aliases)
        return Tensor(value, target)  # type: ignore[arg-type]

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
        self.scope = capture.scope
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
