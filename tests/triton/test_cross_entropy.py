"""Losses over classes, whole and in parts."""

import math

import pytest
import torch
from device_checks import DEVICE
from hypothesis import given, settings, strategies as st
from triton_harness import assert_matches_reference, flat

from onefold.kernels import cross_entropy_ref, select
from onefold.kernels.cross_entropy_ref import Classes

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE = [
    ((6, 7), (6,)),
    ((2, 5, 3), (2, 3)),
    ((9,), ()),
    ((3, 33, 2, 2), (3, 2, 2)),
    ((0, 4), (0,)),
]


def drawn(shape, of_target, dtype, weighted):
    classes = shape[1] if len(shape) > 1 else shape[0]
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    target = torch.randint(0, classes, of_target)
    weight = torch.rand(classes, dtype=torch.float64).to(dtype) + 0.5 if weighted else None
    if target.ndim and target.numel():
        target.view(-1)[0] = 2
        target.view(-1)[-1] = -100
    return x, target, weight


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "of_target"), WHOLE, ids=str)
def test_whole(shape, of_target, dtype):
    for number, reduction in enumerate(("none", "sum", "mean")[: 3 if 0 not in shape else 2]):
        for log_input, smoothing, weighted in (
            (False, 0.0, number == 1),
            (True, 0.0, number != 1),
            (False, 0.3, number == 2),
        ):
            x, target, weight = drawn(shape, of_target, dtype, weighted)
            if log_input:
                x = x.log_softmax(1 if x.ndim > 1 else 0)
            attrs = (log_input, reduction, -100, smoothing)
            y = assert_matches_reference(
                cross_entropy_ref.whole_cross_entropy, x, target, weight, *attrs, slack=4
            )
            dy = torch.randn(y.shape, dtype=torch.float64).to(dtype)
            assert_matches_reference(
                cross_entropy_ref.whole_cross_entropy_grad, dy, x, target, weight, *attrs, slack=4
            )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "of_target"), WHOLE[:3], ids=str)
def test_the_logarithms_of_sums_are_kept(shape, of_target, dtype):
    for reduction, smoothing, weighted in (
        ("none", 0.3, True),
        ("sum", 0.0, False),
        ("mean", 0.2, True),
    ):
        x, target, weight = drawn(shape, of_target, dtype, weighted)
        attrs = (reduction, -100, smoothing)
        y, lse = assert_matches_reference(
            cross_entropy_ref.whole_cross_entropy_with_lse, x, target, weight, *attrs, slack=4
        )
        dy = torch.randn(y.shape, dtype=torch.float64).to(dtype)
        grad = cross_entropy_ref.whole_cross_entropy_grad
        args = (dy, x, target, weight, False, *attrs)
        kept = assert_matches_reference(grad, *args, lse, slack=4)
        if dtype.itemsize >= 4:
            torch.testing.assert_close(kept, grad(*args))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_losses_of_halves_in_float32_are_those_of_widened_logits(dtype):
    """In the blocks in which wide logits are added up, so that no bit differs."""
    x, target = torch.randn(3, 9000).to(dtype), torch.tensor([5, 0, 8999])
    for name in ("whole_cross_entropy", "whole_cross_entropy_with_lse"):
        kernel = select.triton_kernel(getattr(cross_entropy_ref, name))
        attrs = (*[False] * (name == "whole_cross_entropy"), "mean", -100, 0.0, torch.float32)
        found, wanted = (kernel(given, target, None, *attrs) for given in (x, x.float()))
        for a, b in zip(flat([found]), flat([wanted]), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True], ids=str)
def test_parts(weighted, dtype):
    for shape, of_target in WHOLE[:2]:
        x, target, weight = drawn(shape, of_target, dtype, weighted)
        lse = x.to(torch.promote_types(dtype, torch.float32)).logsumexp(1)
        for first, last in ((0, 2), (2, shape[1])):
            for smoothing, each in ((0.0, True), (0.25, False)):
                classes = Classes(first, shape[1], -100, smoothing)
                part = x[:, first:last]
                given = torch.randn(of_target if each else ())
                for offset in (lse, None) if smoothing == 0.0 else (lse,):
                    dy = given.to(dtype if offset is None else offset.dtype)
                    assert_matches_reference(
                        cross_entropy_ref.cross_entropy,
                        part,
                        target,
                        weight,
                        offset,
                        classes,
                        slack=4,
                    )
                    args = (dy, part, target, weight, offset, classes)
                    assert_matches_reference(cross_entropy_ref.cross_entropy_grad, *args, slack=4)
                assert_matches_reference(
                    cross_entropy_ref.target_weights, target, weight, classes, dtype, slack=4
                )
        bare = Classes(0, 0, -100, 0.0)  # without smoothing nobody need say how many classes
        assert_matches_reference(cross_entropy_ref.target_weights, target, weight, bare, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "of_target"), [*WHOLE[:3], ((3, 9000), (3,))], ids=str)
