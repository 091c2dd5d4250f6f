"""What `flow.autograd` offers: backward, grad, Function, modes, functional, saved-tensor hooks."""

from __future__ import annotations

from . import functional_gradients as functional
from . import saved as graph
from .autograd import (
    backward,
    enable_grad,
    grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from .function import Function

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "functional",
    "grad",
    "graph",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
]
