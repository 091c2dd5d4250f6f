"""The memory of a base and its views: which tensors see a write there, and whether it may go there.

A base and its views are to see a write to one of them, so it may go into their memory, unless
another tensor has that too: one that shares it until it is written, what is kept for backward, or
an array of the caller's. That is known from the references to the memory (`own_shards`). A view
whose elements were copied has other memory than its base, and is left to `view_writes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from . import interpreter
from .autograd_tape import CHANGED, Edge, Node, Output, PackedArgs
from .meta import Shape
from .own_shards import are_sole_owners
from .tensor import Shards, Tensor, from_shards
from .views import NO_VIEW, Results, base_of, views_of


def is_recorded(x: Tensor) -> bool:
    """Whether the tape, while it is on, records a write to this tensor of a mere value."""
    while x.node is None and x.shared:
        base = base_of(x)
        if base is None or x._step.detaches:
            return False
        x = base
    return x.node is not None


def seen_by(x: Tensor, overwritten: bool = False) -> Sequence[Tensor] | None:
    """The tensors that change with the memory of a local tensor; None where others have it too.

    Then a view and its family get other memory, unless its elements are all that is in it, and are
    to be `overwritten`.
    """
    if not x.shared:
        return (x,)
    path = [x]
    while (above := base_of(path[-1])) is not None:
        path.append(above)
    if not all(_is_distinct(each.shards[0]) for each in path):
        return None
    base = path[-1]
    changed, apart = _family(path)
    if not are_sole_owners([*changed, *apart] if apart else changed):
        if base is x or (overwritten and x.meta.numel == base.meta.numel):
            return None  # a new value of the base is all that is needed
        if not _move(base) or not are_sole_owners([*changed, *apart]):
            return None
    elif base is x and len(changed) == 1:
        x.shared = False  # the others are gone
    return changed


def _family(path: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that share elements with the first of a path to a base, and the others."""
    changed: list[Tensor] = [*path]
    apart: list[Tensor] = []
    below = None
    near: list[Tensor]
    others: list[Tensor]
    for base in path:
        if below is None:
            near, others = views_of(base), []
        else:
            near, others, disjoint = [], [], below._step.disjoint
            for view in views_of(base):
                if view is not below:
                    (others if disjoint(view._step) else near).append(view)
        _add_views(near, changed)
        _add_views(others, apart)
        below = base
    return changed, apart


def _add_views(views: list[Tensor], found: list[Tensor]) -> None:
    """Add these tensors and their views, of any depth."""
    while views:
        found += views
        bases = [view for view in views if getattr(view, "_view", NO_VIEW) is not NO_VIEW]
        views = [view for base in bases for view in views_of(base)]


def _move(base: Tensor) -> bool:
    """Give a base and its views memory of their own, unless the elements of a view are copies."""
    memory = base.shards[0].clone(memory_format=torch.contiguous_format)
    moved: list[tuple[Tensor, Shards]] = [(base, (memory,))]
    with interpreter.grad_mode(False):
        for x, shards in moved:  # which gets longer on the way
            source = from_shards(shards, x.meta)
            results: Results = {}
            views = views_of(x) if x.shared else ()
            moved += [(view, view._step.forward(source, results).shards) for view in views]
    if not all(shares_memory(shards[0], memory) for _, shards in moved):
        return False
    for x, shards in moved:
        x.shards = shards
    return True


def shares_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors of torch lie in one memory, which they may use in parts."""
    return bool(x.untyped_storage()._cdata == y.untyped_storage()._cdata)


def apart_from(memory: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A tensor as it is before `memory` is written, into which torch may write it."""
    if not shares_memory(x, memory):
        return x
    places = (x.data_ptr(), x.shape, x.stride(), x.dtype)
    there = (memory.data_ptr(), memory.shape, memory.stride(), memory.dtype)
    return x if places == there else x.clone()


def _is_distinct(x: torch.Tensor) -> bool:
    """Whether each element has a place of its own in memory."""
    return x.is_contiguous() or _are_distinct(x.shape, x.stride())


@lru_cache(maxsize=1024)
def _are_distinct(shape: Shape, strides: Shape) -> bool:
    reach = 0  # from the first element to the last one, in the dims of smaller strides
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


def note_changed(tensors: Sequence[Tensor]) -> None:
    """Update what the tape knows of tensors whose memory was written."""
    now = interpreter.stamp()
    for x in tensors:
        if x.node is not None:
            forget_output(x.node)
        x.version = now


def forget_output(edge: Edge | None) -> None:
    """Mark the output that the tensor's node has saved, if any, as changed."""
    node, index = (edge.node, edge.index) if type(edge) is Output else (edge, 0)
    if type(node) is not Node or node.out is None or type(node.args) is PackedArgs:
        return
    if type(node.meta) is not tuple or node.out is CHANGED or node.out[index] is not None:
        node.out = CHANGED
