"""Ops on tensors of more than 2**31 elements, for the driver without a GPU.

Their offsets do not fit 32 bits, which `testing/gpu_driver/offset_ranges.py` finds in the IR.
"""

import onefold as flow
from onefold import nn

F = nn.functional
ROWS, COLUMNS = 2**15 + 3, 2**16 + 40
TOKENS, WIDTH = 2**20, 4096
HALF = flow.bfloat16


def new(*shape, dtype=HALF, learns=True):
    x = flow.empty(*shape, dtype=dtype)
    x.requires_grad_(learns and dtype.is_floating_point)
    return x


def matrix(**options):
    return new(ROWS, COLUMNS, **options)


def numbers(*shape):
    return new(*shape, dtype=flow.int64)


def flags(*shape):
    return new(*shape, dtype=flow.bool)


def images(channels=64):
    return new(1024, channels, 224, 224)


def heads(features=128):
    return new(64, 32, 16384, features)


def convolution(x, groups=1, kernel=3, outs=64, **options):
    weight = new(outs, x.shape[1] // groups, *[kernel] * (x.ndim - 2))
    return F.conv1d(x, weight, groups=groups, **options) if x.ndim == 3 else (
        F.conv2d if x.ndim == 4 else F.conv3d
    )(x, weight, groups=groups, **options)  # fmt: skip


def channels_last():
    return new(1024, 224, 224, 64).permute(0, 3, 1, 2)


def normalized(x):
    running = flow.zeros(64), flow.ones(64)
    return F.batch_norm(x, *running, new(64), new(64), training=True)


def angles():
    return [new(16384, 64, dtype=flow.float32, learns=False) for _ in range(2)]


def of_one_product():
    parts = new(64, 16384, 3 * WIDTH).split(WIDTH, 2)
    return [x.view(64, 16384, 32, 128).transpose(1, 2) for x in parts]


OPS = {
    "add": lambda: matrix() + matrix(),
    "add a row": lambda: matrix() + new(COLUMNS),
    "add a column": lambda: matrix() + new(ROWS, 1),
    "gelu of a transpose": lambda: F.gelu(matrix().T),
    "gated": lambda: F.silu(matrix()) * matrix(),
    "cast": lambda: matrix().float(),
    "where": lambda: flow.where(flags(ROWS, COLUMNS), matrix(), matrix()),
    "masked_fill": lambda: flow.masked_fill(matrix(), flags(ROWS, COLUMNS), 0.0),
    "tril": lambda: flow.tril(matrix()),
    "dropout": lambda: F.dropout(matrix(), 0.1),
    "rand": lambda: flow.rand(ROWS, COLUMNS),
    "randn": lambda: flow.randn(ROWS, COLUMNS, dtype=HALF),
    "sum of columns": lambda: matrix().sum(0),
    "sum of rows": lambda: matrix().sum(1),
    "mean": lambda: matrix().mean(),
    "max of rows": lambda: matrix().max(1)[0],
    "max of columns": lambda: matrix().max(0)[0],
    "var of rows": lambda: matrix().var(1),
    "var of columns": lambda: matrix().var(0),
    "cumsum of rows": lambda: matrix().cumsum(1),
    "cumsum of columns": lambda: matrix().cumsum(0),
    "softmax of rows": lambda: F.softmax(matrix(), 1),
    "softmax of columns": lambda: F.softmax(matrix(), 0),
    "log_softmax": lambda: F.log_softmax(matrix(), 1),
    "layer_norm": lambda: F.layer_norm(new(TOKENS, WIDTH), (WIDTH,), new(WIDTH), new(WIDTH)),
    "rms_norm": lambda: F.rms_norm(new(TOKENS, WIDTH), (WIDTH,), new(WIDTH)),
    "group_norm": lambda: F.group_norm(images(), 8, new(64), new(64)),
    "group_norm, channels last": lambda: F.group_norm(channels_last(), 8, new(64), new(64)),
    "batch_norm": lambda: normalized(images()),
    "batch_norm, channels last": lambda: normalized(channels_last()),
    "cross_entropy": lambda: F.cross_entropy(matrix(), numbers(ROWS)),
    "cross_entropy in float32": lambda: F.cross_entropy(matrix(dtype=flow.float32), numbers(ROWS)),
    "linear_cross_entropy": lambda: F.linear_cross_entropy(
        new(ROWS, 1024), new(COLUMNS, 1024), numbers(ROWS)
    ),
    "mse_loss": lambda: F.mse_loss(matrix(), matrix(learns=False)),
    "linear": lambda: F.linear(new(2 * TOKENS, 2048), new(8192, 2048), new(8192)),
    "mm": lambda: new(ROWS, 256) @ new(256, COLUMNS),
    "mm of odd sizes": lambda: new(ROWS, 255) @ new(255, COLUMNS + 1),
    "bmm": lambda: flow.bmm(new(4096, 1024, 64), new(4096, 64, 1024)),
    "attention": lambda: F.scaled_dot_product_attention(heads(), heads(), heads(), is_causal=True),
    "attention of one product": lambda: F.scaled_dot_product_attention(
        *of_one_product(), is_causal=True
    ),
    "attention with a mask": lambda: F.scaled_dot_product_attention(
        *(new(8, 8, 16384, 64) for _ in range(3)), attn_mask=flags(8, 8, 16384, 16384)
    ),
    "rotary": lambda: F.rotary(heads(), *angles()),
    "embedding": lambda: F.embedding(numbers(TOKENS), new(128256, WIDTH)),
    "embedding of many rows": lambda: F.embedding(numbers(4096), new(TOKENS, WIDTH)),
    "cat": lambda: flow.cat([matrix(), matrix()], 1),
    "cat of rows": lambda: flow.cat([matrix(), matrix()]),
    "cat of vectors": lambda: flow.cat([new(2**30) for _ in range(9)]),
    "stack": lambda: flow.stack([new(2**30) for _ in range(4)]),
    "pad": lambda: F.pad(matrix(), (1, 2, 3, 4)),
    "repeat": lambda: new(ROWS, COLUMNS // 2).repeat(1, 3),
    "flip": lambda: matrix().flip(1),
    "roll": lambda: matrix().roll(3, 1),
    "slice": lambda: matrix()[:, 1:] * 2,
    "sort of rows": lambda: matrix().sort(1)[0],
    "sort": lambda: new(2**31 + TOKENS, learns=False).sort()[0],
    "topk": lambda: matrix().topk(5, 1)[0],
    "gather in rows": lambda: flow.gather(matrix(), 1, numbers(ROWS, COLUMNS)),
    "gather in columns": lambda: flow.gather(matrix(), 0, numbers(ROWS, COLUMNS)),
    "scatter_add": lambda: flow.scatter_add(matrix(), 1, numbers(ROWS, COLUMNS), matrix()),
    "index_select": lambda: flow.index_select(matrix(), 0, numbers(ROWS)),
    "index_add": lambda: flow.index_add(matrix(), 0, numbers(ROWS), matrix()),
    "index_reduce": lambda: flow.index_reduce(matrix(), 0, numbers(ROWS), matrix(), "amax"),
    "scatter_reduce": lambda: flow.scatter_reduce(
        matrix(), 0, numbers(ROWS, COLUMNS), matrix(), "amax"
    ),
    "index of columns": lambda: matrix()[:, numbers(COLUMNS)],
    "conv1d": lambda: convolution(new(1024, 64, 224 * 224), padding=1),
    "conv2d": lambda: convolution(images(), padding=1),
    "conv2d of three channels": lambda: convolution(
        new(8192, 3, 448, 448), kernel=7, stride=2, padding=3
    ),
    "conv2d of each channel": lambda: convolution(images(), groups=64, padding=1),
    "conv2d of groups": lambda: convolution(images(), groups=4, padding=1),
    "conv3d": lambda: convolution(new(64, 64, 16, 224, 224), padding=1),
    "max_pool2d": lambda: F.max_pool2d(images(), 3, 2, 1),
    "avg_pool2d": lambda: F.avg_pool2d(images(), 2),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(images(), 1),
    "fold": lambda: F.fold(new(256, 64 * 9, 224 * 224), (224, 224), 3, padding=1),
    "interpolate": lambda: F.interpolate(new(1024, 64, 112, 112), scale_factor=2, mode="bilinear"),
}


def large_op(name):
    """A function that runs an op, and its gradient if it has one."""

    def step():
        y = OPS[name]()
        if y.requires_grad:
            y.backward(new(*y.shape, dtype=y.dtype, learns=False))

    return step
