"""Samples of parts by coordinates and slices, of metrics, and of OneFlow's other functions."""

import torch

from onefold.testing import I, Sample, T


def scattered(index, update, shape):
    zeros = torch.zeros(shape, dtype=update.dtype)
    return zeros.index_put(tuple(index.unbind(-1)), update, accumulate=True)


def updated(x, index, update):
    return x.index_put(tuple(index.unbind(-1)), update)


def auc(label, pred):
    pairs = pred[label == 1][:, None] - pred[label == 0]
    return ((pairs > 0) + 0.5 * (pairs == 0)).double().mean().reshape(1).float()


PLACES = torch.tensor([[0, 2], [5, 1], [3, 3]])

SAMPLES = [
    Sample("gather_nd", (T(6, 4), PLACES), torch=lambda x, i: x[tuple(i.unbind(-1))]),
    Sample("gather_nd", (T(6, 4), PLACES[:, :1]), torch=lambda x, i: x[i[:, 0]]),
    Sample("scatter_nd", (PLACES, T(3), (6, 4)), torch=scattered),
    Sample("scatter_nd", (torch.tensor([[1], [1], [4]]), T(3, 4), (6, 4)), torch=scattered),
    Sample("tensor_scatter_nd_update", (T(6, 4), PLACES, T(3)), torch=updated),
    Sample("batch_gather", (T(6, 4), I(3, high=6)), torch=lambda x, i: x[i]),
    Sample("batch_gather", (T(3, 6, 4), I(3, 5, high=6)),
           torch=lambda x, i: torch.stack([a[b] for a, b in zip(x, i, strict=True)])),
    Sample("slice", (T(6, 4), [(1, 5, 2), (None, 3, None)]), torch=lambda x, s: x[1:5:2, :3]),
    Sample("in_top_k", (I(6, high=4), T(6, 4), 2), grad=False,
           torch=lambda i, x, k: (x > x.gather(1, i[:, None])).sum(1) < k),
    Sample("roc_auc_score", (torch.tensor([0, 1, 1, 0, 1, 0]), I(6, high=3)), grad=False,
           torch=auc),
    Sample("broadcast_like", (T(4, 1), T(6, 4, 3)), torch=lambda x, y: x.expand(6, 4, 3)),
    Sample("broadcast_like", (T(6, 3), T(6, 4, 3), [1]),
           torch=lambda x, y, axes: x[:, None].expand(6, 4, 3)),
    Sample("square_relu", (T(6, 4),), torch=lambda x: torch.relu(x) ** 2),
    Sample("quick_gelu", (T(6, 4),), torch=lambda x: x * torch.sigmoid(1.702 * x)),
]  # fmt: skip
