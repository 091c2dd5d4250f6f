"""Arithmetic of the repaired interpreter: narrow floats, rounding, casts, products, libdevice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from .launch_memory import LaunchMemory
from .libdevice_symbols import SYMBOLS
from .narrow_floats import decode, encode, truncate_to_tf32

Handle: TypeAlias = Any  # the stock interpreter's values: a numpy array and Triton's type
Scalar: TypeAlias = Any  # a dtype of Triton
Block: TypeAlias = Any  # what kernels compute with: a handle and its type
Builder: Any = stock.InterpreterBuilder
_NARROW = {tl.bfloat16.name: np.uint16, tl.float8e4nv.name: np.uint8, tl.float8e5.name: np.uint8}
_stock_numpy_dtype = stock._get_np_dtype
_numpy_dtypes: dict[str, np.dtype] = {}
_erf = SYMBOLS["__nv_erf"]
_masked_load, _masked_store = Builder.create_masked_load, Builder.create_masked_store
_atomic_rmw, _atomic_cas = Builder.create_atomic_rmw, Builder.create_atomic_cas


def numpy_dtype(x: Scalar) -> np.dtype:
    """The dtype of the memory for a dtype, pointer or block of Triton.

    The stock function builds its table at each call, which is a fifth of the interpreter's time.
    """
    name = x.scalar.name
    found = _numpy_dtypes.get(name)
    if found is None:
        found = _numpy_dtypes[name] = _stock_numpy_dtype(x)
    return found


def numbers(x: Handle) -> np.ndarray:
    """The values of a handle as numpy knows them: narrow floats in float32."""
    scalar, data = x.dtype.scalar, np.asarray(x.data)
    if scalar.name in _NARROW and data.dtype == _NARROW[scalar.name]:
        return decode(data, scalar.name)
    return data


def handle(values: np.ndarray, scalar: Scalar) -> Handle:
    """A handle with these values, rounded to a dtype of Triton."""
    if scalar.name in _NARROW:
        return stock.TensorHandle(encode(values, scalar.name), scalar)
    values = np.asarray(values).astype(numpy_dtype(scalar), copy=False)
    return stock.TensorHandle(values, scalar)


def tensor(values: np.ndarray, scalar: Scalar) -> Block:
    """A tensor of Triton with these bits."""
    if values.ndim == 0:
        return tl.tensor(stock.TensorHandle(values.reshape(1), scalar), scalar)
    kind = tl.block_type(scalar, list(values.shape))
    return tl.tensor(stock.TensorHandle(values, scalar), kind)


class RepairedMethods:
    """The methods that replace those of the stock builder."""

    memory: LaunchMemory  # of the running launch

    def get_bf16(self, value: float) -> Handle:
        return handle(np.array([value]), tl.bfloat16)

    def binary_op(self, a: Handle, b: Handle, op: Callable[..., np.ndarray]) -> Handle:
        values = op(numbers(a), numbers(b))
        return handle(values, tl.int1 if values.dtype == bool else a.dtype.scalar)

    def unary_op(self, x: Handle, op: Callable[..., np.ndarray]) -> Handle:
        return handle(op(numbers(x)), x.dtype.scalar)

    def ternary_op(self, a: Handle, b: Handle, c: Handle, op: Callable[..., np.ndarray]) -> Handle:
        return handle(op(numbers(a), numbers(b), numbers(c)), c.dtype.scalar)

    def create_select(self, condition: Handle, a: Handle, b: Handle) -> Handle:
        chosen = np.where(condition.data.astype(bool), a.data, b.data)
        return stock.TensorHandle(chosen, a.dtype.scalar)

    def create_fma(self, a: Handle, b: Handle, c: Handle) -> Handle:
        x, y, z = numbers(a), numbers(b), numbers(c).astype(np.float64)
        return handle(x.astype(np.float64) * y + z, c.dtype.scalar)

    def create_minnumf(self, a: Handle, b: Handle) -> Handle:
        return self.binary_op(a, b, np.fmin)

    def create_maxnumf(self, a: Handle, b: Handle) -> Handle:
        return self.binary_op(a, b, np.fmax)

    def create_clampf(self, x: Handle, low: Handle, high: Handle, propagate_nans: object) -> Handle:
        if propagate_nans == tl.PropagateNan.ALL:
            return self.ternary_op(x, low, high, np.clip)
        return self.create_minnumf(self.create_maxnumf(x, low), high)

    def create_rsqrt(self, x: Handle) -> Handle:
        return self.unary_op(x, lambda v: 1 / np.sqrt(v.astype(np.float64)))

    def create_erf(self, x: Handle) -> Handle:
        return self.unary_op(x, _erf)

    def cast_impl(self, x: Handle, to: Scalar) -> Handle:
        return handle(numbers(x), to.scalar)

    def create_fp_to_fp(self, x: Handle, to: Scalar, rounding_mode: object) -> Handle:
        values, scalar = numbers(x), to.scalar
        if rounding_mode != stock._ir.ROUNDING_MODE.RTZ:
            return handle(values, scalar)
        if scalar.name in _NARROW:
            return stock.TensorHandle(encode(values, scalar.name, towards_zero=True), scalar)
        rounded = values.astype(numpy_dtype(scalar))
        away = np.abs(rounded.astype(np.float64)) > np.abs(values)
        nearer = np.where(away, np.nextafter(rounded, 0 * rounded), rounded)
        return stock.TensorHandle(nearer, scalar)

    def create_dot(
        self,
        a: Handle,
        b: Handle,
        d: Handle,
        input_precision: object,
        max_num_imprecise_acc: object,
    ) -> Handle:
        x, y = numbers(a), numbers(b)
        wide = np.float32 if d.data.dtype == np.float16 else d.data.dtype
        reduced = input_precision == stock._ir.INPUT_PRECISION.TF32
        if reduced and a.dtype.scalar == tl.float32:
            x, y = truncate_to_tf32(x), truncate_to_tf32(y)
        return handle(np.matmul(x, y, dtype=wide) + d.data, d.dtype.scalar)

    def create_extern_elementwise(
        self, library: str, path: str, symbol: str, args: list[Handle], type_: Scalar, pure: bool
    ) -> Handle:
        if symbol not in SYMBOLS:
            raise NotImplementedError(f"{symbol} is not in libdevice_symbols.py")
        return handle(SYMBOLS[symbol](*map(numbers, args)), type_.scalar)

    def create_int_to_ptr(self, x: Handle, to: Scalar) -> Handle:
        self.memory.only = False  # addresses out of a table may reach any memory
        return stock.interpreter_builder.create_bitcast(x, to)

    def create_masked_load(
        self, pointers: Handle, mask: Handle, other: Handle, *rest: object, **named: object
    ) -> Handle:
        self.memory.load(pointers, mask)
        return _masked_load(self, pointers, mask, other, *rest, **named)

    def create_masked_store(
        self, pointers: Handle, value: Handle, mask: Handle, *rest: object
    ) -> Handle:
        self.memory.store(pointers, mask)
        return _masked_store(self, pointers, value, mask, *rest)

    def create_atomic_rmw(
        self, operation: object, pointers: Handle, value: Handle, mask: Handle, *rest: object
    ) -> Handle:
        self.memory.update(pointers, mask)
        return _atomic_rmw(self, operation, pointers, value, mask, *rest)

    def create_atomic_cas(self, pointers: Handle, *rest: object) -> Handle:
        self.memory.update(pointers, handle(np.array(True), tl.int1))
        return _atomic_cas(self, pointers, *rest)

    def create_barrier(self) -> None:
        self.memory.barrier()
