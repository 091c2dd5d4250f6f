"""Repairs Triton's interpreter, so that kernels on the CPU compute what a GPU would.

The stock interpreter (3.6, 3.7) adds, compares and multiplies the bits of bfloat16 as if they were
integers, truncates where the compiler rounds, has no libdevice, keeps numbers given as arguments in
float64, accepts what the compiler refuses, and dies of a wrong address. tests/triton/
test_interpreter.py shows each of these; when one is repaired upstream, its test says so.
"""

import contextlib
import dataclasses
import inspect
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter as stock
from triton.runtime.jit import _normalize_ty
from triton_floats import decode, encode, truncate_to_tf32
from triton_libdevice import SYMBOLS

Handle = stock.TensorHandle
Builder = stock.InterpreterBuilder
NARROW = {tl.bfloat16: np.uint16, tl.float8e4nv: np.uint8, tl.float8e5: np.uint8}
_erf = SYMBOLS["__nv_erf"]


def apply() -> None:
    """Repair the interpreter of this process, once."""
    if getattr(stock, "repaired", False):
        return
    stock.repaired = True
    for name, function in vars(_Builder).items():
        if not name.startswith("__"):
            setattr(Builder, name, function)
    builder = stock.interpreter_builder
    precisions = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
    builder.options = dataclasses.replace(builder.options, allowed_dot_input_precisions=precisions)
    builder.codegen_fns["min_dot_size"] = _min_dot_size
    _patch_language(builder)
    stock._patch_lang = lambda fn: contextlib.ExitStack()
    stock.GridExecutor.__call__ = _launch
    stock.InterpretedFunction.__call__ = lambda self, *a, **kw: self.rewrite()(*a, **kw)


def _patch_language(builder: Any) -> None:
    """What the stock interpreter does at each launch and each call between kernels, once."""
    scope = stock._LangPatchScope()
    for module in (tl, tl.core):
        stock._patch_builtin(module, builder, scope)
        stock._patch_builtin(module.tensor, builder, scope)
        stock._patch_lang_tensor(module.tensor, scope)
        stock._patch_lang_core(module, scope)
        module.reduce = _reduce
        module.associative_scan = _scan
    stock._patch_builtin(tl.math, builder, scope)
    stock._patch_builtin(tl.core.tensor_descriptor_base, builder, scope)
    tl.tensor.__index__ = lambda self: int(self.handle.data.item())
    for name, function in inspect.getmembers(cuda_libdevice, inspect.isfunction):
        if name in vars(libdevice):
            setattr(libdevice, name, _external(function))


def _external(function: Any) -> Any:
    return lambda *args: function(*args, _semantic=stock.interpreter_semantic)


def _min_dot_size(a: Any, b: Any) -> tuple[int, int, int]:
    return (1, 1, 32 if a.scalar.primitive_bitwidth == 8 else 16)


# Values


def _numbers(x: Any) -> np.ndarray:
    """The values of a handle as numpy knows them: narrow floats in float32."""
    scalar = x.dtype.scalar
    if scalar in NARROW and x.data.dtype == NARROW[scalar]:
        return decode(x.data, scalar.name)
    return x.data


def _handle(values: np.ndarray, scalar: Any) -> Any:
    if scalar in NARROW:
        return Handle(encode(values, scalar.name), scalar)
    return Handle(np.asarray(values).astype(stock._get_np_dtype(scalar), copy=False), scalar)


