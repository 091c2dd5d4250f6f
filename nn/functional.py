"""The functions of the layers, under torch's names (`flow.nn.functional`)."""

from __future__ import annotations

from typing import NoReturn

import torch

from ..engine import ops as _ops  # noqa: F401  (importing it defines the ops)
from ..engine.names import all_names, find_name

# What networks need besides what torch.nn.functional has: gated activations, the loss of a last
# layer, attention of packed sequences.
_MORE = ("attention_varlen", "geglu", "linear_cross_entropy", "rotary", "swiglu")
# `unfold` is a tensor method too, of another meaning.
RENAMED = {"unfold": "im2col"}
FUNCTIONS = frozenset(
    {name for name in all_names() if hasattr(torch.nn.functional, name)} | {*_MORE}
)

globals().update({name: find_name(RENAMED.get(name, name)) for name in FUNCTIONS})


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"onefold.nn.functional has no function {name!r}; it has {', '.join(sorted(FUNCTIONS))}"
    )


def __dir__() -> list[str]:
    return sorted(FUNCTIONS)
