"""float8 in blocks: quantize_fp8 and scaled_matmul. They have no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError, OnefoldValueError
from ...kernels import float8_ref as kernels
from ..dispatcher import general, several
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Needs, Op
from ..sbp import Sbp, broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor

FLOAT8 = (
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)  # fmt: skip
RESULTS = (torch.float32, torch.bfloat16, torch.float16)


class Quantized(NamedTuple):
    """Numbers of 8 bits, and the scale of each block of them."""

    values: Tensor
    scales: Tensor


def _on_borders(size: int, block: int, parts: int) -> bool:
    """Whether a split of a dim into parts cuts only between blocks."""
    return block == 1 or size % (block * parts) == 0


class _WithoutGradient(Op):
    """Backward through it is an error, as through torch's scaled product, and not a silent zero."""

    saves = ()

    def vjp(self, needs: Needs, dy: object, y: object, *args: object) -> Gradients:
        raise OnefoldRuntimeError(
            f"{self.name} has no gradient. Call it under no_grad where none is needed, or in an "
            "autograd.Function whose backward gives it"
        )


class QuantizeAttributes(NamedTuple):
    """The shape of a block with one scale, and the target dtype."""

    block: tuple[int, int]
    dtype: torch.dtype


class QuantizeFp8(_WithoutGradient):
    """(values, scales) of x by blocks of its last two dims"""

    name = "quantize_fp8"
    attributes = QuantizeAttributes
    num_outputs = 2
    flops_per_element = 3.0
    kernel = staticmethod(kernels.quantize_fp8)

    def infer(self, x: Meta, attrs: QuantizeAttributes) -> tuple[Meta, Meta]:
        if x.ndim < 2 or not x.dtype.is_floating_point or x.dtype.itemsize == 1:
            raise OnefoldRuntimeError(
                "quantize_fp8 takes matrices of float16, bfloat16, float32 or float64, also "
                f"several, but got {x.dtype} of shape {tuple(x.shape)}"
            )
        high, wide = (-(-x.shape[d - 2] // attrs.block[d]) for d in (0, 1))
        scales = x.like(shape=(*x.shape[:-2], high, wide), dtype=torch.float32)
        return x.like(dtype=attrs.dtype), scales

    def rule(self, axis: Axis, x: Meta, attrs: QuantizeAttributes) -> Rule:
        blocks = (*(1,) * (x.ndim - 2), *attrs.block)
        return [
            Signature((split(d),), (split(d), split(d)))
            for d in range(x.ndim)
            if _on_borders(x.shape[d], blocks[d], axis.parts)
        ]


class ScaledMatmulAttributes(NamedTuple):
    """The sizes of blocks with one scale, and the dtype of the product."""

    block: int
    a_rows: int
    b_columns: int
    dtype: torch.dtype


class ScaledMatmul(_WithoutGradient):
    """y = (a * a_scale) @ (b * b_scale), the scales by blocks: (a, a_scale, b, b_scale)"""

    name = "scaled_matmul"
    attributes = ScaledMatmulAttributes
    kernel = staticmethod(kernels.scaled_matmul)

    def infer(
        self, a: Meta, a_scale: Meta, b: Meta, b_scale: Meta, attrs: ScaledMatmulAttributes,
    ) -> Meta:  # fmt: skip
        return a.like(shape=(a.shape[0], b.shape[1]), dtype=attrs.dtype)

    def rule(
        self,
        axis: Axis,
        a: Meta,
        a_scale: Meta,
        b: Meta,
        b_scale: Meta,
        attrs: ScaledMatmulAttributes,
    ) -> Rule:
        (m, k), n = a.shape, b.shape[1]
        whole: tuple[Sbp, ...] = (broadcast, broadcast)
        found: list[Signature] = []
        if _on_borders(m, attrs.a_rows, axis.parts):
            found.append(Signature((split(0), split(0), *whole), (split(0),)))
        if _on_borders(n, attrs.b_columns, axis.parts):
            found.append(Signature((*whole, split(1), split(1)), (split(1),)))
        if _on_borders(k, attrs.block, axis.parts):
            sides = (split(1), split(1), split(0), split(0))
            found.append(Signature(sides, (partial_sum,)))
        return found

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        a = inputs[0]
        assert a is not None
        return 2.0 * a.shape[1] * outputs[0].numel


_quantize = several(QuantizeFp8())
_scaled_matmul = general(ScaledMatmul())


@register_function
def quantize_fp8(
    input: Tensor, block: int | tuple[int, int] = 128, dtype: torch.dtype = torch.float8_e4m3fn
) -> Quantized:
    """Matrices as numbers of 8 bits, and a float32 scale for each block of them.

    `input` is (..., rows, columns), and about values * scales. `block` is how many rows and
    columns share a scale; one number means columns of one row, as activations have it, and
    (128, 128) is usual for weights. The scales are (..., rows / block, columns / block), rounded
    up; each makes the largest number of its block the largest of `dtype`. Rows and columns may be
    split where that cuts no block. There is no gradient: backward through it is an error.

    Source: DeepSeek-V3 Technical Report (2024), section 3.3. Raises OnefoldValueError for a dtype
    that is no float8 or a block without elements.

    Example: `values, scales = quantize_fp8(x)`; see `scaled_matmul`.
    """
    sizes = (1, block) if isinstance(block, int) else tuple(block)
    if len(sizes) != 2 or min(sizes) < 1:
        raise OnefoldValueError(f"block must be one or two sizes of 1 or more, but got {block!r}")
    if dtype not in FLOAT8:
        raise OnefoldValueError(f"dtype must be one of {', '.join(map(str, FLOAT8))}, not {dtype}")
    return Quantized(*_quantize((input,), sizes, dtype))


@register_function
def scaled_matmul(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    *,
    block: int = 128,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """The product of two matrices that `quantize_fp8` gave, summed in float32.

    `a` is (m, k) and `b` is (k, n), both float8. The scales are one for `block` terms of the sum,
    and for one row or `block` rows of `a`, one column or `block` columns of `b`: a_scale is
    (m or m / block, k / block), b_scale (k / block, n or n / block), rounded up. Rows of `a`,
    columns of `b` and the sum may be split where that cuts no block; a split sum gives partial
    sums in `out_dtype`. There is no gradient: backward through it is an error.

    Raises OnefoldRuntimeError when shapes do not fit, OnefoldValueError for another `out_dtype`
    than float32, bfloat16 or float16.

    Example: `scaled_matmul(*quantize_fp8(x), *quantize_fp8(w, (128, 128)))`.
    """
    if out_dtype not in RESULTS:
        raise OnefoldValueError(
            f"out_dtype must be one of {', '.join(map(str, RESULTS))}, not {out_dtype}"
        )
    if a.ndim != 2 or b.ndim != 2 or a.dtype not in FLOAT8 or b.dtype not in FLOAT8:
        raise OnefoldRuntimeError(
            f"scaled_matmul takes two float8 matrices, but got {a.dtype} of shape "
            f"{tuple(a.shape)} and {b.dtype} of shape {tuple(b.shape)}"
        )
    (m, k), n = a.shape, b.shape[1]
    terms = -(-k // block)
    rows = {(m, terms): 1, (-(-m // block), terms): block}
    columns = {(terms, n): 1, (terms, -(-n // block)): block}
    mine, other = tuple(a_scale.shape), tuple(b_scale.shape)
    if k != b.shape[0] or mine not in rows or other not in columns:
        raise OnefoldRuntimeError(
            f"scaled_matmul: for {tuple(a.shape)} by {tuple(b.shape)} in blocks of {block} the "
            f"scales must be one of {[*rows]} and one of {[*columns]}, but are {mine} and {other}"
        )
    tensors = (a, a_scale, b, b_scale)
    return _scaled_matmul(tensors, block, rows[mine], columns[other], out_dtype)
