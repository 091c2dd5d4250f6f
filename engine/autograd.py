"""The tape: nodes in creation order, and backward, which replays them by sequence number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from heapq import heappop, heappush
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakSet, ref

from ..errors import AutogradError, OnefoldTypeError, ShapeError
from . import interp
from .meta import Meta
from .names import named, names
from .tensor import Shards, Tensor

Hook: TypeAlias = Callable[[Tensor], Tensor | None]
Grads: TypeAlias = Sequence["Tensor | None"]

# Beside the edges, since almost none has one.
_hooks: WeakKeyDictionary[Edge, list[Hook]] = WeakKeyDictionary()
_retained: WeakSet[Edge] = WeakSet()


class Differentiable(Protocol):
    """What a node needs of the op that made it."""

    name: str

    def vjp(self, needs: Sequence[object], dy: Any, y: Any, *args: Any) -> Any: ...


class Edge:
    """Where a gradient goes: a Leaf, a Node, or one Output of a node with several."""

    __slots__ = ("__weakref__", "seq")

    seq: int
    is_leaf = False
    grad: Tensor | None = None

    def name(self) -> str:
        return type(self).__name__


class Leaf(Edge):
    """The end of the tape at a tensor that requires grad: gradients add up here."""

    __slots__ = ("grad", "tensor")

    is_leaf = True

    def __init__(self, tensor: Tensor) -> None:
        self.seq = next(interp.sequence)
        self.tensor = ref(tensor)
        self.grad: Tensor | None = None


class Node(Edge):
    """One op on the tape: its parents, and the inputs and output that its vjp asked to keep.

    An input or output that was not kept stands here as its Meta.
    """

    __slots__ = ("args", "grad", "meta", "op", "out", "packed", "parents")

    def __init__(
        self,
        op: Differentiable,
        parents: tuple[Edge | None, ...],
        args: tuple[Any, ...],
        out: Shards | None,
        meta: Meta | tuple[Meta, ...],
    ) -> None:
        self.seq = next(interp.sequence)
        self.op = op
        self.parents = parents
        self.args: tuple[Any, ...] | None = args
        self.packed = bool(saved_hooks)
        if saved_hooks:
            self.args = tuple([_Packed(a) if isinstance(a, Tensor) else a for a in args])
        self.out = out
        self.meta = meta
        self.grad: Tensor | None = None  # only for retain_grad

    def name(self) -> str:
        return f"<{self.op.name} backward>"

    def __repr__(self) -> str:
        return self.name()


CHANGED: Any = object()  # stands for a node's kept output that was changed in place


class Output(Edge):
    """Output `index` of a node that has several."""

    __slots__ = ("grad", "index", "node")

    def __init__(self, node: Node, index: int) -> None:
        self.seq = next(interp.sequence)
        self.node = node
        self.index = index
        self.grad: Tensor | None = None


# Pairs (pack, unpack) of `saved_tensors_hooks` blocks, the innermost last.
saved_hooks: list[tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = []


class _Packed:
    """A saved tensor that a pack hook took, as it stands among a node's args."""

    __slots__ = ("_packed", "_unpack")

    def __init__(self, tensor: Tensor) -> None:
        pack, self._unpack = saved_hooks[-1]
        self._packed = pack(tensor)

    def tensor(self) -> Tensor:
        tensor = self._unpack(self._packed)
        if not isinstance(tensor, Tensor):
            raise OnefoldTypeError(
                f"saved_tensors_hooks: unpack must return a Tensor, got {type(tensor).__name__}"
            )
        return tensor


# Running backward.


