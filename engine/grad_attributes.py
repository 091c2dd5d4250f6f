"""The autograd attributes of a tensor: requires_grad, .grad, hooks, detach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import AutogradError, OnefoldRuntimeError
from . import interpreter
from .autograd import Hook, hooks, retained
from .autograd_tape import Edge, FrozenLeaf, Leaf, LeafHook
from .captures import shards_of
from .gradient_seeds import check_gradient
from .leaf_hooks import LeafHookHandle, hooked_leaves
from .names import register_function
from .tensor import Tensor, from_shards
from .views import DETACH, base_of, link, stand_in


@register_function
def set_requires_grad(self: Tensor, mode: bool) -> None:
    """The setter of `x.requires_grad`."""
    if mode and self.node is None:
        if not self.meta.is_floating:
            raise AutogradError(
                "only tensors of floating point or complex dtype can require gradients, but this "
                f"one is {self.dtype}"
            )
        leaf = _frozen_leaf(self) or Leaf(self)
        leaf.__class__ = Leaf
        self.node = leaf
    elif not mode and self.node is not None:
        if not isinstance(self.node, Leaf):
            raise AutogradError(
                "you can only change requires_grad flags of leaf tensors; use detach() for a "
                "tensor that was computed"
            )
        self.node.__class__ = FrozenLeaf
        self._frozen_leaf = self.node
        self.node = None


def _frozen_leaf(x: Tensor) -> Leaf | None:
    return getattr(x, "_frozen_leaf", None)  # unset in most


@register_function
def set_grad(self: Tensor, value: Tensor | None) -> None:
    """The setter of `x.grad`."""
    if value is not None:
        check_gradient(self, value, ".grad")
    if (current := interpreter.get_current()) is not None:
        current.before_gradient(self)
    edge = self.node or _frozen_leaf(self)
    if edge is not None:
        edge.grad = value
    elif value is not None:
        self._frozen_leaf = FrozenLeaf(self)
        self._frozen_leaf.grad = value


@register_function
def detach(input: Tensor) -> Tensor:
    """A view of the tensor without its history; a write to the view changes the tensor.

    In-place methods of either change the value of both, and the history of the named one only.
    """
    if (current := interpreter.get_current()) is not None:
        current.before_sharing(input)
    return link(from_shards(shards_of(input), input.meta), stand_in(input), DETACH)


@register_function
def detach_(input: Tensor) -> Tensor:
    """Drop the history of the tensor; raises OnefoldRuntimeError for a view."""
    if base_of(input) is not None and not input._step.detaches:
        raise OnefoldRuntimeError("Can't detach views in-place. Use detach() instead.")
    if isinstance(input.node, Leaf):
        set_requires_grad(input, False)  # which keeps its `.grad`
    elif input.node is not None:
        input.shared = True  # the node may keep its memory
        input.node = None
    return input


class HookHandle:
    """A handle that removes a hook."""

    def __init__(self, edge: Edge, hook: Hook) -> None:
        self._edge = edge
        self._hook = hook

    def remove(self) -> None:
        found = hooks.get(self._edge, [])
        if self._hook in found:
            found.remove(self._hook)
        if not found:
            hooks.pop(self._edge, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def hooks_on(tensors: Iterable[Tensor]) -> Iterator[tuple[object, ...]]:
    """The hooks that backward calls for each of these tensors that has some."""
    if not hooks and not hooked_leaves:
        return
    for index, tensor in enumerate(tensors):
        edge = tensor.node
        if edge is None:
            continue
        found = *hooks.get(edge, ()), *(edge.hooks if isinstance(edge, Leaf) else ())
        if found:
            yield index, *found


@register_function
def register_hook(self: Tensor, hook: Hook) -> HookHandle:
    """Call `hook(grad)` when this tensor's gradient is computed; a returned tensor replaces it."""
    if self.node is None:
        raise AutogradError("cannot register a hook on a tensor that does not require gradient")
    hooks.setdefault(self.node, []).append(hook)
    return HookHandle(self.node, hook)


@register_function
def register_post_accumulate_grad_hook(self: Tensor, hook: LeafHook) -> LeafHookHandle:
    """Call `hook(tensor)` when a backward pass has added all of this leaf's gradient to `.grad`.

    The hook may read and replace `.grad`; what it returns does not count. Raises AutogradError for
    a tensor that is no leaf, or does not require a gradient.

    >>> import onefold as flow
    >>> w = flow.ones(2, requires_grad=True)
    >>> handle = w.register_post_accumulate_grad_hook(lambda w: print(w.grad.tolist()))
    >>> (w * w).sum().backward()
    [2.0, 2.0]
    """
    if self.node is None:
        raise AutogradError("cannot register a hook on a tensor that doesn't require gradient")
    if not isinstance(self.node, Leaf):
        raise AutogradError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return LeafHookHandle(self.node, hook)


@register_function
def retain_grad(self: Tensor) -> None:
    """Keep the gradient of this computed tensor in its `.grad`."""
    edge = self.node
    if edge is None:
        raise AutogradError("can't retain_grad on a tensor that does not require grad")
    if not edge.is_leaf:
        retained.add(edge)


@register_function
def retains_grad(self: Tensor) -> bool:
    """Whether this tensor was computed and keeps its gradient, after `retain_grad()`."""
    return self.node is not None and not self.node.is_leaf and self.node in retained
