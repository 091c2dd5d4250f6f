"""Observer: runs ops unchanged, and tracks the module that each op and gradient belongs to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from . import interpreter

if TYPE_CHECKING:
    from .autograd_tape import Edge, Node

R = TypeVar("R")


class _Module(Protocol):
    """The interface that an observer requires of a module."""

    def named_modules(self) -> Iterator[tuple[str, object]]: ...


class Observer(interpreter.Through):
    """The base of interpreters that watch ops and modules; `run` is called for every op.

    `scope` is the path of the module whose op or gradient runs now. Modules are known by the
    paths in `named`; others by their path in the module that was called first, after the name of
    its class.
    """

    def __init__(
        self, inner: interpreter.Interpreter | None, named: Mapping[object, str] | None = None
    ) -> None:
        super().__init__(inner)
        self.scope = ""
        self.backward = False  # whether the gradient of an op runs
        self._differentiated = ""
        self._paths = dict(named or {})
        # Where the sequence of the tape was when the scope changed, and what it changed to.
        self._changes = [0]
        self._scopes = [""]

    def call_module(
        self,
        module: object,
        forward: Callable[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> R:
        if module not in self._paths:
            root = type(module).__name__
            for path, each in cast("_Module", module).named_modules():
                self._paths.setdefault(each, f"{root}.{path}" if path else root)
        with self._within(self._paths[module], self.backward):
            return self._to.call_module(module, forward, args, kwargs)

    def run_vjp(self, node: Node, vjp: Callable[..., R], args: tuple[object, ...]) -> R:
        """Run it in the module that recorded the node."""
        self._differentiated = self._scope_at(node.seq)
        with self._within(self._differentiated, True):
            return self._to.run_vjp(node, vjp, args)

    def adding(self, edge: Edge) -> AbstractContextManager[None]:
        """In the module of the tensor whose gradients are added, or that of the last gradient."""
        made = not edge.is_leaf
        return self._within(self._scope_at(edge.seq) if made else self._differentiated, True)

    def _scope_at(self, seq: int) -> str:
        """The module in which the node with this sequence number was recorded."""
        return self._scopes[bisect_right(self._changes, seq) - 1]

    @contextmanager
    def _within(self, scope: str, backward: bool) -> Iterator[None]:
        before = self.scope, self.backward
        self._enter(scope, backward)
        try:
            yield
        finally:
            self._enter(*before)

    def _enter(self, scope: str, backward: bool) -> None:
        self.backward = backward
        if scope != self.scope:
            self.scope = scope
            self._changes.append(next(interpreter.sequence))
            self._scopes.append(scope)
