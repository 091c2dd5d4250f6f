"""Sliding windows of an image added where they overlap, on local tensors."""

from __future__ import annotations

import torch
from torch import Tensor

Pair = tuple[int, ...]  # a number for the height, and one for the width


def fold(
    x: Tensor, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Tensor:
    """(N, C, height, width) of this size, from windows as columns, (N, C * kh * kw, L).

    N may be missing. Each element is the sum of the windows that it is in.
    """
    return torch.nn.functional.fold(x, size, kernel, dilation, padding, stride)
