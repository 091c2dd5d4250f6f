"""Samples of fold."""

from torch.nn import functional

from onefold.testing import Sample, T

# Columns, and the arguments: overlapping windows, gaps between them, dilation, padding.
CALLS = [
    ((3, 8, 12), (4, 5), 2),
    ((8, 12), (4, 5), 2),
    ((2, 12, 6), (7, 6), (3, 2), 1, (1, 0), (4, 2)),
    ((2, 6, 4), (6, 9), (3, 2), (2, 3), (1, 0), (2, 3)),
    ((2, 18, 20), (4, 5), 3, 1, 1),
    ((2, 4, 4), (6, 6), 2, 1, 0, 4),
    ((0, 8, 12), (4, 5), 2),
]
SAMPLES = [Sample("fold", (T(*shape), *rest), torch=functional.fold) for shape, *rest in CALLS]
