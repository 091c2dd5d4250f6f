"""float8 by blocks: one pass to quantize, and products whose sums are scaled block by block.

Within a block of the sum the tensor core adds, which on Hopper keeps 14 bits only; each block's
sum is scaled and added in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .. import float8 as reference
from ..float8 import LEAST, Block
from .cases import Case
from .launch import INTERPRETED, Kernel
from .product_tiles import GROUP_OF_ROWS, place

TORCH = {
    "float8 that the GPU has not": "before sm_89 there is none; AMD's gfx942 has the fnuz types",
    "blocks that are no power of 2 from 32 to 128": "a tile of the tensor core is a block",
    "blocks of rows that are neither one nor a square": "nobody uses them",
}

_TILE = 2048  # elements that a program quantizes where each row has a scale
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_OPEN = (torch.float8_e4m3fn, torch.float8_e5m2)
_FNUZ = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
_LEAST = tl.constexpr(LEAST)


@Kernel
def _quantize(
    x, values, scales, rows, columns, row_blocks, column_blocks,
    TOP: tl.constexpr, WHOLE: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    high = tl.cdiv(rows, R)
    batch = (tl.program_id(0) // high).to(tl.int64)
    row = tl.program_id(0) % high * R + tl.arange(0, R)
    column = tl.program_id(1) * C + tl.arange(0, C)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = (batch * rows + row)[:, None] * columns + column[None, :]
    v = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    most = tl.max(tl.abs(v), 1)
    broken = tl.max((v != v).to(tl.int32), 1)
    if WHOLE:
        most = tl.zeros((R,), tl.float32) + tl.max(most, 0)
        broken = tl.zeros((R,), tl.int32) + tl.max(broken, 0)
    scale = tl.maximum(tl.div_rn(most, tl.full((R,), TOP, tl.float32)), _LEAST)
    scale = tl.where(broken > 0, float("nan"), scale)
    q = tl.div_rn(v, scale[:, None] + tl.zeros((R, C), tl.float32))
    q = tl.clamp(q, -TOP, TOP, propagate_nan=tl.PropagateNan.ALL)
    tl.store(values + at, q.to(values.dtype.element_ty), mask=inside)
    if WHOLE:
        block = batch * row_blocks + tl.program_id(0) % high + tl.zeros((R,), tl.int64)
        first = tl.arange(0, R) == 0
    else:
        block = batch * row_blocks + row
        first = row < rows
    tl.store(scales + block * column_blocks + tl.program_id(1), scale, mask=first)


def _known(device: torch.device, *dtypes: torch.dtype) -> bool:
    """Whether the device has arithmetic of these dtypes."""
    if INTERPRETED:
        return all(dtype in _OPEN for dtype in dtypes)
    if torch.version.hip is not None:
        return all(dtype in _FNUZ for dtype in dtypes)
    new = torch.cuda.get_device_capability(device) >= (8, 9)
    return new and all(dtype in _OPEN for dtype in dtypes)


def _power(size: int) -> bool:
    return 32 <= size <= 128 and size & (size - 1) == 0


def quantize_fp8(x: Tensor, block: Block, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    high, wide = block
    fits = x.dtype in _FLOATS and _power(wide) and high in (1, wide) and _known(x.device, dtype)
    if not fits or not x.numel():
        return reference.quantize_fp8(x, block, dtype)
    rows, columns = x.shape[-2:]
    row_blocks, column_blocks = triton.cdiv(rows, high), triton.cdiv(columns, wide)
    batch = x.shape[:-2]
    values = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = torch.empty((*batch, row_blocks, column_blocks), dtype=torch.float32, device=x.device)
    tall = high if high > 1 else min(_TILE // wide, int(triton.next_power_of_2(rows)))
    _quantize.launch(
        (batch.numel() * triton.cdiv(rows, tall), column_blocks),
        (x.contiguous(), values, scales, rows, columns, row_blocks, column_blocks),
        (torch.finfo(dtype).max, high > 1, tall, wide),
        warps=min(max(tall * wide // 512, 1), 8),
    )
    return values, scales


@Kernel
def _product(
    a, a_scale, b, b_scale, y, m, n, k, k_blocks, b_blocks,
    A_ROWS: tl.constexpr, B_COLUMNS: tl.constexpr, EVEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = place(tl.program_id(0), m, n, BM, BN, GROUP)
    row, column = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    # What is beyond the end is read as the last one: no mask for what is not stored.
    here, there = tl.minimum(row, m - 1), tl.minimum(column, n - 1)
    term = tl.arange(0, BLOCK)
    at_a = a + here.to(tl.int64)[:, None] * k + term[None, :]
    at_b = b + there.to(tl.int64)[None, :] * k + term[:, None]
    of_a = a_scale + (here // A_ROWS).to(tl.int64) * k_blocks
    # One for all columns of the tile, where they share it.
    of_b = b_scale + (tile_n * BN // B_COLUMNS if B_COLUMNS % BN == 0 else there // B_COLUMNS)
    total = tl.zeros((BM, BN), tl.float32)
    for block in range(k_blocks):
        if EVEN:
            u, v = tl.load(at_a), tl.load(at_b)
        else:
            left = k - block * BLOCK
            u = tl.load(at_a, mask=term[None, :] < left, other=0.0)
            v = tl.load(at_b, mask=term[:, None] < left, other=0.0)
        part = tl.dot(u, v)
        if B_COLUMNS % BN == 0:
            total += part * (tl.load(of_a) * tl.load(of_b))[:, None]
        else:
            total += part * tl.load(of_a)[:, None] * tl.load(of_b)[None, :]
        at_a += BLOCK
        at_b += BLOCK
        of_a += 1
        of_b += b_blocks
    at = y + row.to(tl.int64)[:, None] * n + column[None, :]
    mask = (row < m)[:, None] & (column < n)[None, :]
    tl.store(at, total.to(y.dtype.element_ty), mask=mask)


def _tile(m: int, b_columns: int) -> tuple[int, int]:
    """Rows and columns of a tile: fewer columns where each has a scale, as they need registers."""
    return 64 if m <= 64 else 128, 128 if b_columns == 128 else 64


def scaled_matmul(
    a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, block: int, a_rows: int,
    b_columns: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    scaled = a_scale.dtype is b_scale.dtype is torch.float32
    fits = scaled and _power(block) and _known(a.device, a.dtype, b.dtype)
    if not fits or not a.numel() or not b.numel():
        return reference.scaled_matmul(a, a_scale, b, b_scale, block, a_rows, b_columns, dtype)
    m, k = a.shape
    n = b.shape[1]
    y = torch.empty((m, n), dtype=dtype, device=a.device)
    tall, wide = _tile(m, b_columns)
    # Tensor cores read float8 along the sum only.
    args = (a.contiguous(), a_scale.contiguous(), b.t().contiguous(), b_scale.contiguous(), y)
    _product.launch(
        (triton.cdiv(m, tall) * triton.cdiv(n, wide),),
        (*args, m, n, k, a_scale.shape[1], b_scale.shape[1]),
        (a_rows, b_columns, k % block == 0, tall, wide, block, GROUP_OF_ROWS),
        warps=tall // 16,
        stages=2 if torch.version.hip is not None else 4,
    )
    return y


_NVIDIA = ("sm_90", "sm_100")
_WHY = {
    _NVIDIA: "sm_80 has no float8_e4m3fn, gfx942 has float8_e4m3fnuz instead",
    ("gfx942",): "float8_e4m3fnuz is AMD's",
}


def _cases(targets: tuple[str, ...], dtype: str, top: float, stages: int) -> list[Case]:
    q, why = f"*{dtype}", _WHY[targets]
    sizes = ("i32", "i32", "i32?", "i32?")
    found = [
        Case(
            _quantize, ("*bf16", q, "*fp32", *sizes), (top, whole, rows, 128), warps,
            targets=targets, why=why,
        )
        for whole, rows, warps in ((False, 16, 4), (True, 128, 8))
    ]  # fmt: skip
    types = (q, "*fp32", q, "*fp32", "*bf16", "i32", "i32", "i32", "i32?", "i32?")
    for m, columns in ((4096, 128), (16, 128), (4096, 1)):
        rows, wide = _tile(m, columns)
        form = (1, columns, True, rows, wide, 128, GROUP_OF_ROWS)
        found.append(Case(_product, types, form, rows // 16, stages, targets=targets, why=why))
    return found


CASES = [
    *_cases(_NVIDIA, "fp8e4nv", 448.0, 4),
    *_cases(("gfx942",), "fp8e4b8", 240.0, 2),
]
