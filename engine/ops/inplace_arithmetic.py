"""add_, sub_, mul_, div_: written into the tensor's own memory where nothing can notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from .. import interp
from ..inplace import assign_result
from ..meta import Meta
from ..names import enter
from ..tensor import Tensor


@lru_cache(maxsize=4096)
def _keeps(meta: Meta) -> bool:
    """Whether arithmetic with the like of it works shard by shard and keeps the dtype."""
    return meta.dtype.is_floating_point and not any(sbp.is_partial for sbp in meta.nd_sbp)


def _entry(name: str, kernel: Callable[[torch.Tensor, Any], torch.Tensor]) -> Callable[..., Tensor]:
    def call(self: Tensor, other: Any, **options: Any) -> Tensor:
        if self.node is not None or self.shared or options or interp.current is not None:
            return assign_result(self, name, other, **options)
        meta = self.meta
        if isinstance(other, Tensor):
            if other.meta is not meta or (other.node is not None and interp.grad_enabled):
                return assign_result(self, name, other)
            operand = other.shards[0] if other.shards else None
        elif type(other) is float or type(other) is int:
            operand = other
        else:
            return assign_result(self, name, other)
        if len(self.shards) != 1 or not _keeps(meta):
            return assign_result(self, name, other)
        kernel(self.shards[0], operand)
        self.version = interp.stamp()
        return self

    call.__name__ = call.__qualname__ = f"{name}_"
    call.__doc__ = f"`{name}` in place; see `onefold.{name}`."
    return call


for _name in ("add", "sub", "mul", "div"):
    enter(f"{_name}_", _entry(_name, getattr(torch.Tensor, f"{_name}_")))
