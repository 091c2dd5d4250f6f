"""GradBucket: gradients of several parameters as one local tensor, for communication hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from ...distributed.world import world
from ...engine.convert import box
from ...engine.flat_buffer import unflatten
from ...engine.grad_mode import no_grad
from ...engine.sbp import broadcast, partial_sum
from ...engine.tensor import Tensor, from_shards
from ...engine.values import from_torch
from ...errors import OnefoldTypeError, OnefoldValueError

# Gets the state and the bucket, and gives a future of the tensor that takes the bucket's place.
Hook: TypeAlias = Callable[[Any, "GradBucket"], Any]


class GradBucket:
    """Gradients that a communication hook combines over the ranks.

    `buffer()` has the gradients of this rank's part of the batch one after the other, so that their
    mean over the ranks is the gradient.
    """

    def __init__(
        self, index: int, buffer: Tensor, params: Sequence[Tensor], is_last: bool = False
    ) -> None:
        self._index = index
        self._buffer = buffer
        self._params = list(params)
        self._is_last = is_last

    def index(self) -> int:
        """The number of the bucket; buckets leave in the order of these numbers."""
        return self._index

    def buffer(self) -> Tensor:
        """The gradients as one local tensor of one dim."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace what `buffer()` gives."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """Each parameter's part of the buffer, as a view in the parameter's shape."""
        sizes = [param.numel() for param in self._params]
        parts = self._buffer.split(sizes)
        return [part.view(*p.shape) for part, p in zip(parts, self._params, strict=True)]

    def parameters(self) -> list[Tensor]:
        """The parameters whose gradients the bucket has."""
        return list(self._params)

    def is_last(self) -> bool:
        """Whether it is the last bucket of the backward pass."""
        return self._is_last


def takes_hook(param: Tensor) -> bool:
    """Whether the gradient of a parameter is a mean over ranks: all have all of the parameter."""
    return param.is_global and all(sbp.is_broadcast for sbp in param.sbp)


def by_dtype(params: Sequence[Tensor]) -> list[list[Tensor]]:
    """The parameters in groups of one dtype."""
    found: dict[torch.dtype, list[Tensor]] = {}
    for param in params:
        found.setdefault(param.dtype, []).append(param)
    return list(found.values())


@no_grad
def combined(
    hook: Hook, state: Any, index: int, params: Sequence[Tensor], last: bool
) -> list[Tensor]:
    """The gradients of parameters of one dtype as a hook combines them, in their layouts."""
    parts = [_own(param) for param in params]
    if not params[0].shards:  # of a process whose rank is not among the placement's
        return [from_shards((), param.meta) for param in params]
    flat = torch.cat([part.reshape(-1) for part in parts if part is not None])
    bucket = GradBucket(index, from_torch(flat), params, last)
    flat = _result(hook(state, bucket), flat)
    count = len(params[0].shards)
    cut = unflatten([param.shape for param in params], (flat,) * count)
    grads = [from_shards(part, param.meta) for part, param in zip(cut, params, strict=True)]
    for grad in grads:
        grad.shared = True  # they are views of one buffer
    return grads


def _own(param: Tensor) -> torch.Tensor | None:
    """The gradient by this rank's part of the batch, of which the mean over ranks is the gradient.

    A process that has all ranks has one local tensor for all of them: the mean itself.
    """
    grad = param.grad
    assert grad is not None
    assert param.placement is not None
    axes = param.placement.ndim
    if not world().launched or all(sbp.is_broadcast for sbp in grad.sbp):
        grad = box(grad, grad.meta.like(nd_sbp=(broadcast,) * axes))
        return grad.shards[0] if grad.shards else None
    addend = box(grad, grad.meta.like(nd_sbp=(partial_sum,) * axes))
    return addend.shards[0] * param.placement.num_ranks if addend.shards else None


def _result(made: Any, like: torch.Tensor) -> torch.Tensor:
    """The value of a hook's future in the dtype of the gradients."""
    value = made.wait() if hasattr(made, "wait") else made
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Tensor) or value.is_global:
        raise OnefoldTypeError(
            "a communication hook must return a future of a local tensor, such as that of "
            f"dist.all_reduce(bucket.buffer(), async_op=True).get_future(), but gave {value!r}"
        )
    if value.numel() != like.numel():
        raise OnefoldValueError(
            f"a communication hook must give as many elements as bucket.buffer() has, "
            f"{like.numel()}, but gave a tensor of shape {tuple(value.shape)}"
        )
    return value.shards[0].reshape(-1).to(like.dtype)
