"""Parametrizations: a parameter that is computed from others by modules, wherever it is read.

The module keeps its class. The attribute of a parametrized tensor is computed, and what it is
computed from is in `module.parametrizations`, so that state dicts have torch's names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

from ...engine import interpreter
from ...engine.grad_mode import no_grad
from ...engine.inplace import fitted, take
from ...engine.sbp import without_partial
from ...engine.tensor import Tensor
from ...engine.views import leave
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

M = TypeVar("M", bound=Module)

# The interpreter is part of the key: a value that a capture computed is of that capture alone.
_Cache = dict[tuple[object, int, str], Tensor]
_cache: ContextVar[_Cache | None] = ContextVar("_cache", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """Compute every parametrized tensor once in the block, even if it is read several times."""
    token = _cache.set({}) if _cache.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _cache.reset(token)


def set_original(original: Tensor, value: Tensor) -> None:
    """Set the value of a tensor, in its layout; the shape may change."""
    if value.shape == original.shape:
        value = fitted(value, original)
    else:
        if value.is_global:
            value = value.to_global(sbp=without_partial(value.sbp))
        leave(original)
        original.meta = value.meta
    take(original, value)


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _check_like(what: str, found: object, wanted: Tensor | tuple[torch.dtype, torch.Size]) -> None:
    """Raise OnefoldValueError unless a tensor has the dtype and shape of another."""
    dtype, shape = (wanted.dtype, wanted.shape) if isinstance(wanted, Tensor) else wanted
    if not isinstance(found, Tensor):
        raise OnefoldValueError(f"{what} must return a tensor, but got {type(found).__name__}")
    if found.dtype != dtype:
        raise OnefoldValueError(
            f"{what} may not change the dtype of the tensor, unless `unsafe` is given: it is "
            f"{dtype}, but the result is {found.dtype}"
        )
    if found.shape != shape:
        raise OnefoldValueError(
            f"{what} may not change the shape of the tensor, unless `unsafe` is given: it is "
            f"{tuple(shape)}, but the result has {tuple(found.shape)}"
        )


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what they compute it from.

    That is `original`, or `original0`, `original1`, ... where the first parametrization takes
    several tensors. Raises OnefoldValueError for parametrizations that do not fit the tensor.
    """

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise OnefoldValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        form = original.dtype, original.shape
        inverse = self._inverse(original, strict=False)
        if not isinstance(inverse, (Tensor, Sequence)):
            raise OnefoldValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...), "
                f"but got {type(inverse).__name__}"
            )
        self.is_tensor = isinstance(inverse, Tensor)
        self.ntensors = 1 if isinstance(inverse, Tensor) else len(inverse)
        if isinstance(inverse, Tensor):
            if inverse.dtype != original.dtype:
                raise OnefoldValueError(
                    "when `right_inverse` outputs one tensor, it may not change the dtype: it is "
                    f"{original.dtype}, but the result is {inverse.dtype}"
                )
            if inverse is not original:
                set_original(original, inverse)
            _register(self, "original", original)
        else:
            for index, part in enumerate(inverse):
                if not isinstance(part, Tensor):
                    raise OnefoldValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors, but "
                        f"element {index} of the sequence is a {type(part).__name__}"
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                _register(self, f"original{index}", part)
        if not unsafe:
            _check_like("a parametrization", self(), form)

    def _originals(self) -> list[Tensor]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{index}") for index in range(self.ntensors)]

    @no_grad
    def _inverse(self, value: Tensor, strict: bool) -> Tensor | Sequence[Tensor]:
        """The originals of which the parametrizations make `value`, by their right inverses."""
        found: Tensor | Sequence[Tensor] = value
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                try:
                    found = module.right_inverse(found)
                except NotImplementedError:
                    if strict:
                        raise
            elif strict:
                raise OnefoldRuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse, "
                    "so the tensor cannot be assigned; assign `original` of its parametrizations"
                )
        return found

    def right_inverse(self, value: Tensor) -> None:
        """Set the parametrized tensor to `value`: set the originals by the right inverses.

        Raises OnefoldRuntimeError for a parametrization without one, OnefoldValueError for
        results of another number, dtype or shape than the originals; then nothing is changed.
        """
        found = self._inverse(value, strict=True)
        parts = [found] if isinstance(found, Tensor) else list(found)
        originals = self._originals()
        if isinstance(found, Tensor) != self.is_tensor or len(parts) != len(originals):
            raise OnefoldValueError(
                f"'right_inverse' must return what it returned first, {self.ntensors} tensor(s), "
                f"but got {type(found).__name__} of {len(parts)}"
            )
        for part, original in zip(parts, originals, strict=True):
            _check_like("'right_inverse'", part, original)
        for part, original in zip(parts, originals, strict=True):
            set_original(original, part)

    def forward(self) -> Tensor:
        """The parametrized tensor."""
        first, *rest = self
        value: Tensor = first(*self._originals())
        for module in rest:
            value = module(value)
        return value


