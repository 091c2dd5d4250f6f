"""Windows of convolutions: which position of the input a tap reads, found in several ways."""

from itertools import product
from math import prod

import torch
import triton.language as tl
from hypothesis import given, settings, strategies as st

from onefold.kernels.gpu.conv import conv_geometry, windows
from onefold.kernels.gpu.conv.conv_geometry import Products
from onefold.kernels.gpu.launch.jit_kernel import Kernel
from onefold.kernels.gpu.matmul.gemm_config import Tile, parts_of
from onefold.kernels.gpu.matmul.tile_cost import Product, efficiency

EACH = tl.constexpr(4)


@Kernel
def walk(
    found, d, h, width, od, oh, ow, size, steps, tap,
    TAPS: tl.constexpr, S: tl.constexpr, P: tl.constexpr, D: tl.constexpr, DEEP: tl.constexpr,
    STRIDE: tl.constexpr,
):  # fmt: skip
    """What a tap reads for some windows, and for those `STRIDE` further, again and again."""
    _, _, image, e, i, j = windows.positions(0, 1, od, oh, ow, DEEP, EACH)
    image = image.to(tl.int64)
    first, e, i, j = windows.starts(image, e, i, j, d, h, width, S, P, False, DEEP)
    first *= size
    for _ in range(steps):
        further, exists = windows.reached(e, i, j, tap, d, h, width, size, TAPS, D, False, DEEP)
        tl.store(found + tl.arange(0, EACH), tl.where(exists, first + further, -1))
        found += EACH
        first, e, i, j = windows.advanced(
            first, e, i, j, d, h, width, od, oh, ow, size, STRIDE, S, P, DEEP
        )


def output_size(size, taps, stride, padding, dilation):
    return (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1


@st.composite
def convolutions(draw):
    """The sizes of a volume, and for each dim taps, stride, padding and dilation."""
    deep = draw(st.booleans())
    dims = [
        (draw(st.integers(1, 7)), *(draw(st.integers(1, 3)) for _ in range(2)),
         draw(st.integers(0, 2)), draw(st.integers(1, 2)))
        for _ in range(3 if deep else 2)
    ]  # fmt: skip
    if not deep:
        dims.insert(0, (1, 1, 1, 0, 1))
    source, taps, stride, padding, dilation = zip(*dims, strict=True)
    output = tuple(map(output_size, source, taps, stride, padding, dilation))
    return deep, source, taps, stride, padding, dilation, output


@given(convolutions(), st.integers(1, 40), st.integers(1, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_windows_that_move_reach_what_they_reach_when_computed_anew(drawn, stride, size, data):
    deep, source, taps, steps, padding, dilation, output = drawn
    if min(output) < 1:
        return
    tap = data.draw(st.integers(0, prod(taps) - 1))
    rounds = 5
    found = torch.empty(rounds, EACH.value, dtype=torch.int64)
    constants = (taps, steps, padding, dilation, deep, stride)
    walk.launch((1,), (found, *source, *output, size, rounds, tap), constants)
    offset = list(product(*map(range, taps)))[tap]
    for row, first in zip(found.tolist(), range(0, rounds * stride, stride), strict=True):
        for m, at in zip(range(first, first + EACH.value), row, strict=True):
            place, sizes = [], (*output[1:], 1)
            for k in range(3):
                place.append(m // prod(sizes[k:]) % output[k])
            image = m // prod(output)
            where = [
                o * s - p + t * d
                for o, s, p, t, d in zip(place, steps, padding, offset, dilation, strict=True)
            ]
            inside = all(0 <= x < length for x, length in zip(where, source, strict=True))
            d, h, w = source
            flat = ((image * d + where[0]) * h + where[1]) * w + where[2]
            assert at == (flat * size if inside else -1)


def test_gradients_of_weights_fill_a_gpu():
    """The sum over positions is in as many parts as that takes, for each layer of a ResNet-50."""
    for side, channels, outs in ((56, 64, 64), (28, 128, 128), (14, 256, 256), (7, 512, 512)):
        p = Products(outs, channels, 256 * side * side, times=9, across=True)
        tile = conv_geometry.by_rule("half", p)
        parts, _ = parts_of("half", p.m, p.n, p.k, p.times, tile, among=132)
        assert efficiency(Product(p.m, p.n, p.k, p.times, 132), tile, parts) > 0.8


def test_tiles_of_few_channels_have_steps_inside_of_a_tap():
    assert conv_geometry.by_rule("half", Products(65536, 64, 16, taps=9)).k == 16
    flat = conv_geometry.by_rule("half", Products(65536, 64, 147, flat=True))
    assert flat == Tile(64, 64, 32, 8, 2)
