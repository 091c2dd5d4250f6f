"""Tile sizes of attention: from the table of tuned configurations, or by dtype, shape and GPU."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import triton

from ...attention_ref import WIDEST
from ..launch.configs import architecture, config
from ..reduce.reduction_tiles import power_of_2

COPIES = ("sm_90",)  # where tiles are copied by TMA


class Sizes(NamedTuple):
    """The queries and keys of a tile, and the warps and pipeline stages of a program.

    Where the GPU can, tiles are copied by `tma`; in a `specialized` program, by other warps. So
    many `resident` programs share a multiprocessor, if it is not 0; see `Kernel.launch`.
    """

    queries: int
    keys: int
    warps: int
    stages: int
    specialized: int = 0
    resident: int = 0
    tma: int = 1


# By the widest of the features, for 16-bit dtypes; float32 and float64 have less room.
_FORWARD = {64: Sizes(128, 64, 4, 3), 128: Sizes(128, 64, 8, 3), 256: Sizes(64, 32, 8, 2)}
_OF_QUERIES = {64: Sizes(128, 64, 8, 2), 128: Sizes(128, 64, 8, 2), 256: Sizes(32, 32, 4, 1)}
_OF_KEYS = {64: Sizes(32, 128, 8, 2), 128: Sizes(32, 64, 8, 2), 256: Sizes(32, 32, 8, 1)}
_DOUBLE = {
    "forward": Sizes(16, 16, 8, 2), "queries": Sizes(16, 16, 8, 1), "keys": Sizes(16, 16, 8, 1)
}  # fmt: skip
_TABLES = {"forward": _FORWARD, "queries": _OF_QUERIES, "keys": _OF_KEYS}
# Where tiles are copied by TMA, and not by threads: by the work, the widest of the features, and
# the form. The plain ones for 128 features are the fastest on an H200 for 2048 to 8192 keys.
_COPIED = {
    ("forward", 64, "plain"): Sizes(64, 64, 4, 2, resident=4),
    ("queries", 64, "plain"): Sizes(64, 32, 4, 3),
    ("keys", 64, "plain"): Sizes(32, 64, 4, 2, resident=4),
    ("forward", 128, "plain"): Sizes(64, 128, 4, 1),
    ("forward", 128, "packed"): Sizes(128, 128, 8, 3),
    ("queries", 128, "plain"): Sizes(128, 64, 8, 3),
    ("keys", 128, "plain"): Sizes(64, 64, 4, 2),
}
# For what would spill registers there. By the work, the widest of the features, and what takes
# registers besides: nothing ("plain"), packed sequences ("packed"), a mask or dropout ("apart").
_ELSEWHERE = {
    "sm_80": {
        ("forward", 64, "apart"): Sizes(128, 32, 8, 3),
        ("forward", 128, "packed"): Sizes(128, 32, 8, 3),
        ("queries", 64, "apart"): Sizes(128, 32, 8, 2),
        ("queries", 128, "plain"): Sizes(64, 64, 8, 2),
        ("queries", 128, "apart"): Sizes(64, 32, 8, 2),
        ("keys", 64, "apart"): Sizes(32, 32, 4, 2),
        ("keys", 128, "apart"): Sizes(16, 64, 8, 1),
    },
    "sm_90": {
        ("keys", 128, "plain"): Sizes(32, 128, 8, 2),
        ("keys", 128, "packed"): Sizes(32, 128, 8, 2),
    },
    "sm_100": {
        ("keys", 128, "plain"): Sizes(32, 64, 8, 1),
        ("keys", 128, "packed"): Sizes(32, 32, 8, 1),
        ("keys", 128, "apart"): Sizes(32, 32, 8, 1),
    },
    "gfx942": {
        ("forward", 128, "apart"): Sizes(128, 32, 8, 1),
        ("queries", 128, "plain"): Sizes(128, 32, 8, 1),
        ("queries", 128, "apart"): Sizes(64, 32, 8, 1),
        ("keys", 256, "plain"): Sizes(16, 32, 8, 1),
        ("keys", 256, "apart"): Sizes(16, 32, 8, 1),
    },
}


# Queries and keys of specialized programs, which Triton makes of four warps: two more groups of
# four warps then multiply.
_SPECIALIZED = {"forward": ((128, 64), (128, 128)), "keys": ((32, 128), (64, 128))}


def shape_class(features: int, queries: int, keys: int, form: str = "plain") -> str:
    """The shape class of a table entry: lengths and features rounded up to a power of two.

    >>> shape_class(100, 5000, 8192)
    '8192x8192x128'
    """
    sizes = (power_of_2(max(queries, 1)), power_of_2(max(keys, 1)), _bound(features))
    return "x".join(map(str, sizes)) + ("" if form == "plain" else f"-{form}")


@lru_cache(maxsize=4096)
def sizes_of(
    work: str, kind: str, features: int, queries: int, keys: int, form: str, copied: bool
) -> Sizes:
    """The tile from the table of configurations for this GPU, or else from the rule.

    The work is "forward", or the gradients of "queries" or "keys"; `kind` is that of
    `gemm_config.kind_of`, the form "plain", "packed" or "apart", and tiles are `copied` by TMA.
    """
    arch = architecture()
    rule = by_rule(work, kind, features, queries, keys, form, arch, copied)
    name = shape_class(features, queries, keys, form)
    found = Sizes(**config(f"attention_{work}", kind, name, rule._asdict(), arch))
    return found if copied or not found.specialized else rule


def by_rule(
    work: str, kind: str, features: int, queries: int, keys: int, form: str, arch: str,
    copied: bool = False,
) -> Sizes:  # fmt: skip
    """The largest tile that fits the registers of that GPU and is not larger than the problem."""
    bound = _bound(features)
    known = _ELSEWHERE.get(arch, {})
    most = _TABLES[work][bound]
    if kind == "double":
        most = _DOUBLE[work]
    elif kind != "half":
        most = Sizes(32, 32, 8, 1) if bound < WIDEST else Sizes(16, 16, 8, 1)
        # Twice as many would spill.
        if work == "keys" and (arch.startswith("gfx") or (bound, kind) == (128, "ieee")):
            most = most._replace(queries=16)
        elif work == "queries" and (bound, kind) == (128, "ieee"):
            most = most._replace(keys=16)
    elif copied and (work, bound, form) in _COPIED:
        most = _COPIED[work, bound, form]
    elif (work, bound, form) in known:
        most = known[work, bound, form]
    elif form == "apart":
        most = most._replace(warps=8)
    else:
        most = known.get((work, bound, "plain"), most)
    if arch.startswith("gfx"):
        most = most._replace(stages=1)
    tile = _within(most.queries, queries), _within(most.keys, keys)
    warps = most.warps
    if kind not in ("half", "double") and work != "keys":
        warps = min(warps, prod(tile) // 64)  # a thread with one element would spill
    return Sizes(*tile, warps, *most[3:])


def sizes_allowed(work: str, kind: str, features: int, length: int) -> list[Sizes]:
    """The rule's tile first, then the other tiles for the tuner to try."""
    copied = kind == "half" and architecture() in COPIES
    found = [by_rule(work, kind, features, length, length, "plain", architecture(), copied)]
    tried = (32, 64, 128) if kind == "half" else (16, 32, 64)
    lengths = sorted({_within(size, length) for size in tried})
    for queries in lengths:
        for keys in lengths:
            for warps in (4, 8):
                found += [Sizes(queries, keys, warps, stages) for stages in (1, 2, 3)]
            if copied and queries * keys <= 64 * 64:
                found += [Sizes(queries, keys, 4, stages, resident=4) for stages in (2, 3)]
                found += [
                    Sizes(queries, keys, 4, stages, resident=resident, tma=0)
                    for stages in (2, 3)
                    for resident in (0, 4)
                ]
    if copied and work != "queries" and specialization_works(triton.__version__):
        found += [Sizes(*sizes, 4, stages, 1) for sizes in _SPECIALIZED[work] for stages in (2, 3)]
    return list(dict.fromkeys(found))


def specialization_works(version: str) -> bool:
    """Whether specialized programs may be tried with a version of Triton.

    What 3.6 made of them gave wrong results on an H200.
    """
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= (3, 7)


def _bound(features: int) -> int:
    return next(width for width in (64, 128, WIDEST) if features <= width)


def _within(size: int, most: int) -> int:
    return max(min(size, power_of_2(max(most, 1))), 16)
