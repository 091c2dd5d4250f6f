"""Hooks that run when a leaf has its whole gradient in a backward pass, and when the pass ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from typing import TypeAlias
from weakref import WeakSet

from ..errors import AutogradError
from .autograd_tape import Edge, Leaf, LeafHook, Node, Output
from .thread_stack import ThreadStack

hooked_leaves: WeakSet[Leaf] = WeakSet()  # those that have hooks, so that most passes ask nothing
_passes = ThreadStack["LeafCalls"]("backward_passes")  # that run now


# The edges from which a backward pass began, and those that it visits (None: all that it reaches).
Pass: TypeAlias = tuple[Sequence[Edge], Collection[Edge] | None]
started: ContextVar[Pass | None] = ContextVar("started_pass", default=None)


class LeafCalls:
    """Calls the hooks of leaves in one backward pass.

    Where gradients reach leaves `at_once`, each from the node that made it, a leaf's gradient is
    whole when all nodes that read it have run. Otherwise it arrives in one piece.
    """

    def __init__(self, starts: Iterable[Edge], at_once: bool) -> None:
        self._left = _uses(starts) if at_once else {}
        self._waiting: dict[Edge, None] = {}  # those that have a part of their gradient
        self._ends: list[Callable[[], object]] = []

    def visited(self, parents: Sequence[Edge | None], grads: Sequence[object]) -> None:
        """Note that a node has passed these gradients to its parents."""
        for parent, grad in zip(parents, grads, strict=False):
            if type(parent) is Leaf:
                self.arrived(parent, grad is not None)

    def arrived(self, leaf: Edge, some: bool = True) -> None:
        """Note that a part of a leaf's gradient has arrived, or will not come."""
        self._left[leaf] = left = self._left.get(leaf, 1) - 1
        if some:
            self._waiting[leaf] = None
        if left <= 0 and leaf in self._waiting:
            self._call(leaf)

    def end(self) -> None:
        """Call the remaining hooks, of leaves with missing parts, then the final callbacks."""
        for leaf in list(self._waiting):
            self._call(leaf)
        ends, self._ends = self._ends, []  # they may hold this pass
        for end in ends:
            end()

    def at_end(self, end: Callable[[], object]) -> None:
        self._ends.append(end)

    def _call(self, leaf: Edge) -> None:
        del self._waiting[leaf]
        assert isinstance(leaf, Leaf)
        tensor = leaf.tensor()
        if tensor is not None:
            for hook in list(leaf.hooks):
                hook(tensor)

    def __enter__(self) -> LeafCalls:
        _passes.push(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _passes.pop()


class LeafHookHandle:
    """Removes a hook of a leaf."""

    def __init__(self, leaf: Leaf, hook: LeafHook) -> None:
        leaf.hooks = (*leaf.hooks, hook)
        hooked_leaves.add(leaf)
        self._leaf = leaf
        self._hook = hook

    def remove(self) -> None:
        left = list(self._leaf.hooks)
        if self._hook in left:
            left.remove(self._hook)
        self._leaf.hooks = tuple(left)
        if not left:
            hooked_leaves.discard(self._leaf)

    def __enter__(self) -> LeafHookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def running_pass() -> LeafCalls:
    """The backward pass from which a hook of a leaf is called."""
    innermost = _passes.last
    if innermost is None:
        raise AutogradError("no backward pass with hooks of leaves is running")
    return innermost


def _uses(starts: Iterable[Edge]) -> dict[Edge, int]:
    """The largest number of gradients that can reach each leaf."""
    uses: dict[Edge, int] = {}
    seen: set[Edge] = set()
    left = list(starts)
    while left:
        edge = left.pop()
        if type(edge) is Leaf:
            uses[edge] = uses.get(edge, 0) + 1
        elif edge not in seen:
            seen.add(edge)
            if isinstance(edge, Output):
                left.append(edge.node)
            elif isinstance(edge, Node):
                left.extend([parent for parent in edge.parents if parent is not None])
    return uses
