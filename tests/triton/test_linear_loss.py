"""The cross entropy of a linear layer in chunks of rows."""

import pytest
import torch
from triton_harness import assert_twin

from onefold.kernels import linear_loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(70, 9), (3, 5, 8), (0, 4)], ids=str)
def test_shapes_and_dtypes(shape, dtype):
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    w = torch.randn(11, shape[-1], dtype=torch.float64).to(dtype)
    target = torch.randint(0, 11, shape[:-1])
    if target.numel():
        target.view(-1)[3] = -100
    for kernel in (linear_loss.linear_class_loss, linear_loss.linear_class_loss_kept):
        assert_twin(kernel, x, w, target, -100, slack=16)


def test_several_chunks(monkeypatch):
    x, w = torch.randn(70, 9), torch.randn(11, 9)
    target = torch.randint(0, 11, (70,))
    whole = linear_loss.linear_class_loss_kept(x, w, target, 5)
    monkeypatch.setattr(linear_loss, "CHUNK", 32)
    parts = assert_twin(linear_loss.linear_class_loss_kept, x, w, target, 5, slack=16)
    for part, exact in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, exact)


def test_against_torch():
    x, w = torch.randn(20, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    target = torch.randint(0, 9, (20,))
    loss, dx, dw = linear_loss.linear_class_loss_kept(x.detach(), w.detach(), target, 4)
    exact = torch.nn.functional.cross_entropy(x @ w.T, target, ignore_index=4, reduction="sum")
    exact.backward()
    for found, wanted in ((loss, exact.detach()), (dx, x.grad), (dw, w.grad)):
        torch.testing.assert_close(found, wanted)
