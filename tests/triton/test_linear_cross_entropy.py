"""The cross entropy of a linear layer in chunks of rows."""

import pytest
import torch
from triton_harness import assert_matches_reference, flat

from onefold.kernels import linear_cross_entropy_ref, select
from onefold.kernels.gpu.reduce import cross_entropy_kernels


@pytest.mark.parametrize("count", [None, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(70, 9), (3, 5, 8), (0, 4)], ids=str)
def test_shapes_and_dtypes(shape, dtype, count):
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    w = torch.randn(11, shape[-1], dtype=torch.float64).to(dtype)
    target = torch.randint(0, 11, shape[:-1])
    if target.numel():
        target.view(-1)[3] = -100
    count = None if count is None else torch.tensor(count)
    for kernel in (
        linear_cross_entropy_ref.linear_cross_entropy,
        linear_cross_entropy_ref.linear_cross_entropy_with_grads,
        linear_cross_entropy_ref.linear_cross_entropy_with_input_grad,
    ):
        assert_matches_reference(kernel, x, w, target, count, -100, None, slack=16)


def test_several_chunks(monkeypatch):
    x, w = torch.randn(70, 9), torch.randn(11, 9)
    target = torch.randint(0, 11, (70,))
    whole = linear_cross_entropy_ref.linear_cross_entropy_with_grads(x, w, target, None, 5, None)
    monkeypatch.setattr(linear_cross_entropy_ref, "CHUNK", 8)
    reference = linear_cross_entropy_ref.linear_cross_entropy_with_grads
    parts = assert_matches_reference(reference, x, w, target, None, 5, None, slack=16)
    for part, exact in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, exact)


@pytest.mark.parametrize("chunk", [2048, 32])
def test_halves_with_sums_in_float32(chunk, monkeypatch):
    """As in mixed precision: the loss and the gradient of the weight are not rounded."""
    monkeypatch.setattr(linear_cross_entropy_ref, "CHUNK", chunk)
    x, w = torch.randn(70, 9).bfloat16(), torch.randn(11, 9).bfloat16()
    args = x, w, torch.randint(0, 11, (70,)), torch.tensor(70), -100, torch.float32
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
        x.detach(), w.detach(), target, None, 4, None
    )
    exact = torch.nn.functional.cross_entropy(x @ w.T, target, ignore_index=4, reduction="sum")
    exact.backward()
    for found, wanted in ((loss, exact.detach()), (dx, x.grad), (dw, w.grad)):
        torch.testing.assert_close(found, wanted)


def test_the_mean_of_many_rows_in_float16():
    """Its gradient for a logit is at most 2**-16 here, and most are smaller than float16 has."""
    x, w = torch.randn(70, 9).half(), torch.randn(11, 9).half()
    target, count = torch.randint(0, 11, (70,)), torch.tensor(2**16)
    reference = linear_cross_entropy_ref.linear_cross_entropy_with_grads
    _, dx, dw = reference(x.float(), w.float(), target, count, -100, None)
    for function in (reference, select.triton_kernel(reference)):
        _, low_dx, low_dw = function(x, w, target, count, -100, torch.float32)
        torch.testing.assert_close(low_dx.float(), dx, rtol=0.01, atol=2.0**-24)
        torch.testing.assert_close(low_dw, dw, rtol=0.01, atol=2.0**-24)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_mean_of_no_rows_has_gradients_of_zero(dtype):
    x, w = torch.randn(5, 4).to(dtype), torch.randn(3, 4).to(dtype)
    target = torch.full((5,), -100)
    reference = linear_cross_entropy_ref.linear_cross_entropy_with_grads
    for function in (reference, select.triton_kernel(reference)):
        loss, dx, dw = function(x, w, target, torch.tensor(0), -100, None)
        assert loss.isnan()
        assert not dx.any()
        assert not dw.any()


def test_a_mean_in_float16_is_finite_where_the_sum_is_not():
    x, w = torch.full((300, 4), 16.0).half(), torch.tensor([[16.0] * 4, [-16.0] * 4]).half()
    target, count = torch.ones(300, dtype=torch.int64), torch.tensor(300)
    for reference in (
        linear_cross_entropy_ref.linear_cross_entropy,
        linear_cross_entropy_ref.linear_cross_entropy_with_grads,
    ):
        for function in (reference, select.triton_kernel(reference)):
            loss = flat([function(x, w, target, count, -100, None)])[0]
            assert (loss.dtype, loss.item()) == (torch.float16, 2048)


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
    losses, slope = cross_entropy_kernels.row_losses_and_grad(x, target, None, -100)
    assert slope.data_ptr() == x.data_ptr()
    torch.testing.assert_close(losses, lost.detach())
    torch.testing.assert_close(x, wanted.grad)
