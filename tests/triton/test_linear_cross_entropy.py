"""The cross entropy of a linear layer in chunks of rows."""

import pytest
import torch
from triton_harness import assert_matches_reference, flat

from onefold.kernels import linear_cross_entropy_ref, select
from onefold.kernels.gpu.reduce import cross_entropy_kernels


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
        assert_matches_reference(kernel, x, w, target, -100, None, slack=16)


def test_several_chunks(monkeypatch):
    x, w = torch.randn(70, 9), torch.randn(11, 9)
    target = torch.randint(0, 11, (70,))
    whole = linear_cross_entropy_ref.linear_cross_entropy_with_grads(x, w, target, 5, None)
    monkeypatch.setattr(linear_cross_entropy_ref, "CHUNK", 8)
    parts = assert_matches_reference(
        linear_cross_entropy_ref.linear_cross_entropy_with_grads, x, w, target, 5, None, slack=16
    )
    for part, exact in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, exact)


@pytest.mark.parametrize("chunk", [2048, 32])
def test_halves_with_sums_in_float32(chunk, monkeypatch):
    """As in mixed precision: the loss and the gradient of the weight are not rounded."""
    monkeypatch.setattr(linear_cross_entropy_ref, "CHUNK", chunk)
    x, w = torch.randn(70, 9).bfloat16(), torch.randn(11, 9).bfloat16()
    args = x, w, torch.randint(0, 11, (70,)), -100, torch.float32
    alone = linear_cross_entropy_ref.linear_cross_entropy(*args)
    wanted = linear_cross_entropy_ref.linear_cross_entropy_with_grads(*args)
    for reference, values in (
        (linear_cross_entropy_ref.linear_cross_entropy, (alone,)),
        (linear_cross_entropy_ref.linear_cross_entropy_with_grads, wanted),
    ):
        found = select.triton_kernel(reference)(*args)
        for a, b in zip(flat([found]), values, strict=True):
            assert a.dtype is b.dtype
            torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)
    assert [part.dtype for part in wanted] == [torch.float32, torch.bfloat16, torch.float32]


def test_against_torch():
    x, w = torch.randn(20, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    target = torch.randint(0, 9, (20,))
    loss, dx, dw = linear_cross_entropy_ref.linear_cross_entropy_with_grads(
        x.detach(), w.detach(), target, 4, None
    )
    exact = torch.nn.functional.cross_entropy(x @ w.T, target, ignore_index=4, reduction="sum")
    exact.backward()
    for found, wanted in ((loss, exact.detach()), (dx, x.grad), (dw, w.grad)):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("arch", "dtype", "classes", "block", "warps"),
    [
        ("sm_90", torch.bfloat16, 16384, 4096, 4),
        ("sm_90", torch.bfloat16, 50304, 8192, 8),
        ("sm_90", torch.bfloat16, 128256, 8192, 8),
        ("sm_90", torch.float32, 16384, 4096, 8),
        ("sm_90", torch.bfloat16, 1000, 1024, 4),
        ("sm_100", torch.bfloat16, 50304, 4096, 4),
    ],
)
def test_programs_for_long_rows_are_larger(monkeypatch, arch, dtype, classes, block, warps):
    monkeypatch.setattr(cross_entropy_kernels, "architecture", lambda: arch)
    t = cross_entropy_kernels._rule_of_both(dtype, 8192, classes, 1)
    assert (t.block, t.warps) == (block, warps)
    assert t.kept_block == (4 if block < 4096 else 1)


def test_the_gradient_takes_the_place_of_the_logits():
    x, target = torch.randn(3, 40), torch.tensor([1, 39, -100])
    wanted = x.clone().requires_grad_()
    lost = torch.nn.functional.cross_entropy(wanted, target, reduction="none")
    lost.sum().backward()
    losses, slope = cross_entropy_kernels.row_losses_and_grad(x, target, -100)
    assert slope.data_ptr() == x.data_ptr()
    torch.testing.assert_close(losses, lost.detach())
    torch.testing.assert_close(x, wanted.grad)
