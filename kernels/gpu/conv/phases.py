"""Transposed convolutions with strides, as several without.

The outputs whose places have one remainder by the stride are a phase. They are reached by the same
taps, each of them by all of these: so a phase is a transposed convolution of stride 1 with a part
of the weight. Nothing is multiplied by the zeros between the inputs.
"""

from __future__ import annotations

from itertools import product
from math import gcd
from typing import NamedTuple

from .conv_geometry import Sizes, Triple


class Phase(NamedTuple):
    """Slices of the output's and of the weight's dims, and the sizes of the convolution."""

    outputs: tuple[slice, ...]
    taps: tuple[slice, ...]
    padding: Triple
    dilation: Triple


class _Dim(NamedTuple):
    output: slice
    taps: slice
    padding: int
    dilation: int


def phases(taps: Triple, sizes: Sizes) -> list[Phase]:
    """The phases of a transposed convolution; some have no taps.

    >>> from onefold.kernels.gpu.conv.conv_geometry import Sizes
    >>> from onefold.kernels.gpu.conv.phases import phases
    >>> sizes = Sizes((1, 1, 2), (0, 0, 1), (1, 1, 1))
    >>> [(phase.taps[-1], phase.padding) for phase in phases((1, 1, 3), sizes)]
    [(slice(1, None, 2), (0, 0, 0)), (slice(0, None, 2), (0, 0, 1))]
    """
    every = [_of_dim(*dim) for dim in zip(taps, *sizes, strict=True)]
    found = []
    for dims in product(*every):
        outputs, of_taps, (p, q, r), (u, v, w) = zip(*dims, strict=True)
        whole = slice(None), slice(None)
        found.append(Phase((*whole, *outputs), (*whole, *of_taps), (p, q, r), (u, v, w)))
    return found


def _of_dim(taps: int, stride: int, padding: int, dilation: int) -> list[_Dim]:
    """An output at `phase + stride * n` is reached by a tap from the input at
    `n + (phase + padding - tap * dilation) / stride`, if that is an integer.
    """
    shared = gcd(stride, dilation)
    found = []
    for phase in range(stride):
        fitting = [t for t in range(taps) if (phase + padding - t * dilation) % stride == 0]
        first = fitting[0] if fitting else taps
        before = (phase + padding - first * dilation) // stride
        own = slice(first, None, stride // shared)
        found.append(_Dim(slice(phase, None, stride), own, before, dilation // shared))
    return found
