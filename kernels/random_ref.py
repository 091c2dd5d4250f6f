"""Random tensors and masks whose elements depend only on (seed, call, logical index).

Every function fills one box: `size` elements from `offset` on, inside the logical `shape`. The
same box is bit for bit the same on every device, however the tensor is cut. Each use needs a
`call` of its own; two calls with equal ids draw from the same words.

float16 and bfloat16 get the float32 value, rounded to nearest even. float64 draws 64 bits per
element, so it is a different sequence.
"""

from functools import lru_cache
from math import erf, inf, sqrt
from typing import Any, NotRequired, TypeAlias, TypedDict, TypeVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import OnefoldTypeError, OnefoldValueError
from .philox import fill
from .random_transforms import (
    DOUBLE,
    SINGLE,
    Real,
    box_muller,
    clamp,
    convert,
    erfinv,
    high_product,
    unit,
)

Ints: TypeAlias = tuple[int, ...]
Array = TypeVar("Array", NDArray[Any], Tensor)

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Draw(TypedDict):
    """The keywords that every function takes: which numbers, and where to put them (the CPU).

    `seed` and `call` count modulo 2^64.
    """

    seed: int
    call: int
    device: NotRequired[torch.device | str]


def real_of(dtype: torch.dtype, asked: str) -> Real:
    """What numbers of a dtype are computed in. Raises OnefoldTypeError unless it is floating."""
    if dtype not in _FLOATS:
        allowed = ", ".join(str(allowed) for allowed in _FLOATS)
        raise OnefoldTypeError(f"{asked} needs a floating dtype ({allowed}), but got {dtype}")
    return DOUBLE if dtype == torch.float64 else SINGLE


def _round_down(x: float, dtype: torch.dtype, *, strictly: bool = False) -> float:
    """The largest number of `dtype` that is at most x; with `strictly`, below x."""
    nearest = torch.tensor(x, dtype=dtype)
    found = float(nearest)
    if found > x or (strictly and found == x):
        found = float(torch.nextafter(nearest, torch.tensor(-inf, dtype=dtype)))
    return found


@lru_cache(maxsize=256)
def _half_open(low: float, high: float, dtype: torch.dtype) -> tuple[float, float]:
    """The first and the last number of `dtype` in [low, high), low rounded; at least one."""
    first = float(torch.tensor(low, dtype=dtype))
    return first, max(first, _round_down(high, dtype, strictly=True))


def drop_threshold(p: float, asked: str) -> int:
    """A word below it has probability p. Raises OnefoldValueError unless 0 <= p <= 1."""
    if not 0.0 <= p <= 1.0:
        raise OnefoldValueError(f"{asked} needs a probability in [0, 1], but got p={p}")
    return int(p * 2.0**32)


def bits(shape: Ints, offset: Ints, size: Ints, **draw: Unpack[Draw]) -> Tensor:
    """Return the raw words, integers in [0, 2^32), as int64.

    Example: `bits((8,), (2,), (3,), seed=0, call=0)`.
    """

    def transform(words: Array) -> Array:
        if isinstance(words, Tensor):
            return words
        return words.astype(np.int64)

    return fill(shape, offset, size, transform, dtype=torch.int64, **draw)


def uniform_bounds(low: float, high: float, dtype: torch.dtype) -> tuple[float, float]:
    """The first and the last number of `dtype` in [low, high)."""
    if not low <= high:
        raise OnefoldValueError(f"uniform needs low <= high, but got low={low}, high={high}")
    return _half_open(low, high, dtype)


def uniform(
    shape: Ints,
    offset: Ints,
    size: Ints,
    *,
    low: float = 0.0,
    high: float = 1.0,
    dtype: torch.dtype = torch.float32,
    **draw: Unpack[Draw],
) -> Tensor:
    """Return numbers uniform in [low, high): low + u (high - low), u a multiple of 2^-24 (2^-53).

    A value that would round to `high` becomes the largest number of `dtype` below it. `low` itself
    is taken as `dtype` rounds it; where low == high it is the only value.
    Raises OnefoldValueError if low > high, OnefoldTypeError for a dtype that is not floating.
    Example: `uniform((8,), (2,), (3,), low=-1.0, seed=0, call=0)`.
    """
    real = real_of(dtype, "uniform")
    first, last = uniform_bounds(low, high, dtype)

    def transform(words: Array) -> Array:
        u = unit(words, real)
        u *= high - low
        u += low
        return clamp(u, first, last)

    return fill(shape, offset, size, transform, dtype=dtype, wide=real is DOUBLE, **draw)


