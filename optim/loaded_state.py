"""State of optimizers as it is loaded: in the layout of parameters, in memory of its own."""

from __future__ import annotations

import numpy as np
import torch

from ..engine.inplace import fitted, take, writable
from ..engine.meta import Meta
from ..engine.tensor import Tensor, from_shards
from .whole_values import whole_meta


def loaded_as(value: object, param: Tensor) -> object:
    """A loaded value of the state: a tensor is laid out as the parameter, in memory of its own."""
    if not isinstance(value, (Tensor, torch.Tensor, np.ndarray)):
        return value
    return _made(value, param.meta, param)


def loaded_freely(key: str, value: object, param: Tensor) -> object:
    """A loaded value of the state of a user's optimizer, whose tensors may have any shape.

    As in torch they take the parameter's dtype and device, but for the number of steps; tensors of
    another shape than a global parameter's are whole on every rank. Lists and dicts keep theirs.
    """
    if isinstance(value, dict):
        return {name: loaded_freely(name, part, param) for name, part in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)([loaded_freely(key, part, param) for part in value])
    if not isinstance(value, (Tensor, torch.Tensor, np.ndarray)):
        return value
    if tuple(value.shape) == tuple(param.shape):
        return _made(value, param.meta, param)
    meta = whole_meta(param.meta, value.shape)
    kept = isinstance(value, np.ndarray) or key == "step" or not meta.is_floating
    return _made(value, meta.like(dtype=torch.as_tensor(value).dtype) if kept else meta)


def _made(value: object, meta: Meta, like: Tensor | None = None) -> Tensor:
    """The value laid out so, in the memory format of a tensor."""
    duplicate = from_shards((), meta)
    take(duplicate, fitted(value, duplicate if like is None else like))
    writable(duplicate)
    return duplicate
