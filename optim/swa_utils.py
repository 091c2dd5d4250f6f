"""Averages of a model's parameters over training: stochastic weight averaging and moving averages.

This module is a layer above `nn`, because it copies modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias

import torch

from ..engine.argument_types import DeviceLike
from ..engine.grad_mode import no_grad
from ..engine.inplace import copy_
from ..engine.ops.creation import tensor
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..nn.module import Module
from ..nn.running_norm import BatchNorm
from .lr_scheduler.swa_lr import SWALR

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]
Averages: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor], int], None]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A function for the exponential moving average of a parameter.

    Raises OnefoldValueError unless `decay` is in [0, 1].
    """
    _check_decay(decay)

    @no_grad
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: int) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Average:
    """A function for the mean of a parameter over all updates."""

    @no_grad
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: int) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """The same as `get_ema_avg_fn` for lists of parameters, in place."""
    _check_decay(decay)

    @no_grad
    def ema_update(
        ema_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], _: int
    ) -> None:
        for ema, current in zip(ema_param_list, current_param_list, strict=True):
            if ema.dtype.is_floating_point or ema.dtype.is_complex:
                copy_(ema, ema + (1 - decay) * (current - ema))
            else:
                copy_(ema, ema * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Averages:
    """The same as `get_swa_avg_fn` for lists of parameters, in place."""

    @no_grad
    def swa_update(
        averaged_param_list: Sequence[Tensor],
        current_param_list: Sequence[Tensor],
        num_averaged: int,
    ) -> None:
        share = 1 / (num_averaged + 1)
        for averaged, current in zip(averaged_param_list, current_param_list, strict=True):
            copy_(averaged, averaged + share * (current - averaged))

    return swa_update


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise OnefoldValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's: SWA and EMA.

    Izmailov et al., "Averaging weights leads to wider optima and better generalization" (2018). The
    first `update_parameters(model)` copies the parameters; each later one averages them, with equal
    weights, or by `avg_fn(averaged, current, number of updates)`, or by `multi_avg_fn` on lists in
    place. With `use_buffers` buffers are averaged, too, else copied. The arguments and the state
    are torch's. Raises OnefoldValueError if both functions are given.

    >>> import onefold as flow
    >>> model = flow.nn.Linear(1, 1, bias=False)
    >>> averaged = flow.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     model.weight.data.fill_(value).shape and averaged.update_parameters(model)
    >>> averaged.module.weight.item()
    3.0
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: DeviceLike | None = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise OnefoldValueError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=torch.int64))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @no_grad
    def update_parameters(self, model: Module) -> None:
        """Take the model's present parameters into the averages."""
        done = int(self.n_averaged.item())
        averaged, current = _averaged(self.module, self), _averaged(model, self)
        if not done:
            for mine, value in zip(averaged, current, strict=True):
                copy_(mine, value)
        elif self.multi_avg_fn is not None:
            self.multi_avg_fn(averaged, current, done)
        else:
            average = self.avg_fn or get_swa_avg_fn()
            for mine, value in zip(averaged, current, strict=True):
                copy_(mine, average(mine, value, done))
        if not self.use_buffers:
            for mine, value in zip(self.module.buffers(), model.buffers(), strict=True):
                copy_(mine, value)
        self.n_averaged.add_(1)


def _averaged(model: Module, how: AveragedModel) -> list[Tensor]:
    tensors = chain(model.parameters(), model.buffers() if how.use_buffers else ())
    return [tensor.detach() for tensor in tensors]


@no_grad
def update_bn(loader: Iterable[Any], model: Module, device: DeviceLike | None = None) -> None:
    """Recompute the running statistics of the model's BatchNorm layers, in one pass over data.

    A batch is a tensor, or a list or tuple whose first element is one.
    """
    momenta: dict[BatchNorm, float | None] = {}
    for layer in model.modules():
        if isinstance(layer, BatchNorm):
            layer.reset_running_stats()
            momenta[layer] = layer.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for layer in momenta:
        layer.momentum = None
    try:
        for batch in loader:
            data = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(data if device is None else data.to(device))
    finally:
        for layer, momentum in momenta.items():
            layer.momentum = momentum
        model.train(was_training)
