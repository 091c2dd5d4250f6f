"""torch.library (`flow.library`): ops that a program defines, with gradients of its own.

The body of a custom op gets tensors of Onefold and may call any function. A captured program holds
the ops that the body runs, so nothing has to be known about its layouts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from .compat.missing_names import LIBRARY
from .compat.op_namespaces import custom_ops
from .engine.argument_errors import describe, fits
from .engine.autograd_function import Context, Function
from .engine.interpreter import get_current
from .engine.tensor import Tensor
from .engine.views import base_of
from .errors import (
    AutogradError,
    OnefoldNotImplementedError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    kind_of,
    user_line,
)
from .graph.unsupported import missing_attribute

__all__ = ["CustomOpDef", "custom_op", "register_autograd", "register_fake", "register_kernel"]

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Body = Callable[..., Any]
B = TypeVar("B", bound=Body)


class _Call:
    """One call of a custom op: its arguments, with their tensors taken out, and its results."""

    def __init__(self, op: CustomOpDef, body: Body, arguments: inspect.BoundArguments) -> None:
        self.op = op
        self.body = body
        self.arguments = arguments
        self.tensors: list[Tensor] = []
        for value in (*arguments.args, *arguments.kwargs.values()):
            self.tensors += _tensors_of(value)
        self.several: type | None = None  # of a tuple or list of results

    def run(self) -> tuple[Any, ...]:
        """The results of the body, as a tuple. Raises OnefoldRuntimeError for an alias."""
        result = self.body(*self.arguments.args, **self.arguments.kwargs)
        self.several = type(result) if isinstance(result, (tuple, list)) else None
        results = tuple(result) if self.several else (result,)
        inputs = {id(x) for x in self.tensors} | {id(base_of(x)) for x in self.tensors}
        inputs.discard(id(None))
        for y in results:
            if isinstance(y, Tensor) and (id(y) in inputs or id(base_of(y)) in inputs):
                raise OnefoldRuntimeError(
                    f"{self.op.name}: a result of a custom op may not be one of its inputs or a "
                    f"view of one; return x.clone(). Called at {user_line()}"
                )
        return results

    def packed(self, results: Sequence[Any]) -> Any:
        """Results, or their gradients, in the form in which the body returned them."""
        if self.several is None:
            return results[0]
        return list(results) if self.several is list else tuple(results)

    def unpacked(self, gradients: Any) -> list[Any]:
        """The gradients of the tensors, of those for the arguments that backward returned."""
        given = list(gradients) if isinstance(gradients, tuple) else [gradients]
        values = self.arguments.args
        positional = given + [None] * (len(values) - len(given))
        if any(each is not None for each in positional[len(values) :]):
            raise AutogradError(
                f"{self.op.name}: backward returned {len(given)} gradients, but the op has "
                f"{len(values)} arguments; return one per argument, None where there is none"
            )
        found: list[Any] = []
        for value, gradient in zip(values, positional, strict=False):
            if isinstance(value, Tensor):
                found.append(gradient)
                continue
            count = len(_tensors_of(value))
            found += [None] * count if gradient is None else list(gradient)[:count]
        return found + [None] * (len(self.tensors) - len(found))


class _Recorded(Function):
    """A call as one node of the tape; the call itself comes after its tensors."""

    @staticmethod
    def forward(ctx: Context, *args: Any) -> tuple[Any, ...]:
        call: _Call = args[-1]
        vars(ctx)["_call"] = call
        results = call.run()
        setup, arguments = call.op._setup_context, call.arguments
        if setup is not None:
            given = {"inputs": arguments.args, "output": call.packed(results)}
            if arguments.kwargs:
                given["keyword_only_inputs"] = arguments.kwargs
            setup(ctx, **given)
        return results

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call: _Call = vars(ctx)["_call"]
        if call.op._backward is None:
            raise AutogradError(
                f"Trying to backward through {call.op.name} but no autograd formula was "
                "registered. Please use register_autograd to add one."
            )
        packed = call.packed(grads)
        given = packed if isinstance(packed, tuple) else (packed,)
        return (*call.unpacked(call.op._backward(ctx, *given)), None)


class CustomOpDef:
    """An op that `custom_op` has made; it is called as its body is."""

    def __init__(self, name: str, body: Body, device_types: tuple[str, ...] | None) -> None:
        self.name = self.__name__ = name
        self.__doc__ = body.__doc__
        self._body = body
        self._signature = inspect.signature(body)
        self._kernels: dict[str | None, Body] = dict.fromkeys(device_types or (None,), body)
        self._fake: Body | None = None
        self._backward: Body | None = None
        self._setup_context: Body | None = None
        custom_ops[name] = self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self.name})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body, recorded as one node where an argument requires a gradient.

        Raises OnefoldTypeError for arguments that do not fit the annotations of the body.
        """
        try:
            arguments = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise OnefoldTypeError(
                f"{self.name}: {error}; it takes {self._signature}. Called at {user_line()}"
            ) from None
        arguments.apply_defaults()
        self._check(arguments.arguments)
        values = (*arguments.args, *arguments.kwargs.values())
        call = _Call(self, self._body_for(values), arguments)
        if (current := get_current()) is not None:
            current.before_functions(call.body, self._setup_context, self._backward)
        results = _Recorded.apply(*call.tensors, call)
        return call.packed(results)

    @cached_property
    def _types(self) -> dict[str, Any]:
        """The types of the parameters; none where they cannot be found."""
        try:
            found = inspect.signature(self._body, eval_str=True).parameters
        except NameError:  # types that are imported for type checkers only
            return {}
        return {name: each.annotation for name, each in found.items() if each.kind not in _MANY}

    def _check(self, given: dict[str, Any]) -> None:
        for name, kind in self._types.items():
            if not fits(given[name], kind):
                raise OnefoldTypeError(
                    f"{self.name}: {name!r} must be {describe(kind)}, but got "
                    f"{kind_of(given[name])}. Called at {user_line()}"
                )

    def _body_for(self, values: Sequence[Any]) -> Body:
        devices = [x.device.type for value in values for x in _tensors_of(value)]
        if "meta" in devices and self._fake is not None:
            return self._fake
        kind = devices[0] if devices else "cpu"
        body = self._kernels.get(kind, self._kernels.get(None))
        if body is None:
            known = ", ".join(str(each) for each in self._kernels)
            raise OnefoldNotImplementedError(
                f"{self.name} is called with tensors on {kind}, but it has functions for {known} "
                f"only; add one with register_kernel({kind!r})"
            )
        return body

    def register_fake(self, fn: B, /) -> B:
        """The function that gives results without data (a decorator).

        It runs for tensors on the meta device. Captured programs do not need it.
        """
        self._fake = fn
        return fn

    def register_autograd(self, backward: Body, /, *, setup_context: Body | None = None) -> None:
        """The gradient: `backward(ctx, *grads)` returns a gradient for each argument, or None.

        setup_context: called as `setup_context(ctx, inputs, output)` after the body; it keeps
            tensors by `ctx.save_for_backward` and other values as attributes of ctx.
        """
        self._backward, self._setup_context = backward, setup_context

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: Body | None = None, /
    ) -> Any:
        """The function for tensors on these devices; all others if None (a decorator)."""
        if fn is None:
            return lambda given: self.register_kernel(device_types, given)
        for kind in _device_types(device_types) or (None,):
            self._kernels[kind] = fn
        return fn

    def register_vmap(self, func: B | None = None, /) -> Any:
        """Accepted and not needed: `flow.vmap` runs the ops of the body for all rows."""
        return (lambda given: given) if func is None else func


