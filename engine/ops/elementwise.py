"""Elementwise ops from a kernel, or a function that is an expression, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from inspect import signature
from types import MappingProxyType
from typing import ClassVar, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from ...kernels import pointwise_ref as kernels
from ...kernels.scalar_expression import expression
from ..argument_errors import checks_own_arguments
from ..argument_types import Number
from ..dispatcher import binary, number_first, number_last, ternary, unary
from ..functional_autograd import vjp as gradient_of
from ..generated import function as generated, with_parameters
from ..meta import Meta
from ..op import Gradients, Kernel, Needs, NoAttributes
from ..out_tensors import OUT, give_to, with_out
from ..signature import Signature
from ..tensor import Tensor
from .cast import clone
from .like import constant_like
from .pointwise import (
    NUMBERS,
    Elementwise,
    Entry,
    NumberPredicate,
    Operand,
    conj_of,
    register_elementwise,
    with_operands,
)
from .reduce import sum_to, without_partials

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Tensor])
Function: TypeAlias = Callable[[Tensor], Tensor]
Operator: TypeAlias = Callable[[Operand, Operand], Tensor]
Record: TypeAlias = Callable[..., tuple[object, ...]]
Gradient: TypeAlias = Callable[..., Tensor]  # of dy, y, inputs and settings, by its parameters
_TENSOR = ("Tensor", Tensor)


class Settings(tuple[object, ...]):
    """The arguments of an elementwise op after its tensors, in the order of their names."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]]

    def __new__(cls, *given: object) -> Settings:
        return super().__new__(cls, given)


def settings_of(names: Sequence[str], types: Mapping[str, object] = MappingProxyType({})) -> Record:
    """The record of settings of these names, which may be numbers if no type is given."""
    body = {"__slots__": (), "_fields": tuple(names), "__annotations__": dict(types)}
    return type("Settings", (Settings,), body)


def same(dy: Tensor) -> Tensor:
    """The gradient where the slope is 1."""
    return dy


def zero(dy: Tensor) -> Tensor:
    """The gradient where the slope is 0."""
    return constant_like(dy, 0)


def derived(
    name: str,
    kernel: Kernel,
    gradients: Sequence[Gradient | None],
    inputs: Sequence[str],
    settings: Sequence[str] = (),
    *,
    linear: str = "",
    linear_if: NumberPredicate | None = None,
    passes: tuple[Signature, ...] = (),
) -> Elementwise:
    """An elementwise op whose gradients are functions written with ops, one for each input.

    The parameters of a function named `dy`, `y` and as the `inputs` and `settings` get these
    values, and only what the functions of wanted gradients ask for is kept for backward. Where the
    name of an input ends in "#" it is a number; such an input, or one that needs no gradient, has
    None for its function.
    """
    names = [name.rstrip("#") for name in inputs]
    asked = [list(signature(each).parameters) if each else [] for each in gradients]
    kept = {name for each in asked for name in each}
    assert len(gradients) == len(inputs), f"{name} needs one gradient for each of {inputs}"
    assert kept <= {"dy", "y", *names, *settings}, f"{name}: unknown parameters among {kept}"
    place = {name: f"record[{index}]" for index, name in enumerate(settings)}
    scope: dict[str, object] = {"sum_to": sum_to}
    terms = []
    for index, (gradient, given) in enumerate(zip(gradients, asked, strict=True)):
        scope[f"g{index}"] = gradient
        term = f"g{index}({', '.join(place.get(name, name) for name in given)})"
        if gradient is same:
            term = "dy"
        if len(inputs) > 1:  # the gradient of an only input has its shape and dtype
            meta = f"{names[index]}.meta" if names[index] in kept else names[index]
            term = f"needs[{index}] and sum_to({term}, {meta})"
        terms.append(term if gradient else "None")
    # An input without a gradient never asks for what is kept.
    of_each = [kept if g is None else {*a} for g, a in zip(gradients, asked, strict=True)]
    saves = [tuple([at for at, name in enumerate(names) if name in each]) for each in of_each]
    of_output = [(0,) * ("y" in each) for each in of_each]
    parameters = ", ".join(["needs", "dy", "y", *names, *["record"] * bool(settings)])
    text = f"def vjp({parameters}):\n    return ({', '.join(terms)},)"
    return Elementwise(
        name,
        kernel,
        generated(text, "vjp", f"gradients of {name}", scope) if any(gradients) else None,
        linear=linear,
        linear_if=linear_if,
        passes=passes,
        saves=saves[0] if len({*saves}) == 1 else tuple(saves),
        saves_output="y" in kept if len({*of_output}) == 1 else tuple(of_output),
    )


