"""Optimizer: how a job updates its variables; `minimize` in its function says with what loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError
from ..optim import SGD as _SGD
from ..optim import AdamW as _AdamW
from ..optim.grad_scaler import StaticGradScaler
from ..optim.optimizer import Optimizer as _Optimizer
from . import grad_clipping, loss_scale, warmup
from .blob import Blob
from .schedules import (
    CosineScheduler,
    CustomScheduler,
    ExponentialScheduler,
    InverseTimeScheduler,
    LinearCosineScheduler,
    NaturalExpScheduler,
    PiecewiseConstantScheduler,
    PiecewiseScalingScheduler,
    PolynomialScheduler,
    Schedule,
)
from .tracing import tracing

__all__ = [
    "SGD",
    "SGDW",
    "Adam",
    "AdamW",
    "CosineScheduler",
    "CustomScheduler",
    "ExponentialScheduler",
    "InverseTimeScheduler",
    "LazyAdam",
    "LinearCosineScheduler",
    "NaturalExpScheduler",
    "Optimizer",
    "PiecewiseConstantScheduler",
    "PiecewiseScalingScheduler",
    "PolynomialScheduler",
    "grad_clipping",
    "loss_scale",
    "warmup",
]

Make = Callable[[Sequence[dict[str, Any]], float], _Optimizer]


@dataclass(frozen=True)
class Optimizer:
    """A rule of updating with its learning rates, clipping and loss scale."""

    name: str
    schedule: Schedule
    make: Make  # the engine's optimizer for groups of variables, and a first rate
    clipping: grad_clipping.GlobalNorm | None = None
    scale: StaticGradScaler | None = None
    excludes: tuple[str, ...] = ()  # variables with these in their names are not decayed

    def minimize(self, loss: Blob | Sequence[Blob]) -> None:
        """Let every call of the job end with an update that makes `loss` smaller.

        It begins from the mean over all elements of the loss, of all devices together.
        """
        job = tracing(f"optimizer.{self.name}.minimize")
        losses: list[Any] = list(loss) if isinstance(loss, (list, tuple)) else [loss]
        if not losses or not all(isinstance(each, Blob) for each in losses):
            raise OnefoldTypeError(f"minimize needs a blob or a list of blobs, but got {loss!r}")
        job.set_optimizer(self)
        job.add_losses(losses)

    def groups(
        self, variables: dict[str, Tensor], second_rate: float | None, second: set[str]
    ) -> list[dict[str, Any]]:
        """The variables as groups of one rate and one decay.

        `second_rate` is the rate of the variables in `second`, if they have their own.
        """
        made: dict[tuple[bool, bool], dict[str, Any]] = {}
        for name, tensor in variables.items():
            plain = any(word in name for word in self.excludes)
            scaled = second_rate is not None and name in second
            group = made.setdefault((plain, scaled), {"params": []})
            group["params"].append(tensor)
            if plain:
                group["weight_decay"] = 0.0
            if scaled and second_rate is not None:
                group["lr_scale"] = second_rate / self.schedule.base_lr
            if self.clipping is not None:
                group["clip_grad_max_norm"] = self.clipping.clip_norm
        return list(made.values())


def _optimizer(
    name: str,
    lr_scheduler: Schedule,
    make: Make,
    loss_scale_factor: float | None,
    grad_clipping: Any,
    train_step_lbn: str | None,
    loss_scale_policy: StaticGradScaler | None,
    excludes: Sequence[str] | str | None = None,
) -> Optimizer:
    if not isinstance(lr_scheduler, Schedule):
        raise OnefoldTypeError(
            f"{name} needs a schedule, such as flow.optimizer.PiecewiseConstantScheduler([], "
            f"[0.1]), but got {lr_scheduler!r}"
        )
    if train_step_lbn is not None:
        raise OnefoldTypeError(
            f"{name}: train_step_lbn names a blob that counts steps; a job counts its own here, so "
            "leave it out"
        )
    scale = loss_scale_policy
    if scale is None and loss_scale_factor is not None:
        scale = StaticGradScaler(float(loss_scale_factor))
    words = (excludes,) if isinstance(excludes, str) else tuple(excludes or ())
    return Optimizer(name, lr_scheduler, make, grad_clipping, scale, words)


def SGD(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    loss_scale_factor: float | None = None,
    momentum: float = 0.9,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """Gradient descent; with momentum 0.9 unless another is given."""
    return _optimizer(
        "SGD", lr_scheduler,
        lambda groups, lr: _SGD(groups, lr=lr, momentum=momentum),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
    )  # fmt: skip


def SGDW(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    loss_scale_factor: float | None = None,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    weight_decay_includes: Sequence[str] | str | None = None,
    weight_decay_excludes: Sequence[str] | str | None = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """SGD with weight decay. Source: Loshchilov and Hutter (2019)."""
    _no_includes("SGDW", weight_decay_includes)
    return _optimizer(
        "SGDW", lr_scheduler,
        lambda groups, lr: _SGD(groups, lr=lr, momentum=momentum, weight_decay=weight_decay),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, weight_decay_excludes,
    )  # fmt: skip


def Adam(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    do_bias_correction: bool = False,
    loss_scale_factor: float | None = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """Adam, without bias correction unless it is asked for. Source: Kingma and Ba (2015)."""
    return AdamW(
        lr_scheduler, beta1, beta2, epsilon, do_bias_correction, loss_scale_factor, 0.0, None,
        None, grad_clipping, train_step_lbn, loss_scale_policy,
    )  # fmt: skip


def LazyAdam(*args: Any, **options: Any) -> Optimizer:  # noqa: N802 (the name that programs use)
    """Adam: gradients of embeddings are dense here, so there are no rows to leave out."""
    return Adam(*args, **options)


def AdamW(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    do_bias_correction: bool = False,
    loss_scale_factor: float | None = None,
    weight_decay: float = 0.0,
    weight_decay_includes: Sequence[str] | str | None = None,
    weight_decay_excludes: Sequence[str] | str | None = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """Adam with weight decay. Source: Loshchilov and Hutter (2019)."""
    _no_includes("AdamW", weight_decay_includes)
    return _optimizer(
        "AdamW", lr_scheduler,
        lambda groups, lr: _AdamW(
            groups, lr=lr, betas=(beta1, beta2), eps=epsilon, weight_decay=weight_decay,
            do_bias_correction=do_bias_correction,
        ),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, weight_decay_excludes,
    )  # fmt: skip


def _no_includes(name: str, includes: object) -> None:
    if includes:
        raise OnefoldTypeError(
            f"{name}: weight_decay_includes is not offered; name the others, which are not "
            "decayed, with weight_decay_excludes"
        )
