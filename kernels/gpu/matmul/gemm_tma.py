"""Persistent matrix products with TMA: one program per multiprocessor.

For compute capability 9 to 11. Source: the persistent matmul of Triton's tutorials.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch.aot_cases import Case, tensors
from ..launch.jit_kernel import INTERPRETED, Kernel
from ..launch.launch_trace import Argument, aligned, before_launch
from ..reduce.reduction_tiles import cdiv
from .gemm_config import Tile
from .gemm_operands import Pair
from .gemm_tiles import GELU_AND_SUM, GROUP_OF_ROWS, apply_epilogue, element_of, place
from .tile_cost import count

_ALIGNMENT = 16  # bytes, of each row's address
# Below so many tiles, or products of two numbers, descriptors cost more than copies by them save.
_LEAST = 256
_WORK = 2**32
_SHORT = 1024  # terms of a sum after which an epilogue takes about as long as the product
_AT_ONCE = 2  # parts of a 16-bit tensor that are loaded at once, as registers allow
_PACKED = tl.constexpr(not INTERPRETED)  # whether two numbers are rounded at once
_WIDE = 8  # columns of tiles, from which on more rows are made together
_MORE_ROWS = 32  # of tiles; on an H200 1% faster than `GROUP_OF_ROWS`
_SHARED = 231424  # bytes that a program may share, but for a few for barriers
_CAPABLE = range(9, 12)  # major compute capabilities; from 12 on programs share 99 KiB at most


@triton.jit
def _halves(total, BM: tl.constexpr, BN: tl.constexpr):
    """The left and the right half of a tile."""
    return tl.split(tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1)))


@triton.jit
def _loaded(
    x, x_row, first_m, first_n, m, n, BM: tl.constexpr, BN: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """A tile of x, as a tree of the parts in which `_finish` needs it."""
    if PARTS > 1:
        left = _loaded(x, x_row, first_m, first_n, m, n, BM, BN // 2, PARTS // 2)
        right = _loaded(x, x_row, first_m, first_n + BN // 2, m, n, BM, BN // 2, PARTS // 2)
        return left, right
    else:
        row = (first_m + tl.arange(0, BM))[:, None]
        column = (first_n + tl.arange(0, BN))[None, :]
        return element_of(x, row, column, x_row, (row < m) & (column < n))


@triton.jit
def _finish(
    total, of_y, y, bias, x, z, kept, m, n, x_row, z_row, first_m, first_n,
    CHAIN: tl.constexpr, ROUND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PARTS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Apply the epilogue to a tile and store it, in so many PARTS of its columns."""
    if PARTS > 1:
        left, right = _halves(total, BM, BN)
        if PARTS == AT_ONCE:
            x = _loaded(x, x_row, first_m, first_n, m, n, BM, BN, PARTS)
        if PARTS <= AT_ONCE:
            x0, x1 = x
        else:
            x0, x1 = x, x
        _finish(
            left, of_y, y, bias, x0, z, kept, m, n, x_row, z_row, first_m, first_n,
            CHAIN, ROUND, BM, BN // 2, PARTS // 2, AT_ONCE,
        )  # fmt: skip
        _finish(
            right, of_y, y, bias, x1, z, kept, m, n, x_row, z_row, first_m, first_n + BN // 2,
            CHAIN, ROUND, BM, BN // 2, PARTS // 2, AT_ONCE,
        )  # fmt: skip
    else:
        row = (first_m + tl.arange(0, BM))[:, None]
        column = (first_n + tl.arange(0, BN))[None, :]
        total = apply_epilogue(
            total, bias, x, z, kept, row, column, m, n, x_row, z_row, CHAIN, ROUND, _PACKED
        )
        of_y.store([first_m, first_n], total.to(y.dtype.element_ty))


@Kernel
def _persistent(
    a, b, y, bias, x, z, kept, m, n, k, a_step, b_step, x_row, z_row,
    A_T: tl.constexpr, B_T: tl.constexpr, KIND: tl.constexpr,
    CHAIN: tl.constexpr, ROUND: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    PARTS: tl.constexpr, AT_ONCE: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    if A_T:
        of_a = tl.make_tensor_descriptor(a, [k, m], [a_step, 1], [BK, BM])
    else:
        of_a = tl.make_tensor_descriptor(a, [m, k], [a_step, 1], [BM, BK])
    if B_T:
        of_b = tl.make_tensor_descriptor(b, [n, k], [b_step, 1], [BN, BK])
    else:
        of_b = tl.make_tensor_descriptor(b, [k, n], [b_step, 1], [BK, BN])
    of_y = tl.make_tensor_descriptor(y, [m, n], [n, 1], [BM, BN // PARTS])
    tiles = tl.cdiv(m, BM) * tl.cdiv(n, BN)
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0),
        flatten=SPECIALIZE == 0, warp_specialize=SPECIALIZE,
    ):  # fmt: skip
        tile_m, tile_n = place(tile, m, n, BM, BN, GROUP)
        first_m, first_n = tile_m * BM, tile_n * BN
        total = tl.zeros((BM, BN), tl.float32)
        for done in range(0, k, BK):
            if A_T:
                u = of_a.load([done, first_m]).T
            else:
                u = of_a.load([first_m, done])
            if B_T:
                v = of_b.load([first_n, done]).T
            else:
                v = of_b.load([done, first_n])
            total = tl.dot(u, v, total, input_precision="tf32" if KIND == "tf32" else "ieee")
        _finish(
            total, of_y, y, bias, x, z, kept, m, n, x_row, z_row, first_m, first_n,
            CHAIN, ROUND, BM, BN, PARTS, AT_ONCE,
        )  # fmt: skip


@cache
def processors(device: int) -> int:
    """The number of multiprocessors of a device with TMA and room for its tiles, else 0."""
    if torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] not in _CAPABLE:
        return 0
    return torch.cuda.get_device_properties(device).multi_processor_count