class _Parametrized:
    """A tensor that a module's parametrizations compute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, module: Module) -> Tensor:
        compute = module.parametrizations[self.name]
        cache = _cache.get()
        if cache is None:
            made: Tensor = compute()
            return made
        key = (interpreter.get_current(), id(module), self.name)
        if key not in cache:
            cache[key] = compute()
        return cache[key]

    def assign(self, module: Module, value: object) -> None:
        if isinstance(value, Parameter) or not isinstance(value, Tensor):
            raise OnefoldTypeError(
                f"cannot assign a {type(value).__name__} as {self.name!r}, which is parametrized: "
                "assign a Tensor, of which the parametrizations' right inverses are taken"
            )
        module.parametrizations[self.name].right_inverse(value)


def tensor_named(module: Module, name: str) -> Tensor:
    """The parameter or buffer of this name. Raises OnefoldValueError if there is none."""
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise OnefoldValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return found


def register_parametrization(
    module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> M:
    """Make `parametrization(tensor)` the value of a module's parameter or buffer from now on.

    A method `right_inverse` of the parametrization says what an assigned or present value is
    computed from: a tensor, or several, which forward then takes. A second parametrization of one
    tensor is applied to the first one's result. With `unsafe` nothing is checked, and the dtype
    and shape may change. Raises OnefoldValueError for a name that is no tensor of the module, and
    for a parametrization that changes dtype or shape.

    >>> import onefold as flow
    >>> class Symmetric(flow.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).t()
    >>> layer = flow.nn.utils.parametrize.register_parametrization(
    ...     flow.nn.Linear(3, 3), "weight", Symmetric()
    ... )
    >>> bool((layer.weight == layer.weight.t()).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_second(getattr(module, tensor_name), parametrization)
        found: ParametrizationList = module.parametrizations[tensor_name]
        found.append(parametrization)
        found.unsafe |= unsafe
        return module
    original = {**module._parameters, **module._buffers}.get(tensor_name)
    if original is None:
        raise OnefoldValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    made = ParametrizationList([parametrization], original, unsafe=unsafe)
    module._set_computed(tensor_name, _Parametrized(tensor_name))
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = made
    return module


def _check_second(before: Tensor, parametrization: Module) -> None:
    """Raise OnefoldValueError unless a parametrization keeps the form of a parametrized tensor."""
    after = parametrization(before)
    _check_like("a parametrization", after, before)
    if hasattr(parametrization, "right_inverse"):
        try:
            inverse = parametrization.right_inverse(after)
        except NotImplementedError:
            return
        _check_like("'right_inverse' of a tensor that is parametrized already", inverse, after)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the module, or the one of this name, is parametrized."""
    found = module.__dict__["_modules"].get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: M, tensor_name: str, leave_parametrized: bool = True) -> M:
    """Make a tensor a plain parameter or buffer again, with the parametrized value.

    With `leave_parametrized=False` it has the value before the parametrizations. A parameter that
    was computed from one tensor is the same object as before, so that optimizers keep it. One that
    `module.shard_` split may be whole then: call `shard_` again. Raises OnefoldValueError where
    the tensor is not parametrized, or was computed from several and is not left parametrized.
    """
    if not is_parametrized(module, tensor_name):
        raise OnefoldValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    found: ParametrizationList = module.parametrizations[tensor_name]
    if not found.is_tensor and not leave_parametrized:
        raise OnefoldValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    if found.is_tensor:
        original = found.original
        if leave_parametrized:
            with no_grad():
                set_original(original, getattr(module, tensor_name))
    else:
        value: Tensor = getattr(module, tensor_name)
        original = Parameter(value.detach().clone()) if value.requires_grad else value
    del module.parametrizations._modules[tensor_name]
    module._unset_computed(tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
    return module


def type_before_parametrizations(module: Module) -> type[Module]:
    """The class of the module, which parametrizations do not change."""
    return type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: M, tensor_name: str | None = None
) -> M:
    """Give a module the parametrizations of another one, or those of one tensor, and the originals.

    Parameters that the module lacks are made. Both modules share the parametrizations.
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        source: ParametrizationList = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            value: Tensor = getattr(from_module, name)
            setattr(to_module, name, Parameter(value.detach().clone()))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        originals = {**source._parameters, **source._buffers}
        for key, original in originals.items():
            setattr(target, key, original)
    return to_module