def torch_function(
    kernel: Kernel,
    gradient: Gradient | None = None,
    *,
    linear: str = "",
    passes: tuple[Signature, ...] = (),
    out: bool = True,
) -> Function:
    """A function of torch of a tensor `x`, registered under its name there; most take `out=`."""
    name = kernel.__name__
    op = derived(name, kernel, (gradient,), ("x",), linear=linear, passes=passes)
    return register_elementwise(unary(op, out))


def with_settings(
    name: str,
    kernel: Kernel,
    settings: str,
    gradient: Gradient | None = None,
    *,
    passes: tuple[Signature, ...] = (),
) -> Entry:
    """A function of a tensor `x` and settings of these names, which its gradient may use."""
    names = settings.split()
    op = derived(name, kernel, (gradient,), ("x",), names, passes=passes)
    return unary(op.taking(settings_of(names)))


def with_number(
    name: str,
    kernel: Kernel,
    gradient: Gradient | None = None,
    linear: str = "",
    linear_if: NumberPredicate | None = None,
) -> Callable[[Tensor, Number], Tensor]:
    """A function of a tensor `a` and a number `b`."""
    op = derived(name, kernel, (gradient, None), ("a", "b#"), linear=linear, linear_if=linear_if)
    return number_last(op)


def operator(
    name: str,
    kernel: Kernel,
    gradients: tuple[Gradient | None, Gradient | None] = (None, None),
    *,
    first: Kernel | None = None,
    last: Kernel | None = None,
    linear: str = "",
    linear_last: str = "",
    linear_if: NumberPredicate | None = None,
) -> Operator:
    """A function of two tensors, of which either may be a number, with its gradients in `a`, `b`.

    `first` and `last` are the kernels for a number as the first or the last operand; by default the
    number is made a tensor as the first, and is given to `kernel` as the last. `linear_last` is how
    partial sums pass if the last operand is a number, if `linear_if`.
    """
    for_a, for_b = gradients
    first_op = derived(name, first or kernels.number_first(kernel), (None, for_b), ("a#", "b"))
    return mixed(
        name,
        binary(derived(name, kernel, gradients, ("a", "b"), linear=linear)),
        with_number(name, last or kernel, for_a, linear_last, linear_if),
        number_first(first_op),
        linear_if,
    )


