"""Dispatch: the functions that run an op. They find the plan for the metas of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, get_type_hints
from weakref import ref

from . import boxing, interpreter
from .argument_errors import checks_own_arguments
from .autograd_tape import Differentiable, Node, Output, saved_hooks
from .captures import shards_of, waited
from .dispatch_plan import (
    KERNEL_ERRORS,
    DispatchPlan,
    Plans,
    failed,
    hashable,
    new_table,
    ops,
    override,
    prepare,
)
from .entry import Form, first_source, source
from .generated import function
from .names import Function, names
from .op import Attributes, Op
from .own_shards import own_tuple
from .saved_values import saved_by_any, saved_for
from .tensor import Shards, Tensor, from_shards
from .views import NO_VIEW, add_view, link_all

P = ParamSpec("P")
Tensors: TypeAlias = "tuple[Tensor | None, ...]"


class Takes(Protocol[P]):
    """An op, by the attributes that it takes."""

    @property
    def attributes(self) -> Callable[P, Attributes]: ...


def unary(op: Takes[P], out: bool = False) -> Callable[Concatenate[Tensor, P], Tensor]:
    """The function that runs an op of one tensor and hashable attributes.

    With `out` it takes `out=`, the tensor for its result, as in the functions below.
    """
    return _define(op, ("input",), out=out)


def view_op(op: Takes[P]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """The function that runs an op of one tensor and attributes that gives a view of the tensor.

    Neither the tensor nor the view may be kept for the op's gradient.
    """
    assert isinstance(op, Op)
    assert op.makes_views
    assert op.saves == ()
    assert not op.saves_output
    return _define(op, ("input",))


def binary(
    op: Takes[P], second: str = "other", out: bool = False, options: tuple[str, ...] = ()
) -> Callable[Concatenate[Tensor, Tensor, P], Tensor]:
    """The function that runs an op of two tensors and hashable attributes.

    `second` is the name of the second tensor, by which it may be passed. `options` are the names of
    arguments in addition: a call with one of them is one of `op.with_options`, with `out` before.
    """
    return _define(op, ("input", second), out=out, options=options)


def with_optional(op: Takes[P]) -> Callable[Concatenate[Tensor, Tensor | None, P], Tensor]:
    """The function that runs an op of a tensor, one that may be None, and attributes."""
    return _define(op, ("x", "other?"))


def ternary(
    op: Takes[P], out: bool = False
) -> Callable[Concatenate[Tensor, Tensor, Tensor | None, P], Tensor]:
    """The function that runs an op of three tensors (the last may be None) and attributes."""
    return _define(op, ("a", "b", "c?"), out=out)


def with_optionals(
    op: Takes[P],
) -> Callable[Concatenate[Tensor, Tensor | None, Tensor | None, P], Tensor]:
    """The function that runs an op of a tensor, two that may be None, and attributes."""
    return _define(op, ("x", "weight?", "bias?"))


def number_last(op: Op) -> Callable[[Tensor, object], Tensor]:
    """The function that runs an op of a tensor and a Python number.

    Plans depend on the number's type, never on its value.
    """
    return _define(op, ("x", "number#"))


def number_first(op: Op) -> Callable[[object, Tensor], Tensor]:
    """The function that runs an op of a Python number and a tensor, as `number_last`."""
    return _define(op, ("number#", "x"))


# By an entry that takes some number of tensors one by one: the function of any number.
of_any_number: dict[Function, Callable[..., Tensor]] = {}


def general(op: Takes[P]) -> Callable[Concatenate[Tensors, P], Tensor]:
    """The function that runs an op of any tensors: a tuple (None where absent), then attributes."""
    return _define(op, ())


def general_of(op: Takes[Any], params: str) -> Callable[..., Tensor]:
    """`general` where few tensors are passed one by one, which is faster.

    `params` are the names of as many as there may be; those that end in "?" may be left out from
    the end, or None. Of more tensors the function takes all in one tuple, as that of `general`.
    """
    names = params.split()
    least = max(1, len([name for name in names if name[-1] != "?"]))
    few = {count: _define(op, tuple(names[:count])) for count in range(least, len(names) + 1)}
    function = partial(_by_number, few, general(op))
    of_any_number.update(dict.fromkeys(few.values(), function))
    return function


def _by_number(
    few: dict[int, Function], many: Function, tensors: Tensors, *attributes: object
) -> Tensor:
    call = few.get(len(tensors))
    found: Tensor
    found = many(tensors, *attributes) if call is None else call(*tensors, *attributes)
    return found


def several(
    op: Takes[P], only_first: bool = False
) -> Callable[Concatenate[Tensors, P], tuple[Tensor, ...]]:
    """`general` for an op of several outputs.

    With `only_first` it returns the first output alone; the others are for the op's gradient.
    """
    return _define(op, (), only_first=only_first)


def several_of(
    op: Takes[Any], params: str, only_first: bool = False
) -> Callable[..., tuple[Tensor, ...]]:
    """`several` for tensors that are passed one by one, which is faster.

    The name of a parameter ends in "?" where None may be passed, and in "#" where None or a Python
    value is, of which plans know the type only.
    """
    return _define(op, tuple(params.split()), only_first=only_first)


# The number of tensors (or numbers) that an entry takes first; 0: all in one tuple.
arity: dict[Function, int] = {}
PACKED = 0


def _define(op: Takes[...], params: tuple[str, ...], **how: Any) -> Function:
    assert isinstance(op, Op)
    is_boxing = type(op).boxing is not Op.boxing
    # The text of an entry names the kept outputs up to the last one.
    kept = op.saves_output
    assert isinstance(kept, bool) or saved_by_any(kept)[-1] == op.num_outputs - 1
    form = Form(
        params,
        attributes=_count(op.attributes),
        numbers=_numbers(op.attributes),
        saves=op.saves,
        saves_output=op.saves_output,
        several=op.num_outputs != 1,
        one_gradient=op.one_gradient,
        aliases=op.aliases,
        makes_views=op.makes_views,
        boxing=is_boxing,
        **how,
    )
    define = function(first_source(form), "define", _title(form), _NAMES)
    call: Function = define(op, new_table())
    _forms[call] = form
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.__doc__
    call.__annotations__ = {name.rstrip("?"): Tensor for name in params if name[-1] != "#"}
    if form.out:
        call.__annotations__["out"] = Tensor | None
    if form.options:
        types = get_type_hints(op.with_options)  # type: ignore[attr-defined]
        call.__annotations__.update((name, types[name]) for name in form.options)
    arity[call] = len(params)
    checks_own_arguments(call)
    if not is_boxing:  # which has no rule
        same_name = ops.setdefault(op.name, [])
        if op not in same_name:  # an op may have several entries
            same_name.append(op)
    return call


_forms: dict[Function, Form] = {}  # of entries that have not been called yet


def _compile_entry(call: FunctionType, op: Op, plans: Plans) -> None:
    """Give an entry its code, at its first call."""
    form = _forms.get(call)
    if form is None:  # another thread has done so
        return
    define = function(source(form), "define", _title(form), _NAMES)
    # Entries of one form share a source; the name tells them apart in tracebacks and profiles.
    code = define(op, plans).__code__.replace(co_name=op.name, co_qualname=op.name)
    call.__code__ = code
    _forms.pop(call, None)


def _title(form: Form) -> str:
    return f"entry of {', '.join(form.params) or 'tensors'}"


def _count(attributes: Callable[..., Attributes]) -> int | None:
    """The number of attributes that an entry is called with; None if it varies."""
    fields: tuple[str, ...] | None = getattr(attributes, "_fields", None)
    return None if fields is None or getattr(attributes, "_field_defaults", None) else len(fields)


def _numbers(attributes: Callable[..., Attributes]) -> tuple[int, ...]:
    """The attributes that may be floats, by their types; those of no known type may be."""
    types = getattr(attributes, "__annotations__", {})
    texts = [str(types.get(name, "Number")) for name in getattr(attributes, "_fields", ())]
    return tuple([i for i, text in enumerate(texts) if "float" in text or "Number" in text])


# Functions that entries call besides the plan.


def box_inputs(op: Op, plan: DispatchPlan, tensors: Sequence[Any]) -> tuple[object, ...]:
    """The tensors in the layouts that the plan asks for.

    A boxed tensor keeps the node of the original: its gradient is not boxed back, but arrives in
    the layout in which it was produced.
    """
    boxed = list(tensors)
    for index, moves in plan.boxes:
        x = tensors[index]
        shards = boxing.run(moves, shards_of(x), op=op.name)
        boxed[index] = moved = from_shards(shards, moves.dst, x.node)
        if moves.aliases:
            moved.shards = own_tuple(shards)
            x.shared = moved.shared = True
    return tuple(boxed)


def record(
    op: Op,
    plan: DispatchPlan,
    tensors: Sequence[object],
    out: object,
    recorded: Differentiable | None = None,
) -> Node | None:
    """The node of a call on the tape, of `recorded` or `op`; None if no input needs a gradient."""
    nodes = tuple([t.node if isinstance(t, Tensor) else None for t in tensors])
    if nodes.count(None) == len(nodes):
        return None
    saved = tensors
    if op.saves is not None:
        saves = saved_for(op.saves, nodes)
        saved = [
            t.meta if isinstance(t, Tensor) and index not in saves else t
            for index, t in enumerate(tensors)
        ]
    return Node(
        recorded or op,
        nodes,
        (*saved, *plan.given),
        kept_outputs(op, out, nodes) if op.saves_output else None,
        plan.metas if op.num_outputs != 1 else plan.meta,
    )


def kept_outputs(op: Op, out: Any, needs: Sequence[object]) -> Any:
    """The outputs that a node keeps; None replaces those that it does not."""
    if isinstance(op.saves_output, bool):
        return out
    kept = saved_for(op.saves_output, needs)
    if op.num_outputs == 1:
        return out if kept else None
    return tuple([part if index in kept else None for index, part in enumerate(out)])


def outputs(plan: DispatchPlan, shards: Sequence[Shards], node: Node | None) -> tuple[Tensor, ...]:
    """The tensors of several outputs, on the tape where they can have a gradient."""
    made = tuple([from_shards(part, meta) for part, meta in zip(shards, plan.metas, strict=True)])
    if node is not None:
        for index, output in enumerate(made):
            if output.meta.is_floating:
                output.node = Output(node, index)
            else:
                output.shared = True  # the tape may keep its memory
    return made


def outputs_of_one(
    plan: DispatchPlan, shards: Sequence[Shards], node: Node | None
) -> tuple[Tensor, ...]:
    """The tensors of several outputs of which only the first can have a gradient."""
    made = tuple([from_shards(part, meta) for part, meta in zip(shards, plan.metas, strict=True)])
    made[0].node = node
    if node is not None:
        for output in made[1:]:
            output.shared = True  # the tape may keep its memory
    return made


# The globals of generated entries.
_NAMES = {
    "__name__": __name__,  # of our own frames in a stack
    "KERNEL_ERRORS": KERNEL_ERRORS,
    "Node": Node,
    "Tensor": Tensor,
    "add_view": add_view,
    "box_inputs": box_inputs,
    "compile_entry": _compile_entry,
    "failed": failed,
    "hashable": hashable,
    "is_grad_enabled": interpreter.is_grad_enabled,
    "get_current": interpreter.get_current,
    "get_saved_hooks": saved_hooks.items,
    "link_all": link_all,
    "names": names,
    "new": object.__new__,
    "no_view": NO_VIEW,
    "outputs": outputs,
    "outputs_of_one": outputs_of_one,
    "override": override,
    "prepare": prepare,
    "record": record,
    "ref": ref,
    "sequence": interpreter.sequence,
    "waited": waited,
}
