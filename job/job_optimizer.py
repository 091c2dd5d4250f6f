"""Optimizers of jobs: the names and arguments of OneFlow's, each with a schedule of learning rates.

All take `loss_scale_factor` and the arguments of `Common`, those with weight decay of `Decayed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from .. import optim
from ..optim import elementwise_rules
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
from .update_rule import Common, Decayed, Optimizer, rule

__all__ = [
    "LAMB", "LARS", "SGD", "SGDW", "Adam", "AdamW", "CosineScheduler", "CustomScheduler",
    "ExponentialScheduler", "InverseTimeScheduler", "LazyAdam", "LinearCosineScheduler",
    "NaturalExpScheduler", "Optimizer", "PiecewiseConstantScheduler",
    "PiecewiseScalingScheduler", "PolynomialScheduler", "RMSProp", "grad_clipping", "loss_scale",
    "warmup",
]  # fmt: skip


def SGD(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    loss_scale_factor: float | None = None,
    momentum: float = 0.9,
    **common: Unpack[Common],
) -> Optimizer:
    """Gradient descent; with momentum 0.9 unless another is given."""
    engine, options = _sgd(momentum)
    return rule("SGD", lr_scheduler, engine, options, loss_scale_factor, **common)


def SGDW(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    loss_scale_factor: float | None = None,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    **common: Unpack[Decayed],
) -> Optimizer:
    """SGD with weight decay. Source: Loshchilov and Hutter (2019)."""
    engine, options = _sgd(momentum)
    options["weight_decay"] = weight_decay
    return rule("SGDW", lr_scheduler, engine, options, loss_scale_factor, **common)


def Adam(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    do_bias_correction: bool = False,
    loss_scale_factor: float | None = None,
    **common: Unpack[Common],
) -> Optimizer:
    """Adam, without bias correction unless it is asked for. Source: Kingma and Ba (2015)."""
    options = {"betas": (beta1, beta2), "eps": epsilon, "do_bias_correction": do_bias_correction}
    return rule("Adam", lr_scheduler, optim.Adam, options, loss_scale_factor, **common)


def AdamW(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    do_bias_correction: bool = False,
    loss_scale_factor: float | None = None,
    weight_decay: float = 0.0,
    **common: Unpack[Decayed],
) -> Optimizer:
    """Adam with weight decay. Source: Loshchilov and Hutter (2019)."""
    options = {"betas": (beta1, beta2), "eps": epsilon, "do_bias_correction": do_bias_correction}
    options["weight_decay"] = weight_decay
    return rule("AdamW", lr_scheduler, optim.AdamW, options, loss_scale_factor, **common)


def LazyAdam(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    loss_scale_factor: float | None = None,
    **common: Unpack[Common],
) -> Optimizer:
    """Adam: gradients of embeddings are dense here, so there are no rows to leave out."""
    options = {"betas": (beta1, beta2), "eps": epsilon, "do_bias_correction": False}
    return rule("LazyAdam", lr_scheduler, optim.Adam, options, loss_scale_factor, **common)


def RMSProp(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    decay_rate: float = 0.99,
    epsilon: float = 1e-8,
    centered: bool = False,
    loss_scale_factor: float | None = None,
    **common: Unpack[Common],
) -> Optimizer:
    """RMSProp, with epsilon in the root. Source: Tieleman and Hinton (2012)."""
    options = {"alpha": decay_rate, "eps": epsilon, "centered": centered, "eps_in_root": True}
    return rule("RMSProp", lr_scheduler, optim.RMSprop, options, loss_scale_factor, **common)


def LARS(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    momentum_beta: float = 0.9,
    epsilon: float = 1e-9,
    lars_coefficient: float = 0.0001,
    loss_scale_factor: float | None = None,
    *,
    weight_decay: float = 0.0,
    **common: Unpack[Decayed],
) -> Optimizer:
    """Rates by the norms of variables and gradients. Source: You et al. (2017)."""
    options = {"momentum": momentum_beta, "eps": epsilon, "lars_coefficient": lars_coefficient}
    options["weight_decay"] = weight_decay
    return rule("LARS", lr_scheduler, optim.LARS, options, loss_scale_factor, **common)


def LAMB(  # noqa: N802 (the name that programs use)
    lr_scheduler: Schedule,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    loss_scale_factor: float | None = None,
    *,
    weight_decay: float = 0.0,
    **common: Unpack[Decayed],
) -> Optimizer:
    """Adam's direction, as long as the variable. Source: You et al. (2020)."""
    options = {"betas": (beta1, beta2), "eps": epsilon, "weight_decay": weight_decay}
    return rule("LAMB", lr_scheduler, optim.LAMB, options, loss_scale_factor, **common)


def __getattr__(name: str) -> Callable[..., Optimizer]:
    """The optimizers of `optim/elementwise_rules.py` by their names, with their own options."""
    if name not in elementwise_rules.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    engine: type[elementwise_rules.ElementwiseRule] = getattr(elementwise_rules, name)

    def made(
        lr_scheduler: Schedule,
        loss_scale_factor: float | None = None,
        *,
        weight_decay: float = 0.0,
        **given: Any,
    ) -> Optimizer:
        common = {key: given.pop(key) for key in Decayed.__annotations__ if key in given}
        options = {"weight_decay": weight_decay, **given}
        return rule(name, lr_scheduler, engine, options, loss_scale_factor, **common)

    made.__name__ = name
    made.__doc__ = engine.__doc__
    return made


def _sgd(momentum: float) -> tuple[type[optim.Optimizer], dict[str, object]]:
    return (Momentum, {"momentum": momentum}) if momentum else (optim.SGD, {})
