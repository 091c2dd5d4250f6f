"""float8 in blocks: quantization in one pass, and products that scale the sum of each block.

Inside a block the tensor core accumulates, which on Hopper keeps only 14 bits. The sum of each
block is scaled and added in float32.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ... import float8_ref as reference
from ...float8_ref import LEAST, Block
from ..launch.aot_cases import Case
from ..launch.jit_kernel import INTERPRETED, Kernel
from ..pointwise.copy_kernels import contiguous
from ..reduce.reduction_tiles import cdiv, power_of_2
from .gemm_tiles import GROUP_OF_ROWS, place

# Left to torch: float8 types that the GPU lacks (all before sm_89, all but fnuz types on gfx942),
# blocks that registers do not hold, more of them side by side than a grid has programs, and scales
# that are not float32.

_TILE = 2048  # elements that a program quantizes where each row has a scale
_MOST = 16384  # elements of a block
_ALONG = 65535  # programs along the second dim of a grid
_MIN_STEP, _STEP = 32, 128  # terms that the tensor core adds at a time
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_OPEN = (torch.float8_e4m3fn, torch.float8_e5m2)
_FNUZ = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
_LEAST = tl.constexpr(LEAST)


@Kernel
def _quantize(
    x, values, scales, rows, columns, row_blocks, column_blocks,
    TOP: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Quantizes one block of HIGH rows by WIDE columns, or R blocks of one row each."""
    TALL: tl.constexpr = HIGH if HIGH > 1 else R
    high = tl.cdiv(rows, TALL)
    batch = (tl.program_id(0) // high).to(tl.int64)
    down, along = tl.arange(0, R), tl.arange(0, C)
    row = tl.program_id(0) % high * TALL + down
    column = tl.program_id(1) * WIDE + along
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    if TALL < R:
        inside &= (down < TALL)[:, None]
    if WIDE < C:
        inside &= (along < WIDE)[None, :]
    at = (batch * rows + row)[:, None] * columns + column[None, :]
    v = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    most = tl.max(tl.abs(v), 1)
    broken = tl.max((v != v).to(tl.int32), 1)
    if HIGH > 1:
        most = tl.zeros((R,), tl.float32) + tl.max(most, 0)
        broken = tl.zeros((R,), tl.int32) + tl.max(broken, 0)
    scale = tl.maximum(tl.div_rn(most, tl.full((R,), TOP, tl.float32)), _LEAST)
    scale = tl.where(broken > 0, float("nan"), scale)
    q = tl.div_rn(v, scale[:, None] + tl.zeros((R, C), tl.float32))
    q = tl.clamp(q, -TOP, TOP, propagate_nan=tl.PropagateNan.ALL)
    tl.store(values + at, q.to(values.dtype.element_ty), mask=inside)
    if HIGH > 1:
        block = batch * row_blocks + tl.program_id(0) % high + tl.zeros((R,), tl.int64)
        first = down == 0
    else:
        block = batch * row_blocks + row
        first = row < rows
    tl.store(scales + block * column_blocks + tl.program_id(1), scale, mask=first)


def _known(device: torch.device, *dtypes: torch.dtype) -> bool:
    """Whether the device supports arithmetic of these dtypes."""
    if INTERPRETED:
        return all(dtype in _OPEN for dtype in dtypes)
    if torch.version.hip is not None:
        return all(dtype in _FNUZ for dtype in dtypes)
    new = torch.cuda.get_device_capability(device) >= (8, 9)
    return new and all(dtype in _OPEN for dtype in dtypes)


def quantize_fp8(x: Tensor, block: Block, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    high, wide = block
    tall, across = power_of_2(high), power_of_2(wide)
    known = x.dtype in _FLOATS and _known(x.device, dtype)
    rows, columns = x.shape[-2:]
    row_blocks, column_blocks = cdiv(rows, high), cdiv(columns, wide)
    if not known or not x.numel() or tall * across > _MOST or column_blocks > _ALONG:
        return reference.quantize_fp8(x, block, dtype)
    batch = x.shape[:-2]
    values = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = torch.empty((*batch, row_blocks, column_blocks), dtype=torch.float32, device=x.device)
    if high == 1:
        tall = max(min(_TILE // across, power_of_2(rows)), 1)
    _quantize.launch(
        (batch.numel() * (row_blocks if high > 1 else cdiv(rows, tall)), column_blocks),
        (x.contiguous(), values, scales, rows, columns, row_blocks, column_blocks),
        (torch.finfo(dtype).max, high, wide, tall, across),
        warps=min(max(tall * across // 512, 1), 8),
    )
    return values, scales


@Kernel
def _product(
    a, a_scale, b, b_scale, y, m, n, k, k_blocks, b_blocks,
    A_ROWS: tl.constexpr, B_COLUMNS: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Sums blocks of BLOCK terms in steps of BK. EVEN: k is a multiple of BK."""
    STEPS: tl.constexpr = (BLOCK + BK - 1) // BK
    LAST: tl.constexpr = BLOCK - (STEPS - 1) * BK
    tile_m, tile_n = place(tl.program_id(0), m, n, BM, BN, GROUP)
    row, column = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    # What is beyond the end is read as the last one: no mask for what is not stored.
    here, there = tl.minimum(row, m - 1), tl.minimum(column, n - 1)
    term = tl.arange(0, BK)
    at_a = a + here.to(tl.int64)[:, None] * k + term[None, :]
    at_b = b + there.to(tl.int64)[None, :] * k + term[:, None]
    of_a = a_scale + (here // A_ROWS).to(tl.int64) * k_blocks
    # One for all columns of the tile, where they share it.
    of_b = b_scale + (tile_n * BN // B_COLUMNS if B_COLUMNS % BN == 0 else there // B_COLUMNS)
    total = tl.zeros((BM, BN), tl.float32)
    for done in range(k_blocks * STEPS):
        ends = done % STEPS == STEPS - 1
        width = tl.where(ends, LAST, BK)
        if EVEN:
            u, v = tl.load(at_a), tl.load(at_b)
        else:
            left = tl.minimum(width, k - (done // STEPS * BLOCK + done % STEPS * BK))
            u = tl.load(at_a, mask=term[None, :] < left, other=0.0)
            v = tl.load(at_b, mask=term[:, None] < left, other=0.0)
        part = tl.dot(u, v)
        if B_COLUMNS % BN == 0:
            total += part * (tl.load(of_a) * tl.load(of_b))[:, None]
        else:
            total += part * tl.load(of_a)[:, None] * tl.load(of_b)[None, :]
        at_a += width
        at_b += width
        of_a += ends
        of_b += tl.where(ends, b_blocks, 0)
    at = y + row.to(tl.int64)[:, None] * n + column[None, :]
    mask = (row < m)[:, None] & (column < n)[None, :]
    tl.store(at, total.to(y.dtype.element_ty), mask=mask)


def _tile(m: int, b_columns: int) -> tuple[int, int]:
    """Rows and columns of a tile; fewer columns if each has a scale, which needs registers."""
    return 64 if m <= 64 else 128, 128 if b_columns == 128 else 64


def _turned(b: Tensor) -> Tensor:
    """The columns as dense rows. The copy is one of bytes, which every GPU supports."""
    turned = b.t()
    if turned.is_contiguous():
        return turned
    return contiguous(turned.view(torch.uint8)).view(b.dtype)


def scaled_matmul(
    a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, block: int, a_rows: int,
    b_columns: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    scaled = a_scale.dtype is b_scale.dtype is torch.float32
    if not scaled or not _known(a.device, a.dtype, b.dtype) or not a.numel() or not b.numel():
        return reference.scaled_matmul(a, a_scale, b, b_scale, block, a_rows, b_columns, dtype)
    m, k = a.shape
    n = b.shape[1]
    y = torch.empty((m, n), dtype=dtype, device=a.device)
    tall, wide = _tile(m, b_columns)
    step = min(max(power_of_2(block), _MIN_STEP), _STEP)
    # Tensor cores read float8 along the sum only.
    args = (a.contiguous(), a_scale.contiguous(), _turned(b), b_scale.contiguous(), y)
    _product.launch(
        (cdiv(m, tall) * cdiv(n, wide),),
        (*args, m, n, k, a_scale.shape[1], b_scale.shape[1]),
        (a_rows, b_columns, block % step == k % block == 0, block, tall, wide, step, GROUP_OF_ROWS),
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
            _quantize, ("*bf16", q, "*fp32", *sizes), (top, high, 128, rows, 128), warps,
            targets=targets, why=why
        )
        for high, rows, warps in ((1, 16, 4), (128, 128, 8))
    ]  # fmt: skip
    types = (q, "*fp32", q, "*fp32", "*bf16", "i32", "i32", "i32", "i32?", "i32?")
    for m, columns in ((4096, 128), (16, 128), (4096, 1)):
        rows, wide = _tile(m, columns)
        form = (1, columns, True, 128, rows, wide, 128, GROUP_OF_ROWS)
        found.append(Case(_product, types, form, rows // 16, stages, targets=targets, why=why))
    return found


CASES = [
    *_cases(_NVIDIA, "fp8e4nv", 448.0, 4),
    *_cases(("gfx942",), "fp8e4b8", 240.0, 2),
]