class _Builder:
    """The methods that replace those of the stock builder."""

    def get_bf16(self, value):
        return _handle(np.array([value]), tl.bfloat16)

    def binary_op(self, a, b, op):
        values = op(_numbers(a), _numbers(b))
        return _handle(values, tl.int1 if values.dtype == bool else a.dtype.scalar)

    def unary_op(self, x, op):
        return _handle(op(_numbers(x)), x.dtype.scalar)

    def ternary_op(self, a, b, c, op):
        return _handle(op(_numbers(a), _numbers(b), _numbers(c)), c.dtype.scalar)

    def create_select(self, condition, a, b):
        return Handle(np.where(condition.data.astype(bool), a.data, b.data), a.dtype.scalar)

    def create_fma(self, a, b, c):
        a, b, wide = _numbers(a), _numbers(b), _numbers(c).astype(np.float64)
        return _handle(a.astype(np.float64) * b + wide, c.dtype.scalar)

    def create_minnumf(self, a, b):
        return self.binary_op(a, b, np.fmin)

    def create_maxnumf(self, a, b):
        return self.binary_op(a, b, np.fmax)

    def create_clampf(self, x, low, high, propagate_nans):
        if propagate_nans == tl.PropagateNan.ALL:
            return self.ternary_op(x, low, high, np.clip)
        return self.create_minnumf(self.create_maxnumf(x, low), high)

    def create_rsqrt(self, x):
        return self.unary_op(x, lambda v: 1 / np.sqrt(v.astype(np.float64)))

    def create_erf(self, x):
        return self.unary_op(x, _erf)

    def cast_impl(self, x, to):
        return _handle(_numbers(x), to.scalar)

    def create_fp_to_fp(self, x, to, rounding_mode):
        values, scalar = _numbers(x), to.scalar
        if rounding_mode != stock._ir.ROUNDING_MODE.RTZ:
            return _handle(values, scalar)
        if scalar in NARROW:
            return Handle(encode(values, scalar.name, towards_zero=True), scalar)
        rounded = values.astype(stock._get_np_dtype(scalar))
        away = np.abs(rounded.astype(np.float64)) > np.abs(values)
        return Handle(np.where(away, np.nextafter(rounded, 0 * rounded), rounded), scalar)

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        x, y = _numbers(a), _numbers(b)
        wide = np.float32 if d.data.dtype == np.float16 else d.data.dtype
        reduced = input_precision == stock._ir.INPUT_PRECISION.TF32
        if reduced and a.dtype.scalar == tl.float32:
            x, y = truncate_to_tf32(x), truncate_to_tf32(y)
        return _handle(np.matmul(x, y, dtype=wide) + d.data, d.dtype.scalar)

    def create_extern_elementwise(self, library, path, symbol, args, type_, pure):
        if symbol not in SYMBOLS:
            raise NotImplementedError(f"{symbol} is not in tests/triton_libdevice.py")
        return _handle(SYMBOLS[symbol](*map(_numbers, args)), type_.scalar)

    def create_int_to_ptr(self, x, to):
        _spans.clear()  # addresses out of a table: what they may reach is not known
        return self.create_bitcast(x, to)

    def create_masked_load(
        self, pointers, mask, other, *rest, _load=Builder.create_masked_load, **named
    ):
        _check_addresses(pointers, mask)
        return _load(self, pointers, mask, other, *rest, **named)

    def create_masked_store(self, pointers, value, mask, *rest, _store=Builder.create_masked_store):
        _check_addresses(pointers, mask)
        return _store(self, pointers, value, mask, *rest)


# Reductions and scans: halves of the axis are combined at once, in the order of the elements.


def _tensor(values: np.ndarray, scalar: Any) -> Any:
    if values.ndim == 0:
        return tl.tensor(Handle(values.reshape(1), scalar), scalar)
    return tl.tensor(Handle(values, scalar), tl.block_type(scalar, list(values.shape)))


def _combine(function: Any, a: list[Any], b: list[Any], scalars: list[Any]) -> list[np.ndarray]:
    found = function(*map(_tensor, a, scalars), *map(_tensor, b, scalars))
    found = found if isinstance(found, (tuple, tl.tuple)) else (found,)
    shape = a[0].shape
    return [np.broadcast_to(x.handle.data, shape) for x in found]


_AT_ONCE = {
    tl.standard._elementwise_max: np.fmax,
    tl.standard._elementwise_min: np.fmin,
    tl.standard._sum_combine: np.add,
}


