"""Memory formats of convolutions' weights alone."""

from __future__ import annotations

from typing import TypeVar

import torch

from ...engine.ops.device_transfer import set_data
from ...engine.ops.memory_formats import in_format
from ..convolution import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..module import Module

M = TypeVar("M", bound=Module)
_Kinds = tuple[type[Module], ...]


def convert_conv2d_weight_memory_format(module: M, memory_format: torch.memory_format) -> M:
    """Put the weights of its 2d convolutions into a memory format, in place; gives the module.

    >>> import onefold as flow
    >>> layer = flow.nn.Conv2d(2, 4, 3)
    >>> layer = flow.nn.utils.convert_conv2d_weight_memory_format(layer, flow.channels_last)
    >>> layer.weight.is_contiguous(memory_format=flow.channels_last)
    True
    """
    return _converted(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: torch.memory_format) -> M:
    """The same for 3d convolutions; see `convert_conv2d_weight_memory_format`."""
    return _converted(module, (Conv3d, ConvTranspose3d), memory_format)


def _converted(module: M, kinds: _Kinds, memory_format: torch.memory_format) -> M:
    for each in module.modules():
        if isinstance(each, kinds):
            set_data(each.weight, in_format(each.weight.detach(), memory_format))
    return module
