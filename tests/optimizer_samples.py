"""A row for each optimizer of `optim/elementwise_rules.py`: its options, and its formula in
float64.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """`formula(w, g, kept, **options)` is the new parameter; `kept` starts empty."""

    name: str
    formula: Callable[..., Any]
    options: dict[str, float] = field(default_factory=dict)


def adadelta(w, g, kept, lr, rho, eps, weight_decay=0.0):
    g = g + weight_decay * w
    kept["square"] = rho * kept.get("square", 0.0) + (1 - rho) * g * g
    delta = (kept.get("delta", 0.0) + eps) ** 0.5 / (kept["square"] + eps) ** 0.5 * g
    kept["delta"] = rho * kept.get("delta", 0.0) + (1 - rho) * delta * delta
    return w - lr * delta


OPTIMIZERS = [
    Sample("Adadelta", adadelta, {"lr": 0.5, "rho": 0.8, "eps": 1e-3}),
    Sample("Adadelta", adadelta, {"lr": 0.5, "rho": 0.9, "eps": 1e-2, "weight_decay": 0.1}),
]
