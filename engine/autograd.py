"""Backward: replays the nodes of the tape from the newest to the oldest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from heapq import heappop, heappush
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from ..errors import (
    AutogradError,
    OnefoldValueError,
)
from . import interpreter
from .autograd_tape import CHANGED, Edge, Leaf, Node, Output, Packed, PackedArgs, unpack_out
from .cached_cast import added
from .gradient_seeds import check_gradient, rows_of_seeds, seed_of
from .leaf_hooks import LeafCalls, hooked_leaves, started
from .meta import Meta
from .names import names, register_function
from .own_shards import own_tuple
from .sbp import broadcast
from .tensor import Tensor, from_shards, tensor_ops

Hook: TypeAlias = Callable[[Tensor], Tensor | None]

# Not in the edges, since almost none has a hook.
hooks: WeakKeyDictionary[Edge, list[Hook]] = WeakKeyDictionary()
retained: WeakSet[Edge] = WeakSet()


class _Backward:
    """One backward pass: pending gradients, replayed from the newest node to the oldest."""

    def __init__(
        self,
        retain_graph: bool,
        stop: dict[Edge, Tensor | None] | None,
        through: set[Edge],
        into: bool = False,
    ) -> None:
        self.retain_graph = retain_graph
        self.stop = stop  # edges whose gradients are asked for; None: accumulate into leaves
        self.into = into  # with `stop`: whether to accumulate the gradients of leaves among them
        self.through = through  # with `stop`: the edges from which one of them is reached
        self.queue: list[tuple[int, Edge]] = []
        self.pending: dict[Edge, Any] = {}
        # The newest pending edge and its gradient, not in the queue: a chain then needs no queue.
        self.next: tuple[Edge, Any] | None = None
        self.before: list[tuple[Edge, Tensor | None]] = []  # the .grad that this pass replaced
        self.sums: dict[Edge, Tensor] = {}  # the .grad that this pass added up, still its own
        # Evaluated once: the length of a weak dictionary takes longer than the rest of a step.
        self.watched = bool(hooks) or bool(retained)
        self.direct = stop is None and not hooks
        self.leaves: LeafCalls | None = None  # where leaves have hooks

    def go(
        self,
        edges: Sequence[Edge],
        seeds: Sequence[Tensor],
        records: bool,
        current: interpreter.Interpreter | None,
    ) -> None:
        """Run from these edges and gradients; an error or interrupt leaves every .grad as it was.

        Leaves the modes of the context changed.
        """
        interpreter.set_grad_enabled(records)
        if current is not None:
            interpreter.set_current(current.for_gradients())
        if self.watched:
            started.set((edges, None if self.stop is None else {*self.through, *self.stop}))
        try:
            try:
                for edge, grad in zip(edges, seeds, strict=True):
                    self.add(edge, grad)
                if self.stop is None and hooked_leaves:
                    self.run_with_leaves(edges)
                else:
                    self.run()
                    if self.into:
                        self.accumulate_asked()
            except BaseException:
                self.undo()
                raise
        except KeyboardInterrupt:  # perhaps one that kept `undo` from its end
            self.undo()
            raise

    def add(self, edge: Edge, grad: Tensor) -> None:
        newest = self.next
        if newest is None:
            if not self.queue or edge.seq > -self.queue[0][0]:
                self.next = edge, grad
                return
        elif newest[0] is edge:
            self.next = edge, _add(edge, newest[1], grad)
            return
        elif edge.seq > newest[0].seq:
            self.next = edge, grad
            edge, grad = newest
        self.enqueue(edge, grad)

    def enqueue(self, edge: Edge, grad: Tensor) -> None:
        if edge in self.pending:
            self.pending[edge] = _add(edge, self.pending[edge], grad)
        else:
            self.pending[edge] = grad
            heappush(self.queue, (-edge.seq, edge))

    def run(self) -> None:
        queue, pending = self.queue, self.pending
        while True:
            if self.next is not None:
                edge, grad = self.next
                self.next = None
            elif queue:
                edge = heappop(queue)[1]
                grad = pending.pop(edge)
            else:
                return
            if self.watched:
                if edge in hooks and type(grad) is not dict:
                    grad = _run_hooks(edge, grad)
                if edge in retained:
                    self.accumulate(edge, grad)
            if self.stop is not None:
                if edge in self.stop:
                    self.stop[edge] = grad
                if edge not in self.through:
                    continue
            if type(edge) is Node:
                self.visit(edge, grad)
            elif type(edge) is Output:
                self.collect(edge, grad)
            elif type(edge) is Leaf:  # not one that has been frozen since
                self.accumulate(edge, grad)
                if self.leaves is not None:
                    self.leaves.arrived(edge)

    def run_with_leaves(self, edges: Sequence[Edge]) -> None:
        """`run`, with the hooks of leaves."""
        with LeafCalls(edges, self.direct) as self.leaves:
            self.run()
            self.leaves.end()

    def accumulate_asked(self) -> None:
        """Add the requested gradients of leaves to their `.grad`, and run their hooks."""
        assert self.stop is not None
        with LeafCalls((), False) as calls:
            for edge, grad in self.stop.items():
                if grad is not None and type(edge) is Leaf:
                    self.accumulate(edge, grad)
                    calls.arrived(edge)
            calls.end()

    def visit(self, node: Node, grad: Any) -> None:
        args, out = node.args, node.out
        if args is None:
            raise AutogradError(
                f"Trying to backward through the graph a second time (at {node.name()}): its saved "
                "tensors were freed by the first backward. Call backward(retain_graph=True) the "
                "first time."
            )
        if type(args) is PackedArgs:
            args = tuple([a.tensor() if type(a) is Packed else a for a in args])
            out = unpack_out(out)
        elif interpreter.last_change > node.seq:
            _check_unchanged(node, args)
        meta = node.meta
        if type(meta) is tuple:
            given = grad if type(grad) is dict else {0: grad}
            dy: Any = tuple([given.get(index) for index in range(len(meta))])
            y: Any = meta if out is None else _rewrap_all(node, out, meta, type(grad) is dict)
        else:
            dy = grad
            if meta.partial:  # type: ignore[union-attr]
                dy = _whole_where_partial(node, grad)
            y = meta if out is None else from_shards(out, meta, node)  # type: ignore[arg-type]
        if not self.retain_graph:
            node.args = node.out = None
        parents = node.parents if self.stop is None else self.wanted(node.parents)
        if (current := interpreter.get_current()) is None:
            grads = node.op.vjp(parents, dy, y, *args)
        else:
            grads = current.run_vjp(node, node.op.vjp, (parents, dy, y, *args))
        given = dy
        for parent, part in zip(parents, grads):  # noqa: B905 (the argument costs 0.1 us)
            if parent is None or part is None:
                continue
            if type(parent) is not Leaf or not self.direct:
                self.add(parent, part)
            elif parent.grad is None and part is not dy and part is not given:
                self.before.append((parent, None))
                if part.shared:
                    part._base = None  # no longer a view: a program cannot change its base
                parent.grad = given = part  # made by the vjp, for this leaf alone
            else:
                self.accumulate(parent, part)  # no need to wait for its other gradients
        if self.leaves is not None and self.direct:
            self.leaves.visited(parents, grads)

    def wanted(self, parents: Iterable[Edge | None]) -> tuple[Edge | None, ...]:
        """The parents that lead to requested gradients; None for the others."""
        assert self.stop is not None
        return tuple([p if p in self.through or p in self.stop else None for p in parents])

    def collect(self, edge: Output, grad: Tensor) -> None:
        found = self.pending.get(edge.node)
        if found is None:
            self.pending[edge.node] = {edge.index: grad}
            heappush(self.queue, (-edge.node.seq, edge.node))
        elif edge.index in found:  # a rewrapped output is another edge to the same place
            found[edge.index] = _add(edge, found[edge.index], grad)
        else:
            found[edge.index] = grad

    def accumulate(self, edge: Edge, grad: Tensor) -> None:
        old = edge.grad
        if old is not None and self.sums.get(edge) is old and _adds_in_place(old, grad):
            old.shards[0].add_(grad.shards[0])
            return
        self.before.append((edge, old))
        if old is None:
            # A tensor of its own: the same gradient may reach other leaves, or be the caller's.
            grad.shared = True
            new = from_shards(own_tuple(grad.shards), grad.meta, grad.node)
            new.shared = True
        else:
            new = _add(edge, old, grad)
            if not self.watched:
                self.sums[edge] = new
        edge.grad = new

    def undo(self) -> None:
        """Restore every .grad that this pass replaced."""
        for edge, old in reversed(self.before):
            edge.grad = old


def _whole_where_partial(node: Node, dy: Tensor) -> Tensor:
    """`dy` made broadcast along the axes on which the output is partial.

    The gradient of a sum is the same for every addend. An op with a partial result has inputs that
    are split or broadcast, and with a broadcast `dy` their gradients are computed in these layouts.
    Otherwise each op that reads `dy` would move it, or the inputs would be gathered.
    """
    y = node.meta
    assert isinstance(y, Meta)
    pairs = zip(y.nd_sbp, dy.meta.nd_sbp, strict=True)
    nd_sbp = tuple([broadcast if of_y.is_partial else sbp for of_y, sbp in pairs])
    target = dy.meta.like(nd_sbp=nd_sbp)
    if target is dy.meta:
        return dy
    if (current := interpreter.get_current()) is None:
        return tensor_ops.box(dy, target)
    with current.adding(node):
        return tensor_ops.box(dy, target)


def _add(edge: Edge, grad: Tensor, other: Tensor) -> Tensor:
    """The sum of two gradients of what `edge` stands for."""
    if (current := interpreter.get_current()) is None:
        return added(edge, grad, other)
    with current.adding(edge):
        return tensor_ops.add(grad, other)


def _adds_in_place(total: Tensor, grad: Tensor) -> bool:
    """Whether a gradient can be added in place to a sum that nothing else refers to."""
    meta = total.meta
    return (
        grad.meta is meta
        and meta.shardwise
        and not total.shared
        and not interpreter.is_grad_enabled()
        and interpreter.get_current() is None
    )


def _through(starts: Iterable[Edge], stop: Iterable[Edge]) -> set[Edge]:
    """The edges reached from `starts` that lead to one of `stop`."""
    seen: set[Edge] = set()
    left = list(starts)
    while left:
        edge = left.pop()
        if edge not in seen:
            seen.add(edge)
            left.extend(_parents(edge))
    targets = set(stop)
    found: set[Edge] = set()
    for edge in sorted(seen, key=lambda edge: edge.seq):  # parents are older than their children
        if any(parent in targets or parent in found for parent in _parents(edge)):
            found.add(edge)
    return found


def _parents(edge: Edge) -> list[Edge]:
    if isinstance(edge, Output):
        return [edge.node]
    return [p for p in edge.parents if p is not None] if isinstance(edge, Node) else []


def _check_unchanged(node: Node, args: tuple[object, ...]) -> None:
    """Raise AutogradError if something that the node saved has been changed in place since."""
    changed = node.out is CHANGED
    for arg in args:
        changed = changed or (isinstance(arg, Tensor) and arg.version > node.seq)
    if changed:
        raise AutogradError(
            "one of the variables needed for gradient computation has been modified by an "
            f"inplace operation: {node.name()} kept it for backward. Use the out-of-place form "
            "there, or work on a clone()."
        )


def _rewrap_all(
    node: Node, out: Any, metas: tuple[Meta, ...], several: bool
) -> tuple[Tensor | Meta, ...]:
    """The saved outputs as tensors, and the metas of the others.

    `several` says whether more than the first can have a gradient.
    """
    made = tuple(
        [
            meta if shards is None else from_shards(shards, meta)
            for shards, meta in zip(out, metas, strict=True)
        ]
    )
    for index, output in enumerate(made if several else made[:1]):
        if isinstance(output, Tensor):
            output.node = Output(node, index) if several else node
    return made


def _run_hooks(edge: Edge, grad: Tensor) -> Tensor:
    for hook in list(hooks[edge]):
        changed = hook(grad)
        if changed is not None:
            check_gradient(grad, changed, "what a hook of a gradient returns")
            if changed.meta.dtype is not grad.meta.dtype:
                raise AutogradError(
                    f"a hook was given a gradient of {grad.dtype} and returned one of "
                    f"{changed.dtype}; return it in the dtype of the gradient"
                )
            grad = changed
    return grad


def _run(
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    retain_graph: bool | None,
    create_graph: bool,
    stop: dict[Edge, Tensor | None] | None,
    into: bool = False,
) -> None:
    if retain_graph is None:
        retain_graph = create_graph
    if len(outputs) != len(gradients):
        raise OnefoldValueError(
            f"got {len(outputs)} tensors and {len(gradients)} gradients; give one for each"
        )
    seeds = [seed_of(i, *pair) for i, pair in enumerate(zip(outputs, gradients, strict=True))]
    current = interpreter.get_current()
    if (stop is None or into) and current is not None:
        seeds = [current.start_backward(seed) for seed in seeds]
    edges = [output.node for output in outputs if output.node is not None]
    walk = _Backward(retain_graph, stop, set() if stop is None else _through(edges, stop), into)
    # In a context of its own, as in `interpreter.in_grad_mode`.
    copy_context().run(walk.go, edges, seeds, create_graph, current)


@register_function
def backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of this tensor to the `.grad` of every leaf it was made from.

    `gradient` is required unless the tensor has one element. With `inputs` only these get theirs,
    also where they are no leaves. A leaf's gradient keeps the layout in which it was produced
    (often partial) until something needs its value. Raises AutogradError when the tape was freed by
    an earlier backward.
    """
    stop = _asked(inputs)
    _run([self], [gradient], retain_graph, create_graph, stop, stop is not None)


