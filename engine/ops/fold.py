"""fold: the windows of `nn.functional.unfold` added where they overlap; its gradient is unfold."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ...errors import OnefoldRuntimeError
from ...kernels import fold_ref as kernels
from ...kernels.fold_ref import Pair
from ..argument_types import Sizes
from ..dispatcher import unary
from ..meta import Meta
from ..names import register_function
from ..signature import Axis, Rule
from ..tensor import Tensor
from .conv import im2col, ints
from .data_movement import Mover, Places, follows, passes, untouched


class FoldAttributes(NamedTuple):
    """The size of the image, and of height and width each: what torch's parameters say."""

    size: Pair
    kernel: Pair
    dilation: Pair
    padding: Pair
    stride: Pair


class Fold(Mover[FoldAttributes]):
    """Windows as columns, added where they overlap in an image."""

    name = "fold"
    attributes = FoldAttributes
    kernel = staticmethod(kernels.fold)
    flops_per_element = 1.0

    def infer(self, x: Meta, attrs: FoldAttributes) -> Meta:
        try:  # torch says what does not fit
            made = kernels.fold(torch.empty(x.shape, dtype=x.dtype, device="meta"), *attrs)
        except RuntimeError as error:
            raise OnefoldRuntimeError(f"fold: {error}") from error
        return x.like(tuple(made.shape))

    def places(self, x: Meta, attrs: FoldAttributes) -> Places:
        return untouched(x.ndim - 2, ())

    def rule(self, axis: Axis, x: Meta, attrs: FoldAttributes) -> Rule:
        return [*follows(self.places(x, attrs)), *passes([x])[:1]]

    def gradient(self, dy: Tensor, x: Meta, attrs: FoldAttributes) -> Tensor:
        _, kernel, dilation, padding, stride = attrs
        return im2col(dy, kernel, dilation, padding, stride)


_fold = unary(Fold())


@register_function
def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Add sliding windows, one per column of (N, C * kh * kw, L), where they overlap in an image.

    The result is (N, C, height, width); N may be missing in both. `nn.functional.unfold` gives
    the windows of an image. Raises OnefoldRuntimeError for columns that are no windows of it.

    Example: `fold(x, (5, 5), 3)` with x (2, 36, 9) has shape (2, 4, 5, 5).
    """
    named: dict[str, Sizes] = {
        "output_size": output_size,
        "kernel_size": kernel_size,
        "dilation": dilation,
        "padding": padding,
        "stride": stride,
    }
    sizes: Any = [ints(value, 2, name) for name, value in named.items()]
    return _fold(input, *sizes)