def _scratch(size: int, alignment: int, stream: object) -> Tensor:
    """Memory for the tensor descriptors of a kernel."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def give_scratch() -> None:
    """Provide the memory for tensor descriptors to the next launch."""
    before_launch(_set_scratch)


def _set_scratch() -> None:
    triton.set_allocator(_scratch)


def may_copy(kind: str, tile: Tile) -> bool:
    """Whether tiles of this size can be copied by TMA."""
    return kind in ("half", "tf32") and tile.m >= 64 and tile.n >= 64


def suit(p: Pair, y: Tensor, kind: str, tile: Tile) -> bool:
    """Whether to use TMA for these operands."""
    if INTERPRETED or p.batches != 1 or not may_copy(kind, tile):
        return False
    if count(p.m, p.n, tile) < _LEAST and p.m * p.n * p.k < _WORK:
        return False
    if processors(p.a.device.index) == 0:
        return False
    if not p.a_step or not p.b_step or not p.k:  # no descriptor has expanded or empty dims
        return False
    steps = (p.a_step * p.a.element_size(), p.b_step * p.b.element_size(), p.n * y.element_size())
    even = not any(step % _ALIGNMENT for step in steps)
    return even and all(aligned(x, _ALIGNMENT) for x in (p.a, p.b, y))


def tile_for_epilogue(p: Pair, y: Tensor, tile: Tile) -> Tile:
    """The tile for a product with an epilogue that reads or keeps tensors.

    Where sums are short and results are narrow, half of the tile: two programs share a
    multiprocessor, and one multiplies while the other moves what its epilogue needs.
    """
    short = p.k <= _SHORT and (tile.m, tile.n) == (128, 256) and not tile.specialized
    if not short or y.element_size() > 2:
        return tile
    return Tile(128, 128, tile.k, 8, 3, resident=2)


def _parts(tile: Tile, reads: bool) -> int:
    """In how many parts results are stored; more of them take less room and fewer registers."""
    return 4 if reads and (tile.n > 128 or tile.resident > 1) else 2


def _rows_together(n: int, tile: Tile) -> int:
    """How many rows of tiles are made together, for `place`."""
    return _MORE_ROWS if cdiv(n, tile.n) >= _WIDE else GROUP_OF_ROWS


def _stages(tile: Tile, parts: int, operand: int, others: int) -> int:
    """The tile's stages, or as many as fit next to a part of the results.

    The sizes are those of an element of the operands, and of the results with what is added.
    """
    left = _SHARED // max(tile.resident, 1) - tile.m * (tile.n // parts) * others
    return max(1, min(tile.stages, left // ((tile.m + tile.n) * tile.k * operand)))


def run(
    p: Pair, y: Tensor, args: tuple[Argument, ...], out: tuple[object, ...], kind: str, tile: Tile,
    programs: int = 0,
) -> None:  # fmt: skip
    """Compute y; `args` and `out` are the arguments and constants of `apply_epilogue`."""
    give_scratch()
    x = args[1]
    size = x.element_size() if isinstance(x, Tensor) else 0
    parts = _parts(tile, size > 0 or out[0] is not None)
    programs = programs or max(tile.resident, 1) * processors(p.a.device.index)
    _persistent.launch(
        (min(count(p.m, p.n, tile), programs),),
        (p.a, p.b, y, *args[:4], p.m, p.n, p.k, p.a_step, p.b_step, *args[4:]),
        (
            p.a_columns,
            p.b_columns,
            kind,
            *out,
            tile.m,
            tile.n,
            tile.k,
            _rows_together(p.n, tile),
            parts,
            _AT_ONCE if size == 2 else 0,
            tile.specialized,
        ),
        warps=tile.warps,
        stages=_stages(tile, parts, p.a.element_size(), y.element_size() + size),
        resident=tile.resident,
    )


def case(
    dtype: str, kind: str, tile: Tile, layout: str = "nn", chain: bool = False, adds: bool = False
) -> Case:
    """The compiled form of a tile, on GPUs with TMA; one that `adds` reads a float32 y, too."""
    given = f"*{dtype}" if chain else None
    y, x = ("*fp32", "*fp32") if adds else (f"*{dtype}", given)
    parts = _parts(tile, chain or adds)
    types = (*tensors(dtype, "a", "b"), y, given, x, None, given, *("i32",) * 7)
    constants = (
        layout[0] == "t", layout[1] == "t", kind,
        *((GELU_AND_SUM, tl.bfloat16) if chain else (None, None)),
        tile.m, tile.n, tile.k, GROUP_OF_ROWS, parts, _AT_ONCE * chain, tile.specialized,
    )  # fmt: skip
    why = "older GPUs do not copy tiles by descriptors"
    targets = ("sm_90", "sm_100")
    return Case(
        _persistent, types, constants, tile.warps, tile.stages, True, tile.resident, targets, why
    )


_LARGE = Tile(128, 256, 64, 8, 4)
CASES = [
    *[case("bf16", "half", _LARGE, layout) for layout in ("nn", "nt", "tn")],
    case("bf16", "half", _LARGE, "nt", chain=True),
    case("bf16", "half", Tile(128, 128, 64, 8, 4), "nt", chain=True),
    case("fp32", "tf32", Tile(128, 128, 32, 8, 4)),
    case("bf16", "half", Tile(128, 256, 64, 4, 4, specialized=1)),
    case("bf16", "half", _LARGE._replace(stages=3), "tn", adds=True),
    case("bf16", "half", Tile(128, 128, 64, 8, 4), "tn", adds=True),
]
