"""Matrix products, also batched: selects the kernel and the number of split-k parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from ...common_shapes import broadcast_shapes
from ..launch.aot_cases import Case
from ..launch.configs import Config, Tuned, random_inputs
from ..launch.jit_kernel import Kernel
from ..launch.launch_trace import Argument
from ..reduce.reduction_tiles import cdiv
from ..update.pointer_table import DTYPES as POINTED
from . import gemm_tma as descriptors
from .gemm_config import Tile, kind_of, parts_of, shape_class, tile_of, tiles_allowed
from .gemm_operands import Pair, pair
from .gemm_tiles import apply_epilogue, cases, form, tiles

_BLOCK = 1024
_WIDEST = 256  # rows or steps of a tile at most


class Epilogue(NamedTuple):
    """The computation on a product before it is stored; see `gemm_tiles.apply_epilogue`.

    x and z have the rows of the product, or are one row for all of them.
    """

    bias: Tensor | None = None
    x: Tensor | None = None
    z: Tensor | None = None
    kept: Tensor | None = None
    chain: object = None  # a function of Triton
    dtype: torch.dtype | None = None  # to which the product is rounded for the chain

    def args(self, n: int) -> tuple[Argument, ...]:
        """The arguments of `apply_epilogue`: bias, x, z, kept, and the steps of the rows of x
        and z.
        """
        bias = self.bias
        if bias is not None:
            bias = (bias if bias.shape == (n,) else bias.expand(n)).contiguous()
        x, x_row = _by_rows(self.x)
        z, z_row = _by_rows(self.z)
        return bias, x, z, self.kept, x_row, z_row

    @property
    def form(self) -> tuple[object, tl.dtype | None]:
        """The constants of `apply_epilogue`."""
        return self.chain, None if self.dtype is None else POINTED[self.dtype]


def _by_rows(x: Tensor | None) -> tuple[Tensor | None, int]:
    if x is None:
        return None, 0
    if x.stride(-1) != 1:
        x = x.contiguous()
    return x, x.stride(0) if x.ndim == 2 else 0


NOTHING = Epilogue()


@Kernel
def _sum_parts(
    parts, y, bias, x, z, kept, m, n, size, count, x_row, z_row,
    CHAIN: tl.constexpr, ROUND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    # Always from the first part to the last.
    total = tl.load(parts + at, mask=inside, other=0)
    for _ in range(1, count):
        parts += size
        total += tl.load(parts + at, mask=inside, other=0)
    row = tl.where(inside, at // n % m, m)
    total = apply_epilogue(total, bias, x, z, kept, row, at % n, m, n, x_row, z_row, CHAIN, ROUND)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=inside)


def sum_parts(parts: Tensor, y: Tensor, m: int, n: int, end: Epilogue = NOTHING) -> None:
    """y = the sum of the parts (dim 0), with the epilogue applied; y has rows of n elements."""
    size = y.numel()
    args = end.args(n)
    _sum_parts.launch(
        (cdiv(size, _BLOCK),),
        (parts, y, *args[:4], m, n, size, parts.shape[0], *args[4:]),
        (*end.form, _BLOCK),
    )


def left_out(x: Tensor) -> bool:
    """Whether torch has the product, or the error: complex numbers, bools and float8."""
    dtype = x.dtype
    return dtype.is_complex or dtype is torch.bool or (dtype.is_floating_point and x.itemsize == 1)


def product(
    a: Tensor, b: Tensor, end: Epilogue = NOTHING, exact: bool = False,
    dtype: torch.dtype | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The product over the last two dims; other dims broadcast. With `exact` it is not rounded.

    `dtype` is the dtype of the result if it is not that of the operands. `out` is memory for the
    result, in row-major order; it may be that of the epilogue's `x`, of which each element is read
    before the one in its place is written.
    """
    if a.dtype is not b.dtype:
        return torch.matmul(a, b)  # torch's error
    if left_out(a):
        assert end is NOTHING and dtype is None and out is None, "torch's product has no epilogue"
        return torch.matmul(a, b)
    lead: tuple[int, ...] = ()
    if a.ndim > 2 or b.ndim > 2:  # torch takes 10 microseconds to say that nothing is broadcast
        lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*lead, a.shape[-2], b.shape[-1])
    y = torch.empty(shape, dtype=dtype or a.dtype, device=a.device) if out is None else out
    if y.numel() == 0:
        return y
    p = pair(a, b)
    kind = kind_of(a.dtype)
    if exact and kind == "tf32":
        kind = "ieee"
    tile = tile_of(kind, p.m, p.n, p.k, p.batches)
    cut = parts_of(kind, p.m, p.n, p.k, p.batches, tile)
    reads = end.x is not None or end.chain is not None
    # Where there are parts, the epilogue is that of their sum, and the tile has none.
    if reads and cut[0] == 1:
        # With the same steps along the sum, so that its bits are those of the product alone.
        if descriptors.suit(p, y, kind, tile):
            tile = descriptors.tile_for_epilogue(p, y, tile)
        else:
            smaller = tile_of(kind, p.m, p.n, p.k, p.batches, False)
            tile = smaller if smaller.k == tile.k else tile
    _make(p, y, end, kind, tile, cut)
    return y


