"""compile: functions and modules as programs, captured at their first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import update_wrapper
from types import MethodType
from typing import Any, TypedDict, TypeVar, Unpack, overload

import torch

from ..engine import interpreter
from ..engine.autocast import Autocast
from ..engine.global_mode import mode_now
from ..engine.interpreter import Interpreter
from ..engine.tensor import Tensor
from ..errors import OnefoldError, OnefoldTypeError, OnefoldValueError
from ..graph.compiled_function import CompiledFunction
from ..graph.ir import Program
from ..graph.names_read import NamesRead
from ..graph.pytree import tree_signature
from ..graph.setting_checks import integer
from .graph_structure import Tables, same_tables
from .module import Module

F = TypeVar("F", bound=Callable[..., Any])

MAX_COMPILED = 10  # programs kept, the latest used

_CAPTURED = (
    "which flow.compile captures as a graph's build(): its Python code runs once, without values"
)


class _Entry:
    """A program, and what it was captured for."""

    def __init__(
        self, key: object, compiled: CompiledFunction, names: NamesRead, modules: Sequence[Module]
    ) -> None:
        self.key = key
        self.compiled = compiled
        self._names = names
        self._tables = Tables({id(m): m for top in modules for m in top.modules()}.values())

    def holds(self) -> bool:
        """Whether what it depends on besides the arguments is as it was."""
        return self._tables.same() and self._names.same() and self.compiled.holds()


class Compiled:
    """A function that is captured once for each signature of its arguments; see `compile`."""

    def __init__(self, function: Callable[..., Any], size: int) -> None:
        self._function = function
        self.size = size
        self._entries: list[_Entry] = []  # the latest used first
        self._name = getattr(function, "__name__", type(function).__name__)
        if not isinstance(function, Module):
            update_wrapper(self, function, updated=())

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        current = interpreter.get_current()
        if current is not None and not (isinstance(current, Autocast) and current.inner is None):
            return self._function(*args, **kwargs)  # it is a part of what that one looks at
        given = args, kwargs
        inputs: list[Tensor] = []
        places: dict[int, int] = {}

        def found(x: Tensor) -> object:
            place = places.get(id(x))
            if place is None:
                places[id(x)] = len(inputs)
                inputs.append(x)
                node = x.node
                return x.meta, node is None, node is not None and node.is_leaf
            return place

        key = (
            tree_signature(given, found),
            interpreter.is_grad_enabled(),
            torch.get_default_dtype(),
            mode_now(),
            None if current is None else (current.dtypes, current.caches),
        )
        entries = self._entries
        for index, entry in enumerate(entries):
            if entry.key == key and entry.holds():
                if index:
                    entries.insert(0, entries.pop(index))
                break
        else:
            entry = self._capture(key, given, inputs)
        if current is None:
            return entry.compiled(inputs)
        with interpreter.using(None):
            return entry.compiled(inputs)

    def _capture(self, key: object, given: Any, inputs: Sequence[Tensor]) -> _Entry:
        current = interpreter.get_current()

        def around(capture: Interpreter) -> Interpreter:
            if isinstance(current, Autocast):
                return Autocast(capture, current.dtypes, current.caches)
            return capture

        function = self._function
        owner = getattr(function, "__self__", function)
        names = NamesRead()
        names.add(function)
        names.add(given)
        objects = [(each, dict(vars(each))) for each in names.objects if hasattr(each, "__dict__")]
        tops = [each for each, _ in objects if isinstance(each, Module)]
        named: dict[str, Tensor] = {}
        paths: dict[int, str] = {}
        if isinstance(owner, Module):
            named.update([*owner.named_parameters(), *owner.named_buffers()])
            paths.update((id(module), path) for path, module in owner.named_modules())
        try:
            with same_tables({str(index): top for index, top in enumerate(tops)}) as check:
                compiled = CompiledFunction(
                    self._name, function, given, inputs, named, paths, around
                )
                check()
        except OnefoldError as error:
            if error.args:
                error.args = (f"{error.args[0]} (in {self._name}, {_CAPTURED})", *error.args[1:])
            raise
        for each, before in objects:
            names.add_attributes(vars(each), before, all_names=False)
        for module, before in compiled.modules:
            names.add_attributes(vars(module), before, all_names=True)
        names.settle()
        called = [module for module, _ in compiled.modules if isinstance(module, Module)]
        entry = _Entry(key, compiled, names, [*tops, *called])
        self._entries.insert(0, entry)
        del self._entries[self.size :]
        return entry

    @property
    def program(self) -> Program | None:
        """The forward program of the latest used signature; None before the first call."""
        return self._entries[0].compiled.program if self._entries else None

    @property
    def backward_program(self) -> Program | None:
        """The backward program of the latest used signature that was made last, if there is one."""
        return self._entries[0].compiled.backward_program if self._entries else None


class CompiledModule(Module):
    """A module whose calls are compiled; all that it has is shared with the module itself."""

    __slots__ = ("_compiled", "_orig_mod")  # beside the attributes, which are the module's

    _compiled: Compiled
    _orig_mod: Module

    def __init__(self, module: Module, size: int) -> None:
        object.__setattr__(self, "__dict__", module.__dict__)
        object.__setattr__(self, "_orig_mod", module)
        object.__setattr__(self, "_compiled", Compiled(module, size))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    forward = __call__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orig_mod, name)

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledModule:
        return CompiledModule(deepcopy(self._orig_mod, memo), self._compiled.size)

    def _get_name(self) -> str:
        return f"Compiled{self._orig_mod._get_name()!s}"

    def extra_repr(self) -> str:
        return self._orig_mod.extra_repr()


_BACKENDS = ("eager", "aot_eager", "inductor", "cudagraphs")  # all of which mean the same here
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Options(TypedDict, total=False):
    """What `compile` takes by name."""

    fullgraph: bool
    dynamic: bool | None
    backend: str | Callable[..., Any] | None
    mode: str | None
    options: Mapping[str, Any] | None
    name: str | None
    disable: bool
    recompile_limit: int | None
    isolate_recompiles: bool
    shapes_spec: object


@overload
def compile(model: F, **options: Unpack[Options]) -> F: ...
@overload
def compile(model: None = None, **options: Unpack[Options]) -> Callable[[F], F]: ...
def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: object = None,
) -> Any:
    """The function or module, run as programs: one for each signature, captured at its first call.

    >>> import onefold as flow
    >>> @flow.compile
    ... def square(x):
    ...     return x * x
    >>> x = flow.tensor([3.0], requires_grad=True)
    >>> square(x).sum().backward()
    >>> x.grad.numpy()
    array([6.], dtype=float32)
    """
    _check(backend, mode)
    size = MAX_COMPILED
    if recompile_limit is not None:
        integer("compile: recompile_limit", recompile_limit, least=1)
        size = recompile_limit

    def made(function: Any) -> Any:
        if not callable(function):
            raise OnefoldTypeError(f"compile needs a function or a module, but got {function!r}")
        if disable or isinstance(function, (Compiled, CompiledModule)):
            return function
        if isinstance(function, Module):
            return CompiledModule(function, size)
        return Compiled(function, size)

    return made if model is None else made(model)


def _check(backend: object, mode: object) -> None:
    """Raise OnefoldValueError for a backend or mode that torch does not have."""
    if backend is not None and backend not in _BACKENDS:
        raise OnefoldValueError(
            f"compile: there is no backend {backend!r}; programs are run by onefold itself, so "
            f"leave it out (torch's {', '.join(_BACKENDS)} are accepted)"
        )
    if mode is not None and mode not in _MODES:
        raise OnefoldValueError(
            f"compile: mode must be one of {', '.join(_MODES)}, but got {mode!r}"
        )
