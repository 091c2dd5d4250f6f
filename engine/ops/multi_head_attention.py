"""Multi-head attention: projections to heads, attention of each head, a projection of all."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import OnefoldRuntimeError, OnefoldValueError, ShapeError
from ..convert import box
from ..meta import Meta
from ..names import register_function
from ..tensor import Tensor
from .attention import scaled_dot_product_attention
from .cat_split import cat, split_with_sizes
from .dims import expand, permute, squeeze, transpose, unsqueeze
from .dropout import dropout
from .matmul import linear, matmul
from .multi_head_masks import (
    added_mask,
    attention_mask,
    check_kind,
    check_shapes,
    joined,
    padding_mask,
    seen_mask,
)
from .pad import pad
from .reduce import mean
from .softmax import softmax
from .view import reshape, view


class HeadWeights(NamedTuple):
    """The parameters: `in_weight` is packed (3E, E), or three of (E, features of each input)."""

    in_weight: Tensor | tuple[Tensor, Tensor, Tensor]
    in_bias: Tensor | None  # (3E,)
    bias_k: Tensor | None  # (1, 1, E)
    bias_v: Tensor | None
    out_weight: Tensor  # (E, E)
    out_bias: Tensor | None


class HeadOptions(NamedTuple):
    """The options of multi-head attention."""

    heads: int
    add_zero_attn: bool
    dropout_p: float  # 0 when not training
    need_weights: bool
    average: bool
    is_causal: bool
    batch_first: bool = False


def attend_with_heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    weights: HeadWeights,
    options: HeadOptions,
    static: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor | None]:
    """The output, of the query's shape, and the weights if they are needed.

    The weights are (N, L, S), or (N, heads, L, S) where they are not averaged.
    """
    heads, needed = options.heads, options.need_weights
    batched = check_shapes(query, key, value, key_padding_mask, attn_mask, heads)
    first = options.batch_first or not batched
    same = query is key, key is value
    if not batched:
        query, key, value = (unsqueeze(x, 0) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)
    check_kind(key_padding_mask, "key_padding_mask")
    causal = options.is_causal
    if causal and attn_mask is None:
        raise OnefoldRuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    if causal and key_padding_mask is None and not needed:
        attn_mask = None  # the hint replaces it
    else:
        check_kind(attn_mask, "attn_mask")
        causal = False
    _check_sizes(query, key, value, weights, heads)
    batch, length = query.shape[:2] if first else query.shape[1::-1]
    keys = key.shape[1 if first else 0]
    q, k, v = _projected(query, key, value, weights, heads, same)
    mask = attention_mask(attn_mask, batch, heads, length, keys)
    if (weights.bias_k is None) != (weights.bias_v is None):
        raise OnefoldValueError("bias_k and bias_v must both be given, or neither")
    more = 0
    if weights.bias_k is not None and weights.bias_v is not None:
        if static != (None, None):
            raise OnefoldValueError("bias cannot be added to static key or value.")
        k, v = (
            _with_row(x, b, batch, first) for x, b in ((k, weights.bias_k), (v, weights.bias_v))
        )
        more += 1
    q, k, v = (_in_heads(x, heads, first) for x in (q, k, v))
    k, v = (_static(x, fixed, batch, heads) for x, fixed in zip((k, v), static, strict=True))
    if options.add_zero_attn:
        k, v = (pad(x, (0, 0, 0, 1)) for x in (k, v))
        more += 1
    padding = padding_mask(key_padding_mask, batch, k.shape[2] - more)
    mask = joined(mask, padding, q.dtype, more)
    p = options.dropout_p
    if needed:
        y, seen = _with_weights(q, k, v, mask, p)
    else:
        y = scaled_dot_product_attention(q, k, v, seen_mask(mask, q.dtype), p, causal)
        seen = None
    y = permute(y, (0, 2, 1, 3) if first else (2, 0, 1, 3))
    y = linear(reshape(y, (*y.shape[:2], query.shape[-1])), weights.out_weight, weights.out_bias)
    if seen is not None and options.average:
        seen = mean(seen, 1)
    if batched:
        return y, seen
    return squeeze(y, 0), None if seen is None else squeeze(seen, 0)


def _check_sizes(q: Tensor, k: Tensor, v: Tensor, weights: HeadWeights, heads: int) -> None:
    """Raise ShapeError for incompatible features and lengths."""
    features = q.shape[-1]
    if features % heads:
        raise ShapeError(f"embed_dim {features} not divisible by num_heads {heads}")
    if isinstance(weights.in_weight, Tensor):
        if k.shape != v.shape:
            raise ShapeError(
                f"key shape {tuple(k.shape)} does not match value shape {tuple(v.shape)}"
            )
        return
    if k.shape[:2] != v.shape[:2]:
        raise ShapeError(
            f"key's sequence and batch dims {tuple(k.shape[:2])} do not match value's "
            f"{tuple(v.shape[:2])}"
        )
    for name, x, w in zip(("query", "key", "value"), (q, k, v), weights.in_weight, strict=True):
        if w.shape != (features, x.shape[-1]):
            raise ShapeError(
                f"expecting {name} weights shape of {(features, x.shape[-1])}, but got "
                f"{tuple(w.shape)}"
            )


def _projected(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: HeadWeights,
    heads: int,
    same: tuple[bool, bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each with all heads in the last dim."""
    w, b = weights.in_weight, weights.in_bias
    features = query.shape[-1]
    three = (features,) * 3
    if isinstance(w, Tensor) and not _splits_heads(w, heads):
        if all(same):
            q, k, v = split_with_sizes(linear(query, w, b), three, -1)
            return q, k, v
        if same[1]:
            two = (features, 2 * features)
            w_q, w_kv = split_with_sizes(w, two)
            b_q, b_kv = (None, None) if b is None else split_with_sizes(b, two)
            k, v = split_with_sizes(linear(key, w_kv, b_kv), three[:2], -1)
            return linear(query, w_q, b_q), k, v
    biases = (None,) * 3 if b is None else split_with_sizes(b, three)
    if isinstance(w, Tensor):
        parts = [_laid_as(part, w) for part in split_with_sizes(w, three)]
        if b is not None:
            biases = tuple([_laid_as(part, b) for part in split_with_sizes(b, three)])
    else:
        parts = list(w)
    given = (query, key, value)
    q, k, v = (linear(x, w, b) for x, w, b in zip(given, parts, biases, strict=True))
    return q, k, v


