"""Gated activations and their gradients."""

import pytest
import torch
from triton_harness import assert_matches_reference

from onefold.kernels import gated_ref

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("act", ["silu", "gelu", "gelu_tanh"])
def test_gated(act, dtype):
    for shape in [(5, 7), (2050,), (0, 3), ()]:
        gate, up, dy = (torch.randn(shape).mul(3).to(dtype) for _ in range(3))
        assert_matches_reference(gated_ref.gated, gate, up, act, slack=4)
        assert_matches_reference(gated_ref.gated_grad, dy, gate, up, act, slack=20)
    x = torch.randn(4, 6).to(dtype)
    assert_matches_reference(gated_ref.gated, x.T, torch.randn(6, 4).to(dtype), act, slack=4)
    large = torch.tensor([-1e4, -90.0, 0.0, 90.0, 1e4]).to(dtype)
    assert_matches_reference(gated_ref.gated, large, torch.ones_like(large), act)
