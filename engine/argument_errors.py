"""Argument errors: errors for bad arguments, which name the public function and the argument.

A function made of several ops reads its arguments where it needs them. A bad one would fail deep
inside, as an AttributeError or as an error of an op that the user did not call. Public functions
are therefore wrapped. A wrapper costs one call; arguments are compared with the types of the
parameters only after an error.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from numbers import Complex, Real
from operator import index
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from ..errors import (
    OnefoldError,
    OnefoldIndexError,
    OnefoldNotImplementedError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    is_user_frame,
    kind_of,
    user_line,
)
from . import interpreter
from .argument_aliases import (
    ABSENT,
    aliases_of,
    call_by_own_names,
    required_from,
    with_own_names,
)
from .names import Function
from .wrapper_code import renamed, wrapper_code

F = TypeVar("F", bound=Function)

# The exceptions of code that got an unexpected argument, and the class of ours for each. Subclasses
# (torch.OutOfMemoryError, FileNotFoundError) have other causes and are left alone.
_UNEXPECTED: dict[type[Exception], type[OnefoldError]] = {
    AssertionError: OnefoldRuntimeError,
    AttributeError: OnefoldTypeError,
    IndexError: OnefoldIndexError,
    KeyError: OnefoldValueError,
    NotImplementedError: OnefoldNotImplementedError,
    OverflowError: OnefoldValueError,
    RecursionError: OnefoldTypeError,
    RuntimeError: OnefoldRuntimeError,
    TypeError: OnefoldTypeError,
    ValueError: OnefoldValueError,
    ZeroDivisionError: OnefoldValueError,
}

_OF_A_RANK = re.compile(r"(\w+: )?rank \d+")  # what another rank says of its own call
_wrappers: dict[Function, Function] = {}  # by the wrapped function, and by themselves


def checks_own_arguments(core: F) -> F:
    """Mark a function that checks its own arguments, and is not wrapped (a decorator)."""
    _wrappers[core] = core
    return core


def with_argument_errors(core: F) -> F:
    """Wrap a public function, so that errors for bad arguments name it (a decorator).

    They are OnefoldErrors. Exceptions of user code that the function calls are left alone.
    """
    if not isinstance(core, types.FunctionType):
        return core
    found = _wrappers.get(core)
    if found is None:
        found = _wrappers[core] = _bounded(core)
        _wrappers[found] = found
    return cast(F, found)


def public_functions(module: str, functions: Mapping[str, Function]) -> dict[str, Function]:
    """Wrap functions as `with_argument_errors` does; they are pickled as those of a module."""
    found = {name: with_argument_errors(core) for name, core in functions.items()}
    for name, made in found.items():
        if isinstance(made, types.FunctionType):
            made.__module__, made.__qualname__ = module, name
    return found


def _bounded(core: types.FunctionType) -> Function:
    code = core.__code__
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    flags = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    aliases, defaults = aliases_of(code), core.__defaults__
    later = required_from(code, defaults) if aliases else range(0)
    template = wrapper_code(*counts, flags, aliases, later)
    own = {f"p{index}": name for index, name in enumerate(code.co_varnames)}
    text = template.replace(
        co_name=core.__name__,
        co_qualname=core.__qualname__,
        co_varnames=tuple([own.get(each, each) for each in template.co_varnames]),
        co_consts=tuple([renamed(each, own) for each in template.co_consts]),
    )
    scope: dict[str, object] = {"__name__": __name__, "core": core, **_SCOPE}
    made = types.FunctionType(text, scope, core.__name__, defaults)
    made.__kwdefaults__ = core.__kwdefaults__
    if aliases:
        made.__defaults__ = (ABSENT,) * len(later) + (defaults or ())
        made.__kwdefaults__ = {**(core.__kwdefaults__ or {}), **dict.fromkeys(aliases)}
    made.__module__, made.__doc__ = core.__module__, core.__doc__
    made.__annotations__ = core.__annotations__
    vars(made).update(vars(core), __wrapped__=core)
    scope["boundary"] = made
    return made


def handle_error(
    core: Function, error: Exception, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Sequence[Any], Mapping[str, Any]] | None:
    """Raise an error that names a public function, for one that does not name it yet.

    Returns the arguments of another call instead where 0-d tensors are given for numbers.
    """
    name = _name_of(core, args)
    if not isinstance(error, OnefoldError):
        if type(error) not in _UNEXPECTED or _is_of_users(error):
            return None
        if isinstance(error, RecursionError) and _is_inner(core):
            return None  # the stack is too deep to build a message here
    if isinstance(error, TypeError):
        renamed = with_own_names(core, kwargs)
        if renamed is not None:
            return args, renamed
    reads = not interpreter.capturing() and is_any_number((*args, *kwargs.values()))
    if reads and not _is_of_users(error):
        numbers = _with_numbers(core, args, kwargs)
        if numbers is not None:
            return numbers
    if isinstance(error, OnefoldError) and (
        _names(name, str(error)) or _OF_A_RANK.match(str(error))
    ):
        return None
    wrong = _misfit(core, args, kwargs)
    if isinstance(error, OnefoldError):  # of an inner call, whose message is kept
        error.args = (f"{name}: {error}" if wrong is None else f"{name}: {wrong}. {error}",)
        return None
    if wrong is not None:
        raise OnefoldTypeError(f"{name}: {wrong}. Called at {user_line()}") from error
    raise _UNEXPECTED[type(error)](_text(name, error, args, kwargs)) from error


# The globals of wrappers.
_SCOPE: dict[str, object] = {
    "absent": ABSENT,
    "call_by_own_names": call_by_own_names,
    "handle_error": handle_error,
}


def is_any_number(values: Iterable[object]) -> bool:
    """Whether a 0-d tensor that could stand for a number is among the arguments, or in a list."""
    return any(
        any(map(_is_number, each)) if isinstance(each, (list, tuple)) else _is_number(each)
        for each in values
    )


def _is_number(value: Any) -> bool:
    """Whether torch would take this tensor for a number."""
    return hasattr(value, "shards") and value.ndim == 0 and not value.requires_grad


def _with_numbers(
    core: Function, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Sequence[Any], Mapping[str, Any]] | None:
    """The arguments with numbers for 0-d tensors where a parameter takes no tensor, or None.

    torch takes such tensors for sizes, bounds and other numbers, where they need no gradient.
    """
    try:
        bound = inspect.signature(core, eval_str=True).bind(*args, **kwargs)
    except (TypeError, NameError):  # types that are imported for type checkers only
        return None
    changed = False
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD or _takes_tensors(parameter.annotation):
            continue
        bound.arguments[name] = as_numbers(value)
        changed = changed or bound.arguments[name] is not value
    return (bound.args, bound.kwargs) if changed else None


def _takes_tensors(kind: Any) -> bool:
    """Whether a parameter of this type takes tensors, or says nothing about it."""
    if kind is Any or kind is inspect.Parameter.empty or isinstance(kind, TypeVar):
        return True
    inner = get_args(kind)
    return any(map(_takes_tensors, inner)) if inner else hasattr(kind, "is_leaf")


def as_numbers(value: Any) -> Any:
    """`value` with Python numbers for the 0-d tensors in it, or itself where there are none."""
    if _is_number(value):
        return value.item()
    if type(value) in (list, tuple) and is_any_number(value):
        return type(value)(map(as_numbers, value))
    return value


def _is_inner(core: Function) -> bool:
    """Whether the boundary that caught an error is in another call of the same function."""
    frame = sys._getframe(2).f_back
    while frame is not None:
        if frame.f_globals.get("core") is core:
            return True
        frame = frame.f_back
    return False


def raise_call_error(
    of: object, error: Exception, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """As `handle_error`, for a call of an object such as a layer.

    OnefoldErrors name the op already, and NotImplementedError says that a method is missing.
    """
    passes = isinstance(error, (OnefoldError, NotImplementedError)) or _is_of_users(error)
    if type(error) in _UNEXPECTED and not passes:
        text = _text(type(of).__name__, error, args, kwargs)
        raise _UNEXPECTED[type(error)](text) from error


def _name_of(core: Function, args: Sequence[object]) -> str:
    """The name by which users know a function: a constructor by its class."""
    return type(args[0]).__name__ if core.__name__ == "__init__" else core.__name__


def _text(name: str, error: Exception, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    reason = str(error).split("\n")[0]
    if isinstance(error, RecursionError):
        reason = "they are nested too deeply, or of a type that it does not take"
    given = [f"  argument {i}: {_shown(arg)}" for i, arg in enumerate(args)]
    given += [f"  {key}: {_shown(arg)}" for key, arg in kwargs.items()]
    lines = [f"{name}: cannot take these arguments ({reason})", *given]
    return "\n".join([*lines, f"  called at {user_line()}"])


def _names(name: str, text: str) -> bool:
    """Whether the text contains the name as a word; "relu_: ..." also contains `relu`."""
    return re.search(rf"\b{re.escape(name.strip('_'))}_?\b", text) is not None


def _is_of_users(error: Exception) -> bool:
    """Whether a line outside the package raised the error, such as one of a function passed."""
    trace = error.__traceback__
    while trace is not None:
        if is_user_frame(trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _shown(value: Any) -> str:
    """A value as errors show it: a tensor by its meta, anything else shortened."""
    if hasattr(value, "shards"):
        return f"a Tensor, {value.meta!r}"
    if value is not None and type(value).__module__ != "builtins":
        return kind_of(value)
    text = repr(value)
    return f"{text if len(text) < 60 else text[:57] + '...'} ({type(value).__name__})"


def _misfit(core: Function, args: Sequence[object], kwargs: Mapping[str, object]) -> str | None:
    """What is wrong with the first argument that does not have its parameter's type, or None."""
    try:
        bound = inspect.signature(core, eval_str=True).bind(*args, **kwargs)
    except (TypeError, NameError):  # types that are imported for type checkers only
        return None
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        allowed = parameter.annotation
        if parameter.kind is parameter.VAR_POSITIONAL:
            pairs = [(f"{name}[{i}]", each, allowed) for i, each in enumerate(value)]
        elif parameter.kind is parameter.VAR_KEYWORD:
            pairs = _of_keywords(value, allowed)
        else:
            pairs = [(name, value, allowed)]
        for what, each, kind in pairs:
            if each is not parameter.default and not fits(each, kind):
                return f"argument '{what}' must be {describe(kind)}, but got {_shown(each)}"
    return None


