"""The other rows of benchmarks/kernels.py: order, gather and scatter, gated, fused losses, windows.

A family that is added later gets a function here (or in kernel_rows.py, where training is made of
it) that returns its rows, and a place in `all_rows`.
"""

from __future__ import annotations

from typing import Any

import torch
from kernel_rows import ROWS, TINY_ROWS, WINDOW, Maker, Row, Twins, main_rows, rows_of
from torch.nn import functional as F

gated, gathering, linear_loss, order, pool, reduce = (
    Twins(name) for name in "gated gathering linear_loss order pool reduce".split()
)


def _orders() -> list[Row]:
    return [
        rows_of("sort", lambda x: order.sort(x, 1, False, True)[0],
                lambda x: x.sort(stable=True, dim=1)[0], moved=6.0, family="order"),
        rows_of("topk, 8", lambda x: order.topk(x, 1, 8, True, True)[0],
                lambda x: x.topk(8, 1)[0], moved=1.0, family="order", sizes=(16384, 256)),
    ]  # fmt: skip


def _gathers() -> list[Row]:
    def indexed(make: Maker, m: int, n: int) -> tuple[Any, ...]:
        return make(m, n), make.below(n, m, n)

    def added(make: Maker, m: int, n: int) -> tuple[Any, ...]:
        x, index = indexed(make, m, n)
        return x, index, (m, n)

    def plain(dy: Any, index: Any, shape: Any) -> Any:
        return dy.new_zeros(shape).scatter_add_(1, index, dy)

    # The index has 8 bytes for each element: four of bfloat16's.
    return [
        rows_of("gather", lambda x, i: gathering.gather(x, 1, i), lambda x, i: x.gather(1, i),
                indexed, 6.0, family="gathering"),
        rows_of("scatter add",
                lambda dy, i, shape: gathering.add_at(dy, 1, i, shape, (0, 0), 0, shape[1]),
                plain, added, 6.0, family="gathering", sizes=(4096, 4096)),
    ]  # fmt: skip


def _gates() -> list[Row]:
    def two(make: Maker, m: int, n: int) -> tuple[Any, ...]:
        return make(m, n), make(m, n)

    return [
        rows_of("silu(gate) * up", lambda g, u: gated.gated(g, u, "silu"),
                lambda g, u: F.silu(g) * u, two, 3.0, family="gated", sizes=(16384, 8192),
                liger=("liger_swiglu", lambda f, g, u: f(g, u))),
    ]  # fmt: skip


def _losses() -> list[Row]:
    def inputs(make: Maker, m: int, n: int, k: int) -> tuple[Any, ...]:
        return make(m, k), make(n, k), make.below(n, m)

    return [
        Row("linear_loss", "linear and cross_entropy", (8192, 128256, 4096), (6, 40, 16), inputs,
            lambda x, w, t: linear_loss.linear_class_loss(x, w, t, -100).sum() / t.numel(),
            lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
            lambda m, n, k: m * k + n * k, lambda m, n, k: 2 * m * n * k),
    ]  # fmt: skip


def _windows() -> list[Row]:
    def inputs(make: Maker, n: int, c: int, size: int) -> tuple[Any, ...]:
        half = (size + 1) // 2
        return make(n, c, half, half), make(n, c, size, size)

    def plain(dy: Any, x: Any) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.max_pool2d(x, 3, 2, 1), x, dy)[0]

    return [
        Row("pool", "max 3x3, stride 2, backward", (256, 64, 112), (2, 3, 6), inputs,
            lambda dy, x: pool.max_pool_grad(dy, x, 2, WINDOW), plain,
            lambda n, c, size: int(2.25 * n * c * size * size), compiled=False),
    ]  # fmt: skip


def _scans() -> list[Row]:
    return [
        rows_of("cumsum of columns", lambda x: reduce.cumsum(x, 0, False), lambda x: x.cumsum(0),
                family="reduce", sizes=ROWS, tiny=TINY_ROWS),
    ]  # fmt: skip


def all_rows() -> list[Row]:
    """Every row, by family."""
    makers = (_orders, _gathers, _gates, _losses, _windows, _scans)
    return [*main_rows(), *(row for make in makers for row in make())]
