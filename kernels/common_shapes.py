"""Shapes that several have in common: broadcast to one, or joined along a dim."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """The common shape; raises RuntimeError, as `torch.broadcast_shapes`, where there is none.

    Torch's function first imports sympy, which takes 0.3 s.

    >>> broadcast_shapes((2, 1), (3,), ())
    torch.Size([2, 3])
    """
    found = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for dim, size in enumerate(shape, len(found) - len(shape)):
            if found[dim] == 1:
                found[dim] = size
            elif size not in (1, found[dim]):
                given = ", ".join(str(tuple(each)) for each in shapes)
                raise RuntimeError(
                    f"Shape mismatch: {given} cannot be broadcast to a single shape; dims, counted "
                    "from the last, must be equal, or 1"
                )
    return torch.Size(found)


def joined_shape(shapes: Sequence[Sequence[int]], dim: int) -> tuple[int, ...] | None:
    """The shape of tensors one after the other along a dim; None where torch must judge.

    >>> joined_shape([(2, 3), (2, 4)], 1), joined_shape([(2, 3), (3, 3)], 1)
    ((2, 7), None)
    """
    first = tuple(shapes[0])
    ndim = len(first)
    if type(dim) is not int or not -ndim <= dim < ndim:
        return None
    dim %= ndim
    before, behind = first[:dim], first[dim + 1 :]
    if any(len(s) != ndim or s[:dim] != before or s[dim + 1 :] != behind for s in shapes):
        return None
    return (*before, sum(shape[dim] for shape in shapes), *behind)
