"""Pointer tables: lists of tensors as addresses on the device, for one launch over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from ...staging import is_copied_later, to_device
from ...update_rule_ref import FLOATS

BLOCK = 2048  # elements that one program works on

# What a table's elements are in Triton.
DTYPES = dict(zip(FLOATS, (tl.float16, tl.bfloat16, tl.float32, tl.float64), strict=True))


class PointerTable(NamedTuple):
    """A row per tensor: its addresses in every list, its size, and its first program.

    From `start` on, after the rows, follows an entry per program: its row in the high 32 bits, and
    the block of that row in the low 32 bits.
    """

    data: Tensor
    start: int
    programs: int
    aligned: bool  # whether every address is a multiple of 16 bytes


def table_of(*lists: Sequence[Tensor], block: int = BLOCK) -> PointerTable:
    """The table of lists of dense tensors. Lists have one length, tensors of a row one size."""
    addresses = tuple([x.data_ptr() for some in lists for x in some])
    sizes = tuple([x.numel() for x in lists[0]])
    # A capture has a table of its own, which stays as long as its graph.
    made = _made.__wrapped__ if is_copied_later() else _made
    return made(addresses, sizes, block, lists[0][0].device)


@lru_cache(maxsize=64)
def _made(
    addresses: tuple[int, ...], sizes: tuple[int, ...], block: int, device: torch.device
) -> PointerTable:
    size = np.array(sizes, np.int64)
    columns = np.array(addresses, np.int64).reshape(-1, len(sizes))
    count = (size + block - 1) // block
    first = count.cumsum() - count
    rows = np.concatenate([columns.T, size[:, None], first[:, None]], 1)
    tensor = np.arange(len(sizes)).repeat(count)
    which = np.arange(len(tensor)) - first[tensor]
    data = torch.from_numpy(np.concatenate([rows.ravel(), tensor << 32 | which]))
    aligned = all(address % 16 == 0 for address in addresses)
    return PointerTable(to_device(data, device), rows.size, len(tensor), aligned)


@triton.jit
def work_of(table, start, LISTS: tl.constexpr, BLOCK: tl.constexpr):
    """(the row of this program's tensor, the positions of its block, their mask, no mask needed)

    If all positions are in the tensor, loads need no mask and read 16 bytes at once.
    """
    found = tl.load(table + start + tl.program_id(0))
    row = table + (found >> 32) * (LISTS + 2)
    size = tl.load(row + LISTS)
    at = (found & 0xFFFFFFFF) * BLOCK + tl.arange(0, BLOCK)
    return row, at, at < size, (found & 0xFFFFFFFF) * BLOCK + BLOCK <= size


@triton.jit
def address_of(row, NUMBER: tl.constexpr, DTYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """The address of the row's tensor in a list. Aligned tensors are read 16 bytes at once."""
    address = tl.load(row + NUMBER).to(tl.pointer_type(DTYPE))
    if ALIGNED:
        address = tl.multiple_of(address, 16)
    return address


@triton.jit
def tensor_of(table, start):
    """The number of this program's tensor in the table's lists."""
    return tl.load(table + start + tl.program_id(0)) >> 32


def numbers_on(device: torch.device, *numbers: float | Tensor) -> Tensor:
    """Numbers, and 0-d tensors on the device, as one float64 tensor on the device."""
    plain = [0.0 if isinstance(number, Tensor) else number for number in numbers]
    found = to_device(torch.tensor(plain, dtype=torch.float64), device)
    for i, number in enumerate(numbers):
        if isinstance(number, Tensor):
            found[i].copy_(number, non_blocking=True)
    return found