def custom_op(
    name: str,
    fn: Body | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
) -> Any:
    """Make an op of a function (a decorator), which is also `flow.ops.<namespace>.<name>`.

    name: such as "mylib::scale".
    fn: a function whose parameters have types. It runs without recording gradients.
    mutates_args: the names of the arguments that it writes, or "unknown".
    device_types: the devices that it is for; `register_kernel` adds functions for others.
    schema: accepted and not read; types are those of the annotations.

    Raises OnefoldValueError for another form of name, parameters without types, and names in
    `mutates_args` that are no parameters.

    Example:
        >>> import onefold as flow
        >>> @flow.library.custom_op("example::cube", mutates_args=())
        ... def cube(x: flow.Tensor) -> flow.Tensor:
        ...     return x * x * x
        >>> def setup_context(ctx, inputs, output):
        ...     ctx.save_for_backward(*inputs)
        >>> def backward(ctx, dy):
        ...     (x,) = ctx.saved_tensors
        ...     return 3 * x * x * dy
        >>> cube.register_autograd(backward, setup_context=setup_context)
        >>> x = flow.tensor([2.0], requires_grad=True)
        >>> flow.ops.example.cube(x).sum().backward()
        >>> x.grad
        tensor([12.])
    """

    def made(body: Body) -> CustomOpDef:
        if len(name.split("::")) != 2 or not all(name.split("::")):
            raise OnefoldValueError(
                f"custom_op: a name has the form 'namespace::name', but got {name!r}"
            )
        parameters = inspect.signature(body).parameters
        for key, parameter in parameters.items():
            if parameter.annotation is parameter.empty and schema is None:
                raise OnefoldValueError(
                    f"custom_op: the parameter {key!r} of {name} must have a type annotation, such "
                    f"as `{key}: flow.Tensor`"
                )
        if isinstance(mutates_args, str) and mutates_args != "unknown":
            raise OnefoldValueError(
                "custom_op: mutates_args must be a sequence of names or 'unknown', but got "
                f"{mutates_args!r}; write [{mutates_args!r}]"
            )
        written = () if mutates_args == "unknown" else tuple(mutates_args)
        unknown = [each for each in written if each not in parameters]
        if unknown:
            raise OnefoldValueError(
                f"custom_op: mutates_args names {', '.join(map(repr, unknown))}, but the "
                f"parameters of {name} are {', '.join(parameters)}"
            )
        return CustomOpDef(name, body, _device_types(device_types))

    return made if fn is None else made(fn)


