"""The shapes that attention takes, broadcast and of any number of dims, brought to 4 dims."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...kernels.attention_ref import WIDEST
from ..meta import Meta
from ..names import names
from ..tensor import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Shape = tuple[int, ...]


class Four(NamedTuple):
    """q, k, v and the mask, of (batch, heads, length, features), and the shape of the result.

    k and v have the same heads, and q a multiple of them. The mask broadcasts to the scores.
    """

    tensors: tuple[Tensor, Tensor, Tensor, Tensor | None]
    shape: Shape


def device_type(meta: Meta) -> str:
    """Of the tensor."""
    if meta.placement is not None:
        return meta.placement.device_type
    return "cpu" if meta.device is None else meta.device.type


def in_four_dims(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, shared: bool, triton: bool
) -> Four | None:
    """The tensors with 4 dims, or None where the kernels cannot do attention on these.

    What broadcasts is repeated, which copies nothing where there are no more than 4 dims. `shared`
    says that several heads of q may use one of k and v.
    """
    if not _kernels_take(q.meta, k.meta, v.meta, triton):
        return None
    ndim = max(q.ndim, k.ndim, v.ndim)
    wide = max(ndim, 4)
    q, k, v = (_of_dims(x, wide) for x in (q, k, v))
    if shared and len({k.shape[-3], v.shape[-3], 1}) == 3:
        if any(q.shape[-3] % max(x.shape[-3], 1) for x in (k, v)):
            return None
        k, v = (names.repeat_interleave(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    try:
        lead = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
        [own] = torch.broadcast_shapes(k.shape[-3:-2], v.shape[-3:-2])
        [heads] = q.shape[-3:-2] if shared else torch.broadcast_shapes(q.shape[-3:-2], (own,))
    except RuntimeError:  # which torch's own attention explains
        return None
    scores = (*lead, heads, q.shape[-2], k.shape[-2])
    if not own or heads % own or not _fits(mask, scores, q.dtype):
        return None
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


def _kernels_take(q: Meta, k: Meta, v: Meta, triton: bool) -> bool:
    if q.dtype not in FLOATS or not q.dtype == k.dtype == v.dtype:
        return False
    if min(q.ndim, k.ndim, v.ndim) < 2:
        return False
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        return False
    return max(q.shape[-1], v.shape[-1]) <= WIDEST or not triton


def _fits(mask: Tensor | None, scores: Shape, dtype: torch.dtype) -> bool:
    """Whether a mask broadcasts to the scores, and torch takes its dtype."""
    if mask is None:
        return True
    if mask.dtype not in (torch.bool, torch.float32, dtype) or not 0 < mask.ndim <= len(scores):
        return False
    return all(m in (1, n) for m, n in zip(mask.shape, scores[-mask.ndim :], strict=True))


def _of_dims(x: Tensor, ndim: int) -> Tensor:
    return x if x.ndim == ndim else names.view(x, (*[1] * (ndim - x.ndim), *x.shape))


def _repeated(x: Tensor, shape: Shape) -> Tensor:
    return x if x.shape == shape else names.expand(x, shape)


def _merged(x: Tensor) -> Tensor:
    return x if x.ndim == 4 else names.flatten(x, 0, -4)
