"""Samples of attention."""

from typing import Any

import torch

from onefold.testing import Bo, Sample, T

NAME = "scaled_dot_product_attention"


def of(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], *mask: Any, **kw: Any) -> Sample:
    return Sample(NAME, (T(*q), T(*k), T(*v), *mask), kw)


SAME = ((4, 6, 5, 4),) * 3
SQUARE = (2, 2, 6, 4)
# Query 3 may see no key.
HIDDEN = torch.ones(5, 5, dtype=torch.bool).tril()
HIDDEN[3] = False

SAMPLES = [
    of(*SAME),
    of(*SAME, is_causal=True),
    of(*SAME, scale=0.3),
    of((2, 2, 6, 4), (2, 2, 5, 4), (2, 2, 5, 3), is_causal=True),
    of((3, 6, 4), (3, 5, 4), (3, 5, 2)),
    of((6, 4), (5, 4), (5, 2)),
    of(*SAME, Bo(4, 1, 5, 5)),
    of(*SAME, HIDDEN),
    of(SQUARE, SQUARE, SQUARE, T(6, 6)),
    of(SQUARE, SQUARE, SQUARE, T(2, 1, 1, 6)),
    of((2, 4, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), enable_gqa=True),
    of((2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), is_causal=True, enable_gqa=True),
    of((2, 6, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), T(2, 6, 5, 5), enable_gqa=True),
]
