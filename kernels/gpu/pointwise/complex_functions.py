"""Functions of complex numbers, each an integer of 64 bits: two floats as they lie in memory.

So a complex tensor is read and written as one of integers, in any layout.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .scalar_functions import neg
from .triton_functions import scalar


@triton.jit
def _real(z):
    return z.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _imag(z):
    return (z >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _pair(real, imag):
    low = real.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    return low | (imag.to(tl.int32, bitcast=True).to(tl.int64) << 32)


@scalar("s")
def complex_of(x):
    """A real number as a complex one."""
    real = x.to(tl.float32)
    return _pair(real, tl.zeros_like(real))


@scalar("ss")
def complex_add(a, b):
    return _pair(_real(a) + _real(b), _imag(a) + _imag(b))


@scalar("ss")
def complex_sub(a, b):
    return _pair(_real(a) - _real(b), _imag(a) - _imag(b))


@scalar("ss")
def complex_mul(a, b):
    real = _real(a) * _real(b) - _imag(a) * _imag(b)
    return _pair(real, _real(a) * _imag(b) + _imag(a) * _real(b))


@scalar("s")
def complex_neg(z):
    return _pair(neg(_real(z)), neg(_imag(z)))


@scalar("s")
def complex_conj(z):
    return _pair(_real(z), neg(_imag(z)))