def register_fake(op: str | CustomOpDef, func: Body | None = None, /) -> Any:
    """As the method of the op, which may be named (a decorator)."""
    found = _op(op)
    return found.register_fake if func is None else found.register_fake(func)


def register_autograd(
    op: str | CustomOpDef, backward: Body, /, *, setup_context: Body | None = None
) -> None:
    """As the method of the op, which may be named."""
    _op(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(
    op: str | CustomOpDef, device_types: str | Sequence[str] | None, func: Body | None = None, /
) -> Any:
    """As the method of the op, which may be named (a decorator)."""
    return _op(op).register_kernel(device_types, func)


def _op(op: object) -> CustomOpDef:
    found = custom_ops.get(op.replace(".", "::")) if isinstance(op, str) else op
    if not isinstance(found, CustomOpDef):
        raise OnefoldValueError(
            f"there is no custom op {op!r}; make it with flow.library.custom_op first. Known are: "
            f"{', '.join(custom_ops) or 'none'}"
        )
    return found


def _tensors_of(value: object) -> list[Tensor]:
    """The tensors in an argument: itself, or those of a list."""
    if isinstance(value, (list, tuple)):
        return [each for each in value if isinstance(each, Tensor)]
    return [value] if isinstance(value, Tensor) else []


def _device_types(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return (given,) if isinstance(given, str) else None if given is None else tuple(given)


def __getattr__(name: str) -> object:
    raise missing_attribute(LIBRARY, __name__, name)
