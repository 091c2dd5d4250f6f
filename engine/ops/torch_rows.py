"""The functions of the rows of `torch_table`, each with its op."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Unpack

import torch

from ...errors import OnefoldTypeError, OnefoldValueError
from ..argument_types import TypedLayout
from ..meta import Box
from ..names import register_name
from ..op import Arg, Gradients, Needs
from ..out_tensors import give_to, made_for
from ..tensor import Tensor
from ..views import FunctionStep, link
from .creation import make
from .reduce import mean, sum
from .torch_function import TorchFunction
from .torch_op import Arguments, Slot, slots_for
from .torch_results import RESULTS
from .torch_row import ROWS, Row


class _ViewFunction(TorchFunction):
    """A function that gives a view: the gradient is the view that goes back."""

    saves = ()

    def vjp(self, needs: Needs, dy: object, y: object, *args: Arg) -> Gradients:
        assert isinstance(dy, Tensor)
        return (_only(ROWS[_INVERSES[self.name]], dy),)


_INVERSES = {"view_as_complex": "view_as_real", "view_as_real": "view_as_complex"}


def _op(row: Row, outputs: int) -> TorchFunction:
    """The op of a row with so many outputs, made when the function is first called."""
    if outputs not in row.ops:
        kind = _ViewFunction if row.view else TorchFunction
        row.ops[outputs] = kind(
            row.name, row.function, row.whole, outputs, row.linear, row.differentiable, row.view
        )
    return row.ops[outputs]


def run(row: Row, tensors: list[Tensor], arguments: Arguments) -> tuple[Tensor, ...]:
    """The outputs of a call with these arguments."""
    count = max(1, len(row.outputs))
    if row.counted:
        blank = [torch.empty(x.shape, dtype=x.dtype, device="meta") for x in tensors]
        count = len(_op(row, 1).compute(blank, arguments))
    return _op(row, count).call(tensors, arguments)


def _bound(row: Row, *args: object, **kwargs: object) -> inspect.BoundArguments:
    try:
        return row.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise OnefoldTypeError(f"{row.name}(): {error}") from None


@lru_cache(maxsize=4096)
def _places(
    row: Row, count: int, names: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...], int | None]:
    """Where the arguments of a call stand: the positional ones, those by name, and `out`.

    A call has `count` arguments by position and then these names, in this order.
    """
    found = _bound(row, *range(count), **{name: count + i for i, name in enumerate(names)})
    out = found.arguments.pop("out", None)
    return found.args, tuple(found.kwargs.items()), out


def public(row: Row, doc: str, result: type = Tensor) -> Callable[..., Any]:
    """The public function; `result` is the type that it returns, if it has several outputs."""
    name = row.name

    def call(*args: object, **kwargs: object) -> object:
        reduction = "none"
        if row.reduced:
            arguments = _bound(row, *args, **kwargs).arguments
            reduction = _reduction(arguments)
            args, kwargs = (), {**arguments, "reduction": "none"}
        given = (*args, *kwargs.values())
        places, names, out_place = _places(row, len(args), tuple(kwargs))
        out = None if out_place is None else given[out_place]
        tensors: list[Tensor] = []
        positional = tuple([slots_for(given[place], tensors) for place in places])
        named = tuple([(key, slots_for(given[place], tensors)) for key, place in names])
        if not tensors:
            raise OnefoldTypeError(f"{name}() needs a Tensor, but got {args!r}")
        made = run(row, tensors, Arguments(positional, named))
        if row.view:
            return link(made[0], tensors[0], _STEPS[name])
        if row.counted:
            return made
        if row.outputs:
            results = result(*made)
            return results if out is None else give_to(out, results)
        if out is not None:
            return give_to(out, made[0])
        return made[0] if reduction == "none" else _REDUCTIONS[reduction](made[0])

    _describe(call, row, result, doc)
    return call


def _only(row: Row, x: Tensor) -> Tensor:
    """The output of a row that takes one tensor and no other argument."""
    return run(row, [x], Arguments((Slot(0),)))[0]


def _view_step(name: str, inverse: str) -> FunctionStep:
    """The step from a base to its view by the row `name`; `inverse` makes the base of the view."""
    row, back = ROWS[name], ROWS[inverse]

    def on_one(x: torch.Tensor) -> torch.Tensor:
        made = row.function(x)
        assert isinstance(made, torch.Tensor)
        return made

    return FunctionStep(name, partial(_only, row), lambda x, y: _only(back, y), on_one)


_STEPS = {name: _view_step(name, inverse) for name, inverse in _INVERSES.items()}

_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"mean": mean, "sum": sum}


def _reduction(arguments: dict[str, object]) -> str:
    """The requested reduction of a loss, which is removed from its arguments."""
    size_average = arguments.pop("size_average", None)
    reduce = arguments.pop("reduce", None)
    reduction = arguments.pop("reduction", "mean")
    if size_average is not None or reduce is not None:  # as torch spelled it long ago
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction not in ("none", *_REDUCTIONS):
        raise OnefoldValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def entry(row: Row) -> Callable[..., Any]:
    """The function of a row of the table."""
    if row.kind == "vector":
        return new_vector(row)
    result = RESULTS.get(row.name, tuple[Tensor, ...] if row.counted else Tensor)
    return public(row, f"torch.{row.name} on every shard; see torch's documentation.", result)


def new_vector(row: Row) -> Callable[..., Tensor]:
    """The function that creates a vector, with the layout arguments of creation functions."""
    name, signature = row.name, row.signature

    def call(*args: object, **layout: Any) -> Tensor:
        given = {key: layout.pop(key) for key in signature.parameters if key in layout}
        out = given.pop("out", None)
        if out is not None:
            return give_to(out, call(*args, **given, **made_for(out, layout)))
        dtype = layout.pop("dtype", None) or torch.get_default_dtype()
        try:
            bound = signature.bind(*args, **given)
        except TypeError as error:
            raise OnefoldTypeError(f"{name}(): {error}") from None
        if any(isinstance(each, Tensor) for each in (*bound.args, *bound.kwargs.values())):
            raise OnefoldTypeError(f"{name} takes numbers, but got a Tensor; pass x.item()")
        whole = row.function(*bound.args, **bound.kwargs, dtype=dtype)
        assert isinstance(whole, torch.Tensor)

        def part(box: Box, device: torch.device) -> torch.Tensor:
            first, size = box[0][0], box[1][0]
            return whole[first : first + size].to(device, copy=True)

        return make(name, tuple(whole.shape), dtype, part, **layout)

    _describe(call, row, Tensor, f"The vector that torch.{name} makes, in any layout.")
    every = [*signature.parameters.values(), _LAYOUT]
    vars(call)["__signature__"] = signature.replace(parameters=every, return_annotation=Tensor)
    return call


_LAYOUT = inspect.Parameter("layout", inspect.Parameter.VAR_KEYWORD, annotation=Unpack[TypedLayout])


def _describe(call: Callable[..., object], row: Row, result: type, doc: str) -> None:
    call.__name__ = call.__qualname__ = row.name.split(".")[-1]
    call.__doc__ = doc
    vars(call)["__signature__"] = row.signature.replace(return_annotation=result)


FUNCTIONS = {name: register_name(name, entry(row)) for name, row in ROWS.items()}
