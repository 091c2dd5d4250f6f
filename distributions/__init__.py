"""Probability distributions over tensors, with torch's names and arguments."""

from .bernoulli import Bernoulli as Bernoulli
from .categorical import Categorical as Categorical
from .distribution import Distribution as Distribution
from .kl import kl_divergence as kl_divergence, register_kl as register_kl
from .normal import Normal as Normal
from .uniform import Uniform as Uniform

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Normal",
    "Uniform",
    "kl_divergence",
    "register_kl",
]
