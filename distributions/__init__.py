"""Probability distributions over tensors, with torch's names and arguments."""

from ..engine.boundaries import (
    refusing_classes as _refusing_classes,
    refusing_methods as _refusing_methods,
)
from ..engine.refusal import refusing as _refusing
from .bernoulli import Bernoulli as Bernoulli
from .categorical import Categorical as Categorical
from .distribution import Distribution as Distribution
from .kl import kl_divergence as _kl_divergence, register_kl as register_kl
from .normal import Normal as Normal
from .uniform import Uniform as Uniform

_refusing_classes(list(globals().values()), Distribution)
for _kind in (Bernoulli, Categorical, Normal, Uniform):
    _refusing_methods(_kind)
kl_divergence = _refusing(_kl_divergence)

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Normal",
    "Uniform",
    "kl_divergence",
    "register_kl",
]