def _splits_heads(w: Tensor, heads: int) -> bool:
    """Whether the rows of the packed weight are split so that a rank may own whole heads.

    Its own rows are no heads: the shards of q, k and v lie one after the other. So its three parts
    are split each by itself, and what follows is computed by heads.
    """
    if w.is_local:
        return False
    sizes = zip(w.placement.shape, w.sbp, strict=True)
    parts = 1
    for size, sbp in sizes:
        parts *= size if sbp.is_split and sbp.dim == 0 else 1
    return parts > 1 and heads % parts == 0


def _laid_as(part: Tensor, whole: Tensor) -> Tensor:
    """A part of a packed parameter, in the layout of the whole."""
    if whole.is_local:
        return part
    target = Meta.of(part.shape, part.dtype, whole.placement, whole.meta.nd_sbp)
    return part if part.meta is target else box(part, target)


def _with_row(x: Tensor, bias: Tensor, batch: int, first: bool) -> Tensor:
    """Keys or values with one more row in each sequence, the same for all."""
    rows = (batch, 1, bias.shape[-1]) if first else (1, batch, bias.shape[-1])
    return cat([x, expand(bias, rows)], 1 if first else 0)


def _in_heads(x: Tensor, heads: int, first: bool) -> Tensor:
    """(N, L, E), or (L, N, E), as (N, heads, L, E / heads)."""
    split = view(x, (*x.shape[:2], heads, x.shape[-1] // heads))
    return permute(split, (0, 2, 1, 3) if first else (1, 2, 0, 3))


def _static(x: Tensor, fixed: Tensor | None, batch: int, heads: int) -> Tensor:
    """The given (N * heads, S, E / heads) instead of x, with x's number of dims."""
    if fixed is None:
        return x
    if fixed.ndim != 3 or fixed.shape[0] != batch * heads or fixed.shape[2] != x.shape[3]:
        raise ShapeError(
            f"expecting static_k and static_v of shape {(batch * heads, 'S', x.shape[3])}, but got "
            f"{tuple(fixed.shape)}"
        )
    return view(fixed, (batch, heads, *fixed.shape[1:]))


def _with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float
) -> tuple[Tensor, Tensor]:
    """The output of each head, and its weights after dropout."""
    scores = matmul(q * float(q.shape[-1]) ** -0.5, transpose(k, -2, -1))
    if mask is not None:
        scores = scores + added_mask(mask, q.dtype)
    weights = softmax(scores, -1)
    if p > 0.0:
        weights = dropout(weights, p)
    return matmul(weights, v), weights


@register_function
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The function of `nn.MultiheadAttention`: its output, and its weights or None.

    query is (L, N, E), key (S, N, Ek) and value (S, N, Ev), or the same without N. Where a bool
    mask is True, a key is not seen. Raises ShapeError, or OnefoldTypeError for a mask of integers.
    Vaswani et al., "Attention is all you need" (2017).

    Example: `nn.MultiheadAttention(8, 2)(x, x, x, need_weights=False)` calls it.
    """
    if query.shape[-1] != embed_dim_to_check:
        raise ShapeError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {query.shape[-1]}"
        )
    in_weight: Tensor | tuple[Tensor, Tensor, Tensor] | None = in_proj_weight
    if use_separate_proj_weight:
        if q_proj_weight is None or k_proj_weight is None or v_proj_weight is None:
            raise OnefoldValueError(
                "use_separate_proj_weight is True but q_proj_weight, k_proj_weight or "
                "v_proj_weight is None"
            )
        in_weight = q_proj_weight, k_proj_weight, v_proj_weight
    if in_weight is None:
        raise OnefoldValueError("use_separate_proj_weight is False but in_proj_weight is None")
    return attend_with_heads(
        query,
        key,
        value,
        key_padding_mask,
        attn_mask,
        HeadWeights(in_weight, in_proj_bias, bias_k, bias_v, out_proj_weight, out_proj_bias),
        HeadOptions(
            num_heads,
            add_zero_attn,
            dropout_p if training else 0.0,
            need_weights,
            average_attn_weights,
            is_causal,
        ),
        (static_k, static_v),
    )
