"""TrainConf: the training settings of a job of the first generation (`config.train`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from .conf_dicts import arguments, only_one, schedule_of
from .grad_clipping import GlobalNorm, by_global_norm
from .job_optimizer import LAMB, LARS, SGDW, Adam, AdamW, LazyAdam, RMSProp
from .update_rule import Optimizer

_OPTIONAL = ("learning_rate_decay", "warmup_conf", "clip_conf", "weight_decay_conf")
# By rule: what makes its optimizer, and the keys of its dict.
_RULES: dict[str, tuple[Callable[..., Optimizer], str]] = {
    "naive_conf": (lambda lr, **more: SGDW(lr, momentum=0.0, **more), ""),
    "momentum_conf": (lambda lr, beta=0.9, **more: SGDW(lr, momentum=beta, **more), "beta"),
    "rmsprop_conf": (RMSProp, "decay_rate epsilon centered"),
    "lars_conf": (LARS, "momentum_beta epsilon lars_coefficient"),
    "adam_conf": (Adam, "beta1 beta2 epsilon do_bias_correction"),
    "lazy_adam_conf": (LazyAdam, "beta1 beta2 epsilon"),
    "lamb_conf": (LAMB, "beta1 beta2 epsilon"),
}


class TrainConf:
    """The learning rate and the rule of updating; setting either makes the job one that trains."""

    def __init__(self) -> None:
        self._lr: float | None = None
        self.second_rate: float | None = None  # of variables whose model_name is "bias"
        self._update: Mapping[str, object] | None = None
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

    def model_update_conf(self, value: Mapping[str, object]) -> None:
        """The rule: {"naive_conf": {}}, {"momentum_conf": {"beta": 0.9}}, {"adam_conf": {...}}.

        Beside it may stand "learning_rate_decay", "warmup_conf", "clip_conf" and
        "weight_decay_conf". Raises OnefoldValueError for anything else.
        """
        if not isinstance(value, Mapping):
            raise OnefoldTypeError(
                f'model_update_conf needs a dict, such as {{"naive_conf": {{}}}}, but got {value!r}'
            )
        rules = [key for key in value if key in _RULES]
        others = set(value) - set(_RULES) - set(_OPTIONAL)
        if len(rules) != 1 or others:
            raise OnefoldValueError(
                f"model_update_conf needs one of {', '.join(_RULES)}, and may have "
                f"{', '.join(_OPTIONAL)} besides, but got {', '.join(value) or 'nothing'}"
            )
        arguments(rules[0], value[rules[0]], "", _RULES[rules[0]][1])
        _weight_decay(rules[0], value.get("weight_decay_conf"))
        _clip_norm(value.get("clip_conf"))
        schedule_of(1.0, value.get("learning_rate_decay"), value.get("warmup_conf"))
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
        (name,) = [key for key in self._update if key in _RULES]
        make, keys = _RULES[name]
        decay = _weight_decay(name, self._update.get("weight_decay_conf"))
        if decay and name == "adam_conf":
            make = AdamW
        schedule = schedule_of(
            self._lr, self._update.get("learning_rate_decay"), self._update.get("warmup_conf")
        )
        return make(
            schedule,
            **arguments(name, self._update[name], "", keys),
            **decay,
            loss_scale_factor=self._scale,
            grad_clipping=_clip_norm(self._update.get("clip_conf")),
        )


def _clip_norm(conf: object) -> GlobalNorm | None:
    if conf is None:
        return None
    kind, inner = only_one("clip_conf", conf, ("clip_by_global_norm",))
    return by_global_norm(**arguments(kind, inner, "clip_norm", ""))


def _weight_decay(name: str, conf: object) -> dict[str, Any]:
    """What a "weight_decay_conf" is as arguments."""
    if conf is None:
        return {}
    if name in ("rmsprop_conf", "lazy_adam_conf"):
        raise OnefoldValueError(f"{name} has no weight decay; leave weight_decay_conf out")
    found = arguments("weight_decay_conf", conf, "weight_decay_rate", "includes excludes")
    rate = float(found.pop("weight_decay"))
    patterns = {key: only_one(key, value, ("pattern",))[1] for key, value in found.items()}
    return {"weight_decay": rate, **patterns}
