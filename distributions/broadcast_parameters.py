"""Numbers and tensors that distributions take, as tensors of one shape."""

from __future__ import annotations

from typing import Any

import torch

from ..engine.argument_types import Number
from ..engine.tensor import Tensor, tensor_ops

Parameter = Tensor | Number
Bound = Tensor | int | float


def broadcast_all(*given: Parameter) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape, beside each other."""
    tensors = [x for x in given if isinstance(x, Tensor)]
    made: list[Any] = []
    for x in given:
        if isinstance(x, Tensor):
            made.append(x)
        elif tensors:
            like = tensors[0]
            floats = like if like.meta.is_floating else like.float()
            made.append(tensor_ops.full_like(floats, x))
        else:
            made.append(tensor_ops.tensor(x, dtype=torch.get_default_dtype()))
    same = all(x.shape == made[0].shape for x in made)
    return tuple(made if same else tensor_ops.broadcast_tensors(*made))
