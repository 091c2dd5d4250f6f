"""lazy_property: a property that is computed once, with gradients also where they are off."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..engine.grad_mode import enable_grad


class lazy_property(cached_property[Any]):  # noqa: N801  (torch's name)
    """A property whose value, once computed, is an attribute of the object.

    Sampling runs without gradients. What it computes first would otherwise have none later.
    """

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            return super().__get__(instance, owner)
