"""Samples of linear_cross_entropy."""

from torch.nn.functional import cross_entropy

from onefold.engine.ops.linear_cross_entropy import linear_cross_entropy
from onefold.testing import I, Sample, T


def unfused(x, weight, target, **kwargs):
    return cross_entropy((x @ weight.T).flatten(0, -2), target.flatten(), **kwargs)


def frozen(function):
    """The loss of a layer whose weight needs no gradient."""
    return lambda x, weight, target: function(x, weight.detach(), target)


SHAPES = ((T(6, 5), I(6, high=7)), (T(2, 3, 5), I(2, 3, high=7)))
SAMPLES = [
    *[
        Sample(
            "linear_cross_entropy",
            (x, T(7, 5), target),
            call=frozen(linear_cross_entropy),
            torch=frozen(unfused),
            id="linear_cross_entropy of a frozen weight",
        )
        for x, target in SHAPES
    ],
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