def backward_all(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """`backward` from several tensors in one pass (`flow.autograd.backward`)."""
    outputs, stop = _listed(tensors), _asked(inputs)
    gradients = _gradients(grad_tensors, len(outputs))
    _run(outputs, gradients, retain_graph, create_graph, stop, stop is not None)


def _asked(inputs: Tensor | Sequence[Tensor] | None) -> dict[Edge, Tensor | None] | None:
    """The edges of `inputs` of a backward call, which get a `.grad` whether they are leaves or not.

    Raises AutogradError for one that needs no gradient, and where `inputs` is empty.
    """
    if inputs is None:
        return None
    listed = _listed(inputs)
    if not listed:
        raise AutogradError(
            "`inputs` argument to backward() cannot be empty; leave it out for the gradients of "
            "all leaves"
        )
    stop = _edges(listed, "backward")
    for tensor in listed:
        if not tensor.is_leaf:
            names.retain_grad(tensor)
    return stop


def _edges(inputs: Sequence[Tensor], what: str) -> dict[Edge, Tensor | None]:
    """The edges at which the gradients of these tensors arrive."""
    stop: dict[Edge, Tensor | None] = {}
    for index, tensor in enumerate(inputs):
        if tensor.node is None:
            raise AutogradError(f"{what}: input {index} does not require grad")
        stop[tensor.node] = None
    return stop


def _listed(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _gradients(
    given: Tensor | Sequence[Tensor | None] | None, number: int
) -> Sequence[Tensor | None]:
    if given is None:
        return [None] * number
    return [given] if isinstance(given, Tensor) else given


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of `outputs` for `inputs`, returned instead of accumulated.

    Only the tape between them is replayed (and freed, unless `retain_graph`). An unused input has
    the gradient None with `allow_unused`, zeros with `materialize_grads`; `only_inputs` changes
    nothing, as in torch. `is_grads_batched`: for each row of `grad_outputs`, one after the other,
    stacked. Raises AutogradError when an input needs no gradient, or is unused without either.
    """
    outs, ins = _listed(outputs), _listed(inputs)
    if is_grads_batched:
        *rows, last = rows_of_seeds(_gradients(grad_outputs, len(outs)))
        row = partial(grad, outs, ins, create_graph=create_graph, allow_unused=allow_unused)
        row = partial(row, materialize_grads=materialize_grads)
        found = [*[row(seeds, True) for seeds in rows], row(last, retain_graph)]
        columns = zip(*found, strict=True)
        return tuple([None if each[0] is None else tensor_ops.stack(each) for each in columns])
    stop = _edges(ins, "autograd.grad")
    _run(outs, _gradients(grad_outputs, len(outs)), retain_graph, create_graph, stop)
    made = tuple(stop[tensor.node] for tensor in ins if tensor.node is not None)
    if materialize_grads:
        pairs = zip(ins, made, strict=True)
        return tuple([tensor_ops.zeros_like(x) if dx is None else dx for x, dx in pairs])
    unused = [index for index, gradient in enumerate(made) if gradient is None]
    if unused and not allow_unused:
        raise AutogradError(
            f"autograd.grad: input {unused[0]} was not used to compute the outputs. Set "
            "allow_unused=True to get None for it."
        )
    return made
