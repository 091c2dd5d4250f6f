"""Casts of parameters under autocast: once in a block, and those of a model in one launch.

A block remembers which parameters it cast. The next one casts all of them when it needs the first,
where Triton does the work: a launch for each would take longer than the GPU works on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from ..kernels import optim_ref
from ..kernels.memory_format_ref import format_of
from ..kernels.select import pick, uses_triton
from . import interpreter
from .autograd_tape import Leaf
from .meta import Meta
from .names import names
from .tensor import Shards, Tensor, from_shards

_Key = tuple[int, torch.dtype]  # the id of a parameter, and the dtype of the cast


class _CachedCast(NamedTuple):
    """A parameter's cast, and the state of the parameter at that time."""

    param: Tensor
    shards: Shards
    version: int
    cast: Tensor

    @property
    def is_current(self) -> bool:
        return self.shards is self.param.shards and self.version == self.param.version


class _Together:
    """Parameters that are cast in the same blocks; a block that does not use some splits them."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = WeakKeyDictionary[Leaf, None](dict.fromkeys(leaves))
        for leaf in leaves:
            leaf.cast_with = self


class ParameterCasts:
    """The casts of an outermost block of autocast, and of the blocks inside it."""

    def __init__(self) -> None:
        self._cache: dict[_Key, _CachedCast] = {}
        self._used: dict[Leaf, None] = {}  # in order
        self._triton: dict[str, bool] = {}  # whether it does the work, by type of device

    def of(self, param: Tensor, leaf: Leaf, dtype: torch.dtype, observed: bool) -> Tensor:
        """The cast of a parameter. With `observed` each cast is an op of its own."""
        self._used[leaf] = None
        key = id(param), dtype
        kept = self._cache.get(key)
        if kept is None or not kept.is_current:
            params = [param]
            if not observed and self.uses_triton(param.meta):
                params += self._due_with(param, leaf, dtype)
            if len(params) > 1:
                parts = [each.shards[0] for each in params]
                made = pick(optim_ref.cast_each, param.meta.device_type)(parts, dtype)
                casts = [
                    from_shards((part,), each.meta.like(dtype=dtype))
                    for each, part in zip(params, made, strict=True)
                ]
            else:
                with interpreter.grad_mode(False):
                    casts = [names.cast(param, dtype)]
            for each, cast in zip(params, casts, strict=True):
                self._cache[id(each), dtype] = _CachedCast(each, each.shards, each.version, cast)
            kept = self._cache[key]
        return kept.cast

    def uses_triton(self, x: Meta) -> bool:
        """Whether Triton kernels run on the device of such a tensor."""
        found = self._triton.get(x.device_type)
        if found is None:
            found = self._triton[x.device_type] = uses_triton(x.device_type)
        return found

    def _due_with(self, param: Tensor, leaf: Leaf, dtype: torch.dtype) -> list[Tensor]:
        """The other parameters to cast together with this one."""
        group = leaf.cast_with
        if not isinstance(group, _Together) or not _is_dense(param):
            return []
        found = []
        for other in list(group.leaves):
            each = other.tensor()
            if each is None or each is param or each.node is not other or not _is_dense(each):
                continue
            if each.dtype is not param.dtype or each.shards[0].device != param.shards[0].device:
                continue
            kept = self._cache.get((id(each), dtype))
            if kept is None or not kept.is_current:
                found.append(each)
        return found

    def end(self) -> None:
        """Make the next blocks cast together what this one used."""
        if True not in self._triton.values():
            return
        groups: dict[object, list[Leaf]] = {}
        for leaf in self._used:
            groups.setdefault(leaf.cast_with, []).append(leaf)
        for group, mine in groups.items():
            if not isinstance(group, _Together):
                _Together(mine)
            elif rest := [leaf for leaf in group.leaves if leaf not in self._used]:
                _Together(mine)
                _Together(rest)


def _is_dense(param: Tensor) -> bool:
    meta = param.meta
    one = len(param.shards) == 1 and meta.has_data and not meta.partial
    return one and format_of(param.shards[0]) is not None
