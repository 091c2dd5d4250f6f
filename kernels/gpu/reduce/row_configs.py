"""Tensors as matrices whose rows are worked on by one program, and their tuned configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.configs import Config, Tuned, config, random_inputs
from ..matmul.gemm_config import shape_class
from .reduction_tiles import Tiles, cdiv, power_of_2

_MOST = 65536  # elements of a tile
_SHORT = {"bfloat16": "bf16", "float32": "fp32"}
Sizes = tuple[int, int, int]  # outer, n, inner: see `reduction_tiles`
Form = tuple[bool, int, int]  # the last constants of a kernel: ROWS, BK, BR
Rule = Callable[[torch.dtype, int, int, int], Tiles]


def as_rows(x: Tensor, last: int) -> Tensor:
    """The tensor with dense rows: its last dims as columns, all dims before as rows."""
    columns = prod(x.shape[x.ndim - last :])
    rows = prod(x.shape[: x.ndim - last])
    return x.contiguous().view(rows, columns)


def dense_or_none(x: Tensor | None) -> Tensor | None:
    """An optional tensor in dense memory."""
    return None if x is None else x.contiguous()


@dataclass(frozen=True)
class Shared:
    """How the rows of one kernel are shared out among programs: by the table, or else by its rule.

    `whole` says that a tile must hold all of a row.
    """

    kernel: str
    rule: Rule
    whole: bool = False

    def of(
        self, dtype: torch.dtype, outer: int, n: int, inner: int, chosen: Config | None = None
    ) -> Tiles:
        """The tiles for a tensor of these sizes; what is `chosen` comes before the table."""
        if chosen is None:
            return _found(self, dtype, outer, n, inner)
        return _with(self.rule(dtype, outer, n, inner), chosen)

    def allowed(self, dtype: torch.dtype, sizes: tuple[int, ...]) -> list[Config]:
        """The rule's choice and what the tuner may try instead of it."""
        outer, n, inner = sizes
        rule = _config(self.rule(dtype, outer, n, inner))
        kept, block = rule["kept"], rule["block"]
        found = [rule]
        for rows in (kept // 2, kept, 2 * kept, 4 * kept):
            for width in (block,) if self.whole else (block // 4, block // 2, block, 2 * block):
                fits = 1 <= rows <= power_of_2(outer * inner) and 16 <= width <= power_of_2(n)
                if fits and rows * width <= _MOST:
                    found += [{"kept": rows, "block": width, "warps": w} for w in (2, 4, 8, 16)]
        return [rule, *(other for other in found if other != rule)]

    def tuned(
        self,
        shapes: tuple[Sizes, ...],
        make: Callable[[Tensor, Config], Callable[[], Tensor]],
        cases: Callable[[str, int, Form, int], Sequence[Case]],
    ) -> Tuned:
        """For the tuner: `make(x, config)` gives what runs the kernel on such an x.

        `cases(x, n, form, warps)` are its compiled forms for the type of x and rows of n elements.
        """

        def of_table(name: str, sizes: tuple[int, ...], chosen: Config) -> Sequence[Case]:
            form = (sizes[2] == 1, chosen["kept"], chosen["block"])
            return cases(f"*{_SHORT[name]}", sizes[1], form, chosen["warps"])

        return Tuned(
            self.kernel,
            (torch.bfloat16, torch.float32),
            {shape_class(*sizes): sizes for sizes in shapes},
            self.allowed,
            lambda chosen, dtype, sizes: make(random_inputs(dtype, sizes)[0], chosen),
            of_table,
        )


@lru_cache(maxsize=4096)
def _found(shared: Shared, dtype: torch.dtype, outer: int, n: int, inner: int) -> Tiles:
    rule = shared.rule(dtype, outer, n, inner)
    name = shape_class(outer, n, inner)
    return _with(rule, config(shared.kernel, dtype, name, _config(rule)))


def _config(tiles: Tiles) -> Config:
    return {"kept": tiles.kept_block, "block": tiles.block, "warps": tiles.warps}


def _with(tiles: Tiles, found: Config) -> Tiles:
    kept, block, warps = found["kept"], found["block"], found["warps"]
    chunk = cdiv(cdiv(tiles.n, tiles.splits), block) * block
    splits = cdiv(tiles.n, chunk)
    return replace(tiles, kept_block=kept, block=block, chunk=chunk, splits=splits, warps=warps)