def check_std(std: float) -> None:
    """Raise OnefoldValueError for a standard deviation that is not one."""
    if not std >= 0.0:
        raise OnefoldValueError(f"normal needs std >= 0, but got std={std}")


def normal(
    shape: Ints,
    offset: Ints,
    size: Ints,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: torch.dtype = torch.float32,
    **draw: Unpack[Draw],
) -> Tensor:
    """Return mean + std z, z standard normal by Box and Muller's method, |z| < 6.8 (8.7).

    Raises OnefoldValueError if std < 0, OnefoldTypeError for a dtype that is not floating.
    Example: `normal((8,), (2,), (3,), std=0.02, seed=0, call=0)`.
    """
    real = real_of(dtype, "normal")
    check_std(std)

    def transform(words: Array) -> Array:
        z = box_muller(words, real)
        z *= std
        z += mean
        return z

    return fill(shape, offset, size, transform, dtype=dtype, wide=real is DOUBLE, **draw)


def trunc_bounds(
    mean: float, std: float, low: float, high: float, dtype: torch.dtype
) -> tuple[float, float, float, float]:
    """erf of the bounds, upper first, and the first and the last number of `dtype` inside them."""
    real = real_of(dtype, "trunc_normal")
    if not (std > 0.0 and low < high):
        raise OnefoldValueError(
            f"trunc_normal needs std > 0 and low < high, but got {std=}, {low=}, {high=}"
        )
    narrow = torch.float32 if real is DOUBLE else dtype
    first, last = -_round_down(-low, narrow), _round_down(high, narrow)
    below = erf((low - mean) / std / sqrt(2.0))
    above = erf((high - mean) / std / sqrt(2.0))
    return above, below, first, last


def trunc_normal(
    shape: Ints,
    offset: Ints,
    size: Ints,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    dtype: torch.dtype = torch.float32,
    **draw: Unpack[Draw],
) -> Tensor:
    """Return a normal restricted to [low, high], by the inverse of its distribution function.

    Computed in float32 for every dtype: steps of 2^-24 in probability, nothing past 5.4 std.
    Raises OnefoldValueError unless std > 0 and low < high, OnefoldTypeError for other dtypes.
    Example: `trunc_normal((8,), (2,), (3,), std=0.02, seed=0, call=0)`.
    """
    above, below, first, last = trunc_bounds(mean, std, low, high, dtype)

    def transform(words: Array) -> Array:
        x = unit(words, SINGLE)
        x *= above - below
        x += below
        z = erfinv(clamp(x, 2.0**-24 - 1.0, 1.0 - 2.0**-24))
        z *= sqrt(2.0)
        z *= std
        z += mean
        return clamp(z, first, last)

    return fill(shape, offset, size, transform, dtype=dtype, **draw)


def check_range(low: int, high: int, dtype: torch.dtype) -> None:
    """Raise OnefoldValueError if [low, high) is empty or does not fit int64 or `dtype`."""
    if not low < high:
        raise OnefoldValueError(f"randint needs low < high, but got low={low}, high={high}")
    least, most = -(1 << 63), (1 << 63) - 1
    if dtype == torch.bool:
        least, most = 0, 1
    elif not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        least, most = max(least, info.min), min(most, info.max)
    if low < least or high - 1 > most:
        raise OnefoldValueError(
            f"randint into {dtype} needs values in [{least}, {most}], but got {low=}, {high=}"
        )


def randint(
    shape: Ints,
    offset: Ints,
    size: Ints,
    *,
    low: int,
    high: int,
    dtype: torch.dtype = torch.int64,
    **draw: Unpack[Draw],
) -> Tensor:
    """Return integers of [low, high): low + floor(x (high - low) / 2^64), x of 64 bits.

    The chances of two values differ by at most 2^-64. Source: Lemire, "Fast random integer
    generation in an interval" (2019), without its rejection step.
    Raises OnefoldValueError if the range is empty or does not fit int64 or `dtype`.
    Example: `randint((8,), (2,), (3,), low=0, high=10, seed=0, call=0)`.
    """
    check_range(low, high, dtype)

    def transform(words: Array) -> Array:
        steps = high_product(words, high - low)
        # A number of steps past 2^63 reads as negative; the sum wraps back into int64's range.
        if isinstance(steps, Tensor):
            return steps + low
        return steps.view(np.int64) + low

    return fill(shape, offset, size, transform, dtype=dtype, wide=True, **draw)


