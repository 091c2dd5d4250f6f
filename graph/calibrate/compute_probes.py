"""Compute probes: matrix products, attention and memory-bound ops, by size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import TypeAlias

import torch

from ..hardware import Curve
from .turns import Probe, Repeated, agreed, fitted

Call: TypeAlias = Callable[[], object]

DTYPES = (torch.float32, torch.float64)
_SIDES = (32, 64, 128, 256, 512, 768)  # of square matrices
_SIDE, _NARROW = 512, 16  # of a matrix that two thin ones make
_ELEMENTS = tuple(4**power for power in range(5, 12))  # of what is read and written
_HEADS = ((4, 32, 32), (8, 64, 32), (16, 128, 64), (16, 256, 64))  # heads, length, width of each
PASSED = 1 << 26  # bytes that pass through the caches until a value is read again


class ComputeProbes:
    """The rates of one processor, while the other rank does the same."""

    def __init__(self) -> None:
        self._products = {
            dtype: [Repeated(_product(side, side, dtype)) for side in _SIDES] for dtype in DTYPES
        }
        self._narrow = Repeated(_product(_SIDE, _NARROW, torch.float32))
        self._additions = [Repeated(_addition(count)) for count in _ELEMENTS]
        self._attention = [Repeated(_attention(*each)) for each in _HEADS]

    def probes(self) -> list[Probe]:
        """All of them, which are timed in turn."""
        products = [probe for each in self._products.values() for probe in each]
        return [*products, self._narrow, *self._additions, *self._attention]

    def products(self, dtype: torch.dtype) -> tuple[float, Curve]:
        """Peak flop/s of square matrix products, and the share that is reached by size."""
        return fitted([2.0 * side**3 for side in _SIDES], _seconds(self._products[dtype]))

    def narrow(self, peak: float, curve: Curve) -> float:
        """The smallest dim of a product that takes twice as long as its flop predict."""
        flop = 2.0 * _SIDE * _SIDE * _NARROW
        (seconds,) = _seconds([self._narrow])
        return _NARROW * max(seconds * peak * curve.at(flop) / flop - 1.0, 0.0)

    def memory(self) -> tuple[float, Curve]:
        """Peak bytes per second of additions, and the share that is reached by size."""
        return fitted([12.0 * count for count in _ELEMENTS], _seconds(self._additions))

    def attention(self, peak: float) -> Curve:
        """The share of the peak that causal attention reaches, by the flop that it does."""
        flop = [2.0 * heads * length * length * width for heads, length, width in _HEADS]
        times = zip(flop, _seconds(self._attention), strict=True)
        return Curve(tuple((each, min(each / seconds / peak, 1.0)) for each, seconds in times))


def _seconds(probes: list[Repeated]) -> list[float]:
    return agreed([probe.seconds for probe in probes])


def _product(side: int, inner: int, dtype: torch.dtype) -> Call:
    a, b = torch.randn(side, inner, dtype=dtype), torch.randn(inner, side, dtype=dtype)
    return partial(torch.mm, a, b)


def _addition(count: int) -> Call:
    """An addition; other values are read and written between two uses of one, as in a program."""
    first, second, result = torch.randn(3, max(1, PASSED // (12 * count)), count)
    turns = cycle(zip(first, second, result, strict=True))

    def add() -> None:
        a, b, made = next(turns)
        torch.add(a, b, out=made)

    return add


def _attention(heads: int, length: int, width: int) -> Call:
    q, k, v = (torch.randn(1, heads, length, width) for _ in range(3))
    return partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True)