def _make(p: Pair, y: Tensor, end: Epilogue, kind: str, tile: Tile, cut: tuple[int, int]) -> None:
    """Compute the product of a pair into y, with this tile; `cut` is the split-k partition."""
    parts, span = cut
    if parts > 1:
        wide = {"double": torch.float64, "whole": y.dtype}.get(kind, torch.float32)
        scratch = torch.empty((parts, *y.shape), dtype=wide, device=y.device)
        _launch(p, scratch, NOTHING, kind, tile, parts, span)
        sum_parts(scratch, y, p.m, p.n, end)
    elif descriptors.suit(p, y, kind, tile):
        descriptors.run(p, y, end.args(p.n), end.form, kind, tile)
    else:
        _launch(p, y, end, kind, tile, 1, span)


def _launch(
    p: Pair, y: Tensor, end: Epilogue, kind: str, tile: Tile, parts: int, span: int
) -> None:
    tile = _by_threads(tile)
    args = end.args(p.n)
    even = p.k % tile.k == 0
    wide = max(p.a_step, p.b_step, p.n) * _WIDEST >= 2**31 or p.k >= 2**31
    count = cdiv(p.m, tile.m) * cdiv(p.n, tile.n)
    tiles.launch(
        (count * p.batches * parts,),
        (p.a, p.b, y, *args[:4], p.m, p.n, p.k, p.a_step, p.b_step, p.inner, *p.strides,
         p.batches, span, *args[4:]),
        form(p.a_columns, p.b_columns, kind, even, wide, tile, end.form),
        warps=tile.warps,
        stages=tile.stages,
    )  # fmt: skip


def _by_threads(tile: Tile) -> Tile:
    """The tile where operands are not copied by TMA: programs are specialized only there."""
    return tile._replace(warps=8, specialized=0) if tile.specialized else tile


def _allowed(dtype: torch.dtype, sizes: tuple[int, ...]) -> list[dict[str, int]]:
    m, n, k = sizes
    return [tile._asdict() for tile in tiles_allowed(kind_of(dtype), m, n, k)]


def _call(config: Config, dtype: torch.dtype, sizes: tuple[int, ...]) -> Callable[[], Tensor]:
    m, n, k = sizes
    a, b, y = random_inputs(dtype, (m, k), (n, k), (m, n))
    p = pair(a, b.t())

    def run() -> Tensor:
        tile = Tile(**config)
        kind = kind_of(dtype)
        _make(p, y, NOTHING, kind, tile, parts_of(kind, m, n, k, 1, tile))
        return y

    return run


_DTYPES = {"half": "bf16", "tf32": "fp32", "ieee": "fp32", "double": "fp64", "whole": "i64"}


def _cases(kind: str, sizes: tuple[int, ...], config: Config) -> list[Case]:
    """The forms for the layouts of a layer's products, forward and backward."""
    tile, dtype = Tile(**config), _DTYPES[kind]
    found: list[Case] = []
    for layout in ("nn", "nt", "tn"):
        for even in (True, False):
            found += cases(dtype, kind, _by_threads(tile), layout, even)
        if descriptors.may_copy(kind, tile):
            found.append(descriptors.case(dtype, kind, tile, layout))
    return found


_SIZES = (
    (8192, 8192, 8192), (8192, 4096, 4096), (4096, 4096, 4096), (2048, 2048, 2048),
    (1024, 1024, 1024), (8192, 16384, 4096), (8192, 4096, 16384), (16, 4096, 4096),
)  # fmt: skip
TUNED = [
    Tuned(
        "matmul",
        (torch.bfloat16, torch.float32),
        {shape_class(*sizes): sizes for sizes in _SIZES},
        _allowed,
        _call,
        _cases,
        kind_of,
    )
]
CASES = [
    Case(_sum_parts, ("*fp32", f"*{dtype}", *(None,) * 4), (None, None, _BLOCK))
    for dtype in ("bf16", "fp32")
]
