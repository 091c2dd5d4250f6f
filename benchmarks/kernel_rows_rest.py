"""The other rows of benchmarks/kernels.py: order, gather and scatter, gated, fused losses, windows.

A family that is added later gets a function here (or in kernel_rows.py, where training is made of
it) that returns its rows, and a place in `all_rows`.
"""

from __future__ import annotations

import torch
from kernel_row import (
    CONV,
    DEVICE,
    ROWS,
    TINY_ROWS,
    WINDOW,
    Function,
    Inputs,
    Maker,
    Row,
    Sizes,
    TritonKernels,
    rows_of,
)
from kernel_rows import main_rows
from kernel_rows_updates import update_rows
from torch import Tensor
from torch.nn import functional as F

from onefold.kernels import (
    accumulate_ref,
    batch_norm_ref,
    channel_chain_ref,
    dropout_chain_ref,
    epilogue_ref,
    matmul_ref,
    norm_chain_ref,
    norm_ref,
    pointwise_chain_ref,
    pointwise_ref as references,
)
from onefold.kernels.attention_ref import Pairs
from onefold.kernels.channel_chain_ref import ChannelChain
from onefold.kernels.norm_chain_ref import NormChain
from onefold.kernels.pointwise_chain_ref import At, Chain, Link
from onefold.kernels.select import pick

attention, conv, float8, gated, gather_scatter, grouped, linear_cross_entropy = (
    TritonKernels(name)
    for name in "attention conv float8 gated gather_scatter grouped linear_cross_entropy".split()
)
interpolate, lp_pool, paged_attention, pool, reduce, rotary, search, sort = (
    TritonKernels(name)
    for name in "interpolate lp_pool paged_attention pool reduce rotary search sort".split()
)


def _orders() -> list[Row]:
    return [
        rows_of("sort", lambda x: sort.sort(x, 1, False, True)[0],
                lambda x: x.sort(stable=True, dim=1)[0], moved=6.0, family="sort"),
        rows_of("topk, 8", lambda x: sort.topk(x, 1, 8, True, True)[0],
                lambda x: x.topk(8, 1)[0], moved=1.0, family="sort", sizes=(16384, 256)),
    ]  # fmt: skip


