"""Norms between chains in one kernel: the bits of one kernel after the other."""

import pytest
import torch

from onefold.kernels import norm_chain_ref as reference, norm_ref, pointwise_ref
from onefold.kernels.gpu.pointwise import pointwise_chain_kernels as chains
from onefold.kernels.gpu.reduce import norm_chain_kernels as gpu
from onefold.kernels.norm_chain_ref import NormChain
from onefold.kernels.pointwise_chain_ref import At, Chain, Link
from onefold.kernels.select import triton_kernel

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
# The last has rows that are loaded by 16 bytes.
SHAPES = [((5, 7), (7,)), ((2, 3, 130), (130,)), ((40, 2, 3), (2, 3)), ((9, 768), (768,))]
SUM = Chain(2, (Link(torch.add, (At(0), At(1))),), (2,))
LOW = Chain(1, (Link(pointwise_ref.cast, (At(0), torch.bfloat16)),), (1,))
MIXED = Chain(
    3,
    (
        Link(torch.mul, (At(0), 0.1)),
        Link(torch.add, (At(3), At(1))),
        Link(torch.sub, (At(4), At(2))),
        Link(pointwise_ref.cast, (At(4), torch.float16)),
    ),
    (5, 6),
)


def same_bits(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert torch.equal(*[x.contiguous().view(-1).view(torch.uint8) for x in (a, b)])


def check(chain, *tensors, launches=1):
    """One kernel has the bits of several, and what the references give."""
    by_parts = reference.in_parts(chain, triton_kernel(chain.norm), chains.several)(*tensors)
    found = gpu.with_chains(chain)(*tensors)
    same_bits(found, by_parts)
    for a, b in zip(found, reference.with_chains(chain)(*tensors), strict=True):
        low = min(a.dtype, tensors[0].dtype, key=lambda dtype: dtype.itemsize)
        exact = low.itemsize >= 4
        torch.testing.assert_close(a, b, **({} if exact else {"rtol": 0.05, "atol": 0.05}))


def drawn(dtype, *shapes):
    return [torch.randn(shape).to(dtype) for shape in shapes]


@pytest.fixture
def launched(monkeypatch):
    """The kernels of this family that are launched."""
    names = []
    for kernel in (gpu._norm_chain, gpu._norm_grad_chain):
        launch = kernel.launch
        monkeypatch.setattr(
            kernel,
            "launch",
            lambda *a, k=kernel, to=launch, **b: (names.append(k.name), to(*a, **b)),
        )
    return names


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "last"), SHAPES, ids=str)
def test_forward(launched, dtype, shape, last):
    x, rest, more = drawn(dtype, shape, shape, shape)
    w, b = drawn(dtype, last, last)
    scaled = (At(0), At(1), last, 1e-5)
    check(NormChain(norm_ref.rms_norm, (At(0), None, last, 1e-5), None, LOW), x, w)
    check(NormChain(norm_ref.layer_norm, scaled, SUM, None, False, True), x, rest, w, b)
    check(
        NormChain(norm_ref.layer_norm, (None, None, last, 1e-5), SUM, MIXED, True, True),
        *(x, rest, rest, more),
    )
    check(NormChain(norm_ref.rms_norm, (None, None, last, 1e-5), SUM, MIXED), x, rest, x, more)
    assert launched == ["_norm_chain"] * 4
    if dtype in (torch.float32, torch.float64):
        stats = norm_ref.layer_norm_with_stats
        check(NormChain(stats, scaled, SUM, LOW, False, True), x, rest, w, b)
        check(NormChain(stats, scaled, None, MIXED, True), x, w, b, rest, more)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "last"), SHAPES, ids=str)
def test_gradients(launched, dtype, shape, last):
    dy, x, rest, more = drawn(dtype, shape, shape, shape, shape)
    (w,) = drawn(dtype, last)
    own = (At(0), At(1), last, 1e-5)
    check(NormChain(norm_ref.rms_norm_grad, own, None, MIXED), dy, x, w, rest, more)
    check(NormChain(norm_ref.layer_norm_grad, own, SUM, LOW, True, True), dy, rest, x, w)
    plain = (At(0), None, last, 1e-5)
    check(NormChain(norm_ref.rms_norm_grad, plain, SUM, None), dy, rest, x)
    check(NormChain(norm_ref.layer_norm_input_grad, own, SUM, LOW, True, True), dy, rest, x, w)
    check(NormChain(norm_ref.rms_norm_input_grad, plain, SUM, None), dy, rest, x)
    assert launched == ["_norm_grad_chain"] * 5
    if dtype in (torch.float32, torch.float64):
        _, mean, rstd = norm_ref.layer_norm_with_stats(x, w, w, last, 1e-5)
        kept = (At(0), At(1), At(2), At(3), last)
        chain = NormChain(norm_ref.layer_norm_with_stats_grad, kept, SUM, MIXED)
        check(chain, *(dy, rest, x, w, mean, rstd, more, x))
        chain = NormChain(norm_ref.layer_norm_with_stats_input_grad, kept, SUM, MIXED)
        check(chain, *(dy, rest, x, w, mean, rstd, more, x))


@pytest.mark.parametrize("n", [33, 768])
def test_narrow_gradients_are_widened_as_they_are_loaded(launched, n):
    dy, x, rest, w = *drawn(torch.bfloat16, (9, n)), *drawn(torch.float32, (9, n), (9, n), (n,))
    wide = Chain(1, (Link(pointwise_ref.cast, (At(0), torch.float32)),), (1,))
    total = Chain(2, (Link(torch.add, (At(0), At(1))),), (2,))
    own = (At(0), At(1), (n,), 1e-5)
    check(NormChain(norm_ref.rms_norm_grad, own, wide, total), dy, x, w, rest)
    assert launched == ["_norm_grad_chain"]


def test_what_does_not_fit_is_done_one_after_the_other(launched):
    """Columns, empty tensors, and rows that are too wide for the registers."""
    w, wide = torch.randn(4), torch.randn(1, 8200)
    own = (At(0), None, (4,), 1e-5)
    chain = NormChain(norm_ref.rms_norm, own, SUM, LOW, True, True)
    check(chain, torch.randn(4, 5).T, torch.randn(4, 5).T, w)
    check(chain, torch.randn(0, 4), torch.randn(0, 4), w)
    own = (At(0), None, (8200,), 1e-5)
    check(NormChain(norm_ref.rms_norm_grad, own, None, LOW), wide, wide)
    assert launched == []
