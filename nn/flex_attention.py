"""Attention whose scores a function changes (`flow.nn.attention.flex_attention`), and its masks.

The functions of a program are called once, with indices that broadcast against each other, so
that what they compute are ordinary ops: they have gradients and layouts, and graphs capture them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, NamedTuple, Self, TypeAlias

import torch

from ..engine.argument_types import DeviceLike
from ..engine.autocast import autocast, get_autocast_dtype, is_autocast_enabled
from ..engine.ops.attention import scaled_dot_product_attention
from ..engine.ops.creation import ones, zeros
from ..engine.ops.like import full_like
from ..engine.ops.logsumexp_prod import logsumexp
from ..engine.ops.pad import pad
from ..engine.ops.softmax import softmax
from ..engine.ops.sorting import argsort
from ..engine.ops.where import where
from ..engine.placed_device import PlacedDevice
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, ShapeError

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

MaskMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_mask_mod_signature, _score_mod_signature = MaskMod, ScoreMod  # torch's names
_Where: TypeAlias = DeviceLike | PlacedDevice | None

_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """What `flex_attention` is to give besides its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for with an AuxRequest: (B, H, L) each."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask that hides nothing."""
    return ones((), dtype=torch.bool, device=batch.device)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask of what every mask shows."""
    _check_callable(mask_mods)

    def every(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        found = noop_mask(b, h, q_idx, kv_idx)
        for mask_mod in mask_mods:
            found = found & mask_mod(b, h, q_idx, kv_idx)
        return found

    return every


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask of what any of the masks shows."""
    _check_callable(mask_mods)

    def any_of(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        found = ~noop_mask(b, h, q_idx, kv_idx)
        for mask_mod in mask_mods:
            found = found | mask_mod(b, h, q_idx, kv_idx)
        return found

    return any_of


def _check_callable(functions: tuple[object, ...]) -> None:
    for function in functions:
        if not callable(function):
            raise OnefoldRuntimeError(f"All inputs should be callable mask_mods: got {function!r}")


def _indices(B: int, H: int, Q_LEN: int, KV_LEN: int, device: _Where) -> tuple[Tensor, ...]:
    """The indices of batch, head, query and key, with the four dims of the scores."""
    shapes = ((-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1))
    sizes = (B, H, Q_LEN, KV_LEN)
    return tuple(
        [
            tensor_ops.arange(n, device=device).view(shape)
            for n, shape in zip(sizes, shapes, strict=True)
        ]
    )


def _takes_scores(function: Callable[..., Tensor]) -> bool:
    """Whether a function is a score_mod. Raises OnefoldTypeError unless it takes 4 or 5."""
    needed = [
        each
        for each in signature(function).parameters.values()
        if each.default is Parameter.empty
        and each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) not in (4, 5):
        raise OnefoldTypeError(
            "a function of masks takes (b, h, q_idx, kv_idx), one of scores (score, b, h, q_idx, "
            f"kv_idx), but {function!r} takes {len(needed)} arguments"
        )
    return len(needed) == 5


def create_mask(
    mod_fn: ScoreMod | MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: _Where = None,
) -> Tensor:
    """The (B, H, Q_LEN, KV_LEN) mask of a mask_mod, or what a score_mod makes of scores of 0.

    >>> import onefold as flow
    >>> create_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, 1, 1, 2, 2).int().tolist()
    [[[[1, 0], [1, 1]]]]
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    device = _default_device() if device is None else device
    at = _indices(*sizes, device)
    if _takes_scores(mod_fn):
        return _fitting(mod_fn(zeros(sizes, device=device), *at), sizes, "score_mod")
    return _fitting(mod_fn(*at), sizes, "mask_mod")


def _default_device() -> DeviceLike:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _fitting(found: Tensor, sizes: tuple[int, ...], what: str) -> Tensor:
    try:
        return found.expand(sizes)
    except RuntimeError as error:
        raise ShapeError(
            f"{what}: the result has shape {tuple(found.shape)}, but must broadcast to (batch, "
            f"heads, queries, keys) = {sizes}. The function is called once, with index tensors "
            "of shapes (batch, 1, 1, 1), (1, heads, 1, 1), (1, 1, queries, 1) and (1, 1, 1, "
            "keys); look values up with all indices at once, as in table[b, q_idx]"
        ) from error


class BlockMask:
    """Which blocks of the scores are computed: those without a hidden element, and those with.

    `kv_num_blocks` (..., query blocks) counts the blocks of keys to which `mask_mod` applies, whose
    numbers stand first in `kv_indices` (..., query blocks, key blocks); `full_kv_num_blocks` and
    `full_kv_indices` name those that are seen whole. Made by `create_block_mask`.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int],
        mask_mod: MaskMod,
    ) -> None:
        self.seq_lengths = seq_lengths
        self.kv_num_blocks = kv_num_blocks
        self.kv_indices = kv_indices
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> Self:
        """The mask of these blocks; without lengths, as many queries and keys as they have.

        `compute_q_blocks` changes nothing. Raises OnefoldRuntimeError for indices of fewer than two
        dims, OnefoldValueError for one of the two tensors of full blocks alone.
        """
        if kv_indices.ndim < 2:
            raise OnefoldRuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise OnefoldValueError(
                "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
            )
        blocks = _block_size(BLOCK_SIZE)
        rows, columns = kv_indices.shape[-2:]
        lengths = seq_lengths or (rows * blocks[0], columns * blocks[1])
        full = full_kv_num_blocks, full_kv_indices
        return cls(lengths, kv_num_blocks, kv_indices, *full, blocks, mask_mod or noop_mask)

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, heads, queries, keys)."""
        return (*self.kv_num_blocks.shape[:-1], *self.seq_lengths)

    def numel(self) -> int:
        """How many scores there are."""
        return torch.Size(self.shape).numel()

    def to_dense(self) -> Tensor:
        """1 for each block that is computed, 0 for the others."""
        partial, full = self._dense()
        return (partial if full is None else partial | full).to(torch.int32)

    def sparsity(self) -> float:
        """The share of scores that are not computed, in percent."""
        computed = int(self.to_dense().sum()) * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - computed / self.numel())

    def to(self, device: _Where) -> BlockMask:
        """The same mask with its tensors on a device."""
        return self._with(self.seq_lengths, self.mask_mod, lambda x: x.to(device))

    def __getitem__(self, index: Any) -> BlockMask:
        """The blocks of some batches, heads and query blocks; give the result a mask_mod."""
        index = index if isinstance(index, tuple) else (index,)
        at = tuple([slice(i, i + 1 or None) if isinstance(i, int) else i for i in index])
        return self._with(self.seq_lengths, _sliced, lambda x: x[at])

    def _with(
        self, lengths: tuple[int, int], mask_mod: MaskMod, change: Callable[[Tensor], Tensor]
    ) -> BlockMask:
        full = self.full_kv_num_blocks, self.full_kv_indices
        return BlockMask(
            lengths,
            change(self.kv_num_blocks),
            change(self.kv_indices),
            None if full[0] is None else change(full[0]),
            None if full[1] is None else change(full[1]),
            self.BLOCK_SIZE,
            mask_mod,
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left part of the mask, with other lengths."""
        rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])
        partial, full = self._dense()
        kept = _ordered(partial[..., :rows, :columns])
        whole = (None, None) if full is None else _ordered(full[..., :rows, :columns])
        lengths = (new_q_len, new_kv_len)
        return BlockMask(lengths, *kept, whole[0], whole[1], self.BLOCK_SIZE, self.mask_mod)

    def _dense(self) -> tuple[Tensor, Tensor | None]:
        """Which blocks are partly seen, and which are wholly."""
        partial = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return partial, None
        return partial, _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def _elements(self, at: tuple[Tensor, ...], sizes: tuple[int, ...]) -> Tensor:
        """Which scores are seen, at index tensors of these sizes."""
        partial, full = [
            None if blocks is None else self._spread(blocks, sizes) for blocks in self._dense()
        ]
        seen = partial & self.mask_mod(*at)  # type: ignore[operator]
        return _fitting(seen if full is None else seen | full, sizes, "mask_mod")

    def _spread(self, blocks: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """Blocks as the elements that they hold."""
        rows = blocks.repeat_interleave(self.BLOCK_SIZE[0], -2)[..., : sizes[-2], :]
        return rows.repeat_interleave(self.BLOCK_SIZE[1], -1)[..., : sizes[-1]]

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE})"


