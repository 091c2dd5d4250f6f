"""Functions with all of torch's parameters, where those of an op are fewer or in another order.

These are `inplace`; `size_average` and `reduce`, which `reduction` replaced; a softmax's dim that
is not given; and `out`. A function's text is made from torch's signature.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from ..engine.generated import function
from ..engine.inplace import apply_inplace
from ..engine.names import Function
from ..engine.out_tensors import give_to
from ..engine.tensor import Tensor

# The parameters that torch's functions have and ops do not have, with their types.
_MORE: dict[str, Any] = {
    "_stacklevel": int,
    "inplace": bool,
    "out": Tensor | None,
    "reduce": bool | None,
    "size_average": bool | None,
}


def reduction_of(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The requested reduction, which may be given by torch's two deprecated arguments."""
    if size_average is None and reduce is None:
        return reduction
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def implicit_dim(input: Tensor) -> int:
    """The dim that torch chooses for a softmax without one."""
    return 0 if input.ndim in (0, 1, 3) else 1


def like_torchs(name: str, core: Function) -> Function:
    """`core`, or a function with the parameters of torch.nn.functional's function of this name."""
    theirs = _signature(getattr(torch.nn.functional, name, None))
    ours = inspect.signature(core, eval_str=True)
    if theirs is None or _form(ours) == _form(theirs):
        return core
    first, *others = [
        each
        for each in ours.parameters.values()
        if each.name in theirs.parameters or each.name != "out"
    ]
    renamed = [first.replace(name=next(iter(theirs.parameters))), *others]
    ours = ours.replace(parameters=renamed)  # the first argument is passed by its position
    known = ours.parameters
    if not set(known) <= {*theirs.parameters} or set(theirs.parameters) - {*known, *_MORE}:
        return core  # of other parameters altogether
    return _made(name, core, ours, theirs)


def _signature(function: object) -> inspect.Signature | None:
    """The signature of a function of torch that is written in Python."""
    try:
        found = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    kinds = {each.kind for each in found.parameters.values()}
    return None if inspect.Parameter.VAR_POSITIONAL in kinds else found


def _form(signature: inspect.Signature) -> list[tuple[str, object, object]]:
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


def _made(
    name: str, core: Function, ours: inspect.Signature, theirs: inspect.Signature
) -> Function:
    parameters = list(theirs.parameters.values())
    extra = set(theirs.parameters) - set(ours.parameters)
    first = parameters[0].name
    defaults = {f"_{p.name}_": p.default for p in parameters if p.default is not p.empty}
    taken = [p.name + (f"=_{p.name}_" if f"_{p.name}_" in defaults else "") for p in parameters]
    star = [p.kind is p.KEYWORD_ONLY for p in parameters]
    if True in star:
        taken.insert(star.index(True), "*")
    given = {each: each for each in theirs.parameters if each not in extra}
    if {"size_average", "reduce"} <= extra:
        given["reduction"] = "reduction_of(reduction, size_average, reduce)"
    if "_stacklevel" in extra:
        given["dim"] = f"implicit_dim({first}) if dim is None else dim"
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = False
    passed = []
    for each in ours.parameters.values():
        named = named or each.kind not in positional
        passed.append(f"{each.name}={given[each.name]}" if named else given[each.name])
    result = f"core({', '.join(passed)})"
    if "inplace" in extra:
        result = f"apply_inplace({', '.join(['core', *passed])}) if inplace else {result}"
    if "out" in extra:
        result = f"{result} if out is None else give_to(out, {result})"
    text = f"def {name}({', '.join(taken)}):\n    return {result}\n"
    scope = {
        "__name__": __name__,
        "core": core,
        "give_to": give_to,
        "implicit_dim": implicit_dim,
        "reduction_of": reduction_of,
        "apply_inplace": apply_inplace,
        **defaults,
    }
    made = function(text, name, name, scope)
    made.__doc__ = core.__doc__
    typed = [
        p.replace(annotation=_MORE.get(p.name) if p.name in extra else _type(ours, p))
        for p in parameters
    ]
    vars(made)["__signature__"] = inspect.Signature(typed, return_annotation=ours.return_annotation)
    return made


def _type(ours: inspect.Signature, parameter: inspect.Parameter) -> object:
    """The op's type of a parameter, with None where that is torch's default."""
    known = ours.parameters[parameter.name].annotation
    return known | None if parameter.default is None else known
