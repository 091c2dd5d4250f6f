"""torch.ops (`flow.ops`): ops by namespace and name, such as `flow.ops.aten.mm.default`.

`aten` has the functions and methods of the package that torch has, too; other namespaces hold the
custom ops of a program (`flow.library.custom_op`). An overload, such as `default`, is the op itself
under another name: arguments choose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ..engine.argument_errors import with_argument_errors
from ..engine.names import find_torch_form
from ..errors import OnefoldAttributeError

_IN_TORCH = (torch, torch.Tensor, torch.nn.functional)

custom_ops: dict[str, Callable[..., Any]] = {}  # by their names, such as "mylib::scale"


class NamedOp:
    """An op by its name in a namespace; it is called as the function is."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__ = name
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, overload: str) -> NamedOp:
        if overload.startswith("__"):
            raise AttributeError(overload)
        made = NamedOp(f"{self.__name__}.{overload}", self._function)
        vars(self)[overload] = made  # each time the same, so that sets and dicts find it
        return made

    def __repr__(self) -> str:
        return self.__name__


class OpNamespace:
    """The ops of one namespace, as attributes."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> NamedOp:
        custom = custom_ops.get(f"{self.__name__}::{name}")
        if custom is not None:
            return _custom(f"{self.__name__}.{name}", custom)
        in_torch = self.__name__ == "aten" and any(hasattr(place, name) for place in _IN_TORCH)
        function = find_torch_form(name) if in_torch else None
        if function is None:
            known = [key for key in custom_ops if key.startswith(f"{self.__name__}::")]
            hint = (
                "it has the functions and methods of the package that torch has, too"
                if self.__name__ == "aten"
                else f"it has {', '.join(known) or 'no ops'}; make one with flow.library.custom_op"
            )
            raise OnefoldAttributeError(f"flow.ops.{self.__name__} has no op {name!r}: {hint}")
        made = vars(self)[name] = NamedOp(f"aten.{name}", with_argument_errors(function))
        return made

    def __repr__(self) -> str:
        return f"<flow.ops.{self.__name__}>"


@cache
def _custom(name: str, op: Callable[..., Any]) -> NamedOp:
    return NamedOp(name, op)


@cache
def __getattr__(name: str) -> OpNamespace:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return OpNamespace(name)
