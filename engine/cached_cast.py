"""Cached casts: casts that were made before or with a tensor, and the gradients that casts need."""

from __future__ import annotations

import torch

from . import interpreter
from .autograd_tape import Edge, Node
from .meta import Meta
from .names import names
from .op import Gradients, Needs, Op
from .tensor import Tensor, from_shards, tensor_ops


class CachedCast:
    """The op of one use of a cached cast: the gradients of several uses add up in float32."""

    name = "cast"

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta) -> Gradients:
        return (names.cast(dy, x.dtype),)


CACHED_CAST = CachedCast()


def used(cast: Tensor, x: Tensor) -> Tensor:
    """A cast of `x` that was made before, with its own node on the tape."""
    y = from_shards(cast.shards, cast.meta)
    y.shared = True
    if x.node is not None and interpreter.is_grad_enabled():
        y.node = Node(CACHED_CAST, (x.node,), (x.meta,), None, y.meta)
    return y


def keep_low_copy(x: Tensor, cast: Tensor) -> None:
    """Keep with a tensor its cast to a lower precision, which the same kernel wrote."""
    x._low_copy = cast, x.shards, x.version


def low_copy(x: Tensor, dtype: torch.dtype) -> Tensor | None:
    """The cast of `x` that was made with it, with its own node on the tape."""
    kept = getattr(x, "_low_copy", None)
    if kept is None:
        return None
    cast, shards, version = kept
    current = cast.dtype is dtype and shards is x.shards and version == x.version
    return used(cast, x) if current else None


def added(edge: Edge, a: Tensor, b: Tensor) -> Tensor:
    """The sum of two gradients of what `edge` stands for.

    Where it is cast next, the kernel that adds writes the cast too.
    """
    meta = a.meta
    if type(edge) is Node and meta is b.meta and not meta.partial:
        dtype = _dtype_of_addend(edge)
        if dtype is not None and not interpreter.is_grad_enabled():
            assert isinstance(edge.op, Op) and edge.op.with_low_copy
            made: tuple[Tensor, Tensor] = edge.op.with_low_copy(a, b, dtype)
            keep_low_copy(*made)
            return made[0]
    return tensor_ops.add(a, b)


def _dtype_of_addend(node: Node) -> torch.dtype | None:
    """The dtype to which an addition on the tape casts its gradient for one of its operands."""
    y = node.meta
    if node.op.name != "add" or not node.args or not isinstance(y, Meta):
        return None
    for parent, x in zip(node.parents, node.args, strict=False):
        if parent is None or type(x) is not Meta or x.dtype is y.dtype or x.shape != y.shape:
            continue
        if x.is_floating and x.dtype.itemsize < y.dtype.itemsize:
            return x.dtype
    return None


def wider_dtype(need: object) -> torch.dtype | None:
    """The dtype to which a gradient will be cast, if that is wider than what it is a gradient of.

    `need` is the entry of an input in the `needs` of a vjp: where its gradient goes.
    """
    if type(need) is not Node or need.op.name != "cast" or not need.args:
        return None
    x, y = need.args[0], need.meta
    assert isinstance(x, Meta) and isinstance(y, Meta)
    floating = x.dtype.is_floating_point and y.dtype.is_floating_point
    return x.dtype if floating and x.dtype.itemsize > y.dtype.itemsize else None


def is_cached_cast(need: object) -> bool:
    """Whether a gradient goes to a cached cast, so that it is computed eagerly."""
    return type(need) is Node and need.op is CACHED_CAST
