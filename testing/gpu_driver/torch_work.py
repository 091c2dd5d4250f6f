"""Counts what torch's operators compute or move, by the module that called them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .reserved_memory import is_blank, zeros

_ALLOCATIONS = set("empty empty_like empty_strided new_empty new_empty_strided".split())
_ZEROS = {"zeros": "empty", "zeros_like": "empty_like", "new_zeros": "new_empty"}
_COPIES = {"clone", "_to_copy"}  # of their first argument
# Memory without values, and views whose schema does not call them views.
_FREE = _ALLOCATIONS | set(
    "_unsafe_view _reshape_alias lift_fresh is_same_size set_ resize_ promote_types".split()
)


def is_work(function: OpOverload) -> bool:
    """Whether an operator of torch computes or moves values."""
    schema = function._schema
    if schema.name.removeprefix("aten::") in _FREE:
        return False
    aliases = [value.alias_info for value in schema.returns]
    return not (aliases and all(info is not None and not info.is_write for info in aliases))


class TorchWork(TorchDispatchMode):
    """While it is active, operators are counted, and new memory is zero.

    Memory takes no space until something is written, nor do copies of such memory.

    `seen` counts by the module of the package that called, and the operator.
    """

    def __init__(self, package: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.package = package
        self.seen: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self,
        function: OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        name = function._schema.name.removeprefix("aten::")
        given = dict(kwargs or {})
        allocate = _allocation(function, name, args, given)
        result = zeros(allocate, args, given) if allocate else function(*args, **given)
        tensors = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        if is_work(function) and (not tensors or any(_has_values(x) for x in tensors)):
            self.seen[self._caller(), name] += 1
        return result

    def _caller(self) -> str:
        """The module of the package that called; "" if none did."""
        frame = sys._getframe(2)
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith(f"{self.package}.") and module != __name__:
                return module.removeprefix(f"{self.package}.")
            frame = frame.f_back  # type: ignore[assignment]
        return ""


def _allocation(
    function: OpOverload, name: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> Callable[..., Any] | None:
    """What allocates the result of an operator, if its value is zero; else None.

    Arguments that only copies have are removed from `kwargs`.
    """
    if name in _ALLOCATIONS:
        return function
    if name in _ZEROS:
        return getattr(torch.ops.aten, _ZEROS[name])  # type: ignore[no-any-return]
    source = args[0] if args else None
    if name in _COPIES and type(source) is torch.Tensor and is_blank(source):
        kwargs.pop("non_blocking", None)
        return torch.ops.aten.empty_like
    return None


def _has_values(x: torch.Tensor) -> bool:
    return bool(x.numel()) and not x.is_meta
