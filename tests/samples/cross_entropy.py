"""Samples of cross_entropy and nll_loss."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from onefold.engine.ops.cross_entropy import keeping_cross_entropy
from onefold.testing import I, Sample, T


def with_indices(name: str) -> Iterator[Sample]:
    for reduction in ("mean", "sum", "none"):
        yield Sample(name, (T(6, 4), I(6, high=4)), {"reduction": reduction})
        yield Sample(name, (T(5, 7), I(5, high=7)), {"reduction": reduction})
        yield Sample(
            name,
            (T(5, 7), I(5, high=7), T(7, low=0.1, high=2.0)),
            {"reduction": reduction, "ignore_index": 2},
            torch=constant_weight(name),
        )
        yield Sample(name, (T(2, 5, 3), I(2, 3, high=5)), {"reduction": reduction})
        yield Sample(name, (T(2, 4, 2, 3), I(2, 2, 3, high=4)), {"reduction": reduction})
        yield Sample(name, (T(6), I(high=6)), {"reduction": reduction})
    yield Sample(name, (T(0, 4), I(0, high=4)), {"reduction": "sum"})
    yield Sample(name, (T(3, 4), I(3, high=1)), {"ignore_index": 0, "reduction": "sum"})


def constant_weight(name: str):
    """Torch has no gradient for the weights of classes."""
    function = getattr(torch.nn.functional, name)
    return lambda x, target, weight, **kwargs: function(x, target, weight.detach(), **kwargs)


def smoothed() -> Iterator[Sample]:
    weight = T(7, low=0.1, high=2.0)
    reference = constant_weight("cross_entropy")
    for reduction in ("mean", "sum", "none"):
        kwargs = {"reduction": reduction, "label_smoothing": 0.2}
        yield Sample("cross_entropy", (T(5, 7), I(5, high=7)), kwargs)
        more = {**kwargs, "ignore_index": 3}
        yield Sample("cross_entropy", (T(5, 7), I(5, high=7), weight), more, torch=reference)
        yield Sample("cross_entropy", (T(5, 7), T(5, 7, low=0.0)), kwargs)
        yield Sample("cross_entropy", (T(4, 6, 2), T(4, 6, 2, low=0.0)), {"reduction": reduction})
    yield Sample("cross_entropy", (T(5, 7), T(5, 7, low=0.0), weight))
    yield Sample("cross_entropy", (T(7), T(7, low=0.0)))


def keeping() -> Iterator[Sample]:
    """What training on a GPU calls."""
    for sample in with_indices("cross_entropy"):
        yield replace(sample, call=keeping_cross_entropy)


SAMPLES = [*with_indices("cross_entropy"), *with_indices("nll_loss"), *smoothed(), *keeping()]
