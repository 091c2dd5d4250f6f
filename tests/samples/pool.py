"""Samples of pooling."""

import torch
from torch.nn.functional import adaptive_max_pool1d, max_pool2d

from onefold.testing import I, Sample, T

X = (6, 4, 7, 6)


def places(*shape, plane):
    """Places in planes of so many elements, none of which occurs twice."""
    random = torch.Generator().manual_seed(0)
    order = torch.rand(*shape[:2], plane, generator=random).argsort(-1)
    return order[..., : torch.Size(shape[2:]).numel()].reshape(shape)


def largest(x, norm_type, size):
    """torch's `lp_pool2d` with infinity before torch 2.13 is a root of order 0: all ones."""
    return max_pool2d(x.abs(), size)


SAMPLES = [
    Sample("max_pool2d", (T(*X), 2)),
    Sample("max_pool2d", (T(*X), 3, 2, 1)),
    Sample("max_pool2d", (T(*X), (2, 3)), {"stride": (2, 1), "ceil_mode": True}),
    Sample("max_pool2d", (T(5, 7, 6), 3), {"dilation": 2}),
    Sample(
        "max_pool2d", (T(5, 3, 4, 6), 2), {"return_indices": True}, torch=max_pool2d, grad=False
    ),
    Sample("max_pool1d", (T(6, 4, 9), 3, 2, 1)),
    Sample("max_pool1d", (T(5, 9), 2), {"ceil_mode": True}),
    Sample("max_pool3d", (T(2, 4, 4, 4, 4), 2)),
    Sample("avg_pool2d", (T(*X), 2)),
    Sample("avg_pool2d", (T(*X), 3, 2, 1)),
    Sample("avg_pool2d", (T(*X), 3, 2, 1), {"count_include_pad": False, "ceil_mode": True}),
    Sample("avg_pool2d", (T(5, 7, 6), (2, 3)), {"divisor_override": 4}),
    Sample("avg_pool1d", (T(6, 4, 9), 3, 2, 1)),
    Sample("avg_pool3d", (T(2, 4, 4, 3, 4), 2, 1, 1), {"count_include_pad": False}),
    Sample("avg_pool3d", (T(3, 4, 5, 4), (2, 1, 3)), {"ceil_mode": True}),
    Sample("adaptive_avg_pool3d", (T(2, 3, 4, 3, 5), (2, None, 3))),
    Sample("adaptive_avg_pool2d", (T(*X), (3, 4))),
    Sample("adaptive_avg_pool2d", (T(5, 3, 7, 6), 1)),
    Sample("adaptive_avg_pool2d", (T(5, 7, 6), (None, 2))),
    Sample("adaptive_avg_pool1d", (T(6, 4, 9), 4)),
    Sample("adaptive_max_pool3d", (T(2, 3, 4, 3, 5), (2, None, 3))),
    Sample("adaptive_max_pool2d", (T(*X), (3, 4))),
    Sample("adaptive_max_pool2d", (T(5, 7, 6), (None, 2))),
    Sample("adaptive_max_pool1d", (T(6, 4, 9), 4), torch=adaptive_max_pool1d),
    Sample("max_unpool1d", (T(4, 3, 5), places(4, 3, 5, plane=10), 2)),
    Sample("max_unpool2d", (T(4, 3, 3, 2), places(4, 3, 3, 2, plane=24), 2)),
    Sample("max_unpool2d", (T(3, 3, 2), I(3, 3, 2, high=35), 3, 2), {"output_size": (7, 5)}),
    Sample("max_unpool3d", (T(2, 3, 2, 1, 2), places(2, 3, 2, 1, 2, plane=32), 2)),
    Sample("lp_pool1d", (T(4, 3, 9), 2.0, 3)),
    Sample("lp_pool2d", (T(*X, low=0.1, high=2.0), 3.0, (2, 3)), {"stride": (1, 2)}),
    Sample("lp_pool2d", (T(*X), float("inf"), 2), torch=largest),
    Sample("lp_pool2d", (T(5, 7, 6), 1, 3), {"stride": 2, "ceil_mode": True}),
    Sample("lp_pool3d", (T(3, 2, 5, 4, 6), 2.0, 2)),
]
