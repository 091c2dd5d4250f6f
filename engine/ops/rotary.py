"""Rotary position embedding. Batch, heads and sequence may be split."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError
from ...kernels import rotary_ref as kernels
from ..dispatcher import general
from ..meta import Meta
from ..names import register_function
from ..op import Gradients, Needs, Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature
from ..tensor import Tensor
from .arithmetic import add, mul, neg, sub
from .cast import cast
from .data_movement import wrap
from .reduce import sum, sum_to
from .slicing import narrow, select
from .view import view


class RotaryAttributes(NamedTuple):
    """The dim of positions, the arrangement of pairs, and whether to rotate back."""

    seq_dim: int
    interleaved: bool
    back: bool


class Rotary(Op):
    """Pairs of features rotated by an angle for each position, or (`back`) by its negative."""

    name = "rotary"
    attributes = RotaryAttributes
    order = "first"
    saves = ((1, 2), (0,), (0,))
    flops_per_element = 3.0
    kernel = staticmethod(kernels.rotary)

    def infer(self, x: Meta, cos: Meta, sin: Meta, attrs: RotaryAttributes) -> Meta:
        lead = (x.shape[0],) if cos.ndim == 3 else ()
        fits = cos.ndim in (2, 3) and x.ndim >= 2 and attrs.seq_dim < x.ndim - 1
        if (
            not fits
            or (lead and attrs.seq_dim == 0)
            or cos.shape[:-1] != (*lead, x.shape[attrs.seq_dim])
        ):
            raise OnefoldRuntimeError(
                "the tables must be (length, pairs), or (batch, length, pairs) with batch the "
                f"first dim of x, but they are {tuple(cos.shape)}, and the length of x of shape "
                f"{tuple(x.shape)} is dim {attrs.seq_dim}"
            )
        if cos.shape != sin.shape or cos.dtype != sin.dtype or 2 * cos.shape[-1] > x.shape[-1]:
            raise OnefoldRuntimeError(
                "cos and sin must be alike and have half as many columns as x has features, or "
                f"less, but are {tuple(cos.shape)} of {cos.dtype} and {tuple(sin.shape)} of "
                f"{sin.dtype} for x of shape {tuple(x.shape)}"
            )
        if not x.dtype.is_floating_point or not cos.dtype.is_floating_point:
            raise OnefoldRuntimeError(
                f"x and the tables must be floating, but are {x.dtype} and {cos.dtype}"
            )
        return x

    def rule(self, axis: Axis, x: Meta, cos: Meta, sin: Meta, attrs: RotaryAttributes) -> Rule:
        by_batch = cos.ndim == 3
        found = [Signature((partial_sum, broadcast, broadcast), (partial_sum,))]
        for dim in range(x.ndim - 1):
            table = broadcast
            if dim == attrs.seq_dim:
                table = split(cos.ndim - 2)
            elif dim == 0 and by_batch:
                table = split(0)
            found.append(Signature((split(dim), table, table), (split(dim),)))
        if 2 * cos.shape[-1] == x.shape[-1]:  # nothing passes by the tables
            found.append(Signature((broadcast, partial_sum, partial_sum), (partial_sum,)))
            if attrs.interleaved and cos.shape[-1] % axis.parts == 0:
                table = split(cos.ndim - 1)
                found.append(Signature((split(x.ndim - 1), table, table), (split(x.ndim - 1),)))
        return found

    def vjp(
        self,
        needs: Needs,
        dy: Tensor,
        y: Meta,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        attrs: RotaryAttributes,
    ) -> Gradients:
        seq_dim, interleaved, back = attrs
        dx = _rotary((dy, cos, sin), seq_dim, interleaved, not back) if needs[0] else None
        if not needs[1] and not needs[2]:
            return dx, None, None
        wide = torch.promote_types(x.dtype, cos.dtype)
        a, b = _pairs(cast(x, wide), cos.shape[-1], interleaved)
        da, db = _pairs(cast(dy, wide), cos.shape[-1], interleaved)
        d_cos = add(mul(da, a), mul(db, b))
        d_sin = sub(mul(db, a), mul(da, b))
        d_sin = neg(d_sin) if back else d_sin
        return dx, _of_table(d_cos, cos, seq_dim), _of_table(d_sin, sin, seq_dim)


def _pairs(x: Tensor, count: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    """The first and the second of each pair of features."""
    turned = narrow(x, -1, 0, 2 * count)
    if interleaved:
        pairs = view(turned, (*x.shape[:-1], count, 2))
        return select(pairs, -1, 0), select(pairs, -1, 1)
    return narrow(turned, -1, 0, count), narrow(turned, -1, count, count)


def _of_table(grad: Tensor, table: Tensor, seq_dim: int) -> Tensor:
    """The gradient for each pair of each row, summed for a table."""
    kept = (0, seq_dim) if table.ndim == 3 else (seq_dim,)
    dims = tuple(d for d in range(grad.ndim - 1) if d not in kept)
    return sum_to(sum(grad, dims) if dims else grad, table.meta)


_rotary = general(Rotary())


@register_function
def rotary(
    input: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False, seq_dim: int = -2
) -> Tensor:
    """Rotary position embedding: pairs of features rotated by an angle for each position.

    `input` is (..., length, features), as attention takes it; `seq_dim` names another dim for
    length, such as 1 in (batch, length, heads, features). `cos` and `sin` are tables of shape
    (length, pairs), or (batch, length, pairs) where each member of the batch has positions of its
    own. Features i and i + pairs are a pair, as in Llama; where `interleaved`, 2i and 2i + 1, as
    in GPT-J. Features after the first 2 * pairs stay. float16 and bfloat16 are turned in
    float32. Batch, heads and the sequence may be split; the tables are then split alike, so no
    rank needs to know its positions.

    Source: Su et al., "RoFormer" (2021). Raises OnefoldRuntimeError when shapes do not fit.

    Example:
        >>> import onefold as flow
        >>> rates = 10000.0 ** -(flow.arange(4) / 4)
        >>> angles = flow.outer(flow.arange(6).float(), rates)
        >>> q = flow.randn(2, 3, 6, 8)  # batch, heads, length, features
        >>> flow.rotary(q, angles.cos(), angles.sin()).shape
        torch.Size([2, 3, 6, 8])
    """
    dim = wrap(seq_dim, input.ndim)
    return _rotary((input, cos, sin), dim, bool(interleaved), False)
