"""Graph checks: the optimizers, schedules and scalers that a graph can use."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ..optim.grad_scaler import StaticGradScaler
from ..optim.lr_scheduler import LRScheduler
from ..optim.optimizer import Optimizer


def check_optimizer(optim: object, schedule: object, others: Sequence[Optimizer]) -> None:
    """Raise an error for an optimizer that `add_optimizer` cannot add to the others."""
    if not isinstance(optim, Optimizer):
        raise OnefoldTypeError(
            f"add_optimizer needs an onefold optimizer, but got {type(optim).__name__}"
        )
    if optim.needs_closure:
        raise OnefoldRuntimeError(
            f"add_optimizer: {type(optim).__name__} evaluates the loss several times in a "
            "step, which a graph cannot; call optimizer.step(closure) in eager mode, or add "
            "another optimizer"
        )
    if schedule is not None and not isinstance(schedule, LRScheduler):
        raise OnefoldTypeError(
            "add_optimizer: lr_sch must be a scheduler of flow.optim.lr_scheduler whose rates "
            f"depend on the step alone, but got {type(schedule).__name__}"
        )
    if schedule is not None and schedule.optimizer is not optim:
        raise OnefoldValueError(
            f"add_optimizer: lr_sch is a schedule of another {type(schedule.optimizer).__name__}"
            ", so it would not change this optimizer's learning rates; make it for this one"
        )
    if any(optim is other for other in others):
        raise OnefoldValueError("this optimizer was added to the graph already")


def check_scaler(scaler: object) -> None:
    """Raise OnefoldTypeError for a scaler that `set_grad_scaler` cannot use."""
    if not isinstance(scaler, StaticGradScaler):
        raise OnefoldTypeError(
            "set_grad_scaler needs a flow.amp.GradScaler or flow.amp.StaticGradScaler, but got "
            f"{type(scaler).__name__}"
        )
