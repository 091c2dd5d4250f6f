"""Compares the Triton kernel of an update of many tensors with torch's, both beside float64."""

import torch
from triton_harness import EPS

from onefold.kernels import select

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SIZES = [(3, 5), (0,), (2048,), (2100,), ()]


def lists(count, dtype, sizes=SIZES):
    found = [[torch.randn(size, dtype=dtype) for size in sizes] for _ in range(count)]
    return [[x.abs() if i in (3, 4) else x for x in row] for i, row in enumerate(found)]


def clones(columns, dtype=None):
    return [[x.to(dtype or x.dtype, copy=True) for x in column] for column in columns]


def apart(found, exact):
    """The largest difference, beside numbers that are of the size of 1."""
    return float((found - exact).abs().max()) if found.numel() else 0.0


def assert_updates(reference, columns, **options):
    """The Triton kernel changes the lists as torch does; both are compared with float64."""
    exact, torchs, mine = clones(columns, torch.float64), clones(columns), clones(columns)
    reference(*exact, **options)
    reference(*torchs, **options)
    select.triton_kernel(reference)(*mine, **options)
    for number, column in enumerate(mine):
        for i, found in enumerate(column):
            true, theirs = exact[number][i], torchs[number][i]
            limit = 2 * apart(theirs, true) + 4 * EPS[found.dtype]
            assert apart(found, true) <= limit, (number, i)
