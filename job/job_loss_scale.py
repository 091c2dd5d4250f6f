"""Loss scales for optimizers in mixed precision."""

from __future__ import annotations

from ..optim.grad_scaler import GradScaler, StaticGradScaler


def static_loss_scale(loss_scale_factor: float) -> StaticGradScaler:
    """Always the same scale."""
    return StaticGradScaler(float(loss_scale_factor))


def dynamic_loss_scale(
    initial_loss_scale: float = 2**30, increment_period: int = 2000, multiplier: float = 2.0
) -> GradScaler:
    """A scale that grows after so many good steps, and shrinks at gradients that are not finite."""
    return GradScaler(
        init_scale=float(initial_loss_scale),
        growth_factor=float(multiplier),
        backoff_factor=1.0 / multiplier,
        growth_interval=increment_period,
    )