def mixed(
    name: str,
    both: Callable[[Tensor, Tensor], Tensor],
    number_last: Callable[[Tensor, Number], Tensor],
    number_first: Callable[[Number, Tensor], Tensor],
    linear_if: NumberPredicate | None = None,
    second: str = "other",
    otherwise: Callable[[Operator, str, object, object], Tensor] = with_operands,
) -> Operator:
    """The public function over its entries for two tensors and for a number on either side.

    `second` is the name of its second parameter. Before a number that does not suit, by
    `linear_if`, the partial axes of the tensor are reduced. `otherwise` is called with the function
    and its name for other operands.
    """

    def call(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
        if out is not None:
            return give_to(out, call(input, other))
        if isinstance(other, Tensor):
            if isinstance(input, Tensor):
                return both(input, other)
            if isinstance(input, NUMBERS):
                return number_first(input, other)
        elif isinstance(input, Tensor) and isinstance(other, NUMBERS):
            if linear_if is not None and input.meta.partial:
                input = without_partials_unless(linear_if, input, other)
            return number_last(input, other)
        return otherwise(call, name, input, other)

    call.__name__ = call.__qualname__ = name
    # The parameter gets another name, rather than a function in between, which would take time.
    call.__code__ = call.__code__.replace(co_varnames=("input", second, "out"))
    call.__annotations__ = {**call.__annotations__, second: call.__annotations__["other"]}
    return checks_own_arguments(call)


def without_partials_unless(linear_if: NumberPredicate, x: Tensor, number: Number) -> Tensor:
    """The tensor, with its partial axes reduced if the number does not keep them linear."""
    return x if linear_if(number, x.meta.dtype) else without_partials(x)


def elementwise(
    torch: Kernel | None = None,
    *,
    gradient: Gradient | tuple[Gradient, ...] | None = None,
    linear: str = "",
    passes: tuple[Signature, ...] = (),
    out: bool = False,
) -> Callable[[F], F]:
    """The op of a function of tensors and settings, whose body is an expression (a decorator).

    See `kernels.scalar_expression.expression` for what the body may hold; the parameters that are
    annotated Tensor come first. `torch` is torch's own function for it, where there is one, with
    the same parameters.

    `gradient` gives the gradient of the input, or a tuple one for each input, by the names of the
    function's parameters (see `derived`). How partial values pass is said by `linear` and `passes`,
    see `Elementwise`; with `out` the function takes `out=`. A function whose name begins with an
    underscore is not registered.

    Example::

        @elementwise(gradient=lambda dy, y, cap: dy * (1 - square(y / cap)), passes=INCREASING)
        def softcap(input: Tensor, cap: float) -> Tensor:
            return cap * tanh(input / cap)
    """

    def made(function: F) -> F:
        inputs, settings = _split(function)
        nothing = (None,) * len(inputs)
        op = derived(
            function.__name__.removeprefix("_"),
            expression(torch)(function),
            gradient if isinstance(gradient, tuple) else (gradient,) if gradient else nothing,
            inputs,
            settings,
            linear=linear,
            passes=passes,
        )
        taking = op.taking(_record(function)) if settings else op
        entry = (unary, binary, ternary)[len(inputs) - 1](taking, out=out and not settings)
        call = _with_signature(entry, function, out)
        return call if function.__name__.startswith("_") else register_elementwise(call)

    return made


def _split(function: F) -> tuple[list[str], list[str]]:
    """The names of a function's tensors and of its settings."""
    parameters = signature(function).parameters
    inputs = [name for name, each in parameters.items() if each.annotation in _TENSOR]
    return inputs, list(parameters)[len(inputs) :]


def _record(function: F) -> Record:
    """The record of a function's settings."""
    return settings_of(_split(function)[1], function.__annotations__)


def _with_signature(entry: Entry, function: F, out: bool) -> F:
    """The entry of an op with the parameters, defaults and documentation of a function."""
    if _split(function)[1]:
        taken = OUT if out else None
        return cast(F, with_parameters(function, function.__name__, entry, out=taken))
    # The entry itself, which takes its tensors by position.
    shown = signature(function, eval_str=True)
    positional = [each.replace(kind=each.POSITIONAL_ONLY) for each in shown.parameters.values()]
    call = update_wrapper(entry, function)
    shown = shown.replace(parameters=positional)
    vars(call)["__signature__"] = with_out(shown) if out else shown
    return cast(F, call)


def gradient_kernel(
    torch: Kernel | None = None, *, second: Gradient | None = None, flat: bool = False
) -> Callable[[F], F]:
    """The gradient (dy, x or y, settings) of an elementwise op as an op of its own (a decorator).

    It is one kernel, where a gradient written with ops is several. `second` is the derivative of
    the slope as a function of x or y; it is zero if `flat`. Without either it is derived from the
    function's body.
    """

    def made(function: F) -> F:
        def of_slope(ddx: Tensor, dy: Tensor, at: Tensor, *settings: object) -> Tensor:
            if flat:
                return constant_like(at, 0)
            if second is not None:
                return conj_of(ddx) * dy * conj_of(second(at, *settings))
            own = clone(at)  # by which nothing else depends on it, as `dy` may
            grad: Tensor
            _, grad = gradient_of(lambda x: function(dy, x, *settings), own, ddx, create_graph=True)
            return grad

        name = function.__name__.removeprefix("_")
        takes = _record(function) if _split(function)[1] else NoAttributes
        entry = gradient_op(name, expression(torch)(function), of_slope, takes)
        return cast(F, update_wrapper(entry, function))

    return made


def gradient_op(
    name: str, kernel: Kernel, of_slope: Gradient, takes: Callable[P, tuple[object, ...]]
) -> Callable[Concatenate[Tensor, Tensor, P], Tensor]:
    """The op (dy, at, *settings) -> dy * slope(at), conjugated if complex; `at` is x or y.

    `of_slope(ddx, dy, at, *settings)` is the gradient for `at`, and `takes` makes the settings.
    """

    def vjp(
        needs: Needs, ddx: Tensor, dx: Meta, dy: Tensor, at: Tensor, settings: Sequence[object] = ()
    ) -> Gradients:
        for_dy = needs[0] and entry(ddx, conj_of(at), *settings)
        return for_dy, needs[1] and of_slope(ddx, dy, at, *settings)

    op = Elementwise(name, kernel, vjp, linear="0", saves=((1,), (0, 1))).taking(takes)
    entry: Entry = binary(op)
    return entry
