"""Rows of benchmarks/kernels.py of what training is made of, and their targets."""

from __future__ import annotations

import torch
from kernel_row import (
    CONV,
    SQUARE,
    TINY_SQUARE,
    WINDOW,
    Function,
    Inputs,
    Lists,
    Maker,
    Row,
    Sizes,
    Target,
    TritonKernels,
    ours,
    rows_of,
)  # fmt: skip
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import onefold as flow
from onefold.engine.commit import finish
from onefold.kernels.attention_ref import Pairs
from onefold.optim.device_scalar import LocalStep

aten = torch.ops.aten
WINDOWS = ((8, 8), (1, 1), (0, 0), (4, 4))  # size, dilation, padding, stride

attention, conv, cross_entropy, gather_scatter, matmul, norm = (
    TritonKernels(name)
    for name in "attention conv cross_entropy gather_scatter matmul norm".split()
)
batch_norm, fold, group_norm, pointwise, pool, random, reduce, softmax = (
    TritonKernels(name)
    for name in "batch_norm fold group_norm pointwise pool random reduce softmax".split()
)


def _products() -> list[Row]:
    def row(name: str, sizes: Sizes, inputs: Function, ours: Function, plain: Function,
            share: float | None = None) -> Row:  # fmt: skip
        return Row(
            "matmul", name, sizes, TINY_SQUARE, inputs, ours, plain,
            lambda m, n, k: m * n + m * k + n * k, lambda m, n, k: 2 * m * n * k,
            target=None if share is None else Target(share, "torch"),
        )  # fmt: skip

    def nt(make: Maker, m: int, n: int, k: int) -> Inputs:
        return make(m, k), make(n, k)

    return [
        row("nn", SQUARE, lambda make, m, n, k: (make(m, k), make(k, n)),
            matmul.mm, torch.mm, 0.93),
        row("nt", SQUARE, nt, matmul.mm_nt, lambda a, b: a @ b.t(), 0.93),
        row("tn", SQUARE, lambda make, m, n, k: (make(k, m), make(k, n)),
            matmul.mm_tn,
            lambda a, b: a.t() @ b, 0.93),
        row("nt", (1024, 1024, 1024), nt, matmul.mm_nt, lambda a, b: a @ b.t(), 0.8),
        row("nt", (16, 4096, 4096), nt, matmul.mm_nt, lambda a, b: a @ b.t()),
    ]  # fmt: skip


