"""Views: the links from a view to its base, and from a base to its views.

A view holds its base and the step that makes it from the base. A base holds weak references to
its views, so a view that is no longer used costs nothing. A view of a view has that view as its
base: the links form a tree. `view_writes` follows them when one of these tensors takes another
value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ReferenceType, ref

import torch

from . import interpreter
from .captures import shards_of
from .names import Function
from .op import Attributes, Op
from .tensor import Tensor, from_shards

Results = dict[object, Sequence[Tensor]]  # of calls with several outputs


class ViewStep:
    """One step from a base to a view of it."""

    __slots__ = ()

    name = ""
    index = 0  # which of several outputs the view is
    detaches = False  # whether the view has a place of its own on the tape
    reads_others = False  # whether it depends on tensors besides the base
    multiple_views = False  # whether torch forbids writes to the view that are recorded

    def forward(self, base: Tensor, results: Results) -> Tensor:
        """The view of a base; calls with several outputs are run once and kept in `results`."""
        raise NotImplementedError

    def scatter(self, base: Tensor, value: Tensor, /) -> Tensor:
        """The new value of the base when its view becomes `value`."""
        raise NotImplementedError

    def on_one(self, base: torch.Tensor, /) -> torch.Tensor:
        """The view of a base that is a single torch tensor."""
        raise NotImplementedError

    def disjoint(self, other: ViewStep) -> bool:
        """Whether it is certain that the views of one base by these steps share no element."""
        return False


class OpStep(ViewStep):
    """The step to output `index` of an op whose outputs are views."""

    __slots__ = ("attrs", "call", "index", "multiple_views", "name", "op")

    def __init__(self, op: Op, call: Function, attrs: Attributes, index: int) -> None:
        self.op = op
        self.call = call
        self.attrs = attrs
        self.index = index
        self.name = op.name
        self.multiple_views = op.multiple_views

    def forward(self, base: Tensor, results: Results) -> Tensor:
        key = (self.call, self.attrs)
        if key not in results:
            made = self.call(base, *self.attrs)
            results[key] = (made,) if isinstance(made, Tensor) else made
        return results[key][self.index]

    def scatter(self, base: Tensor, value: Tensor) -> Tensor:
        return self.op.scatter_view(base, value, self.index, self.attrs)

    def on_one(self, base: torch.Tensor) -> torch.Tensor:
        made = self.op.kernel(base, *self.attrs)
        return made if isinstance(made, torch.Tensor) else made[self.index]

    def disjoint(self, other: ViewStep) -> bool:
        if not isinstance(other, OpStep) or self.index == other.index:
            return False
        return self.call is other.call and self.attrs == other.attrs


class FunctionStep(ViewStep):
    """The step by a function of the base; `scatter` and `on_one` as in `ViewStep`."""

    __slots__ = ("_forward", "name", "on_one", "reads_others", "scatter")

    scatter: Callable[[Tensor, Tensor], Tensor]
    on_one: Callable[[torch.Tensor], torch.Tensor]

    def __init__(
        self,
        name: str,
        forward: Callable[[Tensor], Tensor],
        scatter: Callable[[Tensor, Tensor], Tensor],
        on_one: Callable[[torch.Tensor], torch.Tensor],
        reads_others: bool = False,
    ) -> None:
        self.name, self._forward = name, forward
        self.scatter, self.on_one = scatter, on_one
        self.reads_others = reads_others

    def forward(self, base: Tensor, results: Results) -> Tensor:
        return self._forward(base)


class Detach(ViewStep):
    """The step to a tensor of the same value that has no history: `x.detach()`, `x.data`."""

    __slots__ = ()

    name = "detach"
    detaches = True

    def forward(self, base: Tensor, results: Results) -> Tensor:
        return from_shards(base.shards, base.meta)

    def scatter(self, base: Tensor, value: Tensor) -> Tensor:
        return from_shards(value.shards, value.meta)

    def on_one(self, base: torch.Tensor) -> torch.Tensor:
        return base


DETACH = Detach()
NO_VIEW: ReferenceType[Tensor] = ref(object.__new__(Tensor))  # to a tensor that is gone


def link(view: Tensor, base: Tensor, step: ViewStep) -> Tensor:
    """`view`, made a view of `base`."""
    view._base = base
    view._step = step
    view.shared = True
    add_view(base, ref(view))
    return view


def link_all(made: Any, base: Tensor | None, steps: Sequence[ViewStep]) -> Any:
    """Make the outputs of an op, one tensor or several, views of `base`."""
    assert base is not None
    if isinstance(made, Tensor):
        return link(made, base, steps[0])
    for view, step in zip(made, steps, strict=True):
        view._view = NO_VIEW
        link(view, base, step)
    return made


def add_view(base: Tensor, new: ReferenceType[Tensor]) -> None:
    """Add a view to the list of its base."""
    if not base.shared:  # so it has no links yet
        base.shared = True
        base._base = None
        base._view = new
        return
    last = getattr(base, "_view", NO_VIEW)
    base._view = new
    if last() is None:  # there was none, or it was used and dropped, as in most loops
        return
    before = getattr(base, "_views", None)
    if before is None:
        base._views = [last]
        return
    while before and before[-1]() is None:
        before.pop()
    count = len(before)
    if count > 4 and (count + 1).bit_length() > count.bit_length():
        # Seldom enough for the search to cost little per view.
        before[:] = [view for view in before if view() is not None]
    before.append(last)


def give_views(views: Sequence[Tensor], base: Tensor) -> None:
    """Move these views, with their steps, from another tensor to `base`."""
    for view in views:
        view._base = base
    *before, last = [NO_VIEW, *map(ref, views)]
    base._view, base._views = last, before


def unlink(view: Tensor) -> Tensor:
    """Cut a view off its base: writes to one no longer change the other."""
    view._base = None
    return view


# The slots are unset in most tensors, so that making a tensor takes no longer. To read an unset
# slot takes longer than one that is set, so that is done once.


def base_of(view: Tensor) -> Tensor | None:
    """The tensor that this one is a view of, if any."""
    base: Tensor | None = getattr(view, "_base", None)
    if base is None:
        view._base = None
    return base


def root_of(view: Tensor) -> Tensor:
    """The base that is no view itself, or the tensor, if it has no base."""
    while view.shared and (base := base_of(view)) is not None:
        view = base
    return view


def views_of(base: Tensor) -> list[Tensor]:
    """The views of a tensor that are still in use."""
    last = getattr(base, "_view", None)
    if last is None:
        base._view = NO_VIEW
        return []
    if not hasattr(base, "_views"):
        view = last()
        return [view] if view is not None and view._base is base else []
    refs = (*base._views, last)
    return [view for each in refs if (view := each()) is not None and view._base is base]


def has_links(tensor: Tensor) -> bool:
    """Whether a write to the tensor changes others too."""
    return base_of(tensor) is not None or bool(views_of(tensor))


def snapshot(x: Tensor) -> Tensor:
    """The tensor's current value and place on the tape, which later writes do not change."""
    if (current := interpreter.get_current()) is not None:
        current.before_sharing(x)
    return from_shards(shards_of(x), x.meta, x.node)


def frozen(x: Tensor) -> Tensor:
    """The tensor's current value without history, sharing its memory until one is written."""
    if (current := interpreter.get_current()) is not None:
        current.before_sharing(x)
    made = from_shards(shards_of(x), x.meta)
    x.shared = made.shared = True
    return made


def stand_in(x: Tensor) -> Tensor:
    """A tensor of the same value, changed with `x`, that keeps no history alive.

    That is the tensor itself if it was not computed; else `x` becomes a detached view of another.
    """
    base = base_of(x) if x.shared else None
    if base is not None and x._step.detaches:
        return base
    if x.node is None or x.node.is_leaf:
        return x
    made = from_shards(x.shards, x.meta)
    if base is None:
        link(x, made, DETACH)
    else:
        link(made, stand_in(base), x._step)
    return made


def leave(x: Tensor) -> None:
    """Remove a tensor from its family of views: the others remain views of each other."""
    unlink(x)
    views = views_of(x)
    if views:
        base = snapshot(x)
        base.shared = True
        give_views(views, base)
        give_views((), x)
