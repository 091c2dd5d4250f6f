"""What elementwise ops share: the op class, operands that may be numbers, extra rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
import torch

from ...errors import OnefoldTypeError, ShapeError, user_line
from ...kernels.out_variants import into
from ..argument_types import Number, NumberLike
from ..dispatch_plan import result_of_override
from ..dispatcher import Takes
from ..meta import Meta
from ..names import names, register_function
from ..op import Arg, Gradients, Kernel, NoAttributes, Op
from ..saved_values import Saves
from ..sbp import Sbp, broadcast, partial_max, partial_min, partial_sum
from ..signature import Axis, Rule, Signature, pointwise_of
from ..tensor import Tensor, add_inplace_method, add_method
from ..values import from_torch

P = ParamSpec("P")
T = TypeVar("T", Tensor, Meta)
F = TypeVar("F", bound=Callable[..., object])
Entry: TypeAlias = Callable[..., Tensor]  # what runs an op: of tensors, numbers and attributes
Operand: TypeAlias = Tensor | NumberLike
# Whether a number does with a tensor of a dtype.
NumberPredicate: TypeAlias = Callable[[Number, torch.dtype], bool]
# A number as an attribute, see `exact`.
Exact: TypeAlias = tuple[NumberLike | None, str]
NUMBERS = (int, float, complex)  # bool is an int
_CPU = torch.device("cpu")

# How partial maxima and minima pass. Only for functions that are monotone on all of the numbers:
# the root of a maximum is not the maximum of the roots where some are of negative numbers.
INCREASING = (
    Signature((partial_max,), (partial_max,)),
    Signature((partial_min,), (partial_min,)),
)
DECREASING = (
    Signature((partial_max,), (partial_min,)),
    Signature((partial_min,), (partial_max,)),
)


def idempotent(partial: Sbp) -> tuple[Signature, ...]:
    """How partial extrema pass through the maximum (or minimum) of two tensors."""
    return tuple(
        Signature(inputs, (partial,))
        for inputs in ((partial, partial), (partial, broadcast), (broadcast, partial))
    )


def fitting(rule: Rule, metas: Sequence[Meta]) -> Rule:
    """The signatures that the dtypes allow: bools have no sum, complex numbers no order.

    The order of integers cannot be reversed: the least one, which stands for no element at all,
    and the unsigned 0 are their own negatives.
    """
    dtypes = [meta.dtype for meta in metas]
    if all(dtype.is_floating_point for dtype in dtypes):
        return rule
    return [
        signature
        for signature in rule
        if not any(
            (sbp is partial_sum and dtype is torch.bool)
            or (sbp in (partial_max, partial_min) and dtype.is_complex)
            or (signature in DECREASING and not dtype.is_floating_point)
            for sbp, dtype in zip(signature.inputs, dtypes, strict=True)
        )
    ]


class Elementwise(Op):
    """An elementwise op over broadcasting inputs: a row of a family table.

    `passes` are signatures besides those of splits and of partial sums (`linear`). With `linear_if`
    it is linear only for the numbers, its last argument, that suit: divided by 0 or multiplied by
    an infinity, addends do not sum to the result.
    """

    attributes = NoAttributes
    order = "expanded"
    vjp: Callable[..., Gradients]  # a row's own function

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        vjp: Callable[..., Gradients] | None = None,
        *,
        linear: str = "",
        linear_if: NumberPredicate | None = None,
        passes: tuple[Signature, ...] = (),
        saves: Saves | None = None,
        saves_output: bool | Saves = False,
    ) -> None:
        super().__init__(name, kernel)
        self.__doc__ = f"`{name}` of each element."
        self.linear = linear
        self.linear_if = linear_if
        self.passes = passes
        self.saves = saves
        self.saves_output = saves_output
        self.differentiable = vjp is not None
        if vjp is not None:
            self.vjp = vjp

    def taking(self, attributes: Callable[P, tuple[object, ...]]) -> Takes[P]:
        """The op, which also takes the fields of a record."""
        op: Op = self
        op.attributes = attributes
        return op

    @cached_property
    def into(self) -> Kernel | None:
        """The kernel with `out=`, for those that have it."""
        return into(self.kernel)

    def infer(self, *args: Arg) -> Meta:
        return infer_pointwise(self.kernel, self._plain(args))

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        metas = [arg for arg in args if isinstance(arg, Meta)]
        linear = self.linear
        if self.linear_if is not None and not self.linear_if(self._plain(args)[-1], metas[0].dtype):
            linear = ""
        return fitting((*pointwise_of(metas, linear), *self.passes), metas)

    def _plain(self, args: tuple[Arg, ...]) -> tuple[Arg, ...]:
        """The arguments of the kernel, with the fields of a record instead of the record."""
        return (*args[:-1], *args[-1]) if type(args[-1]) is self.attributes else args


def is_finite_in(number: Number, dtype: torch.dtype) -> bool:
    """Whether a number is finite in the dtype that arithmetic with a tensor of `dtype` is done in.

    >>> is_finite_in(1e300, torch.float64), is_finite_in(1e300, torch.float32)
    (True, False)
    """
    return isinstance(number, int) or abs(number) <= _limits(dtype).max


def is_divisor_in(number: Number, dtype: torch.dtype) -> bool:
    """Whether quotients by a number are finite, except for the overflow of large values."""
    return abs(number) >= float(_limits(dtype).tiny)


def _limits(dtype: torch.dtype) -> torch.finfo:
    double = dtype in (torch.float64, torch.complex128)
    return torch.finfo(torch.float64 if double else torch.float32)


def register_elementwise(function: F) -> F:
    """Register an elementwise function under its name.

    One that torch does not have is a method of tensors too, and has an in-place form. What torch
    has is a method where it is one in torch, as all ops are.
    """
    if not any(hasattr(space, function.__name__) for space in _TORCHS):
        add_method(function.__name__)
        add_inplace_method(function.__name__)
    return register_function(function)


_TORCHS = (torch, torch.Tensor, torch.nn.functional)


def infer_pointwise(kernel: Kernel, args: Sequence[Arg]) -> Meta:
    """The output of an elementwise kernel: broadcast shape, dtype as it promotes.

    The kernel runs on tensors without elements, which takes a tenth of the time that torch's
    data-free device takes for many functions. Raises ShapeError when the shapes do not broadcast.
    """
    shapes = [arg.shape for arg in args if isinstance(arg, Meta)]
    shape = shapes[0] if len(set(shapes)) == 1 else _broadcast(shapes)
    dtype = _result_dtype(kernel, torch.get_default_dtype(), *map(_kind, args))
    for arg in args:
        if isinstance(arg, Meta) and arg.dtype is dtype and arg.shape == shape:
            return arg
    return Meta.of(shape, dtype, device=_CPU)


def common_dtype(kernel: Kernel, *metas: Meta) -> torch.dtype:
    """The dtype of an elementwise kernel's result, to which it promotes its inputs."""
    return _result_dtype(kernel, torch.get_default_dtype(), *map(_kind, metas))