def _reduce(input, axis, combine_fn, keep_dims=False, **_):
    given = input if isinstance(input, (tuple, tl.tuple)) else (input,)
    axis, keep_dims = (getattr(x, "value", x) for x in (axis, keep_dims))
    scalars = [x.dtype for x in given]
    shape = list(given[0].handle.data.shape)
    parts = [x.handle.data for x in given]
    if axis is None:
        parts = [x.reshape(-1) for x in parts]
    parts = [np.moveaxis(x, axis or 0, -1) for x in parts]
    ufunc = _AT_ONCE.get(combine_fn)
    exact = ufunc in {np.fmax, np.fmin} or given[0].handle.data.dtype.itemsize >= 4
    if ufunc is not None and exact and len(given) == 1:
        values = ufunc.reduce(_numbers(Handle(parts[0], scalars[0])), axis=-1)
        results = [_handle(np.asarray(values), scalars[0]).data]
    else:
        while parts[0].shape[-1] > 1:
            even, odd = [x[..., 0::2] for x in parts], [x[..., 1::2] for x in parts]
            parts = _combine(combine_fn, even, odd, scalars)
        results = [x[..., 0] for x in parts]
    if keep_dims:
        kept = [1] * len(shape) if axis is None else [*shape]
        if axis is not None:
            kept[axis] = 1
        results = [x.reshape(kept) for x in results]
    tensors = tuple(map(_tensor, results, scalars))
    return tensors if isinstance(input, (tuple, tl.tuple)) else tensors[0]


def _scan(input, axis, combine_fn, reverse=False, **_):
    given = input if isinstance(input, (tuple, tl.tuple)) else (input,)
    axis, reverse = (getattr(x, "value", x) for x in (axis, reverse))
    scalars = [x.dtype for x in given]
    parts = [np.moveaxis(x.handle.data, axis, -1) for x in given]
    parts = [x[..., ::-1] if reverse else x for x in parts]
    width, shift = parts[0].shape[-1], 1
    while shift < width:
        before = [np.concatenate([x[..., :shift], x[..., :-shift]], -1) for x in parts]
        merged = _combine(combine_fn, before, parts, scalars)
        started = np.arange(width) >= shift
        parts = [np.where(started, new, old) for new, old in zip(merged, parts, strict=True)]
        shift *= 2
    parts = [np.moveaxis(x[..., ::-1] if reverse else x, -1, axis) for x in parts]
    tensors = tuple(map(_tensor, parts, scalars))
    return tensors if isinstance(input, (tuple, tl.tuple)) else tensors[0]


# Launches

_spans: list[tuple[int, int]] = []  # the memory of the tensors that the running kernel was given


def _check_addresses(pointers: Any, mask: Any) -> None:
    """Raise IndexError where the stock interpreter reads foreign memory or dies."""
    if not _spans:
        return
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    used = pointers.data[np.broadcast_to(getattr(mask, "data", mask), pointers.data.shape)]
    inside = np.zeros(used.shape, dtype=bool)
    for start, end in _spans:
        inside |= (used >= start) & (used + size <= end)
        if inside.all():
            return
    raise IndexError(f"{np.count_nonzero(~inside)} of {used.size} addresses are in no tensor")


def _storage_span(x: torch.Tensor) -> tuple[int, int]:
    storage = x.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _given_tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [x for part in value for x in _given_tensors(part)]
    base = getattr(value, "base", None)  # of a tensor descriptor
    return [] if base is None else _given_tensors(base)


def _argument(value: Any, annotation: str | None) -> Any:
    """As the compiled kernel gets it: a float is a float32 unless its parameter says fp64."""
    if isinstance(value, (bool, float)):
        kind = tl.int1 if isinstance(value, bool) else tl.float32
        if annotation and annotation.startswith(("fp", "bf")):
            kind = tl.dtype(annotation)
        return _tensor(_handle(np.array(value), kind).data, kind)
    return stock._implicit_cvt(value)


def _launch(self, *given, **named):
    parameters = set(self.arg_names)
    named = {name: value for name, value in named.items() if name in parameters}
    args = inspect.getcallargs(self.fn, *given, **named)
    for hook in self.pre_run_hooks:
        hook(*given, **named)
    annotations = {name: _normalize_ty(kind) for name, kind in self.fn.__annotations__.items()}
    _spans[:] = sorted({_storage_span(x) for v in args.values() for x in _given_tensors(v)})
    args = {
        name: value if name in self.constexprs else _argument(value, annotations.get(name))
        for name, value in args.items()
    }
    grid = self.grid(args) if callable(self.grid) else self.grid
    grid = (*grid, 1, 1, 1)[:3]
    builder = stock.interpreter_builder
    builder.set_grid_dim(*grid)
    try:
        with np.errstate(all="ignore"):
            for index in np.ndindex(*grid):
                builder.set_grid_idx(*index)
                self.fn(**args)
    except Exception as error:
        raise stock.InterpreterError(repr(error)) from error
    finally:
        _spans.clear()
