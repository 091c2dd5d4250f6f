"""Samples of linear_cross_entropy."""

from torch.nn.functional import cross_entropy

from onefold.testing import I, Sample, T


def unfused(x, weight, target, **kwargs):
    return cross_entropy((x @ weight.T).flatten(0, -2), target.flatten(), **kwargs)


SHAPES = ((T(6, 5), I(6, high=7)), (T(2, 3, 5), I(2, 3, high=7)))
SAMPLES = [
    *[
        Sample("linear_cross_entropy", (x, T(7, 5), target), kwargs, torch=unfused)
        for x, target in SHAPES
        for kwargs in ({}, {"reduction": "sum", "ignore_index": 2}, {"ignore_index": 3})
    ],
    *[
        Sample("linear_cross_entropy", (x, T(7, 5), target), torch=unfused, grad=False)
        for x, target in SHAPES
    ],
]
