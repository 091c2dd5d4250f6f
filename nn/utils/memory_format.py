"""Memory formats of convolutions' weights: accepted for torch's sake."""

from __future__ import annotations

from typing import TypeVar

import torch

from ..module import Module

M = TypeVar("M", bound=Module)


def convert_conv2d_weight_memory_format(module: M, memory_format: torch.memory_format) -> M:
    """The module unchanged: kernels read the strides of a weight and choose their own order."""
    return module


def convert_conv3d_weight_memory_format(module: M, memory_format: torch.memory_format) -> M:
    """The module unchanged; see `convert_conv2d_weight_memory_format`."""
    return module