def _kind(arg: Arg) -> tuple[object, object]:
    """The key that the dtype of a result depends on; a 0-d tensor promotes like a number."""
    return (arg.dtype, bool(arg.shape)) if isinstance(arg, Meta) else (type(arg), arg)


@lru_cache(maxsize=4096)
def _result_dtype(
    kernel: Kernel, default: torch.dtype, *kinds: tuple[object, object]
) -> torch.dtype:
    """The dtype of a kernel's result, if `default` is torch's default dtype."""
    stand_ins = [
        torch.ones((0,) if value else (), dtype=kind) if isinstance(kind, torch.dtype) else value
        for kind, value in kinds
    ]
    result: torch.Tensor = kernel(*stand_ins)
    return result.dtype


def _broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    ndim = max(map(len, shapes))
    found = []
    for dim in range(-ndim, 0):
        sizes = {shape[dim] for shape in shapes if len(shape) >= -dim} - {1}
        if len(sizes) > 1:
            a, b = [shape[dim] for shape in shapes if len(shape) >= -dim and shape[dim] != 1][:2]
            raise ShapeError(
                f"The size of tensor a ({a}) must match the size of tensor b ({b}) at "
                f"non-singleton dimension {dim + ndim}: shapes "
                f"{', '.join(str(tuple(shape)) for shape in shapes)} do not broadcast"
            )
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


