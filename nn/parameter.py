"""Parameter and Buffer: tensors that belong to the module they are assigned to."""

from __future__ import annotations

from ..engine.grad_attributes import set_requires_grad
from ..engine.own_shards import own_tuple
from ..engine.tensor import Tensor, hold
from ..engine.values import describe
from ..errors import OnefoldTypeError


class Parameter(Tensor):
    """A leaf tensor that becomes a parameter of the module it is assigned to.

    Keeps the placement and sbp of `data`. Raises OnefoldTypeError when `data` is no Tensor.

    >>> import onefold as flow
    >>> flow.nn.Parameter(flow.zeros(2)).requires_grad
    True
    """

    __slots__ = ()

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        _share(self, data)
        if requires_grad:
            set_requires_grad(self, True)

    def __repr__(self, *args: object) -> str:
        return f"Parameter containing:\n{describe(self)}"


class Buffer(Tensor):
    """A tensor that becomes a buffer of the module it is assigned to.

    One that is not `persistent` is no part of the state dict. Raises OnefoldTypeError when `data`
    is no Tensor.
    """

    __slots__ = ("persistent",)

    def __init__(self, data: Tensor, *, persistent: bool = True) -> None:
        _share(self, data)
        self.persistent = persistent


def _share(made: Tensor, data: Tensor) -> None:
    """Initialize a new tensor with the shards of another."""
    if not isinstance(data, Tensor):
        raise OnefoldTypeError(
            f"nn.{type(made).__name__} needs an onefold Tensor, but got {type(data).__name__}; "
            "make one with flow.tensor(data)"
        )
    hold(made, own_tuple(data.shards), data.meta)
    data.shared = made.shared = True
