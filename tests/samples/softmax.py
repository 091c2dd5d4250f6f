"""Samples of softmax and its kin."""

import torch

from onefold.testing import Sample, T

SAMPLES = [
    sample
    for name in ("softmax", "log_softmax")
    for sample in (
        Sample(name, (T(6, 4), 1)),
        Sample(name, (T(5, 7), 0)),
        Sample(name, (T(5, 7), -1)),
        Sample(name, (T(4, 3, 6), 1)),
        Sample(name, (T(6), 0)),
        Sample(name, (T(), 0)),
        Sample(name, (T(0, 3), 1)),
        Sample(name, (T(6, 4, low=-900.0, high=900.0), 1)),
        Sample(name, (T(6, 4, dtype=torch.float32), 1), {"dtype": torch.float64}, tol=1e-6),
    )
] + [Sample("softmin", (T(6, 4), 1), torch=torch.nn.functional.softmin)]