def _sliced(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    raise OnefoldRuntimeError(
        "Cannot use mask_mod from a sliced BlockMask: its indices have changed. Set "
        "`mask.mask_mod` to a function that adds to them what was sliced off"
    )


def _block_size(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _dense(counts: Tensor, indices: Tensor) -> Tensor:
    """The blocks of each row of which `indices` has `counts`, as bools."""
    columns = indices.shape[-1]
    numbers: Tensor = tensor_ops.arange(columns, device=indices.device)
    named = where(numbers < counts.unsqueeze(-1), indices.long(), columns)
    return (named.unsqueeze(-1) == numbers).any(-2)


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row has, and their numbers, followed by those of the others."""
    numbers = argsort(blocks.int(), dim=-1, descending=True, stable=True)
    return blocks.sum(-1).to(torch.int32), numbers.to(torch.int32)


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: _Where = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The BlockMask of a function: `mask_mod(b, h, q_idx, kv_idx)` is true where a key is seen.

    `B` and `H` are 1 or None where the mask is that of every batch or head. `_compile` changes
    nothing. Raises OnefoldTypeError for a function of other arguments, ShapeError for a result of
    another shape.

    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 256, 256, "cpu")
    >>> mask.to_dense().tolist(), mask.sparsity()
    ([[[[1, 0], [1, 1]]]], 25.0)
    """
    if _takes_scores(mask_mod):
        raise OnefoldTypeError(f"create_block_mask requires a mask_mod function! Got {mask_mod}")
    seen = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    rows, columns = _block_size(BLOCK_SIZE)
    padded = pad(seen.int(), (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    blocks = padded.unflatten(-1, (-1, columns)).unflatten(2, (-1, rows))
    counts = blocks.sum((3, 5))
    full = counts == rows * columns
    partial = (counts > 0) & ~full if separate_full_blocks else counts > 0
    whole = _ordered(full) if separate_full_blocks else (None, None)
    kept, size = _ordered(partial), (rows, columns)
    return BlockMask((Q_LEN, KV_LEN), *kept, whole[0], whole[1], size, mask_mod)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Mapping[str, object] | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Tensor | tuple[Tensor, Tensor | AuxOutput]:
    """softmax(score_mod(query key^T * scale)) value, over the keys that `block_mask` shows.

    query is (B, H, L, E), key (B, Hkv, S, E) and value (B, Hkv, S, Ev); Hkv is H, or divides it
    with `enable_gqa`. `score_mod(score, b, h, q_idx, kv_idx)` gets all scores, and indices that
    broadcast to them. A query that sees no key gives zeros. Scores are made as one matrix, in
    float32 or float64, unless there is only a mask. `kernel_options` change nothing.

    With `return_lse` the logarithm of the sum of the exponentials of the scores is returned too,
    with `return_aux` an AuxOutput. Raises ShapeError for shapes that do not fit, OnefoldValueError
    for other numbers of heads, and for a mask of other lengths.

    >>> import onefold as flow
    >>> q = flow.ones(1, 2, 4, 8)
    >>> flex_attention(q, q, q, lambda score, b, h, q_idx, kv_idx: score - (q_idx - kv_idx)).shape
    torch.Size([1, 2, 4, 8])
    """
    heads = _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise OnefoldValueError("pass return_lse or return_aux=AuxRequest(lse=True), but not both")
    sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    at = _indices(*sizes, query.device)
    seen = None if block_mask is None else block_mask._elements(at, sizes)
    if score_mod is None and not return_lse and return_aux is None:
        key, value = [x.expand((sizes[0], *x.shape[1:])) for x in (key, value)]
        return scaled_dot_product_attention(
            query, key, value, seen, scale=scale, enable_gqa=heads > 1
        )
    kind = query.device.type
    if is_autocast_enabled(kind):
        dtype = get_autocast_dtype(kind)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    with autocast(kind, enabled=False):
        scores = _scores(query, key, heads, scale)
        if score_mod is not None:
            scores = _fitting(score_mod(scores, *at), sizes, "score_mod")
        if seen is not None:
            scores = where(seen, scores, float("-inf"))
        y = _weighted(scores, value, heads, query.dtype)
    return _with_statistics(y, scores, return_lse, return_aux)


def _check(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None, gqa: bool) -> int:
    """How many heads of the query each head of the keys serves."""
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ShapeError(
            "flex_attention: query, key and value must have 4 dims (batch, heads, length, "
            f"features), but their shapes are {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3] or k.shape[0] not in (1, q.shape[0]):
        raise ShapeError(
            f"flex_attention: query {tuple(q.shape)}, key {tuple(k.shape)} and value "
            f"{tuple(v.shape)} do not fit; they are (B, H, L, E), (B, Hkv, S, E), (B, Hkv, S, Ev)"
        )
    mine, theirs = q.shape[1], k.shape[1]
    if mine != theirs and not (gqa and mine % theirs == 0):
        raise OnefoldValueError(
            "Expect query and key/value to have the same number of heads, or with enable_gqa=True "
            f"a multiple, but got Hq={mine} and Hkv={theirs}"
        )
    if mask is not None and mask.seq_lengths != (q.shape[2], k.shape[2]):
        raise OnefoldValueError(
            f"block_mask was created for block_mask.shape={mask.shape} but got "
            f"q_len={q.shape[2]} and kv_len={k.shape[2]}; create one of these lengths"
        )
    return mine // theirs


def _scores(query: Tensor, key: Tensor, heads: int, scale: float | None) -> Tensor:
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    keys = key if heads == 1 else key.repeat_interleave(heads, 1)
    scores = query.to(wide) @ keys.to(wide).transpose(-2, -1)
    return scores * (query.shape[-1] ** -0.5 if scale is None else scale)


def _weighted(scores: Tensor, value: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """The values weighted by the softmax of scores, of which all of a row may be -infinity."""
    hidden = (scores == float("-inf")).all(-1, keepdim=True)
    weights = softmax(where(hidden, full_like(scores, 0), scores), -1)
    weights = where(hidden, full_like(weights, 0), weights)
    values = value if heads == 1 else value.repeat_interleave(heads, 1)
    return weights.to(dtype) @ values.to(dtype)


def _with_statistics(
    y: Tensor, scores: Tensor, return_lse: bool, asked: AuxRequest | None
) -> Tensor | tuple[Tensor, Tensor | AuxOutput]:
    if return_lse:
        return y, logsumexp(scores, -1)
    if asked is None:
        return y
    lse = logsumexp(scores, -1) if asked.lse else None
    return y, AuxOutput(lse, scores.amax(-1) if asked.max_scores else None)
