"""Copies between any two layouts, fill, cat, stack, flip, roll, tril and triu.

A copy is the pointwise kernel of the identity over the strides of both tensors. Its tiles go
through registers, so that both sides are accessed in whole cache lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

import torch
import triton.language as tl
from torch import Tensor

from ...common_shapes import joined_shape
from ..launch.aot_cases import Case, tensors
from ..launch.jit_kernel import Kernel
from ..launch.symbolic_numbers import runtime_scalars, through
from .evaluate import Launch, plan
from .expression import WORK, Writer
from .scalar_functions import cast
from .strided_layout import LARGEST, Ints, dense_strides, merged, order_of, tile_of

# Left to torch: dtypes that Triton lacks, tensors of 2^31 rows or more that do not merge (rows
# are counted in int32), and errors of flips and rolls of no elements.

_MOST = 8  # inputs that one launch joins


def _all_supported(*parts: Tensor) -> bool:
    return all(x.dtype in WORK for x in parts) and len({x.device for x in parts}) == 1


# Copies and fills.


@lru_cache(maxsize=4096)
def _copying(
    source: torch.dtype, target: torch.dtype, shape: Ints, inputs: Ints, outputs: Ints
) -> Launch | None:
    w = Writer()
    expression = w.expression(w.step("copy", [w.tensor(source)], target))
    return plan(expression, shape, [inputs], [outputs])


def copy_into(y: Tensor, x: Tensor) -> None:
    """Write x, of the same shape, into y, whose elements do not overlap."""
    launch = None
    if x.dtype is y.dtype is torch.complex64 and not x.is_conj():
        copy_into(y.view(torch.int64), x.view(torch.int64))
        return
    if _all_supported(x, y):
        launch = _copying(x.dtype, y.dtype, x.shape, x.stride(), y.stride())
    if launch is None:
        y.copy_(x)
    else:
        launch((x, y))


def contiguous(x: Tensor) -> Tensor:
    """A copy without gaps in row-major order."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    copy_into(y, x)
    return y


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A view where there is one, else a copy."""
    try:
        return x.view(tuple(shape))
    except RuntimeError:
        return contiguous(x).view(tuple(shape))


@lru_cache(maxsize=4096)
def _filling(dtype: torch.dtype, shape: Ints, outputs: Ints) -> Launch | None:
    w = Writer()
    number = w.number(0.0 if dtype.is_floating_point else 0)
    expression = w.expression(w.step("copy", [number], dtype))
    return plan(expression, shape, [], [outputs])


def _is_held(value: float, dtype: torch.dtype) -> bool:
    """Whether an integer dtype has the number. Unsigned ones take negatives, which wrap."""
    if dtype is torch.bool:
        return value in (0, 1)
    most = torch.iinfo(dtype).max
    return min(torch.iinfo(dtype).min, -most) <= value <= most and value == int(value)


def fill(y: Tensor, value: float | complex) -> Tensor:
    """y with one number everywhere; torch has the errors for numbers that integers cannot be."""
    real = y.dtype.is_floating_point
    if y.dtype in WORK and isinstance(value, (int, float)) and (real or _is_held(value, y.dtype)):
        launch = _filling(y.dtype, y.shape, y.stride())
        if launch is not None:
            launch((y, through(float if real else int, value)))
            return y
    return y.fill_(value)


@runtime_scalars("value")
def full_like(x: Tensor, value: float | complex) -> Tensor:
    return fill(torch.empty_like(x), value)


# Joins.


@Kernel
def _cat(
    x0, x1, x2, x3, x4, x5, x6, x7, y, height, begin, y_step,
    width0, width1, width2, width3, width4, width5, width6, width7,
    step0, step1, step2, step3, step4, step5, step6, step7,
    COUNT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    xs = (x0, x1, x2, x3, x4, x5, x6, x7)
    widths = (width0, width1, width2, width3, width4, width5, width6, width7)
    steps = (step0, step1, step2, step3, step4, step5, step6, step7)
    down = tl.cdiv(height, ROWS)
    program = tl.program_id(0)
    row, tile = program % down * ROWS, program // down
    rows = row + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    in_rows = (rows < height)[:, None]
    first = 0
    start = tl.full((), begin, tl.int64)
    for i in tl.static_range(COUNT):
        width = widths[i]
        count = tl.cdiv(width, COLUMNS)
        if tile >= first and tile < first + count:
            column = (tile - first).to(tl.int64) * COLUMNS
            source = xs[i] + column + rows.to(tl.int64)[:, None] * steps[i] + columns[None, :]
            target = y + start + column + rows.to(tl.int64)[:, None] * y_step + columns[None, :]
            if row + ROWS <= height and column + COLUMNS <= width:
                tl.store(target, cast(tl.load(source), y.dtype.element_ty))
            else:
                inside = in_rows & (column + columns < width)[None, :]
                v = tl.load(source, mask=inside)
                tl.store(target, cast(v, y.dtype.element_ty), mask=inside)
        first += count
        start += width


def cat(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    kept = tuple([x for x in parts if x.shape != (0,)]) or tuple(parts)
    if not _all_supported(*parts):
        return torch.cat(tuple(parts), dim)
    key = tuple([(x.dtype, x.shape, x.stride()) for x in kept])
    dtypes = tuple([x.dtype for x in parts])
    shape, strides, dtype, run = _joining(key, dtypes, dim)
    y = torch.empty_strided(shape, strides, dtype=dtype, device=kept[0].device)
    run(kept, y)
    return y


def stack(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    return cat([x.unsqueeze(dim) for x in parts], dim)


Part = tuple[torch.dtype, Ints, Ints]  # dtype, shape, strides


@lru_cache(maxsize=4096)
def _joining(
    parts: tuple[Part, ...], dtypes: tuple[torch.dtype, ...], dim: int
) -> tuple[Ints, Ints, torch.dtype, Callable[[Sequence[Tensor], Tensor], None]]:
    """Shape, strides and dtype of the joined tensor, and what writes it."""
    shape, dtype = _joined([shape for _, shape, _ in parts], dtypes, dim)
    order = order_of(parts[0][1], [strides for _, _, strides in parts])
    strides = dense_strides(shape, order)
    place = order.index(dim % len(shape))
    rows = [_as_rows([s[d] for d in order], [t[d] for d in order], place) for _, s, t in parts]
    if all(rows) and 0 not in shape:
        y_step = prod(shape[d] for d in order[place:])
        return shape, strides, dtype, _in_launches([r for r in rows if r], y_step)
    sizes = [s[dim] for _, s, _ in parts]
    starts = [0, *accumulate(sizes)]

    def one_by_one(given: Sequence[Tensor], y: Tensor) -> None:
        for x, start, size in zip(given, starts, sizes, strict=False):
            copy_into(y.narrow(dim, start, size), x)

    return shape, strides, dtype, one_by_one


def _joined(
    shapes: Sequence[Ints], dtypes: Sequence[torch.dtype], dim: int
) -> tuple[Ints, torch.dtype]:
    """The shape and dtype of the joined tensor."""
    found = joined_shape(shapes, dim)
    if found is not None and len(set(dtypes)) == 1:
        return found, dtypes[0]
    # From torch's data-free device come those of other tensors, and errors.
    whole = torch.cat(
        [torch.empty(shape, dtype=dtypes[0], device="meta") for shape in shapes]
        + [torch.empty(0, dtype=dtype, device="meta") for dtype in dtypes],
        dim,
    )
    return tuple(whole.shape), whole.dtype


def _as_rows(shape: Sequence[int], strides: Sequence[int], place: int) -> Ints | None:
    """(rows, columns, step of the rows) of a tensor of which dims from `place` on are one row."""
    outer, steps = merged(shape[:place], [strides[:place]], range(place))
    inner, unit = merged(shape[place:], [strides[place:]], range(len(shape) - place))
    width = prod(inner)
    if len(outer) > 1 or len(inner) > 1 or (width > 1 and unit[0][0] != 1):
        return None
    if any(LARGEST < size < 2**31 for size in (outer[0], width)):
        return None  # with a block more, these are no numbers of 32 bits
    return outer[0], width, steps[0][0]


def _in_launches(rows: Sequence[Ints], y_step: int) -> Callable[[Sequence[Tensor], Tensor], None]:
    height = rows[0][0]
    widths, steps = [row[1] for row in rows], [row[2] for row in rows]
    tile = tile_of(height, max(widths), 2, widest=True)
    groups = []
    for low in range(0, len(rows), _MOST):
        group = slice(low, low + _MOST)
        count = len(widths[group])
        tiles = sum(-(-width // tile[1]) for width in widths[group])
        spare = (0,) * (_MOST - count)
        numbers = (height, sum(widths[:low]), y_step, *widths[group], *spare, *steps[group], *spare)
        groups.append((group, (tiles * -(-height // tile[0]),), numbers, (count, *tile)))

    def run(given: Sequence[Tensor], y: Tensor) -> None:
        for group, grid, numbers, constants in groups:
            xs = [*given[group], *[y] * (_MOST - constants[0])]
            _cat.launch(grid, (*xs, y, *numbers), constants)

    return run


# Places exchanged.


@lru_cache(maxsize=4096)
def _flipping(
    dtype: torch.dtype, shape: Ints, strides: Ints, dims: Ints
) -> tuple[Launch | None, int, Ints]:
    """The launch, how far the first element read is from the start, and the result's strides."""
    turned = {dim % len(shape) for dim in dims}
    inputs = tuple(-step if dim in turned else step for dim, step in enumerate(strides))
    offset = sum((shape[dim] - 1) * strides[dim] for dim in turned)
    outputs = dense_strides(shape, order_of(shape, [strides]))
    return _copying(dtype, dtype, shape, inputs, outputs), offset, outputs


