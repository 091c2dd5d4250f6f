"""Comparisons, logical and bitwise ops. Their results have no gradient."""

from __future__ import annotations

import torch

from ...errors import OnefoldTypeError
from ...kernels import pointwise_ref as kernels
from ..dispatch_plan import check_tensors
from ..dispatcher import binary
from ..names import names, register_name
from ..op import Arg, Kernel
from ..tensor import Tensor
from ..values import item
from .elementwise import Operator, mixed, operator, settings_of, with_number
from .pointwise import Elementwise, as_operands, register_elementwise


def _compared(name: str, kernel: Kernel, mirrored: Kernel) -> Operator:
    """A comparison; `mirrored` is the same with the operands exchanged."""
    both, swapped = binary(Elementwise(name, kernel)), with_number(name, mirrored)
    last = with_number(name, kernel)
    return register_elementwise(mixed(name, both, last, lambda n, x: swapped(x, n)))


def _or_not_implemented(call: Operator, name: str, input: object, other: object) -> Arg:
    """The comparison, or NotImplemented, so that Python asks the other operand."""
    try:
        operands = as_operands(name, input, other)
    except OnefoldTypeError:
        if isinstance(other, torch.Tensor):  # which has values to compare with
            raise
        return NotImplemented
    return call(*operands)


def _equality(name: str, kernel: Kernel, operator_name: str) -> Operator:
    """A comparison whose operator (`x == None`) takes any object, where the function does not."""
    both, last = binary(Elementwise(name, kernel)), with_number(name, kernel)
    entries = both, last, lambda n, x: last(x, n)
    register_name(operator_name, mixed(name, *entries, otherwise=_or_not_implemented))
    return register_elementwise(mixed(name, *entries))


def _combined(kernel: Kernel, linear: str = "") -> Operator:
    """A logical or bitwise op, in which a number counts as a tensor."""
    last = kernels.number_last(kernel)
    combined = operator(kernel.__name__, kernel, last=last, linear=linear, linear_last=linear)
    return register_elementwise(combined)


eq = _equality("eq", torch.eq, "equals")
ne = _equality("ne", torch.ne, "differs")
lt = _compared("lt", torch.lt, torch.gt)
le = _compared("le", torch.le, torch.ge)
gt = _compared("gt", torch.gt, torch.lt)
ge = _compared("ge", torch.ge, torch.le)

logical_and = _combined(torch.logical_and)
logical_or = _combined(torch.logical_or)
logical_xor = _combined(torch.logical_xor)
bitwise_and = _combined(torch.bitwise_and)
bitwise_or = _combined(torch.bitwise_or)
bitwise_xor = _combined(torch.bitwise_xor)
# A shift to the left is a product with a power of two.
bitwise_left_shift = _combined(torch.bitwise_left_shift, linear="0")
bitwise_right_shift = _combined(torch.bitwise_right_shift)


_isclose = binary(
    Elementwise("isclose", torch.isclose).taking(settings_of(["rtol", "atol", "equal_nan"]))
)


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
    """Whether all elements are close (see `isclose`); the same result on every rank."""
    return bool(item(names.all(isclose(input, other, rtol, atol, equal_nan))))


@register_elementwise
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; the same result on every rank."""
    check_tensors("equal", input, other)
    if input.shape != other.shape:
        return False
    return bool(item(names.all(eq(input, other))))
