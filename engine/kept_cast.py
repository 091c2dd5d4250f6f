"""Casts on the tape: the use of one that was made before, and the gradients that casts want."""

from __future__ import annotations

import torch

from . import interpreter
from .autograd_tape import Node
from .meta import Meta
from .names import names
from .op import Gradients, Needs
from .tensor import Tensor, from_shards


class KeptCast:
    """The use of a kept cast, as the tape sees it: gradients of several uses add up in float32."""

    name = "cast"

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta) -> Gradients:
        return (names.cast(dy, x.dtype),)


KEPT_CAST = KeptCast()


def used(cast: Tensor, x: Tensor) -> Tensor:
    """A cast of `x` that was made before, with a place of its own on the tape."""
    y = from_shards(cast.shards, cast.meta)
    y.shared = True
    if x.node is not None and interpreter.is_grad_enabled():
        y.node = Node(KEPT_CAST, (x.node,), (x.meta,), None, y.meta)
    return y


def wider_dtype(need: object) -> torch.dtype | None:
    """The dtype to which a gradient will be cast, if that is wider than what it is a gradient of.

    `need` is what a vjp is told of an input: where its gradient goes.
    """
    if type(need) is not Node or need.op.name != "cast" or not need.args:
        return None
    x, y = need.args[0], need.meta
    assert isinstance(x, Meta) and isinstance(y, Meta)
    floating = x.dtype.is_floating_point and y.dtype.is_floating_point
    return x.dtype if floating and x.dtype.itemsize > y.dtype.itemsize else None


def is_kept(need: object) -> bool:
    """Whether a gradient goes to a kept cast, so that it is computed eagerly."""
    return type(need) is Node and need.op is KEPT_CAST
