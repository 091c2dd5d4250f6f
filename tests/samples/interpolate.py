"""Samples of images at another size."""

from typing import Any

from onefold.testing import Sample, T


def of(shape: tuple[int, ...], *args: Any, **kw: Any) -> Sample:
    return Sample("interpolate", (T(*shape), *args), kw)


SAMPLES = [
    of((4, 6, 5), 7),
    of((4, 6, 5), scale_factor=2, mode="linear"),
    of((6, 4, 5, 4), (7, 3)),
    of((6, 4, 5, 4), scale_factor=1.5, mode="nearest-exact"),
    of((6, 4, 5, 4), (3, 9), mode="bilinear", align_corners=True),
    of((6, 4, 5, 4), scale_factor=(2, 0.6), mode="bilinear"),
    of((6, 4, 5, 4), scale_factor=(1.7, 0.6), mode="bicubic", recompute_scale_factor=True),
    of((6, 4, 5, 4), 6, mode="bicubic", align_corners=True),
    of((2, 4, 3, 5, 4), (5, 4, 6), mode="trilinear"),
    of((2, 4, 3, 5, 4), scale_factor=2),
    of((6, 4, 5, 4), (3, 2), mode="area"),
    of((6, 4, 9, 8), (3, 5), mode="bilinear", antialias=True),
]
