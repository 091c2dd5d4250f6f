"""Convolutions whose windows are copied by TMA: in the interpreter, and where they are chosen."""

from itertools import product
from math import prod

import pytest
import torch
from device_checks import DEVICE
from hypothesis import assume, given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import conv_ref
from onefold.kernels.gpu.conv import conv_boxes
from onefold.kernels.gpu.conv.conv_boxes import box_of
from onefold.kernels.gpu.conv.conv_geometry import (
    IMAGES,
    Products,
    Sizes,
    Volumes,
    of_images,
    three,
)
from onefold.kernels.gpu.conv.conv_kernels import _weights
from onefold.kernels.gpu.launch import configs
from onefold.kernels.gpu.matmul import gemm_tma
from onefold.kernels.gpu.matmul.gemm_config import Tile

size = st.integers(1, 9)


def by_boxes(x, w, bias, padding, dilation, transposed, tile):
    """The convolution, by boxes."""
    given = ((1, 1), padding, dilation, transposed, (0, 0), 1)
    shape = conv_ref.convolution(x, w, None, *given).shape
    images, outs, *output = shape
    y = torch.full((images, *output, outs), torch.nan, dtype=x.dtype, device=x.device)
    weight = _weights(w.unsqueeze(2), transposed, 1, False)
    taps, sizes = three(w.shape[2:], 1), Sizes.of((1, 1), padding, dilation)
    v = Volumes.of(x.shape[0], x.shape[2:], shape[2:], taps, sizes)
    p = Products(v.places, shape[1], x.shape[1], prod(taps))
    conv_boxes.convolve(x, weight, bias, y, y.stride()[:3], v, p, taps, sizes, transposed, tile)
    return y.permute(0, 3, 1, 2), conv_ref.convolution(x.double(), w.double(), None, *given)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_windows_as_boxes(data):
    draw = data.draw
    images, height, width = draw(size), draw(size), draw(size)
    taps = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    padding = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    transposed, with_bias = draw(st.booleans()), draw(st.booleans())
    reach = [d * (k - 1) for d, k in zip(dilation, taps, strict=True)]
    ends = [
        n + r - 2 * p if transposed else n + 2 * p - r
        for n, p, r in zip((height, width), padding, reach, strict=True)
    ]
    assume(min(ends) >= 1)
    channels, outs = draw(st.sampled_from([64, 128])), draw(st.sampled_from([8, 40, 64, 72]))
    torch.manual_seed(draw(st.integers(0, 99)))
    made = torch.randn(images, channels, height, width, device=DEVICE).bfloat16()
    x = made.contiguous(memory_format=torch.channels_last)
    shape = (channels, outs) if transposed else (outs, channels)
    w = torch.randn(*shape, *taps, device=DEVICE).bfloat16()
    bias = torch.randn(outs, device=DEVICE).bfloat16() if with_bias else None
    tile = Tile(64, 64, 64, 4, 3)
    y, exact = by_boxes(x, w, bias, padding, dilation, transposed, tile)
    if bias is not None:
        exact = exact + bias.double()[:, None, None]
    assert (y.double() - exact).abs().max() <= 2**-8 * exact.abs().max()


@pytest.mark.parametrize("tile", [(128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (64, 256, 64, 4, 3)])
@pytest.mark.parametrize("transposed", [False, True])
def test_large_tiles(tile, transposed):
    """On a GPU these once read registers that a multiplication before was still reading."""
    images = 8 if DEVICE == "cuda" else 1
    made = torch.randn(images, 64, 28, 28, device=DEVICE).bfloat16()
    x = made.contiguous(memory_format=torch.channels_last)
    w = torch.randn(*((64, 256) if transposed else (256, 64)), 3, 3, device=DEVICE).bfloat16()
    y, exact = by_boxes(x, w, None, (1, 1), (1, 1), transposed, Tile(*tile))
    assert (y.double() - exact).abs().max() <= 2**-8 * exact.abs().max()
    again, _ = by_boxes(x, w, None, (1, 1), (1, 1), transposed, Tile(*tile))
    assert torch.equal(y, again)


def test_a_wrong_place_is_seen():
    """The check of the test above can fail."""
    x = torch.randn(1, 64, 4, 4, device=DEVICE).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last)
    w = torch.randn(8, 64, 3, 3, device=DEVICE).bfloat16()
    tile = Tile(64, 64, 64, 4, 3)
    y, _ = by_boxes(x, w, None, (1, 1), (1, 1), False, tile)
    _, exact = by_boxes(x, w.flip(2), None, (1, 1), (1, 1), False, tile)
    assert (y.double() - exact).abs().max() > 2**-8 * exact.abs().max()


