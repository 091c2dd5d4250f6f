"""The functions of the layers, with torch's names and parameters (`flow.nn.functional`)."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch.nn.functional import ScalingType, SwizzleType  # noqa: F401  (users name them)

from ..engine import ops as _ops  # noqa: F401  (importing it defines the ops)
from ..engine.argument_errors import public_functions
from ..engine.names import all_names, torch_forms
from ..graph.unsupported import missing_attribute
from .functional_extras import EXTRAS
from .linear_cross_entropy_loss import linear_cross_entropy
from .torch_parameters import like_torchs
from .unsupported_names import FUNCTIONS as _UNSUPPORTED

# What networks need besides what torch.nn.functional has: gated activations, attention of packed
# sequences and of pages of a cache, OneFlow's activations.
_MORE = set("attention_varlen geglu paged_attention quick_gelu rotary square_relu swiglu".split())
# `unfold` is a tensor method too, of another meaning.
RENAMED = {"unfold": "im2col"}

_OPS = {
    name: all_names()[RENAMED.get(name, name)]
    for name in all_names()
    if hasattr(torch.nn.functional, name) or name in _MORE
}
OWN = {name: like_torchs(name, op) for name, op in _OPS.items() if name not in RENAMED}
# Those that are not the functions of this name of `flow`.
OWN = {name: made for name, made in OWN.items() if made is not _OPS[name] or name in torch_forms()}
OWN |= EXTRAS | {"linear_cross_entropy": linear_cross_entropy}
FUNCTIONS = frozenset({*_OPS, *OWN})

globals().update(public_functions(__name__, _OPS | OWN))


def __getattr__(name: str) -> NoReturn:
    if name in _UNSUPPORTED:
        raise missing_attribute(_UNSUPPORTED, "onefold.nn.functional", name)
    raise AttributeError(
        f"onefold.nn.functional has no function {name!r}; dir(onefold.nn.functional) lists all"
    )


def __dir__() -> list[str]:
    return sorted(FUNCTIONS)
