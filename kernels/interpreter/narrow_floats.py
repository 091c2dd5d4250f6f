"""bfloat16 and fp8 in numpy, which has neither: their bits to float32 and back, rightly rounded."""

from __future__ import annotations

import numpy as np

BFLOAT16, E4M3, E5M2 = "bf16", "fp8e4nv", "fp8e5"


def _table(exponent_bits: int, mantissa_bits: int, finite: int) -> np.ndarray:
    """The values of the codes 0..finite, which grow with the code."""
    bias = 2 ** (exponent_bits - 1) - 1
    code = np.arange(finite + 1)
    exponent, mantissa = code >> mantissa_bits, code & (2**mantissa_bits - 1)
    normal = exponent > 0
    fraction = mantissa / 2**mantissa_bits + normal
    return np.asarray(fraction * 2.0 ** (np.maximum(exponent, 1) - bias))


# The finite values that are not negative, and the codes of infinity and of a NaN.
_FP8 = {E4M3: (_table(4, 3, 0x7E), None, 0x7F), E5M2: (_table(5, 2, 0x7B), 0x7C, 0x7E)}


def _all_codes(name: str) -> np.ndarray:
    finite, infinity, _ = _FP8[name]
    half = np.full(128, np.nan, dtype=np.float32)
    half[: len(finite)] = finite
    if infinity is not None:
        half[infinity] = np.inf
    return np.concatenate([half, -half])


_DECODED: dict[str, np.ndarray] = {name: _all_codes(name) for name in _FP8}


def decode(bits: np.ndarray, name: str) -> np.ndarray:
    """The float32 values of bits (uint16 for bfloat16, uint8 for fp8)."""
    if name == BFLOAT16:
        word: np.ndarray = bits.astype(np.uint32) << 16
        return word.view(np.float32)
    values: np.ndarray = _DECODED[name][bits]
    return values


@np.errstate(all="ignore")
def encode(values: np.ndarray, name: str, towards_zero: bool = False) -> np.ndarray:
    """The bits of the nearest values, ties to even; fp8 saturates, as the GPU's conversion does."""
    values = np.asarray(values, dtype=np.float32)
    if name == BFLOAT16:
        word = values.view(np.uint32)
        carry = 0 if towards_zero else 0x7FFF + ((word >> 16) & 1)
        bits = ((word + carry) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FC0), bits)
    finite, _, nan = _FP8[name]
    size = np.abs(values)
    code = np.minimum(np.searchsorted(finite, size, side="right") - 1, len(finite) - 2)
    if not towards_zero:
        middle = (finite[code] + finite[code + 1]) / 2  # exact in float64
        code = code + ((size > middle) | ((size == middle) & (code % 2 == 1)))
    else:
        code = code + (size >= finite[-1])
    code = np.where(np.isnan(values), nan, code)
    return np.asarray(code + 128 * np.signbit(values), dtype=np.uint8)


def truncate_to_tf32(values: np.ndarray) -> np.ndarray:
    """float32 with the 10 bits of mantissa that tensor cores read, rounded to nearest."""
    word = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((word + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
