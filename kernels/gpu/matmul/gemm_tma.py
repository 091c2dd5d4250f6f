"""Persistent matrix products with TMA: one program per multiprocessor.

For compute capability 9.0 and above. Source: the persistent matmul of Triton's tutorials.
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
from .gemm_config import Tile
from .gemm_operands import Pair
from .gemm_tiles import GELU_AND_SUM, GROUP_OF_ROWS, apply_epilogue, place
from .tile_cost import count

_ALIGNMENT = 16  # bytes, of each row's address
# Below so many tiles, or products of two numbers, descriptors cost more than copies by them save.
_LEAST = 256
_WORK = 2**32
_SHARED = 231424  # bytes that a program may share, but for a few for barriers


@triton.jit
def _halves(total, BM: tl.constexpr, BN: tl.constexpr):
    """The left and the right half of a tile."""
    return tl.split(tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1)))


@triton.jit
def _finish(
    total, of_y, y, bias, x, z, kept, m, n, x_row, z_row, first_m, first_n,
    CHAIN: tl.constexpr, ROUND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Apply the epilogue to a part of a tile, and store it."""
    row = (first_m + tl.arange(0, BM))[:, None]
    column = (first_n + tl.arange(0, BN))[None, :]
    total = apply_epilogue(total, bias, x, z, kept, row, column, m, n, x_row, z_row, CHAIN, ROUND)
    of_y.store([first_m, first_n], total.to(y.dtype.element_ty))


@Kernel
def _persistent(
    a, b, y, bias, x, z, kept, m, n, k, a_step, b_step, x_row, z_row,
    A_T: tl.constexpr, B_T: tl.constexpr, KIND: tl.constexpr,
    CHAIN: tl.constexpr, ROUND: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):  # fmt: skip
    if A_T:
        of_a = tl.make_tensor_descriptor(a, [k, m], [a_step, 1], [BK, BM])
    else:
        of_a = tl.make_tensor_descriptor(a, [m, k], [a_step, 1], [BM, BK])
    if B_T:
        of_b = tl.make_tensor_descriptor(b, [n, k], [b_step, 1], [BN, BK])
    else:
        of_b = tl.make_tensor_descriptor(b, [k, n], [b_step, 1], [BK, BN])
    # In parts, so that the results take less room and another stage fits. Those of the largest tile
    # also take fewer registers, where an epilogue reads tensors.
    PARTS: tl.constexpr = 4 if BN > 128 and (CHAIN is not None or x is not None) else 2
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
        left, right = _halves(total, BM, BN)
        if PARTS == 2:
            _finish(
                left, of_y, y, bias, x, z, kept, m, n, x_row, z_row, first_m, first_n,
                CHAIN, ROUND, BM, BN // 2,
            )  # fmt: skip
            _finish(
                right, of_y, y, bias, x, z, kept, m, n, x_row, z_row, first_m, first_n + BN // 2,
                CHAIN, ROUND, BM, BN // 2,
            )  # fmt: skip
        else:
            for half in tl.static_range(2):
                first = first_n + half * (BN // 2)
                some, rest = _halves(right if half else left, BM, BN // 2)
                _finish(
                    some, of_y, y, bias, x, z, kept, m, n, x_row, z_row, first_m, first,
                    CHAIN, ROUND, BM, BN // 4,
                )  # fmt: skip
                _finish(
                    rest, of_y, y, bias, x, z, kept, m, n, x_row, z_row, first_m,
                    first + BN // 4, CHAIN, ROUND, BM, BN // 4,
                )  # fmt: skip


@cache
def _processors(device: int) -> int:
    """The number of multiprocessors of a device with TMA, else 0."""
    if torch.version.hip is not None or torch.cuda.get_device_capability(device)[0] < 9:
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
    if _processors(p.a.device.index) == 0:
        return False
    steps = (p.a_step * p.a.element_size(), p.b_step * p.b.element_size(), p.n * y.element_size())
    even = not any(step % _ALIGNMENT for step in steps)
    return even and all(aligned(x, _ALIGNMENT) for x in (p.a, p.b, y))


def _stages(tile: Tile, size: int, out: int) -> int:
    """The tile's stages, or as many as fit beside the results, of which half a tile is shared."""
    left = _SHARED - tile.m * (tile.n // 2) * out
    return max(1, min(tile.stages, left // ((tile.m + tile.n) * tile.k * size)))


def run(
    p: Pair, y: Tensor, args: tuple[Argument, ...], out: tuple[object, ...], kind: str, tile: Tile,
    programs: int = 0,
) -> None:  # fmt: skip
    """Compute y; `args` and `out` are the arguments and constants of `apply_epilogue`."""
    give_scratch()
    programs = programs or _processors(p.a.device.index)
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
            GROUP_OF_ROWS,
            tile.specialized,
        ),
        warps=tile.warps,
        stages=_stages(tile, p.a.element_size(), y.element_size()),
    )


def case(
    dtype: str, kind: str, tile: Tile, layout: str = "nn", chain: bool = False, adds: bool = False
) -> Case:
    """The compiled form of a tile, on GPUs with TMA; one that `adds` reads a float32 y, too."""
    given = f"*{dtype}" if chain else None
    y, x = ("*fp32", "*fp32") if adds else (f"*{dtype}", given)
    types = (*tensors(dtype, "a", "b"), y, given, x, None, given, *("i32",) * 7)
    constants = (
        layout[0] == "t", layout[1] == "t", kind,
        *((GELU_AND_SUM, tl.bfloat16) if chain else (None, None)),
        tile.m, tile.n, tile.k, GROUP_OF_ROWS, tile.specialized,
    )  # fmt: skip
    why = "older GPUs do not copy tiles by descriptors"
    targets = ("sm_90", "sm_100")
    return Case(_persistent, types, constants, tile.warps, tile.stages, targets=targets, why=why)


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
