"""register_multi_grad_hook: one function for the gradients of several tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..errors import OnefoldValueError
from .autograd_tape import Edge, Node, Output
from .grad_attributes import HookHandle, register_hook
from .leaf_hooks import Pass, started
from .tensor import Tensor


class MultiHandle:
    """Removes a hook of several tensors."""

    def __init__(self, handles: Sequence[HookHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> MultiHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., object], *, mode: str = "all"
) -> MultiHandle:
    """Call `fn` once in each backward pass that gives one of these tensors a gradient.

    With `mode="all"` it is `fn(gradients)`, when all that the pass computes are there, and None for
    the others; with "any" `fn(gradient)`, for the first one. Raises OnefoldValueError for another
    mode, AutogradError for a tensor that requires no gradient.

    >>> import onefold as flow
    >>> a, b, c = (flow.ones(1, requires_grad=True) for _ in range(3))
    >>> show = lambda grads: print([g is not None for g in grads])
    >>> with flow.autograd.graph.register_multi_grad_hook((a, b, c), show):
    ...     (a * b).sum().backward()
    [True, True, False]
    """
    if mode not in ("all", "any"):
        raise OnefoldValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    shared = _Shared([t.node for t in tensors if t.node is not None], len(tensors), fn, mode)
    return MultiHandle([register_hook(t, shared.hook(index)) for index, t in enumerate(tensors)])


class _Shared:
    """What the hooks of several tensors know of the pass that runs."""

    def __init__(self, edges: list[Edge], count: int, fn: Callable[..., object], mode: str) -> None:
        self.edges, self.count, self.fn, self.mode = edges, count, fn, mode
        self.running: Pass | None = None
        self.found: list[Tensor | None] = []
        self.left = 0

    def hook(self, index: int) -> Callable[[Tensor], None]:
        def arrived(grad: Tensor) -> None:
            now = started.get()
            if now is not self.running:
                self.running, self.found = now, [None] * self.count
                self.left = 1 if self.mode == "any" else _reached(now, self.edges)
            self.found[index] = grad
            self.left -= 1
            if not self.left:
                found, self.found = self.found, [None] * self.count
                self.fn(grad if self.mode == "any" else found)

        return arrived


def _reached(now: Pass | None, edges: Collection[Edge]) -> int:
    """How many of these edges a pass visits."""
    assert now is not None
    starts, visits = now
    seen: set[Edge] = set()
    left = [*starts]
    while left:
        edge = left.pop()
        if edge in seen or not (visits is None or edge in visits):
            continue
        seen.add(edge)
        if isinstance(edge, Output):
            left.append(edge.node)
        elif isinstance(edge, Node):
            left.extend([parent for parent in edge.parents if parent is not None])
    return sum(edge in seen for edge in edges)