def test_the_loss_and_its_gradient_in_one_kernel(shape, of_target, dtype):
    x, target, _ = drawn(shape, of_target, dtype, False)
    for reduction in ("none", "sum", "mean") if x.numel() < 9000 else ("mean",):
        for of_loss in {None, torch.promote_types(dtype, torch.float32)}:
            kernels = [
                select.triton_kernel(function)
                for function in (
                    cross_entropy_ref.whole_cross_entropy_with_lse,
                    cross_entropy_ref.whole_cross_entropy_grad,
                    cross_entropy_ref.whole_cross_entropy_and_grad,
                )
            ]
            y, lse = kernels[0](x, target, None, reduction, -100, 0.0, of_loss)
            for dy in (None, torch.randn(y.shape).to(y.dtype)):
                given = torch.ones_like(y) if dy is None else dy
                dx = kernels[1](given, x, target, None, False, reduction, -100, 0.0, lse)
                found = kernels[2](dy, x, target, reduction, -100, of_loss)
                for a, b in zip(found, (y, dx), strict=True):
                    assert a.dtype == b.dtype and torch.equal(a, b)
                assert_matches_reference(
                    cross_entropy_ref.whole_cross_entropy_and_grad,
                    *(dy, x, target, reduction, -100, of_loss), slack=4,
                )  # fmt: skip


def test_many_classes():
    x, target, weight = drawn((2, 9001), (2,), torch.float32, True)
    target[1] = 9000
    for smoothing in (0.0, 0.1):
        attrs = (False, "mean", -100, smoothing)
        dy = torch.tensor(0.7)
        assert_matches_reference(
            cross_entropy_ref.whole_cross_entropy, x + 100.0, target, weight, *attrs
        )
        assert_matches_reference(
            cross_entropy_ref.whole_cross_entropy_grad, dy, x, target, weight, *attrs
        )


def test_masked_classes_and_ignored_targets():
    x = torch.randn(3, 6)
    x[:, 4:] = -math.inf
    target = torch.tensor([1, 7, 3])
    for reduction in ("none", "mean"):
        attrs = (False, reduction, 7, 0.0)
        y = assert_matches_reference(cross_entropy_ref.whole_cross_entropy, x, target, None, *attrs)
        assert_matches_reference(
            cross_entropy_ref.whole_cross_entropy_grad, torch.ones_like(y), x, target, None, *attrs
        )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_are_masked_as_a_whole(dtype, reduction):
    """By the least number, with a target or none; no target at all has no gradient."""
    x = torch.randn(4, 5).to(dtype)
    x[:2] = torch.finfo(dtype).min
    x[2, 0] = torch.finfo(dtype).max
    dy, attrs = torch.ones((), dtype=dtype), (None, False, reduction, -100, 0.0)
    for target in (torch.tensor([-100, 1, 1, 2]), torch.full((4,), -100)):
        grad = cross_entropy_ref.whole_cross_entropy_grad
        assert_matches_reference(grad, dy, x, target, *attrs, slack=4)
        found = select.triton_kernel(grad)(dy, x, target, *attrs)
        assert found.isfinite().all() and not found[target == -100].any()


@pytest.mark.skipif(DEVICE == "cuda", reason="only checked on the CPU: see `check_targets`")
def test_a_target_that_is_no_class_is_refused():
    whole = select.triton_kernel(cross_entropy_ref.whole_cross_entropy)
    with pytest.raises(IndexError, match="9 is out of bounds"):
        whole(torch.randn(2, 4), torch.tensor([0, 9]), None, False, "sum", -100, 0.0)


@settings(max_examples=10)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 3), st.integers(0, 9))
def test_shapes(batch, classes, inner, seed):
    torch.manual_seed(seed)
    x = torch.randn(inner, classes, batch).transpose(0, 2)
    target = torch.randint(0, classes, (batch, inner))
    y = assert_matches_reference(
        cross_entropy_ref.whole_cross_entropy, x, target, None, False, "none", -100, 0.0
    )
    dy = torch.randn(y.shape)
    assert_matches_reference(
        cross_entropy_ref.whole_cross_entropy_grad, dy, x, target, None, False, "none", -100, 0.0
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_many_targets_are_added_up_by_several_programs(weighted):
    x, target, weight = drawn((17001, 3), (17001,), torch.float32, weighted)
    for smoothing in (0.0, 0.2):
        attrs = (False, "mean", -100, smoothing)
        whole = cross_entropy_ref.whole_cross_entropy
        y = assert_matches_reference(whole, x, target, weight, *attrs, slack=4)
        grad = cross_entropy_ref.whole_cross_entropy_grad
        assert_matches_reference(grad, torch.ones_like(y), x, target, weight, *attrs, slack=4)
    nothing = torch.full_like(target, -100)
    kernel = select.triton_kernel(cross_entropy_ref.whole_cross_entropy)
    assert kernel(x, nothing, weight, False, "mean", -100, 0.0).isnan()
