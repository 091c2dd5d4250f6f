"""Optimizers of jobs, each with a schedule of learning rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import optim
from ..optim import elementwise_rules
from ..optim.grad_scaler import StaticGradScaler
from ..optim.momentum import Momentum
from . import grad_clipping, job_loss_scale as loss_scale, warmup
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
from .update_rule import Optimizer, Words, rule

__all__ = [
    "LAMB",
    "LARS",
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
    "RMSProp",
    "grad_clipping",
    "loss_scale",
    "warmup",
]


def SGD(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    loss_scale_factor: float | None = None,
    momentum: float = 0.9,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """Gradient descent; with momentum 0.9 unless another is given."""
    return rule(
        "SGD", lr_scheduler,
        lambda groups, lr: _sgd(groups, lr, momentum, 0.0),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
    )  # fmt: skip


def SGDW(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    loss_scale_factor: float | None = None,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    weight_decay_includes: Words = None,
    weight_decay_excludes: Words = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """SGD with weight decay. Source: Loshchilov and Hutter (2019)."""
    return rule(
        "SGDW", lr_scheduler,
        lambda groups, lr: _sgd(groups, lr, momentum, weight_decay),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
        weight_decay_includes, weight_decay_excludes,
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
    return rule(
        "Adam", lr_scheduler,
        lambda groups, lr: optim.Adam(
            groups, lr=lr, betas=(beta1, beta2), eps=epsilon, do_bias_correction=do_bias_correction
        ),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
    )  # fmt: skip


def AdamW(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    do_bias_correction: bool = False,
    loss_scale_factor: float | None = None,
    weight_decay: float = 0.0,
    weight_decay_includes: Words = None,
    weight_decay_excludes: Words = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """Adam with weight decay. Source: Loshchilov and Hutter (2019)."""
    return rule(
        "AdamW", lr_scheduler,
        lambda groups, lr: optim.AdamW(
            groups, lr=lr, betas=(beta1, beta2), eps=epsilon, weight_decay=weight_decay,
            do_bias_correction=do_bias_correction,
        ),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
        weight_decay_includes, weight_decay_excludes,
    )  # fmt: skip


def LazyAdam(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    loss_scale_factor: float | None = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """Adam: gradients of embeddings are dense here, so there are no rows to leave out."""
    return rule(
        "LazyAdam", lr_scheduler,
        lambda groups, lr: optim.Adam(
            groups, lr=lr, betas=(beta1, beta2), eps=epsilon, do_bias_correction=False
        ),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
    )  # fmt: skip


def RMSProp(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    decay_rate: float = 0.99,
    epsilon: float = 1e-8,
    centered: bool = False,
    loss_scale_factor: float | None = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
) -> Optimizer:
    """RMSProp, with epsilon in the root. Source: Tieleman and Hinton (2012)."""
    return rule(
        "RMSProp", lr_scheduler,
        lambda groups, lr: optim.RMSprop(
            groups, lr=lr, alpha=decay_rate, eps=epsilon, centered=centered, eps_in_root=True
        ),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
    )  # fmt: skip


def LARS(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    momentum_beta: float = 0.9,
    epsilon: float = 1e-9,
    lars_coefficient: float = 0.0001,
    loss_scale_factor: float | None = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
    *,
    weight_decay: float = 0.0,
    weight_decay_includes: Words = None,
    weight_decay_excludes: Words = None,
) -> Optimizer:
    """Rates by the norms of variables and gradients. Source: You et al. (2017)."""
    return rule(
        "LARS", lr_scheduler,
        lambda groups, lr: optim.LARS(
            groups, lr=lr, momentum=momentum_beta, eps=epsilon, lars_coefficient=lars_coefficient,
            weight_decay=weight_decay,
        ),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
        weight_decay_includes, weight_decay_excludes,
    )  # fmt: skip


def LAMB(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    loss_scale_factor: float | None = None,
    grad_clipping: Any = None,
    train_step_lbn: str | None = None,
    loss_scale_policy: StaticGradScaler | None = None,
    *,
    weight_decay: float = 0.0,
    weight_decay_includes: Words = None,
    weight_decay_excludes: Words = None,
) -> Optimizer:
    """Adam's direction, as long as the variable. Source: You et al. (2020)."""
    return rule(
        "LAMB", lr_scheduler,
        lambda groups, lr: optim.LAMB(
            groups, lr=lr, betas=(beta1, beta2), eps=epsilon, weight_decay=weight_decay
        ),
        loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
        weight_decay_includes, weight_decay_excludes,
    )  # fmt: skip


def __getattr__(name: str) -> Callable[..., Optimizer]:
    """The optimizers of `optim/elementwise_rules.py` by their names, with their own options."""
    if name not in elementwise_rules.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    engine: type[elementwise_rules.ElementwiseRule] = getattr(elementwise_rules, name)

    def made(
        lr_scheduler: Schedule,
        loss_scale_factor: float | None = None,
        grad_clipping: Any = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: StaticGradScaler | None = None,
        *,
        weight_decay: float = 0.0,
        weight_decay_includes: Words = None,
        weight_decay_excludes: Words = None,
        **options: float,
    ) -> Optimizer:
        return rule(
            name, lr_scheduler,
            lambda groups, lr: engine(
                groups, lr=lr, weight_decay=weight_decay, maximize=False, **options
            ),
            loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
            weight_decay_includes, weight_decay_excludes,
        )  # fmt: skip

    made.__name__ = name
    made.__doc__ = engine.__doc__
    return made


def _sgd(
    groups: Sequence[dict[str, Any]], lr: float, momentum: float, weight_decay: float
) -> optim.Optimizer:
    if not momentum:
        return optim.SGD(groups, lr=lr, weight_decay=weight_decay)
    return Momentum(groups, lr=lr, momentum=momentum, weight_decay=weight_decay)
