"""The windows of images as columns, in smaller ops: what torch calls `nn.functional.unfold`."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ShapeError
from ..names import register_function
from ..tensor import Tensor
from .dims import permute
from .flip_repeat import unfold
from .pad import pad
from .view import reshape


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    height, width = (value, value) if isinstance(value, int) else value
    return height, width


@register_function
def im2col(
    input: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The sliding windows of (N, C, H, W) or (C, H, W), one per column: (N, C * kh * kw, L).

    Raises ShapeError for another number of dims and for windows larger than the padded image.

    Example: `im2col(x, 3)` with x (2, 4, 5, 5) has shape (2, 36, 9).
    """
    if input.ndim not in (3, 4):
        raise ShapeError(
            f"im2col: expected an input of 3 or 4 dims, (N, C, H, W) or (C, H, W), but got shape "
            f"{tuple(input.shape)}"
        )
    top, left = _pair(padding)
    x = input if top == left == 0 else pad(input, (left, left, top, top))
    rows = x.ndim - 2
    for dim, size, spacing, step in zip(
        (rows, rows + 1), _pair(kernel_size), _pair(dilation), _pair(stride), strict=True
    ):
        span = (size - 1) * spacing + 1
        if min(size, spacing, step) < 1 or span > x.shape[dim]:
            raise ShapeError(
                f"im2col: kernel_size {kernel_size}, dilation {dilation} and stride {stride} must "
                f"be positive and fit the padded input of shape {tuple(x.shape)}"
            )
        x = unfold(x, dim, span, step)
        if spacing > 1:
            x = x[..., ::spacing]
    lead = tuple(range(rows))
    x = permute(x, (*lead, rows + 2, rows + 3, rows, rows + 1))
    channels, height, width, *count = x.shape[rows - 1 :]
    columns = (channels * height * width, count[0] * count[1])
    return reshape(x, (*x.shape[: rows - 1], *columns))
