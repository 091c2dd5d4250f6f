"""Converts the configuration dicts of the first generation to arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import OnefoldTypeError, OnefoldValueError
from .schedules import (
    CosineScheduler,
    ExponentialScheduler,
    InverseTimeScheduler,
    LinearCosineScheduler,
    NaturalExpScheduler,
    PiecewiseConstantScheduler,
    PiecewiseScalingScheduler,
    PolynomialScheduler,
    Schedule,
    Warmup,
    constant,
    linear,
)


def only_one(what: str, conf: Any, allowed: Sequence[str]) -> tuple[str, Any]:
    """The key and the value of a dict of one. Raises OnefoldValueError for any other."""
    if not isinstance(conf, Mapping):
        raise OnefoldTypeError(f"{what} needs a dict, but got {conf!r}")
    if len(conf) != 1 or next(iter(conf)) not in allowed:
        raise OnefoldValueError(
            f"{what} needs one of {', '.join(allowed)}, but got {', '.join(conf) or 'nothing'}"
        )
    return next(iter(conf.items()))


def arguments(
    what: str, conf: Any, needed: Mapping[str, str], more: Mapping[str, str]
) -> dict[str, Any]:
    """A dict as arguments; `needed` and `more` say which argument each key is.

    Raises OnefoldValueError for a key that is missing or unknown.
    """
    if not isinstance(conf, Mapping):
        raise OnefoldTypeError(f"{what} needs a dict, but got {conf!r}")
    keys = {**needed, **more}
    missing, unknown = needed.keys() - conf.keys(), conf.keys() - keys.keys()
    if missing or unknown:
        raise OnefoldValueError(
            f"{what} needs {', '.join(needed) or 'no key'} and may have "
            f"{', '.join(more) or 'no other'}, but got {', '.join(conf) or 'nothing'}"
        )
    return {keys[key]: value for key, value in conf.items()}


_STEPS = {"decay_batches": "steps"}
_RATE = {**_STEPS, "decay_rate": "decay_rate"}
_STAIRS = {"staircase": "staircase"}
# By name: the schedule, the arguments that it needs, and those that it may have.
_DECAYS: dict[str, tuple[Callable[..., Schedule], dict[str, str], dict[str, str]]] = {
    "cosine_conf": (CosineScheduler, _STEPS, {"alpha": "alpha"}),
    "linear_cosine_conf": (
        LinearCosineScheduler,
        _STEPS,
        {"num_periods": "num_periods", "alpha": "alpha", "beta": "beta"},
    ),
    "exponential_conf": (ExponentialScheduler, _RATE, _STAIRS),
    "inverse_time_conf": (InverseTimeScheduler, _RATE, _STAIRS),
    "natural_exp_conf": (NaturalExpScheduler, _RATE, _STAIRS),
    "piecewise_constant_conf": (
        lambda base_lr, **more: PiecewiseConstantScheduler(**more),
        {"boundaries": "boundaries", "values": "values"},
        {},
    ),
    "piecewise_scaling_conf": (
        lambda base_lr, boundaries, scale, warmup: PiecewiseScalingScheduler(
            base_lr, boundaries, list(scale)[-len(boundaries) :], warmup
        ),
        {"boundaries": "boundaries", "scales": "scale"},
        {},
    ),
    "polynomial_conf": (
        PolynomialScheduler,
        _STEPS,
        {"end_learning_rate": "end_learning_rate", "power": "power", "cycle": "cycle"},
    ),
}


def schedule_of(lr: float, decay: Any, warmup: Any) -> Schedule:
    """The schedule that a "learning_rate_decay" and a "warmup_conf" describe, or None for either.

    >>> schedule_of(1.0, {"cosine_conf": {"decay_batches": 4}}, None).rate(0, 2)
    0.5
    """
    ahead = None if warmup is None else _warmup(warmup)
    if decay is None:
        return Schedule(lr, lambda step: lr, ahead)
    kind, conf = only_one("learning_rate_decay", decay, tuple(_DECAYS))
    make, needed, more = _DECAYS[kind]
    return make(base_lr=lr, warmup=ahead, **arguments(kind, conf, needed, more))


def _warmup(conf: Any) -> Warmup:
    kind, inner = only_one("warmup_conf", conf, ("constant_conf", "linear_conf"))
    steps = {"warmup_batches": "steps"}
    if kind == "constant_conf":
        return constant(**arguments(kind, inner, {**steps, "multiplier": "multiplier"}, {}))
    needed = {**steps, "start_multiplier": "start_multiplier"}
    return linear(**arguments(kind, inner, needed, {}))
