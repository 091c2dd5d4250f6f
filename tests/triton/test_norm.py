"""layer_norm and rms_norm."""

import pytest
import torch
from triton_harness import assert_twin

from onefold.kernels import norm

DTYPES = [torch.float32, torch.float64, torch.float16]
SHAPES = [((5, 7), (7,)), ((3, 2, 33), (33,)), ((2, 3, 4), (3, 4)), ((8,), (8,)), ((0, 4), (4,))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "last"), SHAPES, ids=str)
def test_forward(shape, last, dtype):
    x, w, b = (torch.randn(size, dtype=dtype) for size in (shape, last, last))
    assert_twin(norm.layer_norm, x, w, b, last, 1e-5)
    assert_twin(norm.layer_norm, x, None, None, last, 1e-5)
    assert_twin(norm.layer_norm, x.transpose(0, -1).contiguous().transpose(0, -1), w, b, last, 0.1)
    assert_twin(norm.rms_norm, x, w, None, last, 1e-5)
    if dtype is not torch.float16:
        assert_twin(norm.layer_norm_kept, x, w, b, last, 1e-5)