def keep_mask(shape: Ints, offset: Ints, size: Ints, *, p: float, **draw: Unpack[Draw]) -> Tensor:
    """Return bools, False with probability p: word >= floor(p 2^32), no rounding involved.

    Raises OnefoldValueError unless 0 <= p <= 1.
    Example: `keep_mask((8,), (2,), (3,), p=0.1, seed=0, call=0)`.
    """
    threshold = drop_threshold(p, "keep_mask")
    return fill(shape, offset, size, lambda words: words >= threshold, dtype=torch.bool, **draw)


def dropout_mask(
    shape: Ints,
    offset: Ints,
    size: Ints,
    *,
    p: float,
    dtype: torch.dtype = torch.float32,
    **draw: Unpack[Draw],
) -> Tensor:
    """Return `keep_mask` times 1 / (1 - p): what dropout multiplies by; zeros where p == 1.

    Raises OnefoldValueError unless 0 <= p <= 1, OnefoldTypeError for a dtype that is not floating.
    Example: `dropout_mask((8,), (2,), (3,), p=0.1, seed=0, call=0)`.
    """
    real = real_of(dtype, "dropout_mask")
    threshold = drop_threshold(p, "dropout_mask")
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0

    def transform(words: Array) -> Array:
        mask = convert(words >= threshold, real)
        mask *= scale
        return mask

    return fill(shape, offset, size, transform, dtype=dtype, **draw)


def dropout(x: Tensor, shape: Ints, offset: Ints, *, p: float, seed: int, call: int) -> Tensor:
    """Return x times `dropout_mask` of the box that x holds of a logical tensor.

    Example: `dropout(x, (8,), (2,), p=0.1, seed=0, call=0)` with x of shape (3,).
    """
    drawn = {"p": p, "seed": seed, "call": call, "dtype": x.dtype, "device": x.device}
    return dropout_mask(shape, offset, tuple(x.shape), **drawn).mul_(x)  # type: ignore[arg-type]


def bernoulli(
    shape: Ints,
    offset: Ints,
    size: Ints,
    *,
    p: float | Tensor,
    dtype: torch.dtype = torch.float32,
    **draw: Unpack[Draw],
) -> Tensor:
    """Return 1 with probability p, else 0: word < floor(p 2^32).

    `p` is a number or a floating tensor that broadcasts to `size`, on the same device; its values
    are not checked, for that would wait for the device.
    Raises OnefoldValueError for a number outside [0, 1].
    Example: `bernoulli((8,), (2,), (3,), p=0.5, seed=0, call=0)`.
    """
    if isinstance(p, Tensor):
        drawn = bits(shape, offset, size, **draw)
        return (drawn < (p.double() * 2.0**32).floor()).to(dtype)
    threshold = drop_threshold(p, "bernoulli")
    return fill(shape, offset, size, lambda words: words < threshold, dtype=dtype, **draw)


def check_count(n: int) -> None:
    """Raise OnefoldValueError for a negative number of elements."""
    if n < 0:
        raise OnefoldValueError(f"randperm needs n >= 0, but got n={n}")


def randperm(n: int, *, dtype: torch.dtype = torch.int64, **draw: Unpack[Draw]) -> Tensor:
    """Return a random permutation of 0 .. n - 1: the stable order of n random 64-bit keys.

    Every rank sorts all keys, so that each can take its own part of the one permutation.
    Raises OnefoldValueError if n < 0.
    Example: `randperm(5, seed=0, call=0)`.
    """
    check_count(n)

    def transform(words: Array) -> Array:
        if isinstance(words, Tensor):
            return words
        return words.view(np.int64)

    keys = fill((n,), (0,), (n,), transform, dtype=torch.int64, wide=True, **draw)
    return torch.argsort(keys, stable=True).to(dtype)
