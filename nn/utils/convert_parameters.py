"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...engine.grad_mode import no_grad
from ...engine.inplace import assign
from ...engine.ops.cat_split import cat
from ...engine.ops.slicing import narrow
from ...engine.ops.view import reshape
from ...engine.tensor import Tensor
from ...errors import ShapeError


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters one after the other in one vector."""
    return cat([reshape(param, (-1,)) for param in parameters], 0)


@no_grad
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Take the parameters' values from one vector, the inverse of parameters_to_vector."""
    parameters = list(parameters)
    total = sum(param.numel() for param in parameters)
    if vec.numel() != total:
        raise ShapeError(
            f"vector_to_parameters: the vector has {vec.numel()} elements, but the parameters "
            f"have {total}"
        )
    start = 0
    for param in parameters:
        part = narrow(vec, 0, start, param.numel())
        assign(param, reshape(part, param.shape), "vector_to_parameters")
        start += param.numel()
