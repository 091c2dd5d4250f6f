"""Functions of torch tensors as functions of tensors in any layout."""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

from ..engine.ops.torch_row import LocalFunction, Row
from ..engine.ops.torch_rows import public
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError

_record: Callable[..., type[tuple[Tensor, ...]]] = namedtuple


def torch_function(
    batch_dims: str, outputs: Sequence[str] = ()
) -> Callable[[LocalFunction], Callable[..., Any]]:
    """Make an op of a function of torch tensors (a decorator).

    The function computes the shards; torch's autograd differentiates it, to any order. It must be a
    function of its arguments alone: no random numbers, and nothing written in place. Shapes are
    found on torch's meta device, so it must not read values (`.item()`, `if x.any()`).

    batch_dims: the dims of its inputs along which one index does not depend on the others, which
        may therefore be split. "each" for all of them, as in elementwise functions; "but 2" for all
        but the last two (one number for each input, or one for all); "but dim" for all but those
        that the argument `dim` names; "lead 1" for the first one; "none" where inputs must be
        gathered. Batch dims of several inputs are aligned from the right, as torch broadcasts.
        "linear" after it lets partial sums of the first input pass, "constant" says that there is
        no gradient.
    outputs: the names of the outputs where there are several, which come as a named tuple.

    Raises OnefoldValueError for a rule of another kind. Whether the rule is right is for
    `onefold.testing.assert_sbp_equivalent` to say, which tries many layouts.

    Example:
        >>> import torch
        >>> import onefold as flow
        >>> from onefold.utils.custom_op import torch_function
        >>> @torch_function("but 2 1")
        ... def energy(matrix, vector):
        ...     return torch.einsum("...i,...ij,...j->...", vector, matrix, vector)
        >>> ranks = flow.placement("cpu", [0, 1])
        >>> matrices = flow.ones(4, 3, 3, placement=ranks, sbp=flow.sbp.split(0))
        >>> vectors = flow.ones(4, 3, placement=ranks, sbp=flow.sbp.split(0))
        >>> energy(matrices, vectors).sbp
        (onefold.sbp.split(dim=0),)
    """

    def made(function: LocalFunction) -> Callable[..., Any]:
        name = function.__name__
        try:
            signature = inspect.signature(function)
        except ValueError:
            raise OnefoldTypeError(
                f"torch_function: {name} shows no parameters, as it is not written in Python; call "
                "it in a function that names them"
            ) from None
        row = Row(name, signature, outputs, batch_dims, function)
        result = _record(name, outputs, module=function.__module__) if outputs else Tensor
        return public(row, inspect.getdoc(function) or "", result)

    return made
