"""Tensors as matrices whose rows are worked on by one program, and their tuned configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from ..launch.aot_cases import Case
from ..launch.configs import Config, Tuned, config
from ..matmul.gemm_config import shape_class
from .reduction_tiles import Tiles, cdiv, power_of_2

_MOST = 65536  # elements of a tile
_SHORT = {"bfloat16": "bf16", "float32": "fp32"}
Sizes = tuple[int, int, int]  # outer, n, inner: see `reduction_tiles`
Given = tuple[Tiles, int]  # tiles, and the warps of a program
Rule = Callable[[torch.dtype, int, int, int], Given]


def as_rows(x: Tensor, last: int) -> Tensor:
    """The tensor with dense rows: its last dims as columns, all dims before as rows."""
    columns = prod(x.shape[x.ndim - last :])
    rows = prod(x.shape[: x.ndim - last])
    return x.contiguous().view(rows, columns)


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
    ) -> Given:
        """Tiles and warps for a tensor of these sizes; what is `chosen` comes before the table."""
        if chosen is None:
            return _found(self, dtype, outer, n, inner)
        return _with(self.rule(dtype, outer, n, inner)[0], chosen)

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
        cases: Callable[[str, tuple[int, ...], Config], Sequence[Case]],
    ) -> Tuned:
        """For the tuner: `make(x, config)` gives what runs the kernel on such an x.

        `cases(dtype, sizes, config)` are its compiled forms.
        """

        def call(
            chosen: Config, dtype: torch.dtype, sizes: tuple[int, ...]
        ) -> Callable[[], Tensor]:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            draws = torch.Generator(device).manual_seed(0)
            return make(torch.randn(sizes, dtype=dtype, device=device, generator=draws), chosen)

        def forms(name: str, sizes: tuple[int, ...], chosen: Config) -> Sequence[Case]:
            return cases(_SHORT[name], sizes, chosen)

        named: Mapping[str, tuple[int, ...]] = {shape_class(*sizes): sizes for sizes in shapes}
        return Tuned(self.kernel, (torch.bfloat16, torch.float32), named, self.allowed, call, forms)


@lru_cache(maxsize=4096)
def _found(shared: Shared, dtype: torch.dtype, outer: int, n: int, inner: int) -> Given:
    rule = shared.rule(dtype, outer, n, inner)
    name = shape_class(outer, n, inner)
    return _with(rule[0], config(shared.kernel, dtype, name, _config(rule)))


def _config(given: Given) -> Config:
    tiles, warps = given
    return {"kept": tiles.kept_block, "block": tiles.block, "warps": warps}


def _with(tiles: Tiles, found: Config) -> Given:
    kept, block = found["kept"], found["block"]
    chunk = cdiv(cdiv(tiles.n, tiles.splits), block) * block
    shared = replace(tiles, kept_block=kept, block=block, chunk=chunk, splits=cdiv(tiles.n, chunk))
    return shared, found["warps"]
