"""Comparisons, logical and bitwise ops. Their results have no gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import OnefoldTypeError, user_line
from ...kernels import pointwise_ref as kernels
from ..dispatcher import binary, with_number
from ..names import names
from ..op import Kernel
from ..tensor import Tensor
from ..values import item
from .pointwise import Elementwise, Entry, mixed, register_elementwise


def _compared(name: str, kernel: Kernel, mirrored: Kernel) -> Callable[[Any, Any], Tensor]:
    """A comparison; `mirrored` is the one that holds when the operands change places."""
    swapped: Entry = with_number(Elementwise(name, mirrored), False)
    return register_elementwise(
        mixed(
            name,
            binary(Elementwise(name, kernel)),
            with_number(Elementwise(name, kernel), False),
            lambda n, x: swapped(x, n),
        )
    )


def _combined(name: str, kernel: Kernel, linear: str = "") -> Callable[[Any, Any], Tensor]:
    """Logic or bits: a number counts as a tensor of it."""
    return register_elementwise(
        mixed(
            name,
            binary(Elementwise(name, kernel, linear=linear)),
            with_number(Elementwise(name, kernels.number_last(kernel), linear=linear), False),
            with_number(Elementwise(name, kernels.number_first(kernel)), True),
        )
    )


eq = _compared("eq", torch.eq, torch.eq)
ne = _compared("ne", torch.ne, torch.ne)
lt = _compared("lt", torch.lt, torch.gt)
le = _compared("le", torch.le, torch.ge)
gt = _compared("gt", torch.gt, torch.lt)
ge = _compared("ge", torch.ge, torch.le)
register_elementwise(ne, "not_equal")
register_elementwise(lt, "less")
register_elementwise(le, "less_equal")
register_elementwise(gt, "greater")
register_elementwise(ge, "greater_equal")

logical_and = _combined("logical_and", torch.logical_and)
logical_or = _combined("logical_or", torch.logical_or)
logical_xor = _combined("logical_xor", torch.logical_xor)
bitwise_and = _combined("bitwise_and", torch.bitwise_and)
bitwise_or = _combined("bitwise_or", torch.bitwise_or)
bitwise_xor = _combined("bitwise_xor", torch.bitwise_xor)
# A shift to the left is a product with a power of two.
bitwise_left_shift = _combined("bitwise_left_shift", torch.bitwise_left_shift, linear="0")
bitwise_right_shift = _combined("bitwise_right_shift", torch.bitwise_right_shift)

_isclose: Entry = binary(Elementwise("isclose", torch.isclose))


@register_elementwise
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |input - other| <= atol + rtol * |other|, element by element."""
    return _isclose(input, other, rtol, atol, equal_nan)


@register_elementwise
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close (see `isclose`): the same answer on every rank."""
    return bool(item(names.all(isclose(input, other, rtol, atol, equal_nan))))


@register_elementwise
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements: the same answer on every rank."""
    for index, operand in enumerate((input, other)):
        if not isinstance(operand, Tensor):
            raise OnefoldTypeError(
                f"equal: argument {index} must be an onefold Tensor, but got "
                f"{type(operand).__name__}. Called at {user_line()}"
            )
    if input.shape != other.shape:
        return False
    return bool(item(names.all(eq(input, other))))
