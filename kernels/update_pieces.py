"""The elements that an update of lists of tensors computes at a time.

What a rule computes between its operations stays in the cache if the elements are few, and the
operations cost little if the elements are many. So small parameters are joined, and large ones cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from .guarded_update import putting, wide

Row = tuple[torch.Tensor | None, ...]  # a parameter, its gradient, states and copy

_PER_THREAD = 2**15  # as many elements as torch gives to a thread at least


class Piece:
    """Rows of tensors of one shape each, whose elements are updated together.

    `index` is the number of the first row in the lists.
    """

    def __init__(self, index: int, rows: list[Row]) -> None:
        self.index = index
        self.rows = rows

    def joined(self, column: int) -> torch.Tensor | None:
        """The tensors of a column as one, which shares the memory of a single one."""
        found = [x for row in self.rows if (x := row[column]) is not None]
        return torch.cat(found) if len(found) > 1 else found[0] if found else None

    def putting(
        self, column: int, value: torch.Tensor, found_inf: torch.Tensor | None
    ) -> list[Callable[[], object]]:
        """What writes a value of the joined tensors of a column, unless `found_inf` is 1."""
        targets = [x for row in self.rows if (x := row[column]) is not None]
        if not targets:
            return []
        if len(targets) == 1:
            return [putting(targets[0], value, found_inf)]
        if found_inf is not None:
            before = self.joined(column)
            value = value if before is None else torch.where(found_inf == 0, value, wide(before))
        parts = value.split([x.numel() for x in targets])
        return [partial(torch._foreach_copy_, targets, parts)]


def pieces(rows: Sequence[Row], joins: bool) -> Iterator[Piece]:
    """The rows in pieces; on the CPU cut, and joined if `joins`."""
    most = _PER_THREAD * torch.get_num_threads()
    joined: list[Row] = []
    count = first = 0
    for index, row in enumerate(rows):
        flat = _flat(row)
        if flat is None:
            yield Piece(index, [row])
            continue
        size = 0 if flat[0] is None else flat[0].numel()
        if size > most or not joins:
            for start in range(0, size, most):
                part = [None if x is None else x[start : start + most] for x in flat]
                yield Piece(index, [tuple(part)])
            continue
        if joined and (count + size > most or _dtypes(flat) != _dtypes(joined[0])):
            yield Piece(first, joined)
            joined, count = [], 0
        first = first if joined else index
        joined.append(flat)
        count += size
    if joined:
        yield Piece(first, joined)


def _flat(row: Row) -> Row | None:
    """The tensors of a row as vectors; None where they do not lie alike in the host's memory."""
    for x in row:
        if x is not None and not (x.device.type == "cpu" and x.is_contiguous()):
            return None
    return tuple([None if x is None else x.view(-1) for x in row])


def _dtypes(row: Row) -> list[torch.dtype | None]:
    return [None if x is None else x.dtype for x in row]
