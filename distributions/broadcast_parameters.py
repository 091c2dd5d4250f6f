"""Numbers and tensors that distributions take, as tensors of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number as AnyNumber
from typing import Any

import torch

from ..engine.argument_types import Number
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldTypeError, kind_of

Parameter = Tensor | Number
Bound = Tensor | int | float


def broadcast_all(*values: Parameter) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape, on one device or placement.

    Numbers take the dtype and layout of the first tensor, or else the default dtype. Raises
    OnefoldTypeError for what is neither.

    >>> import onefold as flow
    >>> broadcast_all(flow.zeros(2), 1)
    (tensor([0., 0.]), tensor([1., 1.]))
    """
    tensors = [x for x in values if isinstance(x, Tensor)]
    made: list[Any] = []
    for x in values:
        if isinstance(x, Tensor):
            made.append(x)
        elif not isinstance(x, AnyNumber):
            raise OnefoldTypeError(f"parameters are numbers or Tensors, but got {kind_of(x)}")
        elif tensors:
            like = tensors[0]
            floats = like if like.meta.is_floating else like.float()
            made.append(tensor_ops.full_like(floats, x))
        else:
            made.append(tensor_ops.tensor(x, dtype=torch.get_default_dtype()))
    same = all(x.shape == made[0].shape for x in made)
    return tuple(made if same else tensor_ops.broadcast_tensors(*made))


def in_shape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The tensor expanded to a shape, or itself if it has that, as in most calls.

    >>> import onefold as flow
    >>> in_shape(flow.zeros(1), (2,))
    tensor([0., 0.])
    """
    return x if x.shape == shape else x.expand(shape)
