"""Puts the repaired parts into Triton's interpreter."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter as stock

from .cached_types import make_block_type, make_tensor
from .repaired_builder import Block, Builder, RepairedMethods, numpy_dtype
from .repaired_launch import launch
from .repaired_reductions import associative_scan, reduce

_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


def apply() -> None:
    """Repair the interpreter of this process, once."""
    if getattr(stock, "repaired", False):
        return
    stock.repaired = True
    for name, function in vars(RepairedMethods).items():
        if not name.startswith("__"):
            setattr(Builder, name, function)
    builder = stock.interpreter_builder
    # Without `debug` nothing looks at the checks for overflow, which take a third of the time.
    builder.options = dataclasses.replace(
        builder.options, allowed_dot_input_precisions=_PRECISIONS, sanitize_overflow=False
    )
    builder.codegen_fns["min_dot_size"] = _min_dot_size
    _patch_language(builder)
    stock._patch_lang = lambda fn: contextlib.ExitStack()
    stock._get_np_dtype = numpy_dtype
    tl.block_type.__init__, tl.tensor.__init__ = make_block_type, make_tensor
    stock.GridExecutor.__call__ = launch
    stock.InterpretedFunction.__call__ = lambda self, *a, **kw: self.rewrite()(*a, **kw)


def _patch_language(builder: Any) -> None:
    """What the stock interpreter does at each launch and each call between kernels, once."""
    scope = stock._LangPatchScope()
    for module in (tl, tl.core):
        stock._patch_builtin(module, builder, scope)
        stock._patch_builtin(module.tensor, builder, scope)
        stock._patch_lang_tensor(module.tensor, scope)
        stock._patch_lang_core(module, scope)
        module.reduce = reduce
        module.associative_scan = associative_scan
    stock._patch_builtin(tl.math, builder, scope)
    stock._patch_builtin(tl.core.tensor_descriptor_base, builder, scope)
    tl.tensor.__index__ = lambda self: int(self.handle.data.item())
    for name, function in inspect.getmembers(cuda_libdevice, inspect.isfunction):
        if name in vars(libdevice):
            setattr(libdevice, name, _external(function))


def _external(function: Callable[..., Block]) -> Callable[..., Block]:
    return lambda *args: function(*args, _semantic=stock.interpreter_semantic)


def _min_dot_size(a: Block, b: Block) -> tuple[int, int, int]:
    return (1, 1, 32 if a.scalar.primitive_bitwidth == 8 else 16)