def _gathers() -> list[Row]:
    def indexed(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make.below(n, m, n)

    def added(make: Maker, m: int, n: int) -> Inputs:
        x, index = indexed(make, m, n)
        return x, index, (m, n)

    def plain(dy: Tensor, index: Tensor, shape: Sizes) -> Tensor:
        return dy.new_zeros(shape).scatter_add_(1, index, dy)

    # The index has 8 bytes for each element: four of bfloat16's.
    return [
        rows_of("gather", lambda x, i: gather_scatter.gather(x, 1, i), lambda x, i: x.gather(1, i),
                indexed, 6.0, family="gather_scatter"),
        rows_of("scatter add",
                lambda dy, i, shape: gather_scatter.add_at(dy, 1, i, shape, (0, 0), 0, shape[1]),
                plain, added, 6.0, family="gather_scatter", sizes=(4096, 4096)),
    ]  # fmt: skip


def _gates() -> list[Row]:
    def two(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make(m, n)

    return [
        rows_of("silu(gate) * up", lambda g, u: gated.gated(g, u, "silu"),
                lambda g, u: F.silu(g) * u, two, 3.0, family="gated", sizes=(16384, 8192),
                liger=("liger_swiglu", lambda f, g, u: f(g, u))),
    ]  # fmt: skip


def _losses() -> list[Row]:
    def inputs(make: Maker, m: int, n: int, k: int) -> Inputs:
        return make(m, k), make(n, k), make.below(n, m)

    return [
        Row(
            "linear_cross_entropy",
            "linear and cross_entropy",
            (8192, 128256, 4096),
            (6, 40, 16),
            inputs,
            lambda x, w, t: (
                linear_cross_entropy.linear_cross_entropy(x, w, t, None, -100, None) / t.numel()
            ),
            lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
            lambda m, n, k: m * k + n * k,
            lambda m, n, k: 2 * m * n * k,
        ),
    ]


def _windows() -> list[Row]:
    def inputs(make: Maker, n: int, c: int, size: int) -> Inputs:
        half = (size + 1) // 2
        return make(n, c, half, half), make(n, c, size, size)

    def plain(dy: Tensor, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.max_pool2d(x, 3, 2, 1), x, dy)[0]

    return [
        Row("pool", "max 3x3, stride 2, backward", (256, 64, 112), (2, 3, 6), inputs,
            lambda dy, x: pool.max_pool_grad(
                dy, pool.max_pool(x, 2, WINDOW)[1], tuple(x.shape), 2, WINDOW
            ), plain,
            lambda n, c, size: int(2.25 * n * c * size * size), compiled=False),
        Row("lp_pool", "squares 2x2, stride 2", (256, 64, 112), (2, 3, 6),
            lambda make, n, c, size: (make(n, c, size, size),),
            lambda x: lp_pool.lp_pool(x, 2, (2.0, (2, 2), (2, 2), False)),
            lambda x: F.lp_pool2d(x, 2, 2), lambda n, c, size: int(1.25 * n * c * size * size)),
    ]  # fmt: skip


def _scans() -> list[Row]:
    return [
        rows_of("cumsum of columns", lambda x: reduce.cumsum(x, 0, False), lambda x: x.cumsum(0),
                family="reduce", sizes=ROWS, tiny=TINY_ROWS),
    ]  # fmt: skip


def _convolution_grads() -> list[Row]:
    def image(make: Maker, n: int, c: int, size: int) -> Inputs:
        dy, x = (make(n, c, size, size).contiguous(memory_format=torch.channels_last) for _ in "ab")
        return dy, x, make(c, c, 3, 3)

    def plain(which: int) -> Function:
        wanted = [which == 0, which == 1, False]

        def run(dy: Tensor, x: Tensor, w: Tensor) -> Tensor:
            return torch.ops.aten.convolution_backward(dy, x, w, None, *CONV, wanted)[which]

        return run

    def row(name: str, ours: Function, which: int) -> Row:
        return Row(
            "conv", name, (256, 256, 28), (2, 8, 5), image, ours, plain(which),
            lambda n, c, size: 2 * n * c * size * size + 9 * c * c,
            lambda n, c, size: 18 * n * c * c * size * size, compiled=False,
        )  # fmt: skip

    def of_image(dy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        stride, padding, dilation, _, odd, groups = CONV
        return conv.convolution(dy, w, None, stride, padding, dilation, True, odd, groups)

    def of_weight(dy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return conv.convolution_weight_grad(dy, x, w.shape, *CONV)

    return [
        row("3x3, gradient of the image", of_image, 0),
        row("3x3, gradient of the weight", of_weight, 1),
    ]


def _fused() -> list[Row]:
    """What a graph makes of several ops."""
    gelu = Link(references.gelu, (At(0), "none"))
    scaled = Link(torch.mul, (At(3), 0.5))
    of_two = (Link(torch.add, (At(0), At(1))), gelu._replace(arguments=(At(2), "none")), scaled)
    gelu_of_sum = Chain(2, of_two, (4,))

    end = pick(epilogue_ref.with_epilogue, DEVICE)(
        matmul_ref.linear, 3, Chain(1, (gelu,), (1,)), False
    )
    alone = pick(pointwise_chain_ref.one, DEVICE)(gelu_of_sum)
    summed = pick(pointwise_chain_ref.as_prologue, DEVICE)(gelu_of_sum, False)
    added = Chain(2, (Link(torch.add, (At(0), At(1))),), (2,))
    dropped = pick(dropout_chain_ref.with_chain, DEVICE)(added)
    normed = pick(norm_chain_ref.with_chains, DEVICE)
    made: dict[int, Function] = {}  # by the width of the rows, to which a chain belongs

    def residual_norm(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """The residual is kept for the next block, as in a step."""
        width = len(w)
        if width not in made:
            own = (At(0), None, (width,), 1e-5)
            made[width] = normed(NormChain(norm_ref.rms_norm, own, added, keeps_input=True))
        found: Tensor = made[width](x, y, w)[0]
        return found

    def residual(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make(m, n), make(n)

    def layer(make: Maker, m: int, n: int, k: int) -> Inputs:
        return make(m, k), make(n, k), make(n)

    def two(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make(m, n)

    return [
        Row("epilogue", "linear and gelu", (8192, 16384, 4096), (24, 16, 40), layer,
            end, lambda x, w, b: F.gelu(F.linear(x, w, b)),
            lambda m, n, k: m * n + m * k + n * k, lambda m, n, k: 2 * m * n * k),
        rows_of("0.5 * gelu(x + y)", alone,
                lambda x, y: F.gelu(x + y) * 0.5, two, 3.0, family="pointwise_chain"),
        rows_of("its sum over rows", lambda x, y: reduce.sum_rows(summed(x, y)[0]),
                lambda x, y: (F.gelu(x + y) * 0.5).sum(0), two, 2.0, family="pointwise_chain"),
        rows_of("x + y and its rms_norm", residual_norm,
                lambda x, y, w: F.rms_norm(x + y, w.shape, w, 1e-5), residual, 4.0,
                family="norm_chain"),
        rows_of("dropout(x) + y",
                lambda x, y: dropped(x, y, shape=tuple(x.shape), offset=(0, 0), p=0.1, seed=0,
                                     call=0),
                lambda x, y: F.dropout(x, 0.1) + y, two, 3.0, family="dropout_chain", random=True),
    ]  # fmt: skip


def _sums() -> list[Row]:
    """A weight's gradient and its sum over micro-batches; the sums of batch norm's gradient."""
    norm = Link(batch_norm_ref.batch_normalized, (*[At(i) for i in range(1, 6)], 1e-5))
    links = (norm, Link(torch.relu, (At(6),)), Link(references.relu_backward, (At(0), At(7))))
    slopes = ChannelChain(Chain(6, links, (8,)), 1, False)
    added = pick(accumulate_ref.accumulate, DEVICE)(matmul_ref.rows_tn, torch.float32)
    sums = pick(channel_chain_ref.with_chain, DEVICE)(slopes)

    def weight(make: Maker, m: int, n: int, k: int) -> Inputs:
        return make(k, m), make(k, n), make(m, n, dtype=torch.float32)

    def image(make: Maker, n: int, c: int, size: int) -> Inputs:
        dy, x = (make(n, c, size, size).contiguous(memory_format=torch.channels_last) for _ in "ab")
        vectors = (make(1, c, 1, 1, dtype=torch.float32) for _ in range(4))
        return dy, x, *vectors

    def plain(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor, b: Tensor) -> Tensor:
        unit = (x.float() - mean) * rstd
        slope = dy.float() * (unit * w + b > 0)
        return (slope * unit).sum((0, 2, 3), keepdim=True)

    return [
        Row("accumulate", "weight gradient and its sum", (4096, 4096, 8192), (16, 40, 24), weight,
            added, lambda a, b, total: total.add_(a.t() @ b),
            lambda m, n, k: 4 * m * n + m * k + n * k, lambda m, n, k: 2 * m * n * k),
        Row("channel_chain", "sums behind a relu", (256, 64, 112), (2, 3, 6), image,
            lambda *given: sums(*given)[0], plain, lambda n, c, size: 2 * n * c * size * size),
    ]  # fmt: skip


def _groups() -> list[Row]:
    """Rows of experts, as many for each, times the expert's matrix."""

    def routed(make: Maker, groups: int, m: int, n: int, k: int) -> Inputs:
        ends = m * torch.arange(1, groups + 1, device=DEVICE, dtype=torch.int32)
        return make(groups * m, k), make(groups, k, n), ends

    def batched(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
        return torch.bmm(a.view(len(b), -1, a.shape[1]), b).flatten(0, 1)

    return [
        Row("grouped", "rows of experts", (8, 1024, 4096, 4096), (3, 20, 16, 24), routed,
            grouped.grouped_rows, batched, lambda g, m, n, k: g * (m * n + m * k + n * k),
            lambda g, m, n, k: 2 * g * m * n * k)
    ]  # fmt: skip


def _windows_of_keys() -> list[Row]:
    """Two heads of queries share one of keys; each query sees the last keys alone."""

    def heads(make: Maker, b: int, h: int, s: int, d: int, window: int) -> Inputs:
        place = torch.arange(s, device=DEVICE)
        apart = place[:, None] - place
        keys = [make(b, h // 2, s, d) for _ in "kv"]
        return make(b, h, s, d), *keys, (apart >= 0) & (apart < window), window

    def mine(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, window: int) -> Tensor:
        pairs = Pairs(True, q.shape[-1] ** -0.5, window)
        return attention.attention(q, k, v, None, pairs, None)[0]

    def plain(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, window: int) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True)

    return [
        Row("attention", "causal window", (4, 48, 8192, 128, 1024), (1, 4, 17, 16, 5), heads,
            mine, plain, lambda b, h, s, d, window: 3 * b * h * s * d,
            lambda b, h, s, d, window: 4 * b * h * s * window * d),
    ]  # fmt: skip


def _rotations() -> list[Row]:
    def inputs(make: Maker, b: int, h: int, s: int, d: int) -> Inputs:
        angles = make(s, d // 2, dtype=torch.float32)
        return make(b, h, s, d), angles.cos(), angles.sin()

    def plain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    return [
        Row("rotary", "halves", (4, 32, 8192, 128), (2, 3, 5, 8), inputs,
            lambda x, cos, sin: rotary.rotary(x, cos, sin, 2, False, False), plain,
            lambda b, h, s, d: 2 * b * h * s * d),
    ]  # fmt: skip


def _pages() -> list[Row]:
    """One new token for each sequence, of which all tokens are in pages of 16."""

    def inputs(make: Maker, b: int, h: int, s: int, d: int) -> Inputs:
        most = -(-s // 16)
        keys, values = (make(b * most, 16, h // 4, d) for _ in "kv")
        table = torch.arange(b * most, device=DEVICE, dtype=torch.int32).view(b, most).flip(0, 1)
        lens = torch.full((b,), s, device=DEVICE, dtype=torch.int32)
        return make(b, h, 1, d), keys, values, table.contiguous(), lens

    def mine(q: Tensor, k: Tensor, v: Tensor, table: Tensor, lens: Tensor) -> Tensor:
        found: Tensor = paged_attention.paged_attention(
            q, k, v, table, lens, q.shape[-1] ** -0.5, 1, 0
        )
        return found

    def plain(q: Tensor, k: Tensor, v: Tensor, table: Tensor, lens: Tensor) -> Tensor:
        keys, values = (x[table.long()].flatten(1, 2).transpose(1, 2) for x in (k, v))
        seen = torch.arange(keys.shape[2], device=q.device) < lens[:, None]
        return F.scaled_dot_product_attention(q, keys, values, seen[:, None, None], enable_gqa=True)

    return [
        Row("paged_attention", name, sizes, (2, 4, 20, 16), inputs, mine, plain,
            lambda b, h, s, d: b * (h // 2) * s * d, lambda b, h, s, d: 4 * b * h * s * d)
        for name, sizes in (
            ("64 sequences", (64, 32, 4096, 128)),
            ("one long sequence", (1, 32, 65536, 128)),
        )
    ]  # fmt: skip


def _images() -> list[Row]:
    def image(make: Maker, n: int, c: int, size: int) -> Inputs:
        return (make(n, c, size, size).contiguous(memory_format=torch.channels_last),)

    def grads(make: Maker, n: int, c: int, size: int) -> Inputs:
        return (make(n, c, 2 * size, 2 * size),)

    def plain_grad(dy: Tensor) -> Tensor:
        n, c, height, width = dy.shape
        x = dy.new_zeros(n, c, height // 2, width // 2).requires_grad_()
        return torch.autograd.grad(F.interpolate(x, scale_factor=2, mode="bilinear"), x, dy)[0]

    def of_grad(dy: Tensor) -> Tensor:
        shape = *dy.shape[:2], dy.shape[2] // 2, dy.shape[3] // 2
        rest = 2, tuple(dy.shape[2:]), "bilinear", False, (2.0, 2.0)
        found: Tensor = interpolate.interpolate_grad(dy, shape, *rest)
        return found

    def forward(mode: str) -> tuple[Function, Function]:
        def mine(x: Tensor) -> Tensor:
            size = 2 * x.shape[2], 2 * x.shape[3]
            found: Tensor = interpolate.interpolate(x, 2, size, mode, False, (2.0, 2.0))
            return found

        return mine, lambda x: F.interpolate(x, scale_factor=2, mode=mode)

    sizes, tiny = (64, 128, 112), (2, 3, 6)
    return [
        *[Row("interpolate", f"{mode}, twice the size, channels last", sizes, tiny, image,
              *forward(mode), lambda n, c, size: 5 * n * c * size * size)
          for mode in ("nearest", "bilinear")],
        Row("interpolate", "bilinear, backward", sizes, tiny, grads, of_grad, plain_grad,
            lambda n, c, size: 5 * n * c * size * size, compiled=False),
    ]  # fmt: skip


def _searches() -> list[Row]:
    def inputs(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n).sort(1).values, make(m, n)

    return [
        rows_of("searchsorted", search.searchsorted, torch.searchsorted, inputs, 6.0,
                family="search", sizes=ROWS, tiny=TINY_ROWS),
    ]  # fmt: skip


def _eight_bits() -> list[Row]:
    def inputs(make: Maker, m: int, n: int, k: int) -> Inputs:
        a, b = make(m, k), make(n, k)
        kind = torch.float8_e4m3fn
        values, scales = float8.quantize_fp8(a, (1, 128), kind)
        weight, its = float8.quantize_fp8(b, (128, 128), kind)
        return values, scales, weight.t(), its.t(), a.dtype

    def plain(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, dtype: torch.dtype) -> Tensor:
        left = a.float() * a_scale.repeat_interleave(128, 1)[:, : a.shape[1]]
        right = b_scale.repeat_interleave(128, 0)[: b.shape[0]].repeat_interleave(128, 1)
        return (left @ (b.float() * right[:, : b.shape[1]])).to(dtype)

    return [
        Row("float8", "scaled product", (8192, 8192, 8192), (20, 30, 140), inputs,
            lambda a, s, b, t, dtype: float8.scaled_matmul(a, s, b, t, 128, 1, 128, dtype), plain,
            lambda m, n, k: m * n + (m * k + n * k) // 2, lambda m, n, k: 2 * m * n * k,
            compiled=False),
    ]  # fmt: skip


def all_rows() -> list[Row]:
    """Every row, by family."""
    makers = (
        _orders, _gathers, _gates, _losses, _windows, _scans, _convolution_grads, _rotations,
        _eight_bits, _fused, _sums, _groups, _windows_of_keys, update_rows, _pages, _images,
        _searches,
    )  # fmt: skip
    return [*main_rows(), *(row for make in makers for row in make())]