def conj_of(x: T) -> T:
    """The factor by which a gradient is multiplied: conjugated when complex, if it was saved."""
    if x.meta.dtype.is_complex and isinstance(x, Tensor):
        conjugate: Tensor = names.conj_physical(x)
        return conjugate
    return x


def exact(value: NumberLike | None) -> Exact:
    """A number as an attribute: 1, 1.0, True, 0.0 and -0.0 are different keys, nan equals nan.

    >>> exact(1) == exact(1.0), exact(math.nan) == exact(-math.nan)
    (False, True)
    """
    if isinstance(value, float) and math.isnan(value):
        value = math.nan
    return value, repr(value)


def as_operands(name: str, input: object, other: object) -> tuple[Operand, Operand]:
    """The operands, with numpy's numbers as Python's and an array next to a tensor as a tensor.

    Raises OnefoldTypeError unless one operand is a tensor and the other a tensor or a number.
    """
    operands: list[Operand] = []
    for index, operand in enumerate(_without_array(name, input, other)):
        if isinstance(operand, np.number):
            operand = operand.item()
        elif isinstance(operand, np.bool_):
            operand = float(operand)  # as torch takes it
        if not isinstance(operand, (Tensor, *NUMBERS)):
            raise OnefoldTypeError(
                f"{name}: argument {index} must be an onefold Tensor or a number, but got "
                f"{type(operand).__name__}. Make it a tensor first, with onefold.tensor(...) or "
                f"onefold.from_torch(...). Called at {user_line()}"
            )
        operands.append(operand)
    if not any(isinstance(operand, Tensor) for operand in operands):
        raise OnefoldTypeError(
            f"{name}: one argument at least must be an onefold Tensor, but got {input!r} and "
            f"{other!r}. Called at {user_line()}"
        )
    return operands[0], operands[1]


def with_operands(call: Callable[..., Tensor], name: str, input: object, other: object) -> Tensor:
    """Call a function of two operands with what `as_operands` makes of them.

    An argument's class may override the function, as that of sparse tensors does.
    """
    result = result_of_override(name, (input, other))
    if result is not None:
        return cast("Tensor", result)
    return call(*as_operands(name, input, other))


def _without_array(name: str, input: object, other: object) -> tuple[object, object]:
    """The operands, where an array next to a local tensor becomes a tensor, too.

    Both then have the dtype that numpy's own operator gives, since torch leaves the work to that.
    """
    if isinstance(input, Tensor) and isinstance(other, np.ndarray) and input.is_local:
        return _together(name, input, other) or (input, other)
    if isinstance(other, Tensor) and isinstance(input, np.ndarray) and other.is_local:
        found = _together(name, other, input)
        return (input, other) if found is None else (found[1], found[0])
    return input, other


def _together(name: str, x: Tensor, array: np.ndarray) -> tuple[Tensor, Tensor] | None:
    """A tensor and an array as tensors of one dtype; None if the array cannot be a tensor."""
    try:
        value = torch.as_tensor(array)
    except (TypeError, ValueError):
        return None
    dtype = torch.promote_types(x.dtype, value.dtype)
    if x.dtype is not torch.bfloat16:  # which numpy does not have
        kinds = [torch.empty(0, dtype=each).numpy().dtype for each in (x.dtype, value.dtype)]
        dtype = torch.from_numpy(np.empty(0, np.result_type(*kinds))).dtype
    if name == "true_divide" and not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.float64
    return names.cast(x, dtype), from_torch(value.to(x.meta.device, dtype))