def _norms() -> list[Row]:
    def layer(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make(n), make(n)

    def kept(make: Maker, m: int, n: int) -> Inputs:
        x, w = make(m, n), make(n)
        _, mean, rstd = torch.native_layer_norm(x, (n,), w, w, 1e-5)
        wide = torch.promote_types(x.dtype, torch.float32)  # what kernels keep statistics in
        return make(m, n), x, w, mean.to(wide), rstd.to(wide)

    def plain_grad(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        return aten.native_layer_norm_backward(
            dy, x, w.shape, mean, rstd, w, w, [True, True, True]
        )[0]

    def rms_grad(dy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        return torch.autograd.grad(F.rms_norm(x, w.shape, w, 1e-5), (x, w), dy)[0]

    return [
        rows_of("layer_norm", lambda x, w, b: norm.layer_norm(x, w, b, w.shape, 1e-5),
              lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), layer, family="norm",
              liger=("liger_layer_norm", lambda f, x, w, b: f(x, w, b, 1e-5)),
              target=Target(3.8, "TB/s")),
        rows_of("rms_norm", lambda x, w, b: norm.rms_norm(x, w, None, w.shape, 1e-5),
              lambda x, w, b: F.rms_norm(x, w.shape, w, 1e-5), layer, family="norm",
              liger=("liger_rms_norm", lambda f, x, w, b: f(x, w, 1e-5)),
              target=Target(3.8, "TB/s")),
        rows_of("layer_norm backward",
              lambda *args: norm.layer_norm_with_stats_grad(*args, args[2].shape)[0],
              plain_grad, kept, 3.0, family="norm", target=Target(3.2, "TB/s")),
        rows_of("rms_norm backward",
              lambda dy, x, w: norm.rms_norm_grad(dy, x, w, w.shape, 1e-5)[0],
              rms_grad, lambda make, m, n: (make(m, n), make(m, n), make(n)), 3.0, family="norm",
              compiled=False, target=Target(3.2, "TB/s")),
    ]  # fmt: skip


def _softmaxes() -> list[Row]:
    def classes(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make.below(n, m)

    def grads(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), torch.softmax(make(m, n), 1)

    def plain_grad(dy: Tensor, y: Tensor) -> Tensor:
        return aten._softmax_backward_data(dy, y, 1, y.dtype)

    def ours_loss(x: Tensor, t: Tensor) -> Tensor:
        return cross_entropy.whole_cross_entropy(x, t, None, False, "mean", -100, 0.0)

    def ours_both(x: Tensor, t: Tensor) -> Tensor:
        scale = torch.ones((), dtype=x.dtype, device=x.device)
        _, lse = cross_entropy.whole_cross_entropy_with_lse(x, t, None, "mean", -100, 0.0)
        return cross_entropy.whole_cross_entropy_grad(
            scale, x, t, None, False, "mean", -100, 0.0, lse
        )

    def both(x: Tensor, t: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(x, t), x)[0]

    return [
        rows_of(
            "softmax",
            lambda x: softmax.softmax(x, 1, None),
            lambda x: torch.softmax(x, 1),
            family="softmax",
            target=Target(3.6, "TB/s"),
        ),
        rows_of(
            "softmax backward",
            lambda dy, y: softmax.softmax_grad(dy, y, 1),
            plain_grad,
            grads,
            3.0,
            family="softmax",
        ),
        rows_of(
            "cross_entropy",
            ours_loss,
            F.cross_entropy,
            classes,
            1.0,
            family="cross_entropy",
            sizes=(8192, 128256),
            liger=("liger_cross_entropy", lambda f, x, t: f(x, t)),
        ),
        rows_of(
            "cross_entropy forward and backward",
            ours_both,
            both,
            classes,
            2.0,
            family="cross_entropy",
            sizes=(8192, 128256),
            compiled=False,
            target=Target(1.75, "ms"),
        ),
    ]


def _elementwise() -> list[Row]:
    def two(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make(m, n)

    def row(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make(n)

    def turned(make: Maker, m: int, n: int) -> Inputs:
        return make(m, n), make(n, m).t()

    sizes = (16384, 8192)
    shared = {"family": "pointwise", "sizes": sizes}
    return [
        rows_of("add", ours(torch.add), torch.add, two, 3.0, **shared,
              target=Target(4.1, "TB/s")),
        rows_of("add a row", ours(torch.add), torch.add, row, **shared,
              target=Target(4.0, "TB/s")),
        rows_of("add transposed", ours(torch.add), torch.add, turned, 3.0, **shared,
              target=Target(3.6, "TB/s")),
        rows_of("gelu", lambda x: pointwise.gelu(x, "none"), F.gelu, **shared),
        rows_of("dropout",
              lambda x: random.dropout(x, tuple(x.shape), (0, 0), p=0.1, seed=0, call=0),
              lambda x: F.dropout(x, 0.1), family="random", sizes=sizes, random=True),
    ]  # fmt: skip


def _reductions() -> list[Row]:
    def add(name: str, ours: Function, plain: Function, moved: float = 1.0) -> Row:
        return rows_of(name, ours, plain, moved=moved, family="reduce", sizes=(16384, 8192))

    return [
        add("sum of rows", lambda x: reduce.total(x, 1, False, None), lambda x: x.sum(1)),
        add("sum of columns", lambda x: reduce.total(x, 0, False, None), lambda x: x.sum(0)),
        add("sum", lambda x: reduce.total(x, None, False, None), torch.sum),
        add("var", lambda x: reduce.var(x, 1, 1, False), lambda x: x.var(1)),
        add("argmax", lambda x: reduce.argmax(x, 1, False), lambda x: x.argmax(1)),
        add("cumsum", lambda x: reduce.cumsum(x, 1, False), lambda x: x.cumsum(1), 2.0),
    ]


def _tables() -> list[Row]:
    def rows(make: Maker, words: int, width: int, count: int) -> Inputs:
        return make(words, width), make.below(words, count)

    def back(make: Maker, words: int, width: int, count: int) -> Inputs:
        return make(count, width), make.below(words, count), (words, width)

    def plain_back(dy: Tensor, index: Tensor, shape: Sizes) -> Tensor:
        return aten.embedding_dense_backward(dy, index, shape[0], -1, False)

    sizes, tiny = (128256, 4096, 65536), (7, 16, 20)
    return [
        Row(
            "gather_scatter",
            "embedding",
            sizes,
            tiny,
            rows,
            gather_scatter.embedding,
            lambda w, i: F.embedding(i, w),
            lambda words, width, count: 2 * count * width,
        ),
        Row(
            "gather_scatter",
            "embedding backward",
            sizes,
            tiny,
            back,
            lambda dy, i, shape: gather_scatter.embedding_grad(dy, i, shape, 0, -1, False),
            plain_back,
            lambda words, width, count: count * width + words * width,
            target=Target(1.0, "torch"),
        ),
    ]


def _optimizers() -> list[Row]:
    optimizer = flow.optim.AdamW([flow.nn.Parameter(flow.ones(1))], weight_decay=0.1)
    (group,) = optimizer.param_groups

    def states(make: Maker, count: int, size: int) -> Inputs:
        lists = [[make(size) for _ in range(count)] for _ in range(4)]
        lists[3] = [x.square() for x in lists[3]]
        return *lists, torch.tensor(3.0, device=make.device)

    def mine(p: Lists, g: Lists, m: Lists, v: Lists, step: Tensor) -> Tensor:
        finish(optimizer.update_lists(group, (p, g, m, v), LocalStep(1e-3, step)))
        return p[0]

    def plain(p: Lists, g: Lists, m: Lists, v: Lists, step: Tensor) -> Tensor:
        torch._fused_adamw_(
            p, g, m, v, [], [step] * len(p), lr=1e-3, beta1=0.9, beta2=0.999,
            weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip
        return p[0]

    return [
        Row("optim", "adamw", (256, 4 << 20), (3, 40), states, mine, plain,
            lambda count, size: 7 * count * size, dtype=torch.float32, compiled=False,
            target=Target(3.8, "TB/s")),
    ]  # fmt: skip


def _images() -> list[Row]:
    def image(make: Maker, n: int, c: int, size: int) -> Inputs:
        channels_last = {"memory_format": torch.channels_last}
        return make(n, c, size, size).to(**channels_last), make(c, c, 3, 3).to(**channels_last)

    def one(make: Maker, n: int, c: int, size: int) -> Inputs:
        return image(make, n, c, size)[:1]

    def moved(n: int, c: int, size: int) -> int:
        return 2 * n * c * size * size + 9 * c * c

    def depthwise(make: Maker, n: int, c: int, size: int) -> Inputs:
        return *one(make, n, c, size), make(c, 1, 3, 3)

    def columns(make: Maker, n: int, c: int, size: int) -> Inputs:
        return make(n, 64 * c, ((size - 8) // 4 + 1) ** 2), size

    def scaled(make: Maker, n: int, c: int, size: int) -> Inputs:
        vectors = (make(1, c, 1, 1) for _ in range(2))
        return *one(make, n, c, size), *vectors

    def normalized(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        mean, rstd, *_ = batch_norm.channel_statistics(x, None, None, 1.0, 1e-5)
        return batch_norm.batch_normalized(x, mean, rstd, w, b, 1e-5)

    def normalized_in_groups(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        mean, rstd = group_norm.group_statistics(x, x.shape[1] // 2, 1e-5)
        return group_norm.group_normalized(x, mean, rstd, w, b, x.shape[1] // 2, 1e-5, None)

    return [
        Row("conv", "3x3, channels last", (256, 256, 28), (2, 8, 5), image,
            lambda x, w: conv.convolution(x, w, None, *CONV),
            lambda x, w: F.conv2d(x, w, padding=1),
            moved, lambda n, c, size: 18 * n * c * c * size * size, target=Target(0.75, "torch")),
        Row("pool", "max 3x3, stride 2", (256, 64, 112), (2, 3, 6), one,
            lambda x: pool.max_pool(x, 2, WINDOW)[0],
            lambda x: F.max_pool2d(x, 3, 2, 1),
            lambda n, c, size: int(1.25 * n * c * size * size)),
        Row("conv", "3x3, depthwise", (256, 256, 28), (2, 8, 5), depthwise,
            lambda x, w: conv.convolution(x, w, None, *CONV[:-1], x.shape[1]),
            lambda x, w: F.conv2d(x, w, padding=1, groups=x.shape[1]),
            lambda n, c, size: 2 * n * c * size * size + 9 * c),
        Row("fold", "8x8, stride 4", (64, 16, 128), (2, 3, 16), columns,
            lambda x, size: fold.fold(x, (size, size), *WINDOWS),
            lambda x, size: F.fold(x, (size, size), *WINDOWS),
            lambda n, c, size: 5 * n * c * size * size),
        Row("batch_norm", "training, channels last", (256, 64, 112), (2, 3, 6), scaled,
            normalized,
            lambda x, w, b: F.batch_norm(x, None, None, w.flatten(), b.flatten(), True),
            lambda n, c, size: 3 * n * c * size * size),
        Row("group_norm", "two groups, channels last", (256, 64, 112), (2, 4, 6), scaled,
            normalized_in_groups,
            lambda x, w, b: F.group_norm(x, 2, w.flatten(), b.flatten()),
            lambda n, c, size: 3 * n * c * size * size),
    ]  # fmt: skip


def _attentions() -> list[Row]:
    def heads(make: Maker, b: int, h: int, s: int, d: int) -> Inputs:
        return make(b, h, s, d), make(b, h, s, d), make(b, h, s, d)

    def causal(q: Tensor) -> Pairs:
        return Pairs(True, q.shape[-1] ** -0.5)

    def with_gradient(make: Maker, *sizes: int) -> Inputs:
        inputs = [x.requires_grad_() for x in heads(make, *sizes)]
        y = F.scaled_dot_product_attention(*inputs, is_causal=True)
        q, k, v = (x.detach() for x in inputs)
        _, lse = attention.attention(q, k, v, None, causal(q), None)
        try:
            of_cudnn = by_cudnn(*inputs)
        except RuntimeError:  # it does not run here, which its row says
            of_cudnn = None
        return make(*sizes), y, of_cudnn, lse, *inputs

    def ours_grad(
        dy: Tensor, y: Tensor, of_cudnn: Tensor | None, lse: Tensor, *qkv: Tensor
    ) -> Tensor:
        q, k, v = (x.detach() for x in qkv)
        given = (dy, q, k, v, None, y.detach(), lse, causal(q), None)
        return attention.attention_grad(*given)[0]

    def plain_grad(
        dy: Tensor, y: Tensor, of_cudnn: Tensor | None, lse: Tensor, *qkv: Tensor
    ) -> Tensor:
        return torch.autograd.grad(y, qkv, dy, retain_graph=True)[0]

    def cudnn_grad(
        dy: Tensor, y: Tensor, of_cudnn: Tensor | None, lse: Tensor, *qkv: Tensor
    ) -> Tensor:
        if of_cudnn is None:
            raise LookupError("cuDNN has no attention here")
        return torch.autograd.grad(of_cudnn, qkv, dy, retain_graph=True)[0]

    def moved(b: int, h: int, s: int, d: int) -> int:
        return 4 * b * h * s * d

    def flops(b: int, h: int, s: int, d: int) -> int:
        return 2 * b * h * s * s * d  # causal: half of two products

    def mine(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention.attention(q, k, v, None, causal(q), None)[0]

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def by_cudnn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return plain(q, k, v)

    sizes, tiny = (4, 48, 8192, 128), (1, 2, 17, 16)
    return [
        Row("attention", "causal", sizes, tiny, heads, mine, plain, moved, flops,
            cudnn=by_cudnn, target=Target(500, "TFLOP/s")),
        Row("attention", "causal backward", sizes, tiny, with_gradient, ours_grad, plain_grad,
            lambda *s: 2 * moved(*s), lambda *s: int(2.5 * flops(*s)), compiled=False,
            cudnn=cudnn_grad, target=Target(330, "TFLOP/s")),
    ]  # fmt: skip


def main_rows() -> list[Row]:
    """The rows of the families that training is made of."""
    makers = (_products, _norms, _softmaxes, _elementwise, _reductions, _tables, _optimizers,
              _images, _attentions)  # fmt: skip
    return [row for make in makers for row in make()]
