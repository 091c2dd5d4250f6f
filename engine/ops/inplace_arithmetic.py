"""add_, sub_, mul_, div_: write into the tensor's own memory where no other tensor shares it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import interpreter
from ..autograd_tape import Node
from ..inplace import assign_result
from ..names import register_name
from ..op import Op
from ..tensor import Tensor
from ..view_writes import forget_output
from .arithmetic import ADD, SUB


def _entry(name: str, linear: Op | None = None) -> Callable[..., Tensor]:
    """`name_`; of an op whose vjp needs no values (`linear`) also while the tape records."""
    kernel = getattr(torch.Tensor, f"{name}_")

    def call(self: Tensor, other: Any, **options: Any) -> Tensor:
        meta = self.meta
        if meta.shardwise and not self.shared and interpreter.current is None and not options:
            if type(other) is Tensor and other.meta is meta:
                if self.node is None and other.node is None:
                    kernel(self.shards[0], other.shards[0])
                    interpreter.last_change = self.version = next(interpreter.sequence)
                    return self
                if linear is not None and (self.node is None or not self.node.is_leaf):
                    kernel(self.shards[0], other.shards[0])
                    interpreter.last_change = self.version = next(interpreter.sequence)
                    if interpreter.grad_enabled:
                        forget_output(self.node)
                        self.node = Node(linear, (self.node, other.node), (meta, meta), None, meta)
                    return self
            elif type(other) is float and self.node is None:
                kernel(self.shards[0], other)
                interpreter.last_change = self.version = next(interpreter.sequence)
                return self
        return assign_result(self, name, other, **options)

    call.__name__ = call.__qualname__ = f"{name}_"
    call.__doc__ = f"`{name}` in place; see `onefold.{name}`."
    return call


register_name("add_", _entry("add", ADD))
register_name("sub_", _entry("sub", SUB))
register_name("mul_", _entry("mul"))
register_name("div_", _entry("div"))
