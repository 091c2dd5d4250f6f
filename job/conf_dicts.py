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


def only_one(what: str, conf: object, allowed: Sequence[str]) -> tuple[str, object]:
    """The key and the value of a dict of one. Raises OnefoldValueError for any other."""
    if not isinstance(conf, Mapping):
        raise OnefoldTypeError(f"{what} needs a dict, but got {conf!r}")
    if len(conf) != 1 or next(iter(conf)) not in allowed:
        raise OnefoldValueError(
            f"{what} needs one of {', '.join(allowed)}, but got {', '.join(conf) or 'nothing'}"
        )
    return next(iter(conf.items()))


# Arguments that have other names than their keys.
_ARGUMENTS = {
    "decay_batches": "steps",
    "warmup_batches": "steps",
    "scales": "scale",
    "weight_decay_rate": "weight_decay",
    "includes": "weight_decay_includes",
    "excludes": "weight_decay_excludes",
}


def arguments(what: str, conf: object, needed: str, more: str) -> dict[str, Any]:
    """A dict as arguments; `needed` and `more` name the keys that it has and may have.

    Raises OnefoldValueError for a key that is missing or unknown.

    >>> arguments("cosine_conf", {"decay_batches": 4}, "decay_batches", "alpha")
    {'steps': 4}
    """
    if not isinstance(conf, Mapping):
        raise OnefoldTypeError(f"{what} needs a dict, but got {conf!r}")
    must, may = needed.split(), more.split()
    if not {*must} <= conf.keys() <= {*must, *may}:
        raise OnefoldValueError(
            f"{what} needs {', '.join(must) or 'no key'} and may have "
            f"{', '.join(may) or 'no other'}, but got {', '.join(conf) or 'nothing'}"
        )
    return {_ARGUMENTS.get(key, str(key)): value for key, value in conf.items()}


# By name: the schedule, the keys that it needs, and those that it may have.
_DECAYS: dict[str, tuple[Callable[..., Schedule], str, str]] = {
    "cosine_conf": (CosineScheduler, "decay_batches", "alpha"),
    "linear_cosine_conf": (LinearCosineScheduler, "decay_batches", "num_periods alpha beta"),
    "exponential_conf": (ExponentialScheduler, "decay_batches decay_rate", "staircase"),
    "inverse_time_conf": (InverseTimeScheduler, "decay_batches decay_rate", "staircase"),
    "natural_exp_conf": (NaturalExpScheduler, "decay_batches decay_rate", "staircase"),
    "piecewise_constant_conf": (
        lambda base_lr, **more: PiecewiseConstantScheduler(**more),
        "boundaries values",
        "",
    ),
    "piecewise_scaling_conf": (
        lambda base_lr, boundaries, scale, warmup: PiecewiseScalingScheduler(
            base_lr, boundaries, list(scale)[-len(boundaries) :], warmup
        ),
        "boundaries scales",
        "",
    ),
    "polynomial_conf": (PolynomialScheduler, "decay_batches", "end_learning_rate power cycle"),
}


def schedule_of(lr: float, decay: object, warmup: object) -> Schedule:
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


def _warmup(conf: object) -> Warmup:
    kind, inner = only_one("warmup_conf", conf, ("constant_conf", "linear_conf"))
    if kind == "constant_conf":
        return constant(**arguments(kind, inner, "warmup_batches multiplier", ""))
    return linear(**arguments(kind, inner, "warmup_batches start_multiplier", ""))
