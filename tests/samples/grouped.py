"""Samples of products in groups: the oracle multiplies each group."""

import torch

from onefold.testing import Sample, T


def bounds(ends: torch.Tensor) -> list[tuple[int, int]]:
    found = ends.tolist()
    return list(zip([0, *found], found))  # noqa: B905


def rows(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    parts = [a[low:high] @ b[g] for g, (low, high) in enumerate(bounds(ends))]
    return torch.cat([*parts, a[int(ends[-1]) :] @ torch.zeros_like(b[0])])


def sums(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch.stack([a[low:high].t() @ b[low:high] for low, high in bounds(ends)])


SAMPLES = [
    Sample("grouped_rows", (T(8, 4), T(3, 4, 6), torch.tensor([2, 2, 7])), torch=rows),
    Sample("grouped_rows", (T(5, 3), T(2, 3, 2), torch.tensor([3, 4]).int()), torch=rows),
    Sample("grouped_sums", (T(8, 4), T(8, 6), torch.tensor([2, 2, 7])), torch=sums),
]
