"""saved_tensors_hooks: user functions that pack and unpack what the tape saves for backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import AutogradError
from . import autograd_tape
from .autograd_tape import Pack, Unpack
from .multi_grad_hooks import register_multi_grad_hook
from .tensor import Tensor, tensor_ops
from .thread_stack import ThreadStack
from .views import frozen

__all__ = [
    "disable_saved_tensors_hooks",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

# Why hooks of saved tensors cannot be used, in the blocks around this thread.
_disabled = ThreadStack[str]("disabled_hooks")


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which `saved_tensors_hooks` raise AutogradError with this message."""
    _disabled.push(error_message)
    try:
        yield
    finally:
        _disabled.pop()


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
        if _disabled.last is not None:
            raise AutogradError(_disabled.last)
        autograd_tape.saved_hooks.push((self._keep, self._unpack))

    def __exit__(self, *exc: object) -> None:
        autograd_tape.saved_hooks.pop()

    def _keep(self, tensor: Tensor) -> object:
        """Pack a new tensor, so that in-place changes of the saved one do not matter."""
        return self._pack(frozen(tensor))


class save_on_cpu(saved_tensors_hooks):
    """In the block, tensors saved for backward are kept in the CPU's memory.

    Backward brings them back to their devices. In an `nn.Graph`, modules do the same with
    `activation_offloading`. With `pin_memory` the copies are in pinned memory.

    >>> import onefold as flow
    >>> x = flow.tensor([2.0], requires_grad=True)
    >>> with flow.autograd.graph.save_on_cpu():
    ...     y = x * x
    >>> flow.autograd.grad(y, x)
    (tensor([4.]),)
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(x: Tensor) -> tuple[object, Tensor]:
            if x.meta.device_type != device_type:
                return None, x
            there = x.device if x.is_local else x.placement
            kept = tensor_ops.cpu(x)
            return there, tensor_ops.pin_memory(kept) if pin_memory else kept

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            there, x = packed
            if there is None:
                return x
            return tensor_ops.to(x, there) if x.is_local else tensor_ops.to_global(x, there)

        super().__init__(pack, unpack)
