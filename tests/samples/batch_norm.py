"""Samples of batch_norm, group_norm and instance_norm."""

from typing import Any

import torch
from torch.nn.functional import batch_norm, group_norm, instance_norm

from onefold.testing import Sample, T

VARIANCE = T(4, low=0.5, high=2.0)


def trained(x: torch.Tensor, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    dims = (0, *range(2, x.ndim))
    y = batch_norm(x, None, None, weight, bias, True, eps=eps)
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    return y, wide.mean(dims), wide.var(dims)


def scaled_groups(x: torch.Tensor, groups: int, weight: Any) -> Any:
    return group_norm(x, groups) * weight.view(-1, *[1] * (x.ndim - 2))


SAMPLES = [
    Sample("batch_norm", (T(6, 4, 3, 2), T(4), VARIANCE, T(4), T(4)), torch=batch_norm, grad=False),
    Sample(
        "batch_norm",
        (T(5, 4), T(4), VARIANCE, None, None),
        {"eps": 0.1},
        torch=batch_norm,
        grad=False,
    ),
    Sample(
        "batch_norm", (T(6, 4, 3, 2), None, None, T(4), T(4)), {"training": True}, torch=batch_norm
    ),
    Sample("batch_norm", (T(5, 4), None, None), {"training": True, "eps": 0.01}, torch=batch_norm),
    Sample(
        "batch_norm",
        (T(6, 4, 2, dtype=torch.float16), None, None),
        {"training": True},
        torch=batch_norm,
    ),
    Sample("batch_norm", (T(5, 4, 2), None, None, T(4)), {"training": True}, torch=batch_norm),
    Sample("batch_norm_train", (T(7, 4, 3), T(4), T(4)), torch=trained),
    Sample("batch_norm_train", (T(6, 3),), torch=trained),
    Sample("group_norm", (T(6, 4, 5), 2, T(4), T(4))),
    Sample("group_norm", (T(5, 6, 2, 2), 3)),
    Sample("group_norm", (T(4, 6), 1, T(6), T(6)), {"eps": 0.1}),
    Sample("group_norm", (T(6, 8, 4), 4, T(8)), torch=scaled_groups),  # not one function of torch's
    Sample("group_norm", (T(4, 3, 2, 3), 3, T(3)), torch=scaled_groups),
    Sample("instance_norm", (T(3, 4, 5, 2),), torch=instance_norm),
    Sample("instance_norm", (T(4, 4, 5, 2, dtype=torch.float16),), torch=instance_norm),
    Sample("instance_norm", (T(4, 3, 6), None, None, T(3), T(3)), torch=instance_norm),
    Sample(
        "instance_norm",
        (T(4, 3, 6), T(3), T(3, low=0.5), T(3), T(3), False),
        torch=instance_norm,
        grad=False,
    ),
]
