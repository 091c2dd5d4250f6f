"""lazy_property: a property that is computed once, with gradients also where they are off."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self, TypeVar, overload

from ..engine.grad_mode import enable_grad

T_co = TypeVar("T_co", covariant=True)


class lazy_property(cached_property[T_co]):
    """A property whose value, once computed, is an attribute of the object.

    Sampling runs without gradients. What it computes first would otherwise have none later.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T_co: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            return super().__get__(instance, owner)
