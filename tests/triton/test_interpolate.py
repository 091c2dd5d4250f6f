"""Images at another size, and their gradients."""

import pytest
import torch
from device_checks import DEVICE
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference

from onefold.kernels import interpolate_ref, select
from onefold.kernels.gpu.conv import interpolate_kernels as gpu

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SLACK = {torch.float32: 64.0, torch.float64: 64.0}
MODES = [
    ("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1), ("nearest-exact", 2),
    ("nearest-exact", 3), ("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3),
]  # fmt: skip
SIZES = {
    1: [((9,), (18,)), ((7,), (5,)), ((5,), (13,)), ((1,), (4,)), ((4,), (1,))],
    2: [((5, 4), (10, 8)), ((6, 7), (4, 3)), ((3, 5), (8, 5)), ((1, 2), (3, 1))],
    3: [((2, 3, 4), (4, 6, 8)), ((3, 4, 5), (2, 7, 3))],
}


def check(dtype, mode, planes, size, out, align, scales=None, last=False, n=2, c=3):
    """Both ways against torch. The error of a place, and so of a weight, grows with the size.

    On a GPU torch always goes by the scales asked for. Onefold is the same there as on the CPU.
    """
    x = torch.randn(n, c, *size).to(dtype)
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    rest = planes, out, mode, align, scales or (None,) * planes
    slack = max(SLACK.get(dtype, 4.0), max(*size, *out) / 8)
    how = {"slack": slack, "on_cpu": scales is not None}
    y = assert_matches_reference(interpolate_ref.interpolate, x, *rest, **how)
    dy = torch.randn_like(y)
    grad = (dy, tuple(x.shape), *rest)
    dx = assert_matches_reference(interpolate_ref.interpolate_grad, *grad, **how)
    if last and c > 1 and 1 not in (*size, *out):
        assert y.movedim(1, -1).is_contiguous() and dx.movedim(1, -1).is_contiguous()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("mode", "planes"), MODES)
def test_every_mode(dtype, mode, planes):
    for size, out in SIZES[planes]:
        for align in (False, True) if "nearest" not in mode else (False,):
            check(dtype, mode, planes, size, out, align)


@pytest.mark.parametrize(("mode", "planes"), MODES)
def test_channels_last(mode, planes):
    for size, out in SIZES[planes]:
        check(torch.float32, mode, planes, size, out, False, last=True, c=5)


def test_what_was_asked_for_counts():
    """Not the ratio of the sizes, unless that is one or two."""
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        for size, factors in (((7, 5), (1.6, 0.7)), ((4, 6), (2.1, 1.1)), ((9, 3), (0.31, 3.0))):
            out = tuple(int(n * by) for n, by in zip(size, factors, strict=True))
            check(torch.float64, mode, 2, size, out, False, factors)


def test_integers():
    """The nearest are copied; what torch rounds is left to it."""
    x = torch.randint(200, (2, 3, 5, 4), dtype=torch.uint8)
    for mode in ("nearest", "nearest-exact", "bilinear"):
        rest = 2, (7, 9), mode, False, (None, None)
        if mode == "bilinear" and DEVICE == "cuda":  # torch has it on the CPU only
            with pytest.raises(NotImplementedError, match="bilinear"):
                select.triton_kernel(interpolate_ref.interpolate)(x, *rest)
            continue
        assert_matches_reference(interpolate_ref.interpolate, x, *rest)


def test_more_elements_than_a_program_has():
    check(torch.float32, "bilinear", 2, (33, 40), (50, 61), False, n=1, c=2)
    check(torch.float32, "nearest", 1, (1000,), (2000,), False)
    check(torch.float32, "bicubic", 2, (20, 33), (50, 61), True, n=1, c=4, last=True)


def test_places_that_are_counted_in_64_bits(monkeypatch):
    monkeypatch.setattr(gpu, "_MANY", 1)
    check(torch.float32, "bilinear", 2, (9, 10), (13, 21), False)
    check(torch.float32, "nearest", 2, (5, 4), (10, 8), False, last=True, c=40)


@settings(max_examples=12)
@given(
    st.sampled_from(MODES),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20)), min_size=3, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_any_size(form, sizes, align, last):
    mode, planes = form
    size, out = zip(*sizes[:planes], strict=True)
    check(torch.float64, mode, planes, size, out, align and "nearest" not in mode, last=last)


def test_every_place_that_an_element_is_a_tap_of_is_reached():
    """Far from the start, where the first of them is found inexactly."""
    for size, out in ((3000, 9001), (7001, 5003), (5000, 1250)):
        check(torch.float64, "linear", 1, (size,), (out,), False, n=1, c=1)
    assert gpu._most(4, 1, 0.0, 2) == 1
