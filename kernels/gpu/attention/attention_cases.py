"""The forms of the attention kernels that are compiled ahead of time and tuned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ...attention_ref import Pairs
from ..launch.aot_cases import TARGETS, Case
from ..launch.configs import Config, Tuned, random_inputs
from ..launch.jit_kernel import Kernel
from ..matmul.gemm_config import kind_of
from .attention_config import COPIES, Sizes, by_rule, shape_class, sizes_allowed
from .attention_kernels import WORK, Form, Given, Heads, attend, branch, fill_grads, padded

_WHY = "each has its own room in registers and in shared memory"


def _types(
    kernel: Kernel, dtype: str, mask: str, packed: bool, drawn: bool
) -> tuple[str | None, ...]:
    """The types of the arguments; `mask` is the mask's dtype."""
    types: dict[str, str | None] = {
        "mask": f"*{mask}" if mask else None,
        **dict.fromkeys(("q_starts", "k_starts"), "*i32" if packed else None),
        "drawn": "*i64" if drawn else None,
        **dict.fromkeys(("lse", "exponents", "sums"), "*fp32"),
        **dict.fromkeys(("q", "k", "v", "y", "dy", "dq", "dk", "dv"), f"*{dtype}"),
        **dict.fromkeys(("scale", "rescale"), "fp64"),
        **dict.fromkeys(("seed", "call", "least"), "i64?"),
        **dict.fromkeys(("rows", "columns", "pitch"), "i32"),
        **dict.fromkeys(("m_batch", "m_head", "logical_batch", "logical_head"), "i32?"),
    }
    known = ("step", "_batch", "_head")
    return tuple(
        types.get(name, "i32" if name.endswith(known) else "i32?")
        for name in kernel.names[: kernel.names.index("D")]
    )


def _cases(
    work: str, dtype: str, features: int, *, causal: bool = True, mask: str = "",
    drop: bool = False, drawn: bool = False, packed: bool = False, precision: str = "ieee",
    tma: bool = False,
    tile: Sizes | None = None,
) -> list[Case]:  # fmt: skip
    """A form with this tile, or with each target's own. Packed sequences have a window."""
    kernel = WORK[work]
    kind = precision if dtype == "fp32" else "half"
    name = "apart" if mask or drop else "packed" if packed else "plain"
    by: dict[tuple[Sizes, tuple[bool, ...]], list[str]] = {}
    for target in COPIES if tma else TARGETS:
        sizes = tile or by_rule(work, kind, features, 4096, 4096, name, target, tma)
        by.setdefault((sizes, branch(work, target)), []).append(target)
    kind_of_mask = {"": "", "i1": "bool"}.get(mask, "add")
    form = (features, features, causal, packed, kind_of_mask, packed, drop, drop, precision)
    tiles = (padded(features), padded(features))
    return [
        Case(
            kernel, _types(kernel, dtype, mask, packed, drawn),
            (*form, sizes.queries, sizes.keys, *tiles, tma, int(tma and sizes.specialized), *last),
            sizes.warps, sizes.stages, resident=sizes.resident, targets=tuple(targets),
            why="" if len(targets) == len(TARGETS) else _WHY
        )
        for (sizes, last), targets in by.items()
    ]  # fmt: skip


CASES = [
    *[
        case
        for work in WORK
        for cases in (
            *[_cases(work, "bf16", features) for features in (64, 128, 256)],
            _cases(work, "bf16", 128, packed=True),
            _cases(work, "fp32", 64),
        )
        for case in cases
    ],
    *_cases("forward", "bf16", 128, causal=False),
    *_cases("forward", "bf16", 64, tma=True),
    *_cases("forward", "bf16", 128, tma=True),
    *_cases("forward", "bf16", 128, packed=True, tma=True),
    *_cases("forward", "bf16", 128, tma=True, tile=Sizes(128, 128, 4, 2, specialized=1)),
    *_cases("queries", "bf16", 64, tma=True),
    *_cases("queries", "bf16", 128, tma=True),
    *_cases("keys", "bf16", 64, tma=True),
    *_cases("keys", "bf16", 128, tma=True),
    *_cases("keys", "bf16", 128, packed=True, tma=True),
    *_cases("keys", "bf16", 128, tma=True, tile=Sizes(32, 128, 4, 3, specialized=1)),
    *_cases("forward", "bf16", 64, causal=False, mask="i1"),
    *_cases("forward", "bf16", 128, causal=False, mask="fp32"),
    *_cases("forward", "bf16", 64, drop=True),
    *_cases("forward", "bf16", 64, drop=True, drawn=True),
    *_cases("queries", "fp16", 64, causal=False, mask="fp16"),
    *_cases("keys", "bf16", 64, drop=True),
    *_cases("queries", "bf16", 64, drop=True, drawn=True),
    *_cases("keys", "bf16", 64, drop=True, drawn=True),
    *_cases("keys", "fp32", 64, precision="tf32"),
]


def _call(
    work: str, config: Config, dtype: torch.dtype, sizes: tuple[int, ...]
) -> Callable[[], Tensor]:
    """Causal attention of (batch, heads, length, features), or one of its gradients."""
    q, k, v, dy = random_inputs(dtype, *[sizes] * 4)
    h, form, tile = Heads(q, k, v, None), Form(Pairs(True, sizes[-1] ** -0.5)), Sizes(**config)
    if work == "forward":
        return lambda: attend(h, form, tile)[0]
    known = Given.of(dy, h, *attend(h, form))
    if work == "keys":
        fill_grads("queries", known, form, torch.empty_like(q))
    made = torch.empty((1 if work == "queries" else 2, *sizes), dtype=dtype, device=q.device)

    def run() -> Tensor:
        fill_grads(work, known, form, *made, sizes=tile)
        return made

    return run


def _of_table(work: str, kind: str, sizes: tuple[int, ...], config: Config) -> list[Case]:
    """The forms of an entry: causal, as in training, with TMA where the GPU has it."""
    dtype = "bf16" if kind == "half" else "fp32"
    precision = "tf32" if kind == "tf32" else "ieee"
    tile, features = Sizes(**config), sizes[-1]
    found: list[Case] = []
    if not tile.specialized:
        found += _cases(work, dtype, features, precision=precision, tile=tile)
    if kind == "half" and tile.tma:
        found += _cases(work, dtype, features, tma=True, tile=tile)
    return found


def _tuned(work: str) -> Tuned:
    def allowed(dtype: torch.dtype, sizes: tuple[int, ...]) -> list[dict[str, int]]:
        found = sizes_allowed(work, kind_of(dtype), sizes[-1], sizes[-2])
        return [tile._asdict() for tile in found]

    return Tuned(
        f"attention_{work}",
        (torch.bfloat16, torch.float32),
        {shape_class(s[-1], s[-2], s[-2]): s for s in _SIZES},
        allowed,
        partial(_call, work),
        partial(_of_table, work),
        kind_of,
    )


_SIZES = tuple(
    (8192 // length, 16, length, features)
    for features in (64, 128)
    for length in (1024, 2048, 4096, 8192)
)
TUNED = [_tuned(work) for work in WORK]
