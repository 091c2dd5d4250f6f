"""The shape to which shapes broadcast. Torch's function for it first imports sympy, for 0.3 s."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """The common shape; raises RuntimeError, as `torch.broadcast_shapes`, where there is none.

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