class _Backward:
    """One backward pass: pending gradients, replayed from the newest node to the oldest."""

    def __init__(self, retain_graph: bool, stop: dict[Edge, Tensor | None] | None) -> None:
        self.retain_graph = retain_graph
        self.stop = stop  # edges whose gradients are asked for; None: accumulate into leaves
        self.queue: list[tuple[int, Edge]] = []
        self.pending: dict[Edge, Any] = {}

    def add(self, edge: Edge, grad: Tensor) -> None:
        if edge in self.pending:
            self.pending[edge] = names.add(self.pending[edge], grad)
        else:
            self.pending[edge] = grad
            heappush(self.queue, (-edge.seq, edge))

    def run(self) -> None:
        while self.queue:
            edge = heappop(self.queue)[1]
            grad = self.pending.pop(edge)
            if _hooks and edge in _hooks and not isinstance(grad, dict):
                grad = _run_hooks(edge, grad)
            if _retained and edge in _retained:
                edge.grad = grad if edge.grad is None else names.add(edge.grad, grad)  # type: ignore[misc]
            if self.stop is not None and edge in self.stop:
                self.stop[edge] = grad
            if type(edge) is Node:
                self.visit(edge, grad)
            elif type(edge) is Output:
                self.collect(edge, grad)
            elif self.stop is None:
                assert isinstance(edge, Leaf)
                _accumulate(edge, grad)

    def visit(self, node: Node, grad: Any) -> None:
        args = node.args
        if args is None:
            raise AutogradError(
                f"Trying to backward through the graph a second time (at {node.name()}): its saved "
                "tensors were freed by the first backward. Call backward(retain_graph=True) the "
                "first time."
            )
        parents = node.parents
        if node.packed:
            args = tuple([a.tensor() if type(a) is _Packed else a for a in args])
        elif interp.last_change > node.seq:
            _check_unchanged(node, args)
        if type(grad) is dict:
            metas = node.meta
            assert isinstance(metas, tuple)
            dy: Any = tuple(grad.get(index) for index in range(len(metas)))
            y: Any = _rewrap_all(node, metas)
        else:
            dy = grad
            y = node.meta if node.out is None else Tensor(node.out, node.meta, node)  # type: ignore[arg-type]
        if not self.retain_graph:
            node.args = node.out = None
        grads = node.op.vjp(parents, dy, y, *args)
        for parent, part in zip(parents, grads, strict=False):
            if parent is not None and part is not None:
                if type(parent) is Leaf and not _hooks and self.stop is None:
                    _accumulate(parent, part)  # no need to wait for its other gradients
                else:
                    self.add(parent, part)

    def collect(self, edge: Output, grad: Tensor) -> None:
        found = self.pending.get(edge.node)
        if found is None:
            self.pending[edge.node] = {edge.index: grad}
            heappush(self.queue, (-edge.node.seq, edge.node))
        else:
            found[edge.index] = grad


def _check_unchanged(node: Node, args: tuple[Any, ...]) -> None:
    """Raise AutogradError when something that the node kept was changed in place since."""
    changed = node.out is CHANGED
    for arg in args:
        changed = changed or (isinstance(arg, Tensor) and arg.version > node.seq)
    if changed:
        raise AutogradError(
            "one of the variables needed for gradient computation has been modified by an "
            f"inplace operation: {node.name()} kept it for backward. Use the out-of-place form "
            "there, or work on a clone()."
        )


def _rewrap_all(node: Node, metas: tuple[Meta, ...]) -> Any:
    if node.out is None:
        return metas
    outputs = []
    for index, (shards, meta) in enumerate(zip(node.out, metas, strict=True)):
        outputs.append(Tensor(shards, meta, Output(node, index)))  # type: ignore[arg-type]
    return tuple(outputs)


def _run_hooks(edge: Edge, grad: Tensor) -> Tensor:
    for hook in list(_hooks[edge]):
        changed = hook(grad)
        if changed is not None:
            grad = changed
    return grad


def _accumulate(leaf: Leaf, grad: Tensor) -> None:
    leaf.grad = grad if leaf.grad is None else names.add(leaf.grad, grad)


