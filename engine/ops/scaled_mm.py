"""torch's products of float8 matrices: scaled_mm, _scaled_mm and _scaled_mm_v2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import torch
from torch.nn.functional import ScalingType, SwizzleType

from ...errors import OnefoldRuntimeError
from ..names import register_function
from ..out_tensors import give_to
from ..tensor import Tensor
from .cast import cast
from .dims import expand
from .float8 import RESULTS, scaled_matmul
from .view import reshape

T = TypeVar("T")
One: TypeAlias = T | Sequence[T]


@register_function
def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The product of two float8 matrices with one scale for each, or for each row and column.

    `scale_a` has one element or the shape (m, 1), `scale_b` one or (1, n). The result, times
    `scale_result`, is in `out_dtype`, else in that of `input`; it is summed in float32, also with
    `use_fast_accum`. There is no gradient. Raises as `scaled_matmul` does.
    """
    if out is not None:
        return give_to(
            out,
            _scaled_mm(
                input, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum
            ),
        )
    terms = -(-input.shape[-1] // 128)
    mine = _per_term(scale_a, (input.shape[0], terms))
    other = _per_term(scale_b, (terms, mat2.shape[-1]))
    exact = out_dtype in RESULTS and bias is None and scale_result is None
    made = scaled_matmul(
        input, mine, mat2, other,
        out_dtype=out_dtype if exact and out_dtype is not None else torch.float32,
    )  # fmt: skip
    if bias is not None:
        made = made + bias
    if scale_result is not None:
        made = made * scale_result
    return cast(made, out_dtype or input.dtype)


def _per_term(scale: Tensor, shape: tuple[int, int]) -> Tensor:
    """A scale for each row or column, repeated for each of its blocks."""
    return expand(reshape(scale, 1, 1) if scale.meta.numel == 1 else scale, shape)


@register_function
def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: One[Tensor],
    scale_recipe_a: One[ScalingType],
    scale_b: One[Tensor],
    scale_recipe_b: One[ScalingType],
    swizzle_a: One[SwizzleType] | None = None,
    swizzle_b: One[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of two float8 matrices whose scales are as the recipes say.

    ScalingType.TensorWise is one scale for a matrix, ScalingType.RowWise one for each row of
    `mat_a`, (m, 1), and each column of `mat_b`, (1, n). For scales of blocks see
    `onefold.scaled_matmul`. There is no gradient. Raises OnefoldRuntimeError for other recipes,
    swizzled scales and other dims to sum over, and for scales of another shape.
    """
    (m, _), (_, n) = mat_a.shape, mat_b.shape
    scales = []
    for name, scale, recipe, swizzle, shape in (
        ("a", scale_a, scale_recipe_a, swizzle_a, (m, 1)),
        ("b", scale_b, scale_recipe_b, swizzle_b, (1, n)),
    ):
        only, how = _only(scale), _only(recipe)
        if how not in (ScalingType.TensorWise, ScalingType.RowWise):
            raise OnefoldRuntimeError(
                f"scaled_mm: scale_recipe_{name} must be TensorWise or RowWise, but is {how}; "
                "scaled_matmul takes scales of blocks"
            )
        if swizzle is not None and _only(swizzle) is not SwizzleType.NO_SWIZZLE:
            raise OnefoldRuntimeError(f"scaled_mm: swizzle_{name} must be NO_SWIZZLE")
        if only.meta.numel != 1 and (how is ScalingType.TensorWise or tuple(only.shape) != shape):
            wanted = "one element" if how is ScalingType.TensorWise else f"the shape {shape}"
            raise OnefoldRuntimeError(
                f"scaled_mm: scale_{name} needs {wanted}, but has shape {tuple(only.shape)}"
            )
        scales.append(only)
    if tuple(contraction_dim):
        raise OnefoldRuntimeError("scaled_mm: contraction_dim must be (), the inner dims")
    return _scaled_mm(mat_a, mat_b, scales[0], scales[1], bias, None, output_dtype, use_fast_accum)


@register_function
def _scaled_mm_v2(
    input: Tensor,
    mat2: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`scaled_mm` with recipes and swizzles as numbers."""
    found = scaled_mm(
        input, mat2,
        scale_a, [ScalingType(each) for each in recipe_a],
        scale_b, [ScalingType(each) for each in recipe_b],
        [SwizzleType(each) for each in swizzle_a] or None,
        [SwizzleType(each) for each in swizzle_b] or None,
        bias, out_dtype, contraction_dim, use_fast_accum,
    )  # fmt: skip
    return found if out is None else give_to(out, found)


def _only(given: One[T]) -> T:
    """The only value, which may be given in a list of one."""
    if not isinstance(given, (list, tuple)):
        return given  # type: ignore[return-value]
    if len(given) != 1:
        raise OnefoldRuntimeError(f"scaled_mm takes one scale for a matrix, but got {len(given)}")
    only: T = given[0]
    return only
