"""Search arguments: the checks of what a search is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TypeAlias

import torch

from ..engine.meta import Meta
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from ..graph.graph_config import GraphConfig
from ..graph.hardware import Hardware
from ..graph.schedules.named_schedules import schedule_named
from ..nn.module import Module
from ..optim.optimizer import Optimizer
from .training_task import Task

Batch: TypeAlias = "Tensor | torch.Tensor | Sequence[Tensor | torch.Tensor]"


def task_of(
    build_model: Callable[[], Module],
    batch: object,
    loss: Callable[..., Tensor],
    optimizer: Callable[..., Optimizer],
    amp: torch.dtype | None,
    device: str,
) -> Task:
    """What is searched for. Raises OnefoldTypeError and OnefoldValueError for what is none."""
    for what, given in (("build_model", build_model), ("loss", loss), ("optimizer", optimizer)):
        if not callable(given):
            raise OnefoldTypeError(f"search: {what} must be a function, but got {given!r}")
    tensors = [batch] if isinstance(batch, (Tensor, torch.Tensor)) else batch
    if not isinstance(tensors, Sequence) or not tensors:
        raise OnefoldTypeError(f"search: batch must be a tensor or several, but got {batch!r}")
    metas = []
    for each in tensors:
        if not isinstance(each, (Tensor, torch.Tensor)):
            raise OnefoldTypeError(f"search: batch must be tensors, but has {each!r}")
        if each.ndim == 0:
            raise OnefoldValueError(
                "search: every tensor of the batch has the batch as dim 0, but one is a number"
            )
        shape = tuple(each.shape)
        metas.append(Meta.of(shape, each.dtype, device=torch.device("meta")))
    rows = {meta.shape[0] for meta in metas}
    if len(rows) > 1:
        shapes = ", ".join(str(tuple(meta.shape)) for meta in metas)
        raise OnefoldValueError(
            f"search: the tensors of a batch have one size of dim 0, but got {shapes}"
        )
    GraphConfig().enable_amp(amp is not None, dtype=torch.bfloat16 if amp is None else amp)
    name = None if amp is None else str(amp).removeprefix("torch.")
    return Task(build_model, loss, optimizer, tuple(metas), name, device)


def check_model(model: object) -> None:
    """Raise for what is no module, or one that is laid out already."""
    if not isinstance(model, Module):
        raise OnefoldTypeError(
            "search: build_model() must return an onefold.nn.Module, but returned "
            f"{type(model).__name__}"
        )
    placed = [name for name, param in model.named_parameters() if param.is_global]
    if placed:
        raise OnefoldValueError(
            f"search: build_model() must make the model as for one device, but {placed[0]} is "
            "global; leave placement= and sbp= out"
        )


def budget_of(hardware: Hardware, memory: object) -> int:
    """The bytes of each rank."""
    if memory is None:
        return hardware.memory_bytes
    if isinstance(memory, bool) or not isinstance(memory, (int, float)) or not 0 < memory < inf:
        raise OnefoldValueError(
            f"search: memory must be a positive number of bytes of each rank, but got {memory!r}"
        )
    return int(memory)


def names_of(schedules: Sequence[str]) -> tuple[str, ...]:
    """The schedules, which are known."""
    for name in schedules:
        schedule_named(name)
    return tuple(schedules)
