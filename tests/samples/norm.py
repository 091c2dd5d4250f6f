"""Samples of layer_norm and rms_norm."""

import torch

from onefold.engine.ops.arithmetic import ADD
from onefold.engine.ops.layer_norm import LAYER_NORM_WITH_STATS, layer_norm
from onefold.engine.ops.norm import LAYER_NORM, RMS_NORM, splits_rows_only
from onefold.testing import Sample, T


def torch_layer_norm(x, weight, bias, shape, eps):
    return torch.layer_norm(x, shape, weight, bias, eps)


def torch_rms_norm(x, weight, bias, shape, eps):
    return torch.rms_norm(x, shape, weight, eps)


def low(norm, function, *others):
    """A norm that gives its result in a lower precision too."""
    entry = norm.with_low_copy

    def call(x, *args):
        whole = splits_rows_only(x.meta, (4,)) and not x.meta.partial
        # Statistics are kept where rows are whole.
        return (entry if whole else LAYER_NORM.with_low_copy)(x, *args)[:2]

    return Sample(
        entry.__name__,
        (T(6, 4), *others, (4,), 1e-5, torch.float32),
        call=entry if norm.num_outputs == 1 else call,
        torch=lambda *args: (y := function(*args[:-1]), y.detach().to(args[-1])),
        id=entry.__name__,
        tol=1e-6,
    )


def frozen(*shape):
    """A layer_norm whose weights need no gradients."""

    def of(function):
        return lambda x, weight, bias: function(x, shape[-1:], weight.detach(), bias.detach())

    return Sample(
        "layer_norm",
        (T(*shape), T(shape[-1]), T(shape[-1])),
        call=of(layer_norm),
        torch=of(torch.layer_norm),
        id="layer_norm of frozen weights",
    )


SAMPLES = [
    frozen(6, 4),
    frozen(5, 3, 7),
    Sample("layer_norm", (T(6, 4), (4,), T(4), T(4))),
    Sample("layer_norm", (T(5, 7), (7,), T(7))),
    Sample("layer_norm", (T(5, 7), [7])),
    Sample(
        "layer_norm",
        (T(5, 7), (7,)),
        {"bias": T(7)},
        torch=lambda x, shape, bias: torch.layer_norm(x, shape) + bias,
    ),
    Sample("layer_norm", (T(4, 3, 6), (3, 6), T(3, 6), T(3, 6)), {"eps": 0.1}),
    Sample("layer_norm", (T(2, 3, 6), (6,), T(6), T(6))),
    Sample("layer_norm", (T(6), (6,), T(6), T(6))),
    Sample("layer_norm", (T(0, 4), (4,), T(4), T(4))),
    Sample("rms_norm", (T(6, 4), (4,), T(4))),
    Sample("rms_norm", (T(5, 7), (7,)), {"eps": 1e-3}),
    Sample("rms_norm", (T(4, 3, 6), (3, 6), T(3, 6))),
    Sample("rms_norm", (T(6), (6,), T(6))),
    Sample("rms_norm", (T(5, 3, dtype=torch.complex128), (3,), T(3, dtype=torch.complex128), 0.1)),
    Sample("rms_norm", (T(6, 4, dtype=torch.float32), (4,), T(4, dtype=torch.float32)), tol=1e-5),
    low(LAYER_NORM, torch_layer_norm, T(4), None),
    low(LAYER_NORM, torch_layer_norm, T(4), T(4)),
    low(LAYER_NORM_WITH_STATS, torch_layer_norm, T(4), T(4)),
    low(RMS_NORM, torch_rms_norm, T(4), None),
    Sample(
        "add_and_low_copy",
        (T(6, 4), T(6, 4), torch.float32),
        call=ADD.with_low_copy,
        torch=lambda a, b, dtype: (a + b, (a + b).to(dtype)),
        grad=False,
        tol=1e-6,
    ),
]