def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    if not _all_supported(x) or not x.numel():
        return torch.flip(x, tuple(dims))
    launch, offset, strides = _flipping(x.dtype, x.shape, x.stride(), tuple(dims))
    if launch is None:
        return torch.flip(x, tuple(dims))
    y = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    launch((x.as_strided((), (), x.storage_offset() + offset), y))
    return y


def roll(x: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Tensor:
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if not _all_supported(x) or not x.numel() or not x.ndim or len(shifts) != (len(dims) or 1):
        return torch.roll(x, shifts, dims)
    if not dims:
        return roll(reshape(x, (-1,)), shifts, 0).view(x.shape)
    y = x
    for shift, dim in zip(shifts, dims, strict=True):
        size = y.shape[dim]
        cut = size - shift % size
        y = cat([y.narrow(dim, cut, size - cut), y.narrow(dim, 0, cut)], dim)
    return y


@lru_cache(maxsize=4096)
def _triangle(
    dtype: torch.dtype, shape: Ints, strides: Ints, lower: bool
) -> tuple[Launch | None, Ints]:
    w = Writer()
    x, above, diagonal = w.tensor(dtype), w.index(), w.number(0)
    value = w.number(0.0 if dtype.is_floating_point else 0)
    kept = w.step("le" if lower else "ge", [above, diagonal], torch.bool, torch.int64)
    expression = w.expression(w.step("where", [kept, x, value], dtype))
    outputs = dense_strides(shape, order_of(shape, [strides]))
    index = (*(0,) * (len(shape) - 2), -1, 1)
    return plan(expression, shape, [strides, index], [outputs]), outputs


def triangle(x: Tensor, diagonal: int, lower: bool, value: float = 0) -> Tensor | None:
    """The lower or upper triangle of the last two dims with a number elsewhere.

    None where there is no kernel for it.
    """
    if not _all_supported(x) or x.ndim < 2:
        return None
    launch, strides = _triangle(x.dtype, x.shape, x.stride(), lower)
    if launch is None:
        return None
    y = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    number = through(float if x.dtype.is_floating_point else int, value)
    launch((x, y, diagonal, number))
    return y


@runtime_scalars("diagonal")
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    y = triangle(x, diagonal, True)
    return torch.tril(x, diagonal) if y is None else y


@runtime_scalars("diagonal")
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    y = triangle(x, diagonal, False)
    return torch.triu(x, diagonal) if y is None else y


MOVED: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    torch.cat: cat,
    torch.stack: stack,
    torch.flip: flip,
    torch.roll: roll,
    torch.tril: tril,
    torch.triu: triu,
    torch.reshape: reshape,
    torch.full_like: full_like,
}

CASES = [
    Case(_cat, tensors(dtype, *"abcdefgh", "y"), (count, *tile_of(1024, 4096, 2, widest=True)))
    for dtype in ("bf16", "fp32")
    for count in (2, 8)
]
