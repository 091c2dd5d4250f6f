"""The cross entropy of a linear layer in chunks of rows."""

import pytest
import torch
from triton_harness import assert_matches_reference

from onefold.kernels import linear_cross_entropy_ref


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(70, 9), (3, 5, 8), (0, 4)], ids=str)
def test_shapes_and_dtypes(shape, dtype):
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    w = torch.randn(11, shape[-1], dtype=torch.float64).to(dtype)
    target = torch.randint(0, 11, shape[:-1])
    if target.numel():
        target.view(-1)[3] = -100
    for kernel in (
        linear_cross_entropy_ref.linear_cross_entropy,
        linear_cross_entropy_ref.linear_cross_entropy_with_grads,
    ):
        assert_matches_reference(kernel, x, w, target, -100, slack=16)


def test_several_chunks(monkeypatch):
    x, w = torch.randn(70, 9), torch.randn(11, 9)
    target = torch.randint(0, 11, (70,))
    whole = linear_cross_entropy_ref.linear_cross_entropy_with_grads(x, w, target, 5)
    monkeypatch.setattr(linear_cross_entropy_ref, "CHUNK", 32)
    parts = assert_matches_reference(
        linear_cross_entropy_ref.linear_cross_entropy_with_grads, x, w, target, 5, slack=16
    )
    for part, exact in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, exact)


def test_against_torch():
    x, w = torch.randn(20, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    target = torch.randint(0, 9, (20,))
    loss, dx, dw = linear_cross_entropy_ref.linear_cross_entropy_with_grads(
        x.detach(), w.detach(), target, 4
    )
    exact = torch.nn.functional.cross_entropy(x @ w.T, target, ignore_index=4, reduction="sum")
    exact.backward()
    for found, wanted in ((loss, exact.detach()), (dx, x.grad), (dw, w.grad)):
        torch.testing.assert_close(found, wanted)
