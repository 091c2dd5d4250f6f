"""Random tensors and masks whose elements depend only on (seed, call, logical index).

Every function fills one box: `size` elements from `offset` on, inside the logical `shape`. The
same box is bit for bit the same on every device, however the tensor is cut. Each use needs a
`call` of its own; two calls with equal ids draw from the same words.

float16 and bfloat16 get the float32 value, rounded to nearest even. float64 draws 64 bits per
element, so it is a different sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from math import erf, inf, sqrt
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import OnefoldTypeError, OnefoldValueError
from .philox import Ints, Seed, Transform, Words, fill
from .random_transforms import (
    DOUBLE,
    SINGLE,
    Real,
    Reals,
    box_muller,
    erfinv,
    exponential_of,
    high_product,
    unit,
)
from .read_ahead import drawn_ahead

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Plan(NamedTuple):
    """How the elements of one call are made of words.

    The reference applies `transform`. The Triton kernel computes the same by the name of its
    `kind` and by `numbers`. `wide` elements take 64 bits.
    """

    kind: str
    dtype: torch.dtype
    transform: Transform
    numbers: tuple[float, ...] = ()
    wide: bool = False


Drawn: TypeAlias = Callable[[int, int, Any], Tensor]  # of a seed, a call id and the device


class Fill(Protocol):
    """Fills a box on a device (the CPU by default); `options` are those of its `Plan`."""

    def __call__(
        self, shape: Ints, offset: Ints, size: Ints, *, seed: Seed, call: int,
        device: torch.device | str = "cpu", **options: object,
    ) -> Tensor: ...  # fmt: skip


class PlannedFill(Fill, Protocol):
    """A `Fill` that can be planned once for tensors of one shape.

    `whole(shape, device, **options)` is the function of a seed, a call id and the device that
    fills one.
    """

    whole: Callable[..., Drawn]


def drawn(plan: Callable[..., Plan]) -> PlannedFill:
    """The function that fills boxes as a function of its options plans."""

    @wraps(plan)
    def run(
        shape: Ints, offset: Ints, size: Ints, *, seed: Seed, call: int,
        device: torch.device | str = "cpu", **options: object,
    ) -> Tensor:  # fmt: skip
        kind, dtype, transform, numbers, wide = plan(**options)
        if not isinstance(seed, Tensor):
            small = drawn_ahead(
                shape, offset, size, (kind, numbers), transform, seed=seed, call=call, dtype=dtype,
                wide=wide,
            )  # fmt: skip
            if small is not None:
                return small.to(device)
        return fill(
            shape, offset, size, transform, seed=seed, call=call, dtype=dtype, device=device,
            wide=wide,
        )  # fmt: skip

    def whole(shape: Ints, device: torch.device | str, **options: object) -> Drawn:
        kind, dtype, transform, numbers, wide = plan(**options)
        start, how = (0,) * len(shape), (kind, numbers)
        on_host = str(device) == "cpu"

        def draw(seed: int, call: int, device: Any) -> Tensor:
            small = drawn_ahead(
                shape, start, shape, how, transform, seed=seed, call=call, dtype=dtype, wide=wide
            )
            if small is not None:
                return small if on_host else small.to(device)
            return fill(
                shape, start, shape, transform, seed=seed, call=call, dtype=dtype, device=device,
                wide=wide,
            )  # fmt: skip

        return draw

    made = cast("PlannedFill", run)
    made.whole = whole
    return made


def real_of(dtype: torch.dtype, asked: str) -> Real:
    """What numbers of a dtype are computed in. Raises OnefoldTypeError unless it is floating."""
    if dtype not in _FLOATS:
        allowed = ", ".join(str(allowed) for allowed in _FLOATS)
        raise OnefoldTypeError(f"{asked} needs a floating dtype ({allowed}), but got {dtype}")
    return DOUBLE if dtype == torch.float64 else SINGLE


def _round_down(x: float, dtype: torch.dtype, *, strictly: bool = False) -> float:
    """The largest number of `dtype` that is at most x; with `strictly`, below x."""
    nearest = torch.tensor(x, dtype=dtype, device="cpu")
    found = float(nearest)
    if found > x or (strictly and found == x):
        found = float(torch.nextafter(nearest, nearest.new_tensor(-inf)))
    return found


@lru_cache(maxsize=256)
def _half_open(low: float, high: float, dtype: torch.dtype) -> tuple[float, float]:
    """The first and the last number of `dtype` in [low, high), low rounded; at least one."""
    first = float(torch.tensor(low, dtype=dtype, device="cpu"))
    return first, max(first, _round_down(high, dtype, strictly=True))


def _threshold(p: float, asked: str) -> int:
    """A word below it has probability p. Raises OnefoldValueError unless 0 <= p <= 1."""
    if not 0.0 <= p <= 1.0:
        raise OnefoldValueError(f"{asked} needs a probability in [0, 1], but got p={p}")
    return int(p * 2.0**32)


@drawn
def bits() -> Plan:
    """Return the raw words, integers in [0, 2^32), as int64.

    Example: `bits((8,), (2,), (3,), seed=0, call=0)`.
    """
    return Plan("bits", torch.int64, lambda words: words.astype(np.int64))


@drawn
def uniform(*, low: float = 0.0, high: float = 1.0, dtype: torch.dtype = torch.float32) -> Plan:
    """Return numbers uniform in [low, high): low + u (high - low), u a multiple of 2^-24 (2^-53).

    A value that would round to `high` becomes the largest number of `dtype` below it. `low` itself
    is taken as `dtype` rounds it; where low == high it is the only value.
    Raises OnefoldValueError if low > high, OnefoldTypeError for a dtype that is not floating.
    Example: `uniform((8,), (2,), (3,), low=-1.0, seed=0, call=0)`.
    """
    real = real_of(dtype, "uniform")
    if not low <= high:
        raise OnefoldValueError(f"uniform needs low <= high, but got low={low}, high={high}")
    first, last = _half_open(low, high, dtype)

    def transform(words: Words) -> Reals:
        u = unit(words, real)
        u *= high - low
        u += low
        return np.clip(u, first, last, out=u)

    numbers = (float(high - low), float(low), first, last)
    return Plan("uniform", dtype, transform, numbers, real is DOUBLE)


@drawn
def normal(*, mean: float = 0.0, std: float = 1.0, dtype: torch.dtype = torch.float32) -> Plan:
    """Return mean + std z, z standard normal by Box and Muller's method, |z| < 6.8 (8.7).

    Raises OnefoldValueError if std < 0, OnefoldTypeError for a dtype that is not floating.
    Example: `normal((8,), (2,), (3,), std=0.02, seed=0, call=0)`.
    """
    real = real_of(dtype, "normal")
    if not std >= 0.0:
        raise OnefoldValueError(f"normal needs std >= 0, but got std={std}")

    def transform(words: Words) -> Reals:
        z = box_muller(words, real)
        z *= std
        z += mean
        return z

    return Plan("normal", dtype, transform, (float(std), float(mean)), real is DOUBLE)


@drawn
def exponential(*, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Plan:
    """Return exponential numbers of mean `scale`: -log(1 - u) scale, which is above 0.

    Raises OnefoldValueError if scale < 0, OnefoldTypeError for a dtype that is not floating.
    Example: `exponential((8,), (2,), (3,), scale=0.5, seed=0, call=0)`.
    """
    real = real_of(dtype, "exponential")
    if not scale >= 0.0:
        raise OnefoldValueError(f"exponential needs scale >= 0, but got scale={scale}")

    def transform(words: Words) -> Reals:
        x = exponential_of(words, real)
        x *= scale
        return x

    return Plan("exponential", dtype, transform, (float(scale),), real is DOUBLE)


@drawn
def trunc_normal(
    *, mean: float = 0.0, std: float = 1.0, low: float = -2.0, high: float = 2.0,
    dtype: torch.dtype = torch.float32,
) -> Plan:  # fmt: skip
    """Return a normal restricted to [low, high], by the inverse of its distribution function.

    Computed in float32 for every dtype: steps of 2^-24 in probability, nothing past 5.4 std.
    Raises OnefoldValueError unless std > 0 and low < high, OnefoldTypeError for other dtypes.
    Example: `trunc_normal((8,), (2,), (3,), std=0.02, seed=0, call=0)`.
    """
    real = real_of(dtype, "trunc_normal")
    if not (std > 0.0 and low < high):
        raise OnefoldValueError(
            f"trunc_normal needs std > 0 and low < high, but got {std=}, {low=}, {high=}"
        )
    narrow = torch.float32 if real is DOUBLE else dtype
    first, last = -_round_down(-low, narrow), _round_down(high, narrow)
    below = erf((low - mean) / std / sqrt(2.0))
    above = erf((high - mean) / std / sqrt(2.0))

    def transform(words: Words) -> Reals:
        x = unit(words, SINGLE)
        x *= above - below
        x += below
        z = erfinv(np.clip(x, 2.0**-24 - 1.0, 1.0 - 2.0**-24, out=x))
        z *= sqrt(2.0)
        z *= std
        z += mean
        return np.clip(z, first, last, out=z)

    numbers = (above - below, below, first, last, float(std), float(mean))
    return Plan("trunc_normal", dtype, transform, numbers)


@drawn
def randint(*, low: int, high: int, dtype: torch.dtype = torch.int64) -> Plan:
    """Return integers of [low, high): low + floor(x (high - low) / 2^64), x of 64 bits.

    The probabilities of two values differ by at most 2^-64. Source: Lemire, "Fast random integer
    generation in an interval" (2019), without its rejection step.
    Raises OnefoldValueError if the range is empty or does not fit int64 or `dtype`.
    Example: `randint((8,), (2,), (3,), low=0, high=10, seed=0, call=0)`.
    """
    if not low < high:
        raise OnefoldValueError(f"randint needs low < high, but got low={low}, high={high}")
    least, most = -(1 << 63), (1 << 63) - 1
    if dtype == torch.bool:
        least, most = 0, 1
    else:
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        least, most = max(least, int(info.min)), min(most, int(info.max))
    if low < least or high - 1 > most:
        raise OnefoldValueError(
            f"randint into {dtype} needs values in [{least}, {most}], but got {low=}, {high=}"
        )

    def transform(words: Words) -> NDArray[np.int64]:
        # A number of steps past 2^63 reads as negative; the sum wraps back into int64's range.
        return high_product(words, high - low).view(np.int64) + low

    kind = "any integer" if high - low == 1 << 64 else "randint"
    return Plan(kind, dtype, transform, (high - low, low), wide=True)


@drawn
def keep_mask(*, p: float) -> Plan:
    """Return bools, False with probability p: word >= floor(p 2^32), no rounding involved.

    Raises OnefoldValueError unless 0 <= p <= 1.
    Example: `keep_mask((8,), (2,), (3,), p=0.1, seed=0, call=0)`.
    """
    threshold = _threshold(p, "keep_mask")
    return Plan("keep", torch.bool, lambda words: words >= threshold, (threshold,))


@drawn
def dropout_mask(*, p: float, dtype: torch.dtype = torch.float32) -> Plan:
    """Return `keep_mask` times 1 / (1 - p): what dropout multiplies by; zeros where p == 1.

    Raises OnefoldValueError unless 0 <= p <= 1, OnefoldTypeError for a dtype that is not floating.
    Example: `dropout_mask((8,), (2,), (3,), p=0.1, seed=0, call=0)`.
    """
    real = real_of(dtype, "dropout_mask")
    threshold = _threshold(p, "dropout_mask")
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0

    def transform(words: Words) -> Reals:
        mask = (words >= threshold).astype(real.floating)
        mask *= scale
        return mask

    return Plan("mask", dtype, transform, (threshold, scale))


def dropout(x: Tensor, shape: Ints, offset: Ints, *, p: float, seed: Seed, call: int) -> Tensor:
    """Return x times `dropout_mask` of the box that x holds of a logical tensor.

    Example: `dropout(x, (8,), (2,), p=0.1, seed=0, call=0)` with x of shape (3,).
    """
    size, options = tuple(x.shape), {"dtype": x.dtype, "p": p}
    mask = dropout_mask(shape, offset, size, seed=seed, call=call, device=x.device, **options)
    return mask.mul_(x)


def dropout_with_mask(
    x: Tensor, shape: Ints, offset: Ints, *, p: float, seed: Seed, call: int
) -> tuple[Tensor, Tensor]:
    """Return `dropout` with the same bits, and the `keep_mask` that it drew.

    Example: `dropout_with_mask(x, (8,), (2,), p=0.1, seed=0, call=0)` with x of shape (3,).
    """
    real_of(x.dtype, "dropout_mask")
    keep = keep_mask(shape, offset, tuple(x.shape), seed=seed, call=call, device=x.device, p=p)
    return dropout_by_mask(x, keep, p), keep


def dropout_by_mask(x: Tensor, keep: Tensor, p: float) -> Tensor:
    """Return x / (1 - p) where `keep` is True and x times 0 elsewhere.

    Example: `dropout_by_mask(x, keep, 0.1)`.
    """
    # torch converts integers much faster than bools, and faster than it multiplies by bools.
    kept = keep.view(torch.uint8).to(x.dtype)
    return kept.mul_(x).mul_(_scale_of_kept(p, x.dtype))


@lru_cache(maxsize=256)
def _scale_of_kept(p: float, dtype: torch.dtype) -> float:
    """1 / (1 - p), as `dropout_mask` rounds it."""
    return float(torch.tensor(1.0 / (1.0 - p) if p < 1.0 else 0.0, dtype=dtype, device="cpu"))


@drawn
def words_of_64_bits() -> Plan:
    """Return 64 random bits as an int64."""
    return Plan("wide", torch.int64, lambda words: words.view(np.int64), wide=True)


def check_count(n: int) -> None:
    """Raise OnefoldValueError for a negative number of elements."""
    if n < 0:
        raise OnefoldValueError(f"randperm needs n >= 0, but got n={n}")


def randperm(
    n: int, *, seed: int, call: int, dtype: torch.dtype = torch.int64,
    device: torch.device | str = "cpu",
) -> Tensor:  # fmt: skip
    """Return a random permutation of 0 .. n - 1: the stable order of n random 64-bit keys.

    Every rank sorts all keys, so that each can take its own part of the one permutation.
    Raises OnefoldValueError if n < 0.
    Example: `randperm(5, seed=0, call=0)`.
    """
    check_count(n)
    keys = words_of_64_bits((n,), (0,), (n,), seed=seed, call=call, device=device)
    # numpy's order of no elements has a stride of 0, which no view as another dtype takes.
    by_numpy = keys.is_cpu and n > 0
    return (_order(keys) if by_numpy else torch.argsort(keys, stable=True)).to(dtype)


def _order(keys: Tensor) -> Tensor:
    """The stable order of keys on the CPU, of which two are hardly ever equal.

    The order of distinct keys is one, which numpy finds several times faster where it is not asked
    for a stable one.
    """
    values = keys.numpy()
    order = np.argsort(values)
    ordered = values[order]
    if (ordered[1:] == ordered[:-1]).any():
        return torch.argsort(keys, stable=True)
    return torch.from_numpy(order)
