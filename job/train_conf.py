"""TrainConf: how a job of the first generation trains (`config.train`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import OnefoldRuntimeError, OnefoldValueError
from .grad_clipping import by_global_norm
from .optimizer import SGD, Adam, LazyAdam, Optimizer
from .schedules import of_conf

_BESIDE = {"learning_rate_decay", "warmup_conf", "clip_conf"}
_UPDATES: dict[str, Callable[..., Optimizer]] = {
    "naive_conf": lambda lr, conf, **more: SGD(lr, momentum=0.0, **more),
    "momentum_conf": lambda lr, conf, **more: SGD(lr, momentum=conf.get("beta", 0.9), **more),
    "adam_conf": lambda lr, conf, **more: Adam(lr, **_adam(conf), **more),
    "lazy_adam_conf": lambda lr, conf, **more: LazyAdam(lr, **_adam(conf), **more),
}


def _adam(conf: Mapping[str, Any]) -> dict[str, Any]:
    names = {"beta1", "beta2", "epsilon", "do_bias_correction"}
    return {key: value for key, value in conf.items() if key in names}


class TrainConf:
    """The learning rate and the rule of updating; setting either makes the job one that trains."""

    def __init__(self) -> None:
        self._lr: float | None = None
        self.second_rate: float | None = None  # of variables whose model_name is "bias"
        self._update: Mapping[str, Any] | None = None
        self._scale: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether anything was said, so that the job trains."""
        return (self._lr, self._update, self._scale, self.second_rate) != (None, None, None, None)

    def primary_lr(self, value: float) -> None:
        """The learning rate."""
        self._lr = float(value)

    def secondary_lr(self, value: float) -> None:
        """The learning rate of variables whose model_name is "bias"."""
        self.second_rate = float(value)

    def model_update_conf(self, value: Mapping[str, Any]) -> None:
        """The rule: {"naive_conf": {}}, {"momentum_conf": {"beta": 0.9}}, {"adam_conf": {...}}.

        Beside it may stand "learning_rate_decay", "warmup_conf" and "clip_conf". Raises
        OnefoldValueError for anything else.
        """
        rules = [key for key in value if key in _UPDATES]
        others = set(value) - set(_UPDATES) - _BESIDE
        if len(rules) != 1 or others:
            raise OnefoldValueError(
                f"model_update_conf needs one of {', '.join(_UPDATES)}, and may have "
                f"{', '.join(sorted(_BESIDE))} beside it, but got {', '.join(value) or 'nothing'}"
            )
        self._update = dict(value)

    def loss_scale_factor(self, value: float) -> None:
        """What the loss is multiplied by for backward."""
        self._scale = float(value)

    def optimizer(self, job: str) -> Optimizer:
        """The optimizer that was described. Raises OnefoldRuntimeError for half a description."""
        if self._lr is None or self._update is None:
            missing = "primary_lr" if self._lr is None else "model_update_conf"
            raise OnefoldRuntimeError(
                f"job {job!r} trains, but config.train.{missing}(...) was not called: it needs "
                "both primary_lr and model_update_conf"
            )
        (rule,) = [key for key in self._update if key in _UPDATES]
        schedule = of_conf(
            self._lr, self._update.get("learning_rate_decay"), self._update.get("warmup_conf")
        )
        clip = self._update.get("clip_conf", {}).get("clip_by_global_norm")
        return _UPDATES[rule](
            schedule,
            self._update[rule],
            loss_scale_factor=self._scale,
            grad_clipping=None if clip is None else by_global_norm(float(clip["clip_norm"])),
        )
