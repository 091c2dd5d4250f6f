"""Copies of tensors: copy, deepcopy and pickle."""

from __future__ import annotations

import copy

import torch

from ...distributed.world import world
from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ..grad_attributes import detach, set_requires_grad
from ..meta import Meta
from ..names import register_function
from ..own_shards import own_tuple
from ..placement import Placement
from ..sbp import NdSbp
from ..tensor import Shards, Tensor, hold


@register_function
def reduce_tensor(self: Tensor) -> tuple[object, ...]:
    """The state for pickle: shards, layout and attributes of a subclass, without gradients.

    Raises OnefoldTypeError for a global tensor of a launched world, of which no process has all
    shards.
    """
    if self.is_global and world().launched:
        raise OnefoldTypeError(
            "a global Tensor is not pickled, since its shards live on many processes; write it "
            "with flow.save(x, path, global_dst_rank=0) or flow.checkpoint.save, or pickle "
            "x.to_local()"
        )
    layout = (self.shape, self.placement, self.sbp) if self.is_global else None
    unique = {id(part): part.detach() for part in self.shards}  # replicas that are one stay one
    shards = tuple(unique[id(part)] for part in self.shards)
    return rebuild_tensor, (type(self), shards, layout, self.requires_grad, _own(self))


def rebuild_tensor(
    kind: type[Tensor],
    shards: Shards,
    layout: tuple[torch.Size, Placement, NdSbp] | None,
    requires_grad: bool,
    own: dict[str, object],
) -> Tensor:
    """The tensor that `reduce_tensor` took apart; a launched process keeps its own shard."""
    first = shards[0]
    if layout is None:
        meta = Meta.of(first.shape, first.dtype, device=first.device)
    else:
        shape, placement, nd_sbp = layout
        meta = Meta.of(shape, first.dtype, placement, nd_sbp)
        shards = tuple(shards[position] for position in placement.owned)
    return _made(kind, shards, meta, requires_grad, own)


@register_function
def deep_copy(self: Tensor, memo: dict[int, object]) -> Tensor:
    """A copy with its own memory; only leaves can be copied, as in torch."""
    if not self.is_leaf:
        raise OnefoldRuntimeError(
            "only tensors created explicitly by the user support deepcopy; use clone() for a "
            "tensor that was computed"
        )
    unique = {id(part): part.clone() for part in self.shards}
    shards = tuple(unique[id(part)] for part in self.shards)
    own = {name: copy.deepcopy(value, memo) for name, value in _own(self).items()}
    duplicate = _made(type(self), shards, self.meta, self.requires_grad, own)
    duplicate.shared = len(unique) < len(shards)
    memo[id(self)] = duplicate
    if self.grad is not None:
        duplicate.grad = deep_copy(self.grad.detach(), memo)
    return duplicate


@register_function
def shallow_copy(self: Tensor) -> Tensor:
    """Another tensor with the same value and memory, a leaf; a write to one changes both.

    A copy of a subclass, such as a Parameter, shares the memory until one of them is written.
    """
    if type(self) is Tensor:
        alias = detach(self)
        vars(alias).update(vars(self))
        return alias.requires_grad_() if self.requires_grad else alias
    self.shared = True
    return _made(type(self), own_tuple(self.shards), self.meta, self.requires_grad, _own(self))


def _made(
    kind: type[Tensor], shards: Shards, meta: Meta, requires_grad: bool, own: dict[str, object]
) -> Tensor:
    made: Tensor = object.__new__(kind)
    hold(made, shards, meta)
    made.shared = True
    for name, value in own.items():
        setattr(made, name, value)
    if requires_grad:
        set_requires_grad(made, True)
    return made


def _own(self: Tensor) -> dict[str, object]:
    """The attributes that a subclass adds."""
    found: dict[str, object] = dict(getattr(self, "__dict__", {}))
    for kind in type(self).__mro__[: type(self).__mro__.index(Tensor)]:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(self, name) and not name.startswith("__"):
                found[name] = getattr(self, name)
    return found
