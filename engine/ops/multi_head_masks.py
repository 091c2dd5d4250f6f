"""The masks and shapes that multi-head attention takes, checked and brought together."""

from __future__ import annotations

import torch

from ...errors import OnefoldTypeError, ShapeError
from ..tensor import Tensor
from .cast import cast
from .compare import logical_or
from .dims import unsqueeze
from .like import zeros_like
from .pad import pad
from .unary import logical_not
from .view import view
from .where import masked_fill


def check_shapes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Whether the input is batched. Raises ShapeError for incompatible numbers of dims."""
    if query.ndim not in (2, 3):
        raise ShapeError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{query.ndim}-D query tensor"
        )
    batched = query.ndim == 3
    kind = f"{'batched' if batched else 'unbatched'} ({query.ndim}-D)"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise ShapeError(
            f"For {kind} `query`, expected `key` and `value` to be {query.ndim}-D but found "
            f"{key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise ShapeError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D "
            f"but found {key_padding_mask.ndim}-D tensor instead"
        )
    if attn_mask is not None and attn_mask.ndim not in (2, 3):
        raise ShapeError(
            f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
            f"{attn_mask.ndim}-D tensor instead"
        )
    if not batched and attn_mask is not None and attn_mask.ndim == 3:
        expected = (num_heads, query.shape[0], key.shape[0])
        if attn_mask.shape != expected:
            raise ShapeError(
                f"Expected `attn_mask` shape to be {expected} but got {tuple(attn_mask.shape)}"
            )
    return batched


def check_kind(mask: Tensor | None, name: str) -> None:
    """Raise OnefoldTypeError for a mask that is neither bool nor floating point."""
    if mask is not None and mask.dtype is not torch.bool and not mask.meta.is_floating:
        raise OnefoldTypeError(
            f"only bool and floating types of {name} are supported, but got {mask.dtype}"
        )


def attention_mask(
    mask: Tensor | None, batch: int, heads: int, queries: int, keys: int
) -> Tensor | None:
    """`attn_mask` as (L, S), or (N, H, L, S) where it has 3 dims. Raises ShapeError."""
    if mask is None:
        return None
    wanted = (queries, keys) if mask.ndim == 2 else (batch * heads, queries, keys)
    if mask.shape != wanted:
        raise ShapeError(
            f"The shape of the {mask.ndim}D attn_mask is {tuple(mask.shape)}, but should be "
            f"{wanted}."
        )
    return mask if mask.ndim == 2 else view(mask, (batch, heads, queries, keys))


def padding_mask(mask: Tensor | None, batch: int, keys: int) -> Tensor | None:
    """`key_padding_mask` (N, S) as (N, 1, 1, S). Raises ShapeError."""
    if mask is None:
        return None
    if mask.shape != (batch, keys):
        raise ShapeError(
            f"expecting key_padding_mask shape of {(batch, keys)}, but got {tuple(mask.shape)}"
        )
    return unsqueeze(unsqueeze(mask, 1), 1)


def joined(
    one: Tensor | None, other: Tensor | None, dtype: torch.dtype, more: int
) -> Tensor | None:
    """Both masks combined, with `more` keys after the others that every query sees.

    It is bool (True: hidden) if both are, else a float that is added to the scores.
    """
    if one is not None and other is not None:
        if one.dtype is torch.bool and other.dtype is torch.bool:
            both: Tensor | None = logical_or(one, other)
        else:
            both = added_mask(one, dtype) + added_mask(other, dtype)
    else:
        both = one if one is not None else other
    if both is None:
        return None
    return pad(both, (0, more)) if more else both


def added_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as numbers that are added to scores: -inf where a bool mask is True."""
    if mask.dtype is torch.bool:
        return masked_fill(zeros_like(mask, dtype=dtype), mask, float("-inf"))
    return cast(mask, dtype) if mask.dtype != dtype else mask


def seen_mask(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask in the form of scaled_dot_product_attention: a bool True is a key that is seen."""
    if mask is None:
        return None
    return logical_not(mask) if mask.dtype is torch.bool else added_mask(mask, dtype)
