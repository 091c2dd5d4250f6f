"""Launches of the repaired interpreter, with arguments as a compiled kernel gets them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock
from triton.runtime.jit import _normalize_ty

from .launch_memory import LaunchMemory
from .repaired_builder import handle, tensor


def launch(self: Any, *given: object, **named: object) -> None:
    """In place of `GridExecutor.__call__`. Options of the compiler are ignored."""
    parameters = set(self.arg_names)
    named = {name: value for name, value in named.items() if name in parameters}
    args = inspect.getcallargs(self.fn, *given, **named)
    for hook in self.pre_run_hooks:
        hook(*given, **named)
    annotations = {name: _normalize_ty(kind) for name, kind in self.fn.__annotations__.items()}
    memory = LaunchMemory(args)
    args = {
        name: value if name in self.constexprs else _argument(value, annotations.get(name))
        for name, value in args.items()
    }
    grid = self.grid(args) if callable(self.grid) else self.grid
    grid = (*grid, 1, 1, 1)[:3]
    builder = stock.interpreter_builder
    builder.set_grid_dim(*grid)
    builder.memory = memory
    try:
        with np.errstate(all="ignore"):
            for index in np.ndindex(*grid):
                builder.set_grid_idx(*index)
                memory.begin(index)
                self.fn(**args)
    except Exception as error:
        raise stock.InterpreterError(repr(error)) from error


def _argument(value: object, annotation: str | None) -> object:
    """As the compiled kernel gets it: a float is a float32 unless its parameter says fp64."""
    if isinstance(value, (bool, float)):
        kind = tl.int1 if isinstance(value, bool) else tl.float32
        if annotation and annotation.startswith(("fp", "bf")):
            kind = tl.dtype(annotation)
        return tensor(handle(np.array(value), kind).data, kind)
    return stock._implicit_cvt(value)
