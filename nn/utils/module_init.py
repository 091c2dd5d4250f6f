"""Modules whose parameters are not initialized (`nn.utils.init`)."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from ...errors import OnefoldRuntimeError
from .. import init
from ..module import Module

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """`module_cls(*args, **kwargs)` with uninitialized parameters.

    Raises OnefoldRuntimeError unless `module_cls` is a module class that takes a `device`.
    """
    is_class = isinstance(module_cls, type)
    if not is_class or not issubclass(module_cls, Module):
        raise OnefoldRuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise OnefoldRuntimeError("Module must support a 'device' arg to skip initialization")
    with init.unset():
        return module_cls(*args, **kwargs)