def _seeds(
    outputs: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> list[tuple[Edge, Tensor]]:
    seeds = []
    for output, gradient in zip(outputs, gradients, strict=True):
        if output.node is None:
            raise AutogradError(
                "element 0 of tensors does not require grad and does not have a grad_fn: nothing "
                "that made this tensor requires grad. Set requires_grad=True on an input, or "
                "check that it was not computed under no_grad()."
            )
        if gradient is None:
            if output.meta.numel != 1:
                raise AutogradError(
                    "grad can be implicitly created only for scalar outputs, but this tensor has "
                    f"shape {tuple(output.shape)}; pass gradient=, or reduce it with sum() or "
                    "mean() first."
                )
            gradient = names.ones_like_whole(output)
        elif not isinstance(gradient, Tensor):
            raise OnefoldTypeError(f"gradient must be a Tensor, but got {type(gradient).__name__}")
        elif gradient.shape != output.shape:
            raise ShapeError(
                f"gradient must have the shape of the tensor: the tensor is {tuple(output.shape)}, "
                f"the gradient {tuple(gradient.shape)}"
            )
        seeds.append((output.node, gradient))
    return seeds


def _run(
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    retain_graph: bool,
    create_graph: bool,
    stop: dict[Edge, Tensor | None] | None,
) -> None:
    seeds = _seeds(outputs, gradients)
    walk = _Backward(retain_graph, stop)
    before = interp.grad_enabled
    interp.grad_enabled = create_graph
    try:
        for edge, grad in seeds:
            walk.add(edge, grad)
        walk.run()
    finally:
        interp.grad_enabled = before


@named
def backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add the gradients of this tensor to the `.grad` of every leaf it was made from.

    `gradient` is required unless the tensor has one element. A leaf's gradient keeps the layout
    in which it was produced (often partial) until something needs its value. Raises AutogradError
    when the tape was freed by an earlier backward.
    """
    keep = create_graph if retain_graph is None else retain_graph
    _run([self], [gradient], keep, create_graph, None)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of `outputs` for `inputs`, returned instead of accumulated.

    Raises AutogradError when an input needs no gradient, or is unused and `allow_unused` is off.
    """
    outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    ins = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    seeds: Sequence[Tensor | None]
    if grad_outputs is None or isinstance(grad_outputs, Tensor):
        seeds = [grad_outputs] * len(outs)
    else:
        seeds = grad_outputs
    stop: dict[Edge, Tensor | None] = {}
    for index, tensor in enumerate(ins):
        if tensor.node is None:
            raise AutogradError(f"autograd.grad: input {index} does not require grad")
        stop[tensor.node] = None
    keep = create_graph if retain_graph is None else retain_graph
    _run(outs, seeds, keep, create_graph, stop)
    found = tuple(stop[tensor.node] for tensor in ins if tensor.node is not None)
    if not allow_unused and None in found:
        raise AutogradError(
            f"autograd.grad: input {found.index(None)} was not used to compute the outputs. Set "
            "allow_unused=True to get None for it."
        )
    return found


# Leaves, hooks, modes.


@named
def set_requires_grad(self: Tensor, mode: bool) -> None:
    if mode and self.node is None:
        if not self.meta.is_floating:
            raise AutogradError(
                "only tensors of floating point or complex dtype can require gradients, but this "
                f"one is {self.dtype}"
            )
        self.node = Leaf(self)
    elif not mode and self.node is not None:
        if not self.node.is_leaf:
            raise AutogradError(
                "you can only change requires_grad flags of leaf tensors; use detach() for a "
                "tensor that was computed"
            )
        self.node = None


@named
def set_grad(self: Tensor, value: Tensor | None) -> None:
    if self.node is None:
        if value is not None:
            raise AutogradError("a tensor that does not require grad has no .grad to set")
        return
    if value is not None:
        if not isinstance(value, Tensor):
            raise OnefoldTypeError(f".grad must be a Tensor or None, not {type(value).__name__}")
        if value.shape != self.shape:
            raise ShapeError(
                f".grad must have the tensor's shape {tuple(self.shape)}, not {tuple(value.shape)}"
            )
    self.node.grad = value  # type: ignore[misc]


class HookHandle:
    """Takes a hook away again."""

    def __init__(self, edge: Edge, hook: Hook) -> None:
        self._edge = edge
        self._hook = hook

    def remove(self) -> None:
        hooks = _hooks.get(self._edge, [])
        if self._hook in hooks:
            hooks.remove(self._hook)
        if not hooks:
            _hooks.pop(self._edge, None)


@named
def register_hook(self: Tensor, hook: Hook) -> HookHandle:
    """Call `hook(grad)` when this tensor's gradient is computed; a returned tensor replaces it."""
    if self.node is None:
        raise AutogradError("cannot register a hook on a tensor that does not require gradient")
    _hooks.setdefault(self.node, []).append(hook)
    return HookHandle(self.node, hook)


@named
def retain_grad(self: Tensor) -> None:
    """Keep the gradient of this computed tensor in its `.grad`."""
    edge = self.node
    if edge is None:
        raise AutogradError("can't retain_grad on a tensor that does not require grad")
    if not edge.is_leaf:
        _retained.add(edge)


def is_grad_enabled() -> bool:
    return interp.grad_enabled


class _Mode:
    """A grad mode usable as `with no_grad():` and as a decorator."""

    mode: bool

    def __init__(self, mode: bool) -> None:
        self._block = interp.grad_mode(mode)

    def __enter__(self) -> None:
        self._block.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._block.__exit__(*exc)


class no_grad(_Mode):
    """Record no gradients in the block, or in the decorated function."""

    def __init__(self, function: Any = None) -> None:
        super().__init__(False)

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return object.__new__(cls) if function is None else _decorated(function, False)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _decorated(function, False)


class enable_grad(_Mode):
    """Record gradients in the block, or in the decorated function."""

    def __init__(self, function: Any = None) -> None:
        super().__init__(True)

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return object.__new__(cls) if function is None else _decorated(function, True)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _decorated(function, True)


class inference_mode(_Mode):
    """Like no_grad; `inference_mode(False)` leaves the mode as it is on."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _decorated(function, False)


class set_grad_enabled(_Mode):
    """Switch the recording of gradients on or off, at once; as a context it switches back."""

    def __init__(self, mode: bool) -> None:
        self._before = interp.grad_enabled
        interp.grad_enabled = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        interp.grad_enabled = self._before


def _decorated(function: Callable[..., Any], mode: bool) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with interp.grad_mode(mode):
            return function(*args, **kwargs)

    return call


def parents_of(tensors: Iterable[Tensor | None]) -> tuple[Edge | None, ...]:
    return tuple(None if tensor is None else tensor.node for tensor in tensors)
