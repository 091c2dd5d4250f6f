"""Elementwise ops written as functions, from which their kernels, methods and types come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from inspect import signature
from typing import Any, TypeVar, cast

from ...kernels.scalar_expression import expression
from ..dispatcher import binary, ternary, unary
from ..functional_autograd import vjp as gradient_of
from ..meta import Meta
from ..op import Kernel
from ..signature import Signature
from ..tensor import Tensor
from .arithmetic import mul
from .cast import clone
from .pointwise import Elementwise, register_elementwise
from .reduce import constant_like, sum_to

F = TypeVar("F", bound=Callable[..., Tensor])
Needs = Sequence[object]
_TENSOR = ("Tensor", Tensor)
Gradient = Callable[..., Tensor]  # of dy, y, inputs and settings, by the names of its parameters


def elementwise(
    torch: Kernel | None = None,
    *,
    gradient: Gradient | tuple[Gradient, ...] = (),
    linear: str = "",
    passes: tuple[Signature, ...] = (),
) -> Callable[[F], F]:
    """The op of a function of tensors and settings, whose body is an expression (a decorator).

    See `kernels.scalar_expression.expression` for what the body may hold; the parameters that are
    annotated Tensor come first. `torch` is torch's own function for it, where there is one, with
    the same parameters.

    `gradient` gives the gradient of the input, or a tuple one for each input, as functions written
    with ops. Their parameters named `dy`, `y` and as those of the function get these values, and
    only what they ask for is kept for backward. How partial values pass is said by `linear` and
    `passes`, see `Elementwise`. A function whose name begins with an underscore is not registered.

    Example::

        @elementwise(gradient=lambda dy, y, cap: dy * (1 - square(y / cap)), passes=INCREASING)
        def softcap(input: Tensor, cap: float) -> Tensor:
            return cap * tanh(input / cap)
    """

    def made(function: F) -> F:
        parameters = signature(function).parameters
        inputs = [name for name, each in parameters.items() if each.annotation in _TENSOR]
        gradients = gradient if isinstance(gradient, tuple) else (gradient,)
        asked = {name for each in gradients for name in signature(each).parameters}
        op = Elementwise(
            function.__name__.removeprefix("_"),
            expression(torch)(function),
            _vjp(gradients, list(parameters), len(inputs)) if gradients else None,
            linear=linear,
            passes=passes,
            saves=tuple(index for index, name in enumerate(inputs) if name in asked),
            saves_output="y" in asked,
        )
        call = _with_signature((unary, binary, ternary)[len(inputs) - 1](op), function)
        return call if function.__name__.startswith("_") else register_elementwise(call)

    return made


def _with_signature(entry: Callable[..., Any], function: F) -> F:
    """The entry of an op with the parameters, defaults and documentation of a function."""
    shown = signature(function, eval_str=True)
    names = list(shown.parameters)
    if all(each.annotation in _TENSOR for each in shown.parameters.values()):
        # The entry itself, which takes its tensors by position.
        positional = [each.replace(kind=each.POSITIONAL_ONLY) for each in shown.parameters.values()]
        call = entry
        shown = shown.replace(parameters=positional)
    else:
        given = ", ".join(names)
        code = compile(f"lambda {given}: entry({given})", __file__, "eval")
        call = eval(code, {"entry": entry, "__name__": __name__})
        call.__defaults__ = function.__defaults__
    update_wrapper(call, function)
    call.__signature__ = shown  # type: ignore[attr-defined]
    return cast(F, call)


def _vjp(
    gradients: Sequence[Gradient], parameters: Sequence[str], inputs: int
) -> Callable[..., Any]:
    """The gradients as an op's vjp."""
    known = ["dy", "y", *parameters]
    picks = [[known.index(name) for name in signature(each).parameters] for each in gradients]
    if inputs == 1:
        return _unary_vjp(gradients[0], picks[0], len(known))

    def vjp(needs: Needs, *values: Any) -> tuple[Any, ...]:
        metas = [x if isinstance(x, Meta) else x.meta for x in values[2 : 2 + inputs]]
        return tuple(
            need and sum_to(each(*[values[index] for index in pick]), meta)
            for need, each, pick, meta in zip(needs, gradients, picks, metas, strict=True)
        )

    return vjp


def _unary_vjp(gradient: Gradient, pick: Sequence[int], known: int) -> Callable[..., Any]:
    settings = list(range(3, known))
    if pick == [0, 2, *settings]:
        return lambda needs, dy, y, x, *settings: (gradient(dy, x, *settings),)
    if pick == [0, 1, *settings]:
        return lambda needs, dy, y, x, *settings: (gradient(dy, y, *settings),)
    return lambda needs, *values: (gradient(*[values[index] for index in pick]),)


def gradient_kernel(
    torch: Kernel | None = None,
    *,
    second: Callable[..., Tensor] | None = None,
    flat: bool = False,
) -> Callable[[F], F]:
    """The gradient (dy, x or y, settings) of an elementwise op as an op of its own (a decorator).

    It is one kernel, where a gradient written with ops is several. `second` is the derivative of
    the slope as a function of x or y; it is zero if `flat`. Without either it is derived from the
    function's body.
    """

    def made(function: F) -> F:
        def derived(ddx: Tensor, dy: Tensor, at: Tensor, *settings: Any) -> Any:
            own = clone(at)  # by which nothing else depends on it, as `dy` may
            return gradient_of(lambda x: function(dy, x, *settings), own, ddx, create_graph=True)[1]

        of_slope = zero_slope if flat else slope_by(second) if second else derived
        kernel = expression(torch)(function)
        entry = gradient_op(function.__name__.removeprefix("_"), kernel, of_slope)
        return cast(F, update_wrapper(entry, function))

    return made


def gradient_op(name: str, kernel: Kernel, of_slope: Callable[..., Tensor]) -> Any:
    """The op (dy, at, *settings) -> dy * slope(at), where `at` is x or y.

    `of_slope(ddx, dy, at, *settings)` is the gradient for `at`.
    """

    def vjp(
        needs: Needs, ddx: Tensor, dx: Meta, dy: Tensor, at: Tensor, *settings: Any
    ) -> tuple[Any, Any]:
        for_dy = needs[0] and entry(ddx, at, *settings)
        return for_dy, of_slope(ddx, dy, at, *settings) if needs[1] else None

    entry = binary(Elementwise(name, kernel, vjp, linear="0"))
    return entry


def slope_by(second: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`of_slope` where the slope has this derivative."""
    return lambda ddx, dy, at, *settings: mul(mul(ddx, dy), second(at, *settings))


def zero_slope(ddx: Tensor, dy: Tensor, at: Tensor, *settings: Any) -> Tensor:
    """`of_slope` where the slope is constant."""
    zeros: Tensor = constant_like(at, 0)
    return zeros
