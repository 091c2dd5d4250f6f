"""unpack and pack: splitting a batch over time, for gradient accumulation, and
concatenating again.
"""

from __future__ import annotations

from ..engine.ops.cat_split import cat, stack
from ..engine.ops.slicing import narrow
from ..engine.ops.view import reshape
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from .blob import Blob, Key
from .tracing import tracing


def unpack(input: Blob, unpack_num: int, name: str | None = None) -> Blob:
    """The blob in `unpack_num` equal pieces along dim 0, which what follows works on one by one.

    Where a job unpacks all of its arguments first, its graph runs once for each piece and adds up
    the gradients, with one piece in memory at a time. Raises OnefoldValueError where the batch
    cannot be cut so.
    """
    if isinstance(unpack_num, bool) or not isinstance(unpack_num, int):
        raise OnefoldTypeError(f"unpack needs an integer, but got {unpack_num!r}")
    accumulation = tracing("unpack").accumulation
    if accumulation.in_time:
        return Blob(input.parts)
    rows = input.shape[0] if input.shape else 0
    if unpack_num < 1 or rows % unpack_num:
        raise OnefoldValueError(
            f"unpack cannot cut {rows} rows into {unpack_num} equal pieces; their number must "
            "divide the rows"
        )
    if any(piece is not None for _, piece in input.parts):
        raise OnefoldValueError("unpack was called on a blob that is in pieces already")
    accumulation.unpack(input, unpack_num)
    parts: dict[Key, Tensor] = {}
    for (device, _), tensor in input.parts.items():
        groups = _groups(tensor, rows, unpack_num)
        size = rows // unpack_num
        by_group = reshape(tensor, (groups, rows // groups, *tensor.shape[1:]))
        for index in range(unpack_num):
            some = narrow(by_group, 1, index * size // groups, size // groups)
            parts[device, index] = reshape(some, (size, *tensor.shape[1:]))
    return Blob(parts)


def _groups(tensor: Tensor, rows: int, pieces: int) -> int:
    """The devices whose rows are cut one by one, so that no row has to move."""
    devices: int = tensor.placement.num_ranks
    return 1 if rows % (devices * pieces) else devices


def pack(input: Blob, pack_num: int, name: str | None = None) -> Blob:
    """The pieces of `unpack` as one blob again. Raises OnefoldValueError for another number."""
    if tracing("pack").accumulation.in_time:
        return Blob(input.parts)
    found: dict[int | None, list[Tensor]] = {}
    for (device, piece), tensor in sorted(
        input.parts.items(), key=lambda item: (item[0][0] or 0, item[0][1] or 0)
    ):
        if piece is not None:
            found.setdefault(device, []).append(tensor)
    counts = {len(tensors) for tensors in found.values()}
    if counts != {pack_num}:
        raise OnefoldValueError(
            f"pack was asked to put {pack_num} pieces together, but the blob is in "
            f"{counts.pop() if counts else 'no'} pieces"
        )

    parts: dict[Key, Tensor] = {(d, None): _combined(tensors) for d, tensors in found.items()}
    return Blob(parts, whole=True)


def _combined(pieces: list[Tensor]) -> Tensor:
    first = pieces[0]
    if not first.ndim:
        return stack(pieces)
    rows, rest = first.shape[0] * len(pieces), first.shape[1:]
    groups = _groups(first, rows, len(pieces))
    by_group = [reshape(x, (groups, x.shape[0] // groups, *rest)) for x in pieces]
    return reshape(cat(by_group, 1), (rows, *rest))