@given(st.integers(1, 300), st.integers(1, 70), st.integers(1, 70), st.sampled_from([64, 128, 256]))
def test_boxes_reach_the_least_beyond_the_output(images, height, width, positions):
    def tiles(box):
        counts = zip((images, height, width), box, strict=True)
        return prod(-(-count // side) for count, side in counts)

    box = box_of(images, height, width, positions)
    sides = [1 << power for power in range(9)]
    others = [each for each in product(sides, repeat=3) if prod(each) == positions]
    assert prod(box) == positions
    assert tiles(box) == min(map(tiles, others))


def test_the_table_comes_before_the_rule(monkeypatch):
    products = of_images(IMAGES[0])
    tile = Tile(256, 64, 64, 8, 3)
    name = configs.key("convolution_boxes", "half", products.shape_class, configs.architecture())
    monkeypatch.setattr(configs, "_table", lambda: {name: tile._asdict()})
    conv_boxes.tile_of.cache_clear()
    assert conv_boxes.tile_of(products) == tile != conv_boxes.by_rule(products)
    conv_boxes.tile_of.cache_clear()


@pytest.fixture
def always(monkeypatch):
    """Boxes wherever they are possible, also in the interpreter; returns the calls."""
    calls = []
    convolve = conv_boxes.convolve
    monkeypatch.setattr(conv_boxes, "INTERPRETED", False)
    monkeypatch.setattr(conv_boxes, "_LEAST", 0)
    monkeypatch.setattr(conv_boxes, "_FEWEST", 0)
    monkeypatch.setattr(conv_boxes, "_MAX_PADDED", 1000)
    monkeypatch.setattr(gemm_tma, "processors", lambda device: 132)
    monkeypatch.setattr(conv_boxes, "convolve", lambda *args: calls.append(convolve(*args)))
    return calls


# taps, stride, padding, dilation, transposed; how many calls there are
WHOLE = [
    ((3, 3), (1, 1), (1, 1), (1, 1), False, 1),
    ((3, 2), (1, 1), (2, 0), (2, 1), False, 1),
    ((3, 3), (1, 1), (1, 1), (1, 1), True, 1),
    ((3, 3), (2, 2), (1, 1), (1, 1), True, 4),
    ((3, 2), (3, 2), (0, 1), (1, 1), True, 6),
    ((1, 1), (2, 2), (0, 0), (1, 1), True, 1),  # the other positions get the bias alone
    ((3,), (1,), (1,), (1,), False, 1),
    ((1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), False, 1),
    ((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), False, 0),
    ((3, 3), (2, 2), (1, 1), (1, 1), False, 0),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_whole_convolutions(case, dtype, always):
    taps, stride, padding, dilation, transposed, calls = case
    shape = (64, 40) if transposed else (40, 64)
    x = torch.randn(3, 64, *(6, 5, 4)[-len(taps) :], device=DEVICE).to(dtype)
    w = torch.randn(*shape, *taps, device=DEVICE).to(dtype)
    bias = torch.randn(40, device=DEVICE).to(dtype)
    more = (stride, padding, dilation, transposed, (0,) * len(taps), 1)
    assert_matches_reference(conv_ref.convolution, x, w, bias, *more)
    assert len(always) == calls


CHOSEN = {
    "images": 64, "channels": 64, "outs": 64, "stride": 1, "dtype": torch.bfloat16, "groups": 1,
    "side": 28, "taps": (1, 3, 3), "shifted": 0, "processors": 132,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "chosen"),
    [
        ({}, True),
        ({"outs": 72}, True),
        ({"images": 1}, False),
        ({"channels": 0}, False),
        ({"channels": 96}, False),
        ({"outs": 68}, False),
        ({"outs": 32}, False),
        ({"stride": 2}, False),
        ({"dtype": torch.float32}, False),
        ({"groups": 2}, False),
        ({"side": 33, "images": 3, "outs": 1024}, False),  # boxes reach far beyond the output
        ({"taps": (3, 3, 3)}, False),
        ({"shifted": 4}, False),
        ({"processors": 0}, False),
    ],
    ids=str,
)
def test_where_boxes_are_chosen(change, chosen, monkeypatch):
    case = CHOSEN | change
    monkeypatch.setattr(conv_boxes, "INTERPRETED", False)
    monkeypatch.setattr(gemm_tma, "processors", lambda device: case["processors"])
    shape = (case["images"], case["side"], case["side"])

    def tensor(width):
        numel = prod(shape) * width + case["shifted"]
        return torch.empty(numel, dtype=case["dtype"])[case["shifted"] :].view(*shape, width)

    x, y = tensor(case["channels"]), tensor(case["outs"])
    sizes = Sizes.of((case["stride"],) * 3, (1, 1), (1, 1))
    volumes = (shape if case["taps"][0] > 1 else (1, *shape[1:]),) * 2
    v = Volumes.of(case["images"], *volumes, case["taps"], sizes)
    p = Products(v.places, case["outs"], case["channels"], 9, case["groups"])
    assert conv_boxes.suit(x, x, y, y.stride()[:3], v, p, sizes) == chosen
    wide = (*y.stride()[:2], y.stride(2) + 4)
    assert not conv_boxes.suit(x, x, y, wide, v, p, sizes)
    monkeypatch.setattr(conv_boxes, "INTERPRETED", True)
    assert not conv_boxes.suit(x, x, y, y.stride()[:3], v, p, sizes)
