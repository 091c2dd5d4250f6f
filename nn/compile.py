"""compile: functions and modules as programs, captured at their first call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from copy import deepcopy
from functools import update_wrapper
from itertools import chain
from threading import RLock
from types import MethodType
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack, overload

import torch

from ..engine import interpreter
from ..engine.autocast import Autocast
from ..engine.global_mode import mode_now
from ..engine.interpreter import Interpreter, Through
from ..engine.tensor import Tensor
from ..errors import OnefoldError, OnefoldTypeError, OnefoldValueError
from ..graph.capture_guards import Guards
from ..graph.compiled_function import CompiledFunction
from ..graph.ir import Program
from ..graph.pytree import tree_signature, tree_values
from ..graph.recaptures import Recaptures
from ..graph.setting_checks import integer
from .graph_structure import HOOKS, Tables, same_tables
from .module import Module

F = TypeVar("F", bound=Callable[..., Any])
# What runs a call, and the tensors that it is given besides the arguments.
Ready: TypeAlias = tuple[CompiledFunction, Sequence[Tensor]]

MAX_COMPILED = 10  # programs kept, the latest used

_CAPTURED = (
    "which flow.compile captures as a graph's build(): its Python code runs once, without values"
)


class _Entry:
    """A program, and the key and guards for which it was captured."""

    def __init__(
        self, key: object, compiled: CompiledFunction, guards: Guards, modules: Sequence[Module]
    ) -> None:
        self.key = key
        self.compiled = compiled
        self._guards = guards
        self.tables = Tables({id(m): m for top in modules for m in top.modules()}.values())

    def named(self) -> list[Tensor] | None:
        """The tensors that calls take besides the arguments; None if the program is invalid now."""
        if self.tables.same() and self._guards.hold() and self.compiled.holds():
            return self._guards.released()
        return None


class Compiled:
    """A function that is captured once for each signature of its arguments; see `compile`."""

    def __init__(self, function: Callable[..., Any], size: int, cuda_graphs: bool) -> None:
        self._function = function
        self.size = size
        self.cuda_graphs = cuda_graphs
        self._entries: list[_Entry] = []  # the latest used first
        self._recaptures = Recaptures()
        self._lock = RLock()  # programs keep what they draw, so one runs at a time
        self._name = getattr(function, "__name__", type(function).__name__)
        if not isinstance(function, Module):
            update_wrapper(self, function, updated=())

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        current = interpreter.get_current()
        if current is not None and (
            current.captures or current.batches or not isinstance(current, Through)
        ):
            current.before_functions(self._function)
            return self._function(*args, **kwargs)  # it is a part of that program
        autocast = _autocast(current)
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
            None if autocast is None else (autocast.dtypes, autocast.caches),
        )
        with self._lock:
            compiled, named = self._find(key) or self._capture(key, given, inputs, autocast)
            inputs += named
            if current is not autocast or autocast is None:
                return compiled(inputs)
            with interpreter.using(autocast.inner):
                return compiled(inputs)

    def __deepcopy__(self, memo: dict[int, object]) -> Compiled:
        return Compiled(deepcopy(self._function, memo), self.size, self.cuda_graphs)

    def __reduce__(self) -> str | tuple[object, ...]:
        function = self._function
        name = getattr(function, "__qualname__", "")
        held: Any = sys.modules.get(getattr(function, "__module__", ""))
        for part in name.split("."):
            held = getattr(held, part, None)
        if held is self:  # decorated: it is found by its name
            return name
        return Compiled, (function, self.size, self.cuda_graphs)

    def _find(self, key: object) -> Ready | None:
        """The compiled function for this key, if it is still valid."""
        for index, entry in enumerate(self._entries):
            if entry.key == key:
                named = entry.named()
                if named is not None:
                    if index:
                        self._entries.insert(0, self._entries.pop(index))
                    return entry.compiled, named
        return None

    def _capture(
        self, key: object, given: Any, inputs: Sequence[Tensor], autocast: Autocast | None
    ) -> Ready:
        def around(capture: Interpreter) -> Interpreter:
            if autocast is None:
                return capture
            return Autocast(capture, autocast.dtypes, autocast.caches)

        function = self._function
        latest = self._entries[0].key if self._entries else None
        owner = getattr(function, "__self__", function)
        guards = Guards()
        guards.add(function)
        tree_values(given, guards.add)
        objects = [(each, dict(vars(each))) for each in guards.objects if _has_attributes(each)]
        tops = [each for each, _ in objects if isinstance(each, Module)]
        named: dict[str, Tensor] = {}
        paths: dict[int, str] = {}
        if isinstance(owner, Module):
            named.update([*owner.named_parameters(), *owner.named_buffers()])
            paths.update((id(module), path) for path, module in owner.named_modules())
        try:
            with same_tables({str(index): top for index, top in enumerate(tops)}) as check:
                # In a context of its own, which is left whole wherever an interrupt arrives.
                compiled = copy_context().run(
                    CompiledFunction, self._name, function, given, inputs, named, paths, around,
                    self._lock, self.cuda_graphs,
                )  # fmt: skip
                check()
        except OnefoldError as error:
            if error.args:
                error.args = (f"{error.args[0]} (in {self._name}, {_CAPTURED})", *error.args[1:])
            raise
        called = [module for module, _ in compiled.modules if isinstance(module, Module)]
        for module in called:
            guards.add_method(type(module))
            for hook in chain.from_iterable(vars(module)[name].values() for name in HOOKS):
                guards.add(hook)
        for each in compiled.functions:
            guards.add(each)
        for each, before in [*objects, *compiled.modules]:
            guards.add_object(each, before)
        guards.drop_changed()
        entry = _Entry(key, compiled, guards, [*tops, *called])
        of_modules = entry.tables.held()
        free = compiled.finish([x for x in guards.tensors_by_name() if id(x) not in of_modules])
        guards.release(free)
        self._entries.insert(0, entry)
        if len(self._entries) > self.size:
            del self._entries[self.size :]
            setting = "recompile_limit=..."
            self._recaptures.dropped(self._name, self.size, setting, latest, key)
        return compiled, free

    @property
    def program(self) -> Program | None:
        """The forward program of the latest used signature; None before the first call."""
        return self._entries[0].compiled.program if self._entries else None

    @property
    def cuda_graph_reason(self) -> str | None:
        """Why the last call did not replay CUDA graphs; empty if it did, None before a call."""
        return self._entries[0].compiled.cuda_graph_reason if self._entries else None

    @property
    def backward_program(self) -> Program | None:
        """The most recent backward program of the latest used signature, if there is one."""
        return self._entries[0].compiled.backward_program if self._entries else None


def _has_attributes(value: object) -> bool:
    return getattr(value, "__dict__", None) is not None


def _autocast(current: Interpreter | None) -> Autocast | None:
    """The current autocast, which may be below observers."""
    while isinstance(current, Through) and not isinstance(current, Autocast):
        current = current.inner
    return current if isinstance(current, Autocast) else None


class CompiledModule(Module):
    """A module whose calls are compiled; its attributes are shared with the module itself."""

    __slots__ = ("_compiled", "_orig_mod")  # besides the attributes, which are the module's

    _compiled: Compiled
    _orig_mod: Module

    def __init__(self, module: Module, size: int, cuda_graphs: bool) -> None:
        object.__setattr__(self, "__dict__", module.__dict__)
        object.__setattr__(self, "_orig_mod", module)
        object.__setattr__(self, "_compiled", Compiled(module, size, cuda_graphs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    forward = __call__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orig_mod, name)

    def __deepcopy__(self, memo: dict[int, object]) -> CompiledModule:
        made = deepcopy(self._orig_mod, memo)
        return CompiledModule(made, self._compiled.size, self._compiled.cuda_graphs)

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledModule, (self._orig_mod, self._compiled.size, self._compiled.cuda_graphs)

    def _get_name(self) -> str:
        return f"Compiled{self._orig_mod._get_name()!s}"

    def extra_repr(self) -> str:
        return self._orig_mod.extra_repr()


_BACKENDS = ("eager", "aot_eager", "inductor", "cudagraphs")  # the last as a mode, others alike
_CAPTURING = ("reduce-overhead", "max-autotune")
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Options(TypedDict, total=False):
    """The keyword arguments of `compile`."""

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
    """The function, or module, run as programs that are captured at its first calls.

    Results and gradients are those of eager mode, bit for bit, and changes in place and random
    draws happen at every call. There is a program for each signature: the metas of the tensors in
    nested arguments and whether they need gradients, other arguments by value, modes of modules,
    grad mode and autocast. Tensors from outside are read at every call. A module is returned as one
    that shares everything with it. Inside another program the function is a part of that.

    `recompile_limit` is how many programs are kept (10 by default), the latest used. With `disable`
    the function itself is returned. The modes "reduce-overhead" and "max-autotune", and the backend
    "cudagraphs", run programs as CUDA graphs, as `GraphConfig.enable_cuda_graph` does; what forward
    saves for backward is then copied. Other options are accepted under torch's names and have no
    effect: a function is always captured as a whole, for exact shapes.

    Raises OnefoldRuntimeError, when called, for functions that read a value of a tensor, or that
    contain `backward()` or an optimizer's step (see `nn.Graph`); AutogradError for gradients of
    gradients; OnefoldValueError for a `backend` or `mode` that torch does not have.

    >>> import onefold as flow
    >>> @flow.compile
    ... def square(x):
    ...     return x * x
    >>> x = flow.tensor([3.0], requires_grad=True)
    >>> square(x).sum().backward()
    >>> x.grad.numpy()
    array([6.], dtype=float32)
    >>> model = flow.compile(flow.nn.Linear(2, 3))
    >>> list(model.state_dict())
    ['weight', 'bias']
    """
    _check(backend, mode)
    cuda_graphs = mode in _CAPTURING or backend == "cudagraphs"
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
            return CompiledModule(function, size, cuda_graphs)
        return Compiled(function, size, cuda_graphs)

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
