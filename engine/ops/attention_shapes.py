"""The shapes that attention takes, broadcast and of any number of dims, brought to 4 dims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ...errors import OnefoldTypeError, ShapeError, user_line
from ...kernels.common_shapes import broadcast_shapes
from ..meta import Meta, Shape
from ..tensor import Tensor
from .dims import expand
from .flip_repeat import repeat_interleave
from .view import flatten, view

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Four(NamedTuple):
    """q, k, v and the mask as (batch, heads, length, features), and the shape of the result.

    k and v have the same heads, and q a multiple of them. The mask broadcasts to the scores.
    """

    tensors: tuple[Tensor, Tensor, Tensor, Tensor | None]
    shape: Shape


def in_four_dims(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, shared: bool) -> Four:
    """The tensors with 4 dims.

    What broadcasts is repeated, which copies nothing where there are no more than 4 dims. `shared`
    says that several heads of q may use one of k and v. Raises ShapeError.
    """
    shape = _of_four(q.meta, k.meta, v.meta, _meta(mask), shared)
    if shape is not None:
        return Four((q, k, v, mask), shape)
    given = [x.meta for x in (q, k, v)]
    ndim = max(q.ndim, k.ndim, v.ndim)
    wide = max(ndim, 4)
    few = min(q.ndim, k.ndim, v.ndim) < 2
    if few or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise _unfit(given, mask)
    q, k, v = (_of_dims(x, wide) for x in (q, k, v))
    if shared and len({k.shape[-3], v.shape[-3], 1}) == 3:
        if any(q.shape[-3] % max(x.shape[-3], 1) for x in (k, v)):
            raise _unfit(given, mask)
        k, v = (repeat_interleave(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    try:
        lead = broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
        [own] = broadcast_shapes(k.shape[-3:-2], v.shape[-3:-2])
        [heads] = q.shape[-3:-2] if shared else broadcast_shapes(q.shape[-3:-2], (own,))
    except RuntimeError:
        raise _unfit(given, mask) from None
    scores = (*lead, heads, q.shape[-2], k.shape[-2])
    if (heads % own if own else heads) or not _fits(_meta(mask), scores):
        raise _unfit(given, mask)
    q, k, v = (
        _merged(_repeated(x, (*lead, count, *x.shape[-2:])))
        for x, count in ((q, heads), (k, own), (v, own))
    )
    if mask is not None and mask.ndim > 3:
        mask = _of_dims(mask, wide)
        if wide > 4 and any(size > 1 for size in mask.shape[:-3]):
            mask = _repeated(mask, (*lead, *mask.shape[-3:]))
        mask = _merged(mask)
    return Four((q, k, v, mask), (*scores[:-1], v.shape[-1])[-ndim:])


def _meta(mask: Tensor | None) -> Meta | None:
    return None if mask is None else mask.meta


@lru_cache(maxsize=4096)
def _of_four(q: Meta, k: Meta, v: Meta, mask: Meta | None, shared: bool) -> Shape | None:
    """The shape of the result if all have 4 dims, and only the mask broadcasts."""
    if not q.ndim == k.ndim == v.ndim == 4:
        return None
    (batch, heads, rows, features), (own, columns) = q.shape, k.shape[1:3]
    alike = k.shape[0] == batch and k.shape[3] == features and v.shape[:3] == k.shape[:3]
    shares = heads == own or (shared and own > 0 and heads % own == 0)
    if not (alike and shares and _fits(mask, (batch, heads, rows, columns))):
        return None
    return (*q.shape[:3], v.shape[3])


def check_dtypes(q: Meta, k: Meta, v: Meta, mask: Meta | None) -> None:
    """Raise OnefoldTypeError for incompatible dtypes."""
    masks = (torch.bool, torch.float32, q.dtype)
    if (
        q.dtype in FLOATS
        and q.dtype == k.dtype == v.dtype
        and (mask is None or mask.dtype in masks)
    ):
        return
    masked = "" if mask is None else f", and a mask of {mask.dtype}"
    raise OnefoldTypeError(
        "attention needs query, key and value of one floating dtype, and a mask that is bool, "
        f"float32 or of that dtype, but got {q.dtype}, {k.dtype} and {v.dtype}{masked}"
    )


def _unfit(given: Sequence[Meta], mask: Tensor | None) -> ShapeError:
    q, k, v = (tuple(meta.shape) for meta in given)
    masked = "" if mask is None else f", and a mask of shape {tuple(mask.shape)}"
    return ShapeError(
        "attention needs query (..., L, E), key (..., S, E) and value (..., S, Ev) whose other "
        "dims broadcast, and a mask that broadcasts to (..., L, S); with enable_gqa the heads, "
        "dim -3, of query may be a multiple of those of key and value. "
        f"Got query {q}, key {k} and value {v}{masked}. Called at {user_line()}"
    )


def _fits(mask: Meta | None, scores: Shape) -> bool:
    """Whether a mask broadcasts to the scores."""
    if mask is None:
        return True
    if not 0 < mask.ndim <= len(scores):
        return False
    return all(m in (1, n) for m, n in zip(mask.shape, scores[-mask.ndim :], strict=True))


def _of_dims(x: Tensor, ndim: int) -> Tensor:
    return x if x.ndim == ndim else view(x, (*[1] * (ndim - x.ndim), *x.shape))


def _repeated(x: Tensor, shape: Shape) -> Tensor:
    return x if x.shape == shape else expand(x, shape)


def _merged(x: Tensor) -> Tensor:
    return x if x.ndim == 4 else flatten(x, 0, -4)
