"""Dispatch: the functions that run an op; (op, metas) -> plan is found and replayed.

There is one function per arity, written out, since these are the hottest lines of a program: a
generic one costs 0.4 us more per call, and a call of the tensor's constructor 0.1 us.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from . import interp
from .op import Op
from .plan import KERNEL_ERRORS, Plan, bad_arguments, failed, hashable, new_table, ops, prepare
from .tape import Node, Output
from .tensor import Tensor
from .views import add_view, link, link_all

new = object.__new__


def unary(op: Op) -> Callable[..., Any]:
    """The function that runs an op of one tensor and hashable attributes."""
    plans = new_table()
    saves = op.saves is None or 0 in op.saves
    saves_output = op.saves_output
    aliases = op.aliases

    def call(x: Tensor, *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (x, *attrs))
        try:
            plan = plans.get((x.meta, attrs))
        except (AttributeError, TypeError):
            return call(x, *hashable(op, (x,), attrs))
        if plan is None:
            plan = prepare(op, call, plans, (x.meta, attrs), (x,), attrs)
        if plan.instead is not None:
            y = plan.instead(x, *attrs)
            return link(y, x, plan.steps[0]) if aliases else y
        y = new(Tensor)
        try:
            y.shards = plan.run(x.shards)
        except KERNEL_ERRORS as error:
            raise failed(op, error, (x, *attrs)) from error
        y.meta = plan.meta
        y.node = None
        y.version = 0
        y.shared = False
        if x.node is not None and interp.grad_enabled and plan.differentiable:
            y.node = Node(
                op,
                (x.node,),
                (x if saves else x.meta, *attrs),
                y.shards if saves_output else None,
                plan.meta,
            )
        if aliases:
            y._base = x
            (y._step,) = plan.steps
            y.shared = True
            if x.shared:
                add_view(x, y)
            else:
                x.shared = True
                x._views = [ref(y)]
        return y

    return _named(call, op, 1)


def binary(op: Op) -> Callable[..., Any]:
    """The function that runs an op of two tensors and hashable attributes."""
    plans = new_table()
    saves_a = op.saves is None or 0 in op.saves
    saves_b = op.saves is None or 1 in op.saves
    saves_output = op.saves_output

    def call(a: Tensor, b: Tensor, *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (a, b, *attrs))
        try:
            plan = plans.get((a.meta, b.meta, attrs))
        except (AttributeError, TypeError):
            raise bad_arguments(op, (a, b), attrs) from None
        if plan is None:
            plan = prepare(op, call, plans, (a.meta, b.meta, attrs), (a, b), attrs)
        if plan.instead is not None:
            return plan.instead(a, b, *attrs)
        y = new(Tensor)
        try:
            y.shards = plan.run(a.shards, b.shards)
        except KERNEL_ERRORS as error:
            raise failed(op, error, (a, b, *attrs)) from error
        y.meta = plan.meta
        y.node = None
        y.version = 0
        y.shared = False
        if (
            (a.node is not None or b.node is not None)
            and interp.grad_enabled
            and plan.differentiable
        ):
            y.node = Node(
                op,
                (a.node, b.node),
                (a if saves_a else a.meta, b if saves_b else b.meta, *attrs),
                y.shards if saves_output else None,
                plan.meta,
            )
        return y

    return _named(call, op, 2)


def ternary(op: Op) -> Callable[..., Any]:
    """The function that runs an op of three tensors (the last may be None) and attributes."""
    plans = new_table()
    saves_a = op.saves is None or 0 in op.saves
    saves_b = op.saves is None or 1 in op.saves
    saves_c = op.saves is None or 2 in op.saves
    saves_output = op.saves_output

    def call(a: Tensor, b: Tensor, c: Tensor | None, *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (a, b, c, *attrs))
        try:
            key = (a.meta, b.meta, None if c is None else c.meta, attrs)
            plan = plans.get(key)
        except (AttributeError, TypeError):
            raise bad_arguments(op, (a, b, c), attrs) from None
        if plan is None:
            plan = prepare(op, call, plans, key, (a, b, c), attrs)
        if plan.instead is not None:
            return plan.instead(a, b, c, *attrs)
        y = new(Tensor)
        try:
            y.shards = plan.run(a.shards, b.shards, None if c is None else c.shards)
        except KERNEL_ERRORS as error:
            raise failed(op, error, (a, b, c, *attrs)) from error
        y.meta = plan.meta
        y.node = None
        y.version = 0
        y.shared = False
        node_c = None if c is None else c.node
        if (
            (a.node is not None or b.node is not None or node_c is not None)
            and interp.grad_enabled
            and plan.differentiable
        ):
            y.node = Node(
                op,
                (a.node, b.node, node_c),
                (
                    a if saves_a else a.meta,
                    b if saves_b else b.meta,
                    c if saves_c or c is None else c.meta,
                    *attrs,
                ),
                y.shards if saves_output else None,
                plan.meta,
            )
        return y

    return _named(call, op, 3)


def with_number(op: Op, number_first: bool) -> Callable[..., Any]:
    """The function that runs an op of a tensor and a Python number, in either order.

    Plans depend on the number's type, never on its value.
    """
    plans = new_table()
    saves = op.saves is None or (1 if number_first else 0) in op.saves
    saves_output = op.saves_output

    def call(a: Any, b: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (a, b))
        x, number = (b, a) if number_first else (a, b)
        key = (x.meta, type(number))
        plan = plans.get(key)
        if plan is None:
            plan = prepare(op, call, plans, key, (a, b), ())
        if plan.instead is not None:
            return plan.instead(a, b)
        try:
            shards = plan.run(number, x.shards) if number_first else plan.run(x.shards, number)
        except KERNEL_ERRORS as error:
            raise failed(op, error, (a, b)) from error
        y = Tensor(shards, plan.meta)
        if x.node is not None and interp.grad_enabled and plan.differentiable:
            kept = x if saves else x.meta
            y.node = Node(
                op,
                (None, x.node) if number_first else (x.node,),
                (number, kept) if number_first else (kept, number),
                y.shards if saves_output else None,
                plan.meta,
            )
        return y

    return _named(call, op, 2)


def general(op: Op, only_first: bool = False) -> Callable[..., Any]:
    """The function that runs any op: a tuple of tensors (None where absent), then attributes.

    With `only_first`, outputs after the first are for the op's gradient and given to nobody.
    """
    plans = new_table()
    several = op.num_outputs != 1

    def call(tensors: tuple[Tensor | None, ...], *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (tensors, *attrs))
        try:
            key = (*[None if t is None else t.meta for t in tensors], attrs)
            plan = plans.get(key)
        except (AttributeError, TypeError):
            raise bad_arguments(op, tensors, attrs) from None
        if plan is None:
            plan = prepare(op, call, plans, key, tensors, attrs, packed=True)
        if plan.instead is not None:
            made = plan.instead(tensors, *attrs)
            return link_all(made, tensors[0], plan.steps) if op.aliases else made
        try:
            shards = plan.run(*[None if t is None else t.shards for t in tensors])
        except KERNEL_ERRORS as error:
            raise failed(op, error, (*tensors, *attrs)) from error
        node = None
        if interp.grad_enabled and plan.differentiable:
            nodes = tuple([None if t is None else t.node for t in tensors])
            if nodes.count(None) != len(nodes):
                node = _node(op, plan, tensors, nodes, attrs, shards)
        if several:
            return _outputs(op, plan, tensors, shards, node, only_first)
        return Tensor(shards, plan.meta, node)

    return _named(call, op, PACKED)


def general_with_value(op: Op, only_first: bool = False) -> Callable[..., Any]:
    """`general` where the last of the tuple is None or a Python value that the kernel takes.

    Plans depend on the value's type, never on the value; the op has several outputs.
    """
    plans = new_table()

    def call(tensors: tuple[Any, ...], *attrs: Any) -> Any:
        if interp.current is not None:
            return interp.current.run(call, op, (tensors, *attrs))
        *given, value = tensors
        try:
            metas = [None if t is None else t.meta for t in given]
            key = (*metas, type(value), attrs)
            plan = plans.get(key)
        except (AttributeError, TypeError):
            raise bad_arguments(op, given, attrs) from None
        if plan is None:
            plan = prepare(op, call, plans, key, tensors, attrs, packed=True)
        if plan.instead is not None:
            return plan.instead(tensors, *attrs)
        try:
            shards = plan.run(*[None if t is None else t.shards for t in given], value)
        except KERNEL_ERRORS as error:
            raise failed(op, error, (*tensors, *attrs)) from error
        node = None
        if interp.grad_enabled and plan.differentiable:
            nodes = (*[None if t is None else t.node for t in given], None)
            if nodes.count(None) != len(nodes):
                node = _node(op, plan, tensors, nodes, attrs, shards)
        return _outputs(op, plan, given, shards, node, only_first)

    return _named(call, op, PACKED)


def _node(
    op: Op,
    plan: Plan,
    tensors: Sequence[Tensor | None],
    nodes: tuple[Any, ...],
    attrs: tuple[Any, ...],
    shards: Any,
) -> Node:
    saves = op.saves
    kept: Sequence[Any] = tensors
    if saves is not None:
        kept = [t if t is None or index in saves else t.meta for index, t in enumerate(tensors)]
    return Node(
        op,
        nodes,
        (*kept, *attrs),
        shards if op.saves_output else None,
        plan.metas if op.num_outputs != 1 else plan.meta,
    )


def _outputs(
    op: Op,
    plan: Plan,
    tensors: Sequence[Tensor | None],
    shards: Any,
    node: Node | None,
    only_first: bool,
) -> tuple[Tensor, ...]:
    if only_first:
        return (Tensor(shards[0], plan.metas[0], node and Output(node, 0)),)
    outputs = tuple([Tensor(part, meta) for part, meta in zip(shards, plan.metas, strict=True)])
    if node is not None:
        for index, output in enumerate(outputs):
            if output.meta.is_floating:
                output.node = Output(node, index)
    if op.aliases:
        assert tensors[0] is not None
        link_all(outputs, tensors[0], plan.steps)
    return outputs


# How an entry takes its arguments: so many tensors (or numbers) first, or (0) all in one tuple.
arity: dict[Callable[..., Any], int] = {}
PACKED = 0


def _named(call: Callable[..., Any], op: Op, number: int) -> Callable[..., Any]:
    arity[call] = number
    ops.setdefault(op.name, []).append(op)
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.__doc__
    return call