def check_types(who: str, core: Function, given: Mapping[str, object]) -> None:
    """Raise OnefoldTypeError for a value that does not have the type of its parameter."""
    for name, parameter in _parameters(core).items():
        value, kind = given.get(name, parameter.default), parameter.annotation
        if value is parameter.default:
            continue
        if not fits(value, kind) or (_is_tensor(value) and not _names_type_of(value, kind)):
            raise OnefoldTypeError(
                f"{who}: {name!r} must be {describe(kind)}, but got {_shown(value)}"
            )


def _is_tensor(value: object) -> bool:
    return hasattr(value, "shape") and not isinstance(value, (Real, Complex))


def _names_type_of(value: object, kind: object) -> bool:
    return any(isinstance(each, type) and isinstance(value, each) for each in get_args(kind))


@cache
def _parameters(core: Function) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(core, eval_str=True).parameters
    except (TypeError, ValueError, NameError):  # types that are imported for type checkers only
        return {}


def _of_keywords(given: Mapping[str, object], allowed: object) -> list[tuple[str, object, object]]:
    """The keywords of `**given` with their types, where these are those of a TypedDict."""
    inner = next(iter(get_args(allowed)), None)
    if inner is None or not hasattr(inner, "__total__"):
        return []
    known = get_type_hints(inner)
    return [(name, value, known[name]) for name, value in given.items() if name in known]


