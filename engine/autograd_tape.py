"""The nodes and edges of the autograd tape, and what nodes save for backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias
from weakref import ref

from ..errors import AutogradError, OnefoldTypeError
from . import interpreter
from .meta import Meta
from .op import Arg, Needs
from .tensor import Tensor, from_shards
from .thread_stack import ThreadStack

LeafHook: TypeAlias = Callable[[Tensor], object]


class Differentiable(Protocol):
    """The interface that a node requires of its op."""

    name: str

    def vjp(self, needs: Needs, dy: Arg, y: Arg, *args: Arg) -> Sequence[Arg]: ...


class Edge:
    """Where a gradient goes: a Leaf, a Node, or one Output of a node with several."""

    __slots__ = ("__weakref__", "_grad", "seq")

    seq: int
    is_leaf = False

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient: at every leaf, elsewhere after `retain_grad`."""
        return getattr(self, "_grad", None)  # unset in most: a node is made for every op

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._grad = value

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Edge | None, int], ...]:
        """Where the gradients of the inputs go: nodes, each with the number of one of its outputs.

        An input that needs no gradient has None.
        """
        return ()


class Leaf(Edge):
    """The end of the tape at a tensor that requires grad, where gradients accumulate."""

    __slots__ = ("cast_with", "grad", "hooks", "tensor")

    is_leaf = True

    def __init__(self, tensor: Tensor) -> None:
        self.seq = next(interpreter.sequence)
        self.tensor = ref(tensor)
        self.grad: Tensor | None = None
        self.hooks: tuple[LeafHook, ...] = ()  # called when the gradient was added to `grad`
        self.cast_with: object = None  # see `parameter_casts`

    @property
    def variable(self) -> Tensor | None:
        """The tensor, unless it is gone."""
        return self.tensor()


class FrozenLeaf(Leaf):
    """A leaf whose tensor no longer requires grad: keeps `.grad` and hooks, accumulates nothing."""

    __slots__ = ()


class Node(Edge):
    """One op on the tape: its parents, and the inputs and output that its vjp asked to keep.

    For an input or output that was not kept, it holds the Meta.
    """

    __slots__ = ("args", "meta", "op", "out", "parents")

    def __init__(
        self,
        op: Differentiable,
        parents: tuple[Edge | None, ...],
        args: tuple[object, ...],
        out: object,  # shards, those of several outputs, or values of a program
        meta: Meta | tuple[Meta, ...],
    ) -> None:
        self.seq = next(interpreter.sequence)
        self.op = op
        self.parents = parents
        self.args: tuple[object, ...] | None = args
        self.out: Any = out
        self.meta = meta
        if saved_hooks.items():
            self.pack()

    def pack(self) -> None:
        """Pass the saved tensors to the innermost pack hook."""
        assert self.args is not None
        self.args = PackedArgs([Packed(a) if isinstance(a, Tensor) else a for a in self.args])
        if self.out is not None:
            self.out = _pack_out(self.out, self.meta)

    def name(self) -> str:
        return f"<{self.op.name} backward>"

    @property
    def next_functions(self) -> tuple[tuple[Edge | None, int], ...]:
        return tuple(
            [
                (edge.node, edge.index) if isinstance(edge, Output) else (edge, 0)
                for edge in self.parents
            ]
        )

    def __repr__(self) -> str:
        return self.name()


CHANGED: Any = object()  # stands for a node's kept output that was changed in place


class Output(Edge):
    """Output `index` of a node that has several."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int) -> None:
        self.seq = next(interpreter.sequence)
        self.node = node
        self.index = index

    @property
    def next_functions(self) -> tuple[tuple[Edge | None, int], ...]:
        return self.node.next_functions


# Pairs (pack, unpack) of `saved_tensors_hooks` blocks, the innermost last.
Pack: TypeAlias = Callable[[Tensor], Any]
Unpack: TypeAlias = Callable[[Any], Tensor]
saved_hooks = ThreadStack[tuple[Pack, Unpack]]("saved_tensors_hooks")


class Packed:
    """A saved tensor that a pack hook has replaced, in the args of a node."""

    __slots__ = ("_edge", "_meta", "_packed", "_unpack")

    def __init__(self, tensor: Tensor) -> None:
        pack, self._unpack = saved_hooks.items()[-1]
        self._packed = pack(tensor)
        self._meta = tensor.meta
        self._edge = tensor.node

    def tensor(self) -> Tensor:
        """The result of the unpack hook, with the place on the tape of the saved tensor."""
        found = self._unpack(self._packed)
        if not isinstance(found, Tensor):
            raise OnefoldTypeError(
                f"saved_tensors_hooks: unpack must return a Tensor, got {type(found).__name__}"
            )
        if found.meta is not self._meta:
            raise AutogradError(
                f"saved_tensors_hooks: unpack returned {found.meta!r}, but pack was given "
                f"{self._meta!r}; shape, dtype and layout must be the same"
            )
        return from_shards(found.shards, found.meta, self._edge)


class PackedArgs(tuple[object, ...]):
    """The args of a node whose saved tensors and output a pack hook has replaced."""

    __slots__ = ()


def _pack_out(out: Any, meta: Meta | tuple[Meta, ...]) -> Any:
    if isinstance(meta, Meta):
        return Packed(from_shards(out, meta))
    pairs = zip(out, meta, strict=True)
    return tuple([None if part is None else Packed(from_shards(part, m)) for part, m in pairs])


def unpack_out(out: Any) -> Any:
    """The shards of a node's saved output or outputs, unpacked."""
    if type(out) is tuple:
        return tuple([None if part is None else part.tensor().shards for part in out])
    return None if out is None else out.tensor().shards
