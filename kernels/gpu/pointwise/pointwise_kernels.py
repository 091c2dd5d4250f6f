"""Triton kernels of torch's pointwise functions, generated for their dtypes and strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ...scalar_expression import Adapt, adapt_of, is_declared
from ..launch.aot_cases import Case
from ..launch.symbolic_numbers import kind_of, runtime_scalars, through
from .codegen import generate
from .copy_kernels import MOVED, fill
from .evaluate import plan_dense, warps_of
from .expression import WORK, Expression, Writer
from .strided_layout import Pattern
from .triton_functions import is_known, takes_of

# Left to torch: dtypes that Triton lacks, and of complex numbers all but sums, products and
# conjugates of two floats of 32 bits; digamma and polygamma, which libdevice lacks;
# isclose of integers, which torch compares partly as floats; tensors of 2^31 rows or more that do
# not merge, as rows are counted in int32; tensors on several devices, as torch takes 0-d tensors
# on the host.

_MAX_PLANS = 4096

Function = Callable[..., Tensor]
Given = Sequence[Any]  # tensors and numbers
# A call: the arguments of the kernel's function, those of torch's function, and `out`.
_Run = Callable[[Given, Given, Tensor | None], Tensor]


class Pointwise:
    """A torch function as one kernel.

    `adapt` gives the kernel's function and its arguments for those of the torch function; from the
    torch function itself come shapes, dtypes and errors.
    """

    runtime_scalars = ("args",)  # all numbers but those that `adapt` reads

    def __init__(self, torchs: Function, adapt: Adapt) -> None:
        self.torchs = torchs
        self.adapt = adapt
        self._plans: dict[tuple[object, ...], _Run] = {}
        self._expressions: dict[tuple[object, ...], tuple[Expression, torch.dtype] | None] = {}

    def __call__(self, *args: Any, out: Tensor | None = None) -> Tensor:
        """`out` is what the result may be put into: an argument, where all are in row-major order.

        Each element is read by the program that writes it, before it writes.
        """
        function, given = self.adapt(*args)
        key = (function, *[key_of(arg) for arg in args])
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            found = self._plans[key] = self._plan(function, given, args)
        return found(given, args, out)

    def _plan(self, function: str, given: Given, args: Given) -> _Run:
        devices = {arg.device for arg in given if isinstance(arg, Tensor)}
        if function and len(devices) == 1:
            kinds = (function, *map(_kind_of, given), *map(_kind_of, args))
            if kinds not in self._expressions:
                self._expressions[kinds] = self._expression(function, given, args)
            found = self._expressions[kinds]
            run = None if found is None else _runner(*found, given)
            if run is not None:
                return run
        return lambda given, args, out: self.torchs(*args)

    def _expression(
        self, function: str, given: Given, args: Given
    ) -> tuple[Expression, torch.dtype] | None:
        """What the kernel computes, and the dtype of the result; None if there is no kernel."""
        if not all(supported(arg) or is_pair(arg) for arg in given):
            return None
        # On tensors without elements torch says what it gives, and raises what it raises.
        dtype = self.torchs(*map(stand_in, args)).dtype
        expression = None
        if dtype is torch.complex64:
            expression = of_pairs(function, given)
        elif dtype in WORK and all(map(supported, given)):
            expression = single(function, given, dtype)
        return None if expression is None else (expression, dtype)


def _runner(expression: Expression, dtype: torch.dtype, given: Given) -> _Run | None:
    """The launch for arguments of these layouts; None if they are too large."""
    at = [i for i, arg in enumerate(given) if isinstance(arg, Tensor)]
    tensors = [given[i] for i in at]
    paired = dtype is torch.complex64
    shape, strides, launch = plan_dense(expression, tensors)
    if launch is None:
        return None
    device = tensors[0].device
    numbers = [
        (i, float if made.dtype.is_floating_point else int)
        for i, made in enumerate(expression.inputs)
        if made.kind == "number"
    ]

    def run(given: Given, args: Given, out: Tensor | None) -> Tensor:
        y = out
        if y is None:
            y = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        tensors = [*[given[i] for i in at], y]
        if paired:
            tensors = [x.view(torch.int64) if is_pair(x) else x for x in tensors]
        launch((*tensors, *[through(kind, given[i]) for i, kind in numbers]))
        return y

    return run


def single(function: str, given: Given, dtype: torch.dtype) -> Expression:
    """The expression of one function of tensors and numbers that gives this dtype."""
    w = Writer()
    inputs = [
        w.tensor(arg.dtype)
        if isinstance(arg, Tensor)
        else w.number(0.0 if numbers_are_real(given, dtype) else 0)
        for arg in given
    ]
    return w.expression(write(w, function, inputs, given, dtype))


_OF_PAIRS = {
    "add": "complex_add", "sub": "complex_sub", "mul": "complex_mul", "neg": "complex_neg",
    "complex_conj": "complex_conj", "copy": "copy",
}  # fmt: skip


def is_pair(arg: object) -> bool:
    """Whether it is a complex tensor that is read as pairs; see `complex_functions.py`."""
    return isinstance(arg, Tensor) and arg.dtype is torch.complex64 and not arg.is_conj()


def of_pairs(function: str, given: Given) -> Expression | None:
    """The expression of a function that gives pairs; what is real is made a pair."""
    if function not in _OF_PAIRS:
        return None
    w = Writer()
    inputs = [
        (w.tensor(torch.int64 if is_pair(arg) else arg.dtype), is_pair(arg))
        if isinstance(arg, Tensor)
        else (w.number(0.0), False)
        for arg in given
    ]
    pairs = [x if paired else w.step("complex_of", [x], torch.int64) for x, paired in inputs]
    return w.expression(w.step(_OF_PAIRS[function], pairs, torch.int64))


def numbers_are_real(given: Given, dtype: torch.dtype) -> bool:
    """Whether a function that gives this dtype takes numbers as float64, not as int64."""
    return WORK[_common(given) if dtype is torch.bool else dtype].is_floating_point


def write(w: Writer, function: str, values: Sequence[int], given: Given, dtype: torch.dtype) -> int:
    """Write a function of these values, which are `given` as tensors and numbers."""
    common = _common(given)
    inputs = list(values)
    # What is compared is rounded to the common dtype first.
    for i, (arg, takes) in enumerate(zip(given, takes_of(function), strict=True)):
        other = not isinstance(arg, Tensor) or arg.dtype is not common
        if takes == "c" and other and common is not WORK[common]:
            inputs[i] = w.step("copy", [inputs[i]], common)
    return w.step(function, inputs, dtype, common)


def _common(given: Given) -> torch.dtype:
    """The type to which torch promotes the first two."""
    first = given[0]
    if len(given) == 1:
        return first.dtype  # type: ignore[no-any-return]
    return torch.result_type(first, given[1])


def key_of(arg: Any) -> object:
    if isinstance(arg, Tensor):
        return arg.dtype, arg.shape, arg.stride(), arg.device
    kind = kind_of(arg)
    if kind is tuple:
        return type(arg[0])
    return kind if kind in (float, int, bool) else arg


def _kind_of(arg: Any) -> object:
    """What the dtype and the computation depend on: of tensors neither sizes nor strides."""
    if isinstance(arg, Tensor):
        return arg.dtype, arg.ndim == 0, arg.is_conj()
    return key_of(arg)


def supported(arg: object) -> bool:
    return arg.dtype in WORK if isinstance(arg, Tensor) else isinstance(arg, (int, float))


def stand_in(arg: Any) -> Any:
    """Without elements; a tensor without dims promotes like a number, so it stays one."""
    if isinstance(arg, Tensor):
        return torch.ones((0,) if arg.ndim else (), dtype=arg.dtype, device="cpu")
    return arg


@cache
def of_torch(function: Function) -> Function | None:
    """What Triton has for an elementwise function, or for one of torch that moves values."""
    adapt = adapt_of(function)
    if adapt is None or not (is_declared(function) or is_known(function.__name__)):
        return MOVED.get(function)
    return Pointwise(function, adapt)


@runtime_scalars("value")
def filled(x: Tensor, shape: Sequence[int], value: float | complex) -> Tensor:
    return fill(torch.empty(tuple(shape), dtype=x.dtype, device=x.device), value)


def _case(expression: Expression, pattern: Pattern, tile: tuple[int, int], size: str) -> Case:
    """A compiled form; `size` is the type of the sizes and strides."""
    kernel = generate(expression, pattern)
    inputs = expression.inputs
    dtypes = [given.dtype for given in inputs if given.kind == "tensor"]
    dtypes += [expression.dtype(value) for value in expression.outputs]
    pointers = [f"*{_TYPES[dtype]}" for dtype in dtypes]
    numbers = [_TYPES[given.dtype] for given in inputs if given.kind == "number"]
    rest = len(kernel.names) - len(pointers) - len(numbers) - 2
    types = (*pointers, *numbers, *(size,) * rest)
    return Case(kernel, types, tile, warps_of(expression), fused=False)


def _cases() -> Iterator[Case]:
    """What training is made of: each kind of layout, and each kind of function."""
    flat, bias, crossing = (1, 2048), (8, 256), (64, 64)
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.empty(8, 8, dtype=dtype)
        two, three = Pattern(0, 0, ((1,),) * 2), Pattern(0, 0, ((1,),) * 3)
        add, mul = single("add", (x, x), dtype), single("mul", (x, x), dtype)
        yield _case(add, three, flat, "i32")
        yield _case(mul, three, flat, "i32?")
        yield _case(mul, Pattern(0, 1, ((None, 1), (0, 1), (None, 1))), bias, "i32")
        yield _case(add, Pattern(0, 1, ((1, None), (None, 1), (None, 1))), crossing, "i32")
        yield _case(single("add", (x, 1.0), dtype), two, flat, "i32")
        gelu = "gelu" if dtype is torch.float32 else "gelu_half"
        yield _case(single(gelu, (x,), dtype), two, flat, "i32")
        yield _case(single("gelu_tanh_backward", (x, x), dtype), three, flat, "i32")
        yield _case(single("pow", (x, x), dtype), three, flat, "i32")
        yield _case(single("lt", (x, 1.0), torch.bool), two, flat, "i32")
        mask = torch.empty(8, 8, dtype=torch.bool)
        yield _case(single("where", (mask, 0.0, x), dtype), three, flat, "i32")
    yield _case(single("copy", (x,), torch.bfloat16), two, flat, "i32")
    yield _case(single("sin", (x,), torch.float32), two, (1, 1024), "i32")
    x = torch.empty(8, 8, dtype=torch.bfloat16)
    yield _case(single("absolute_error", (x, x), torch.bfloat16), three, flat, "i32")
    z = torch.empty(8, 8, dtype=torch.complex64)
    for function, given, pattern in (
        ("mul", (z, z), Pattern(0, 2, ((None, None, 1), (None, 0, 1), (None, None, 1)))),
        ("add", (z, z), three),
        ("complex_conj", (z,), two),
    ):
        expression = of_pairs(function, given)
        assert expression is not None
        yield _case(expression, pattern, (32, 64) if pattern.rows else (1, 1024), "i32")


_TYPES = {
    torch.bool: "i1", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32",
    torch.float64: "fp64", torch.int64: "i64",
}  # fmt: skip
CASES = list(_cases())