# Annotations that accept more types than themselves, in Python and numpy.
_NUMBERS: dict[object, type] = {float: Real, complex: Complex}


def fits(value: object, kind: object) -> bool:
    """Whether a value has the type of a parameter; True where that cannot be decided.

    Example:
        >>> fits([1, 2], int | Sequence[int]), fits("ab", int | Sequence[int])
        (True, False)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or kind is inspect.Parameter.empty:
        return True
    if kind is None or kind is types.NoneType:
        return value is None
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return any(value is each or value == each for each in inner if type(value) is type(each))
    if is_typeddict(kind) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return isinstance(value, Mapping)
    if origin is Callable or kind is Callable:
        return callable(value)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _fits_all(value, origin, inner)
    if kind is int:
        return _is_index(value)
    if kind is bool:
        return isinstance(value, bool) or (_is_index(value) and not hasattr(value, "shape"))
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) or _is_index(value) or _is_one_number(value)
    if origin is None and isinstance(kind, type) and not getattr(kind, "_is_protocol", False):
        return isinstance(value, kind)
    return True


def _fits_all(value: object, origin: type, inner: Sequence[object]) -> bool:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return False
    if issubclass(origin, Collection) and not isinstance(value, Collection):
        return False
    if hasattr(value, "shape") or not isinstance(value, Collection):
        return True  # the elements may only be read once
    if len(inner) == 1 or (len(inner) == 2 and inner[1] is ...):
        return all(fits(each, inner[0]) for each in value)
    if issubclass(origin, tuple) and inner:
        return len(value) == len(inner) and all(map(fits, value, inner))
    return True


def _is_index(value: object) -> bool:
    try:
        index(cast(Any, value))
    except (TypeError, RuntimeError):
        return False
    return True


def _is_one_number(value: object) -> bool:
    """Whether a value is a tensor or array of one element."""
    shape = getattr(value, "shape", None)
    return isinstance(shape, tuple) and all(size == 1 for size in shape)


_WORDS: dict[object, str] = {
    None: "None",
    types.NoneType: "None",
    bool: "a bool",
    complex: "a number",
    float: "a number",
    int: "an int",
    str: "a str",
}


def describe(kind: object) -> str:
    """The types of a parameter in words.

    Example:
        >>> describe(int | Sequence[Sequence[int]] | None)
        'an int, a sequence of sequences of ints or None'
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _WORDS:
        return _WORDS[kind]
    if origin in (Union, types.UnionType):
        words = list(dict.fromkeys(describe(each) for each in inner))
        if "a number" in words:
            words = [word for word in words if word not in ("an int", "a bool")]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a dict"
    if origin is tuple and len({*inner} - {...}) > 1:
        return f"a tuple ({', '.join(map(describe, inner))})"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a sequence of {_several(describe(inner[0]))}" if inner else "a sequence"
    if getattr(kind, "__name__", "") == "Tensor":
        return "an onefold Tensor"
    if isinstance(kind, type):
        return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
    return "callable" if origin is not None else str(kind)


def _several(word: str) -> str:
    article, _, noun = word.partition(" ")
    if article not in ("a", "an") or " or " in noun:
        return word
    return re.sub(r"(?= of | \(|$)", "s", noun, count=1)
