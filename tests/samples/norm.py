"""Samples of layer_norm and rms_norm."""

import torch

from onefold.testing import Sample, T

SAMPLES = [
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
    Sample("rms_norm", (T(6, 4, dtype=torch.float32), (4,), T(4, dtype=torch.float32)), tol=1e-5),
]
