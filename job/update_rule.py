"""Update rules: how a job changes its variables. `minimize` in its function names the loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TypedDict, Unpack

from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError
from ..optim.grad_scaler import StaticGradScaler
from ..optim.optimizer import Group, Optimizer as EngineOptimizer
from .blob import Blob
from .grad_clipping import GlobalNorm
from .schedules import Schedule
from .tracing import tracing

Words = Sequence[str] | str | None


@dataclass(frozen=True)
class Optimizer:
    """A rule of updating with its learning rates, clipping and loss scale."""

    name: str
    schedule: Schedule
    engine: Callable[..., EngineOptimizer]  # of groups of variables, and their first rate
    clipping: GlobalNorm | None = None
    scale: StaticGradScaler | None = None
    includes: tuple[str, ...] = ()  # if any: only variables with these in their names are decayed
    excludes: tuple[str, ...] = ()  # variables with these in their names are not

    def minimize(self, loss: Blob | Sequence[Blob]) -> None:
        """Let every call of the job end with an update that makes `loss` smaller.

        It begins from the mean over all elements of the loss, of all devices together.
        """
        job = tracing(f"optimizer.{self.name}.minimize")
        losses = [loss] if isinstance(loss, Blob) else loss
        losses = list(losses) if isinstance(losses, (list, tuple)) else []
        if not losses or not all(isinstance(each, Blob) for each in losses):
            raise OnefoldTypeError(f"minimize needs a blob or a list of blobs, but got {loss!r}")
        job.set_optimizer(self)
        job.add_losses(losses)

    def decays(self, variable: str) -> bool:
        """Whether weight decay, if there is any, is for the variable of this name."""
        if self.includes:
            return any(re.search(pattern, variable) for pattern in self.includes)
        return not any(re.search(pattern, variable) for pattern in self.excludes)

    def groups(
        self, variables: Mapping[str, Tensor], second_rate: float | None, second: AbstractSet[str]
    ) -> list[Group]:
        """The variables as groups of one rate and one decay.

        `second_rate` is the rate of the variables in `second`, if they have their own.
        """
        made: dict[tuple[bool, bool], Group] = {}
        for name, tensor in variables.items():
            decays = self.decays(name)
            scaled = second_rate is not None and name in second
            group = made.setdefault((decays, scaled), {"params": []})
            group["params"].append(tensor)
            if not decays:
                group["weight_decay"] = 0.0
            if scaled and second_rate is not None:
                group["lr_scale"] = second_rate / self.schedule.base_lr
            if self.clipping is not None:
                group["clip_grad_max_norm"] = self.clipping.clip_norm
        return list(made.values())


class Common(TypedDict, total=False):
    """What all optimizers of jobs take."""

    grad_clipping: GlobalNorm | None
    train_step_lbn: str | None
    loss_scale_policy: StaticGradScaler | None


class Decayed(Common, total=False):
    """What those with weight decay take besides."""

    weight_decay_includes: Words
    weight_decay_excludes: Words


def rule(
    name: str,
    lr_scheduler: Schedule,
    engine: Callable[..., EngineOptimizer],
    options: Mapping[str, object],
    loss_scale_factor: float | None = None,
    **common: Unpack[Decayed],
) -> Optimizer:
    """The optimizer of a rule, whose arguments are checked. Raises OnefoldTypeError."""
    allowed = Decayed if "weight_decay" in options else Common
    for other in common.keys() - allowed.__annotations__.keys():
        raise TypeError(f"{name}() got an unexpected keyword argument {other!r}")
    clipping, scale = common.get("grad_clipping"), common.get("loss_scale_policy")
    train_step_lbn = common.get("train_step_lbn")
    includes, excludes = common.get("weight_decay_includes"), common.get("weight_decay_excludes")
    for value, kind, example in (
        (lr_scheduler, Schedule, "lr_scheduler=flow.optimizer.CosineScheduler(0.1, 1000)"),
        (clipping, GlobalNorm, "grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0)"),
        (scale, StaticGradScaler,
         "loss_scale_policy=flow.optimizer.loss_scale.dynamic_loss_scale()"),
    ):  # fmt: skip
        if not isinstance(value, kind) and (value is not None or kind is Schedule):
            raise OnefoldTypeError(f"{name} takes such as {example}, but got {value!r}")
    if train_step_lbn is not None:
        raise OnefoldTypeError(
            f"{name}: train_step_lbn={train_step_lbn!r} names a blob that counts steps; a job "
            "counts its own here, so leave it out"
        )
    if includes and excludes:
        raise OnefoldTypeError(
            f"{name} got weight_decay_includes={includes!r} and weight_decay_excludes="
            f"{excludes!r}; give one of them, since either says which variables are decayed"
        )
    if scale is None and loss_scale_factor is not None:
        scale = StaticGradScaler(float(loss_scale_factor))
    return Optimizer(
        name, lr_scheduler, partial(engine, **options), clipping, scale,
        _patterns(includes), _patterns(excludes),
    )  # fmt: skip


def _patterns(words: Words) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words or ())
