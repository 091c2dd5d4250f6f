"""saved_tensors_hooks: user functions that pack and unpack what the tape saves for backward."""

from __future__ import annotations

from . import autograd_tape
from .autograd_tape import Pack, Unpack
from .tensor import Tensor
from .views import frozen


class saved_tensors_hooks:
    """In the block, tensors saved for backward are kept as `pack(tensor)`.

    Backward gets them back as `unpack(packed)`, which must have the same value and layout: for
    keeping activations in a file, on another device or in less precision.

    >>> import onefold as flow
    >>> seen = []
    >>> x = flow.tensor([2.0], requires_grad=True)
    >>> with flow.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
    ...     y = x * x
    >>> len(seen)
    2
    """

    def __init__(self, pack: Pack, unpack: Unpack) -> None:
        self._pack = pack
        self._unpack = unpack

    def __enter__(self) -> None:
        autograd_tape.saved_hooks.push((self._keep, self._unpack))

    def __exit__(self, *exc: object) -> None:
        autograd_tape.saved_hooks.pop()

    def _keep(self, tensor: Tensor) -> object:
        """Pack a new tensor, so that in-place changes of the saved one do not matter."""
        return self._pack(frozen(tensor))
