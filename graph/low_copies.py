"""Low copies: parameters in half precision, which last from call to call.

The updates write them with the parameters. Whatever else changes a parameter makes its copy
stale; the next call then copies the parameter before it begins.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch

from ..engine.meta import Meta
from ..engine.tensor import Tensor, from_shards


class LowCopy:
    """A parameter's value in another dtype, in memory of its own."""

    __slots__ = ("__weakref__", "_known", "param", "tensor")

    def __init__(self, param: Tensor, meta: Meta) -> None:
        self.param = param
        self.tensor = from_shards((), meta)
        self._known: object = None  # what the parameter was when the copy was like it

    def refresh(self) -> None:
        """Copy the parameter if it has changed other than by writes that `note` was called for."""
        known = self._state()
        if self._known != known:
            made = {id(part): part.to(self.tensor.dtype) for part in self.param.shards}
            self.tensor.shards = tuple([made[id(part)] for part in self.param.shards])
            self._known = known

    def note(self) -> None:
        """Note that the parameter and the copy were written together."""
        self._known = self._state()

    def _state(self) -> tuple[int, ...]:
        """A key that changes with the parameter. Torch counts the changes that it makes itself."""
        parts = self.param.shards
        counts = [0 if part.is_inference() else part._version for part in parts]
        return (self.param.version, *map(id, parts), *counts)


# One for each parameter and dtype, as long as a program has it; a copy has its parameter.
_copies: WeakValueDictionary[tuple[int, torch.dtype], LowCopy] = WeakValueDictionary()


def low_copy(param: Tensor, meta: Meta) -> LowCopy:
    """The copy of a parameter in this dtype and layout, which programs share.

    The layout is the parameter's own when programs run; ZeRO may split it after they are compiled.
    """
    key = id(param), meta.dtype
    found = _copies.get(key)
    if found is None or found.tensor.meta is not meta:
        found = _copies[key] = LowCopy(param, meta)
    return found
