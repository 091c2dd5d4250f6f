"""Writes to views: the base takes the new value, and all views are rebuilt from it.

A write is passed up from the written tensor to its root base: each step computes the new value of
its base. Then every view in use is rebuilt from its changed base. Both directions are ordinary
ops, so the tape and the capture of graphs record them. On the tape they are what CopySlices is in
torch. Where nothing records them, a part of a tensor of the host is written into the memory of the
base (`view_memory`). Source: functionalization in PyTorch.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from ..errors import AutogradError
from ..kernels.host_memory import on_host
from . import interpreter
from .autograd_tape import Node
from .captures import shards_of
from .convert import box
from .meta import Meta
from .op import Needs
from .tensor import Tensor, from_shards
from .view_memory import apart_from, forget_output, is_recorded, note_changed, seen_by
from .view_places import unnoticed
from .views import Results, ViewStep, base_of, root_of, snapshot, views_of


class _Write(NamedTuple):
    """A value that a tensor is about to take; with `record` also its place on the tape."""

    tensor: Tensor
    value: Tensor
    record: bool


def write(tensor: Tensor, value: Tensor, record: bool) -> None:
    """Write a value in the same layout to a tensor that is a view or has views.

    With `record` it takes the value's place on the tape too. Raises, before anything has changed,
    OnefoldRuntimeError for a view through which the base cannot be written.
    """
    if record and value.node is not None:
        check_change(tensor, "", value)
    if _write_memory(tensor, value, record):
        return
    written = tensor
    path = [_Write(tensor, value, record)]
    while (base := base_of(tensor)) is not None:
        step = tensor._step
        record = record and not step.detaches
        with interpreter.grad_mode(record):
            value = _laid_as(step.scatter(snapshot(base), value), base.meta)
        path.append(_Write(base, value, record))
        tensor = base
    writes = [path.pop()]
    for done in writes:  # which get longer on the way
        on_path = bool(path) and base_of(path[-1].tensor) is done.tensor
        writes += _followers(done, path.pop() if on_path else None)
    now = interpreter.stamp()
    kept = unnoticed([each.tensor for each in writes], written)
    for each in writes:
        set_value(*each, each.tensor.version if id(each.tensor) in kept else now)


def _write_memory(view: Tensor, value: Tensor, record: bool) -> bool:
    """Write the value into the memory of a part of a local tensor, if that is allowed."""
    meta = view.meta
    if meta.placement is not None or not meta.has_data or interpreter.get_current() is not None:
        return False
    if not on_host(shards_of(view)[0]) or (
        record and (value.node is not None or is_recorded(view))
    ):
        return False
    if meta.numel == root_of(view).meta.numel:
        return False  # the base shares the memory of the value
    changed = seen_by(view)
    if changed is None:
        return False
    memory = view.shards[0]
    memory.copy_(apart_from(memory, value.shards[0]))
    kept = unnoticed(changed, view)
    note_changed([x for x in changed if id(x) not in kept] if kept else changed)
    return True


def _followers(done: _Write, through: _Write | None) -> list[_Write]:
    """The new values of the views of a tensor; `through` is the view that was written."""
    base, value, record = done
    found: list[_Write] = []
    source = from_shards(value.shards, value.meta, value.node if record else None)
    results: Results = {}
    for view in views_of(base):
        step = view._step
        if through is not None and view is through.tensor and (step.detaches or not record):
            found.append(through)  # a detached one has a place on the tape of its own
            continue
        if (
            through is not None
            and step.disjoint(through.tensor._step)
            and (not record or base.node is not None or value.node is None)
        ):
            continue  # neither its value changes nor whether it has a history
        records = record and not step.detaches
        with interpreter.grad_mode(records):
            made = _laid_as(step.forward(source, results), view.meta)
        found.append(_Write(view, _with_history(view, base, made) if records else made, records))
    return found


def set_value(tensor: Tensor, value: Tensor, record: bool, now: int) -> None:
    """Set the value of one tensor; other tensors may share its memory."""
    forget_output(tensor.node)
    if (current := interpreter.get_current()) is not None:
        current.before_change(tensor)
    elif not isinstance(tensor.shards, tuple):
        shards_of(tensor)  # as in `replace`
    tensor.shards = value.shards
    tensor.shared = True
    tensor.version = now
    if record:
        tensor.node = value.node


def _laid_as(value: Tensor, meta: Meta) -> Tensor:
    return value if value.meta is meta else box(value, meta)


# Torch's rules for gradients.

_MULTIPLE = (
    "This view is the output of a function that returns multiple views. Such functions do not "
    "allow the output views to be modified inplace. You should replace the inplace operation by "
    "an out-of-place one."
)
_UNCLEAR = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
    "code by moving both the view and the inplace either both inside the no_grad block (if you "
    "don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)


class _WithoutHistory:
    """The op of a view made under no_grad whose base has acquired a history since."""

    name = "view made under no_grad"

    def vjp(self, needs: Needs, *args: object) -> NoReturn:
        raise AutogradError(
            "A view was created in no_grad mode and its base or another view of its base has been "
            f"modified inplace with grad mode enabled. {_UNCLEAR}"
        )


_WITHOUT_HISTORY = _WithoutHistory()


def _with_history(view: Tensor, base: Tensor, made: Tensor) -> Tensor:
    """The new value of a view, with its place on the tape."""
    if made.node is None:
        # A view may be a leaf that requires grad, of a base that does not.
        kept = view.node if view.node is not None and view.node.is_leaf else None
        return from_shards(made.shards, made.meta, kept)
    if view.node is None and base.node is not None:
        node = Node(_WITHOUT_HISTORY, (made.node,), (), None, made.meta)
        return from_shards(made.shards, made.meta, node)
    return made


def check_change(tensor: Tensor, what: str, value: Tensor | None = None) -> None:
    """Raise AutogradError where torch forbids an in-place operation that is recorded.

    `value` is the result, where it is known: its history counts too.
    """
    if not interpreter.is_grad_enabled():
        return
    if not tensor.shared and (tensor.node is None or not tensor.node.is_leaf):
        return
    steps: list[ViewStep] = []
    base = tensor
    while base.shared and (above := base_of(base)) is not None and not base._step.detaches:
        steps.append(base._step)
        base = above
    if tensor.node is None and base.node is None and (value is None or value.node is None):
        return
    for step in steps:
        if step.multiple_views:
            raise AutogradError(
                f"Output {step.index} of {step.name} is a view and is being modified inplace. "
                f"{_MULTIPLE}"
            )
    if any(edge is not None and edge.is_leaf for edge in (tensor.node, base.node)):
        raise AutogradError(
            f"a {'view of a ' * bool(steps)}leaf Variable that requires grad is being used in an "
            f"in-place operation ({what}). Do it under `with flow.no_grad():`, or use the "
            "out-of-place form."
        )
    if tensor.node is None and base.node is not None:
        raise AutogradError(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            f"enabled. {_UNCLEAR}"
        )
