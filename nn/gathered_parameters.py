"""Parameters that are stored split and are whole while a module is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

import torch

from ..engine import autograd_tape, interpreter
from ..engine.autograd_function import Function
from ..engine.checkpoint import kept_variables
from ..engine.convert import to_global
from ..engine.grad_mode import no_grad
from ..engine.saved_tensors import saved_tensors_hooks
from ..engine.sbp import NdSbp
from ..engine.tensor import Tensor
from ..errors import AutogradError, OnefoldRuntimeError

# Whether modules are called with tensors of this rank, or of its own group of ranks.
on_own_tensors: ContextVar[bool] = ContextVar("on_own_tensors", default=False)
kept_variables.append(on_own_tensors)


class Gather(NamedTuple):
    """A parameter in the table of its module, and its layout while it is used.

    With `reshard_after_forward` backward gathers it once more; otherwise the tape keeps it. It is
    gathered in `dtype`, and its gradient summed in `grad_dtype`, if they are given. Calls
    `on_own_tensors` use what `own` makes of it.
    """

    table: dict[str, Any]
    name: str
    sbp: NdSbp
    reshard_after_forward: bool
    dtype: torch.dtype | None = None
    grad_dtype: torch.dtype | None = None
    own: Callable[[Tensor], Tensor] | None = None
    uses_own: bool = False

    def changes(self, param: Tensor) -> bool:
        """Whether it is used in another layout or dtype than that in which it is stored."""
        return param.sbp != self.sbp or self.dtype not in (None, param.dtype) or self.uses_own

    def whole(self, param: Tensor) -> Tensor:
        """The parameter as it is used."""
        used = to_global(
            param if self.dtype is None else param.to(self.dtype),
            sbp=self.sbp,
            grad_sbp=param.sbp,
        )
        if self.grad_dtype not in (None, used.dtype) and used.requires_grad:
            used = gradient_in(used, self.grad_dtype)
        return self.own(used) if self.uses_own and self.own is not None else used


def gradient_in(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """x, with a gradient that is cast to a dtype."""
    return cast("Tensor", _CastGradient.apply(x, dtype))


class _CastGradient(Function):
    """x, with a gradient in another dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.dtype = dtype
        return x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return dy.to(ctx.dtype), None


@contextmanager
def gathered(places: Sequence[Gather]) -> Iterator[None]:
    """A block in which these parameters are whole, while the tape saves their shards.

    Raises OnefoldRuntimeError where the block changed one of them, since the shards stay as before.
    """
    before: list[_Gathered] = []
    # A program plans its memory itself.
    keeping = _Keeping() if interpreter.is_grad_enabled() and not interpreter.capturing() else None
    own = on_own_tensors.get()
    try:
        for place in places:
            if own and place.own is not None:
                place = place._replace(uses_own=True)
            param: Tensor | None = place.table.get(place.name)
            if param is not None and param.is_global and place.changes(param):
                whole = place.whole(param)
                before.append(_Gathered(place, param, whole, whole.version))
                place.table[place.name] = whole
                if keeping is not None and place.reshard_after_forward:
                    keeping.add(place, param, whole)
        if keeping is None or keeping.is_empty:
            yield
        else:
            with saved_tensors_hooks(keeping.pack, keeping.unpack):
                yield
        changed = [each.place.name for each in before if each.is_changed]
    finally:
        for each in before:
            each.place.table[each.place.name] = each.param
        if keeping is not None:
            keeping.forget()
    if changed:
        raise OnefoldRuntimeError(
            f"{', '.join(changed)} changed while the module was called, but stored split "
            "(shard_), so that the change would be lost; change it outside of the call"
        )


class _Gathered(NamedTuple):
    """A parameter that is gathered now, and the version of its shards."""

    place: Gather
    param: Tensor
    whole: Tensor
    version: int

    @property
    def is_changed(self) -> bool:
        found = self.place.table.get(self.place.name)
        return found is not self.whole or found.version != self.version


class _Shards(NamedTuple):
    """The replacement of a gathered parameter on the tape."""

    place: Gather
    param: Tensor
    version: int


class _Keeping:
    """Saves shards instead of gathered parameters on the tape, and gathers them in backward."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Tensor, _Shards]] = {}  # by id of the first shard
        self._outer = autograd_tape.saved_hooks.last

    @property
    def is_empty(self) -> bool:
        return not self._kept

    def add(self, place: Gather, param: Tensor, whole: Tensor) -> None:
        if whole.shards:
            shards = _Shards(place, param, param.version)
            self._kept[id(whole.shards[0])] = whole, shards

    def forget(self) -> None:
        """Release what is gathered; backward needs only the shards."""
        self._kept.clear()

    def pack(self, tensor: Tensor) -> object:
        found = self._kept.get(id(tensor.shards[0])) if tensor.shards else None
        if found is not None and found[0].meta is tensor.meta:
            return found[1]
        return tensor if self._outer is None else self._outer[0](tensor)

    def unpack(self, packed: Any) -> Tensor:
        if not isinstance(packed, _Shards):
            return packed if self._outer is None else self._outer[1](packed)
        if packed.param.version != packed.version:
            raise AutogradError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: a parameter that is stored split was changed after the module "
                "was called"
            )
        with no_grad():
            return packed.place.whole(packed.param)
