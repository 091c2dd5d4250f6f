"""Chains in one kernel: the bits of one kernel after the other, and of reductions after them."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from onefold.kernels import pointwise_chain_ref as reference, pointwise_ref, reduce_ref
from onefold.kernels.gpu.pointwise import pointwise_chain_kernels as gpu
from onefold.kernels.gpu.pointwise.prologue import Prologue
from onefold.kernels.pointwise_chain_ref import At, Chain, Link
from onefold.kernels.select import triton_kernel

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def one_by_one(chain, *tensors):
    """What a kernel for each link gives."""
    links = tuple(Link(triton_kernel(function), arguments) for function, arguments in chain.links)
    return reference.several(Chain(chain.inputs, links, chain.outputs))(*tensors)


def same_bits(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert torch.equal(*[x.reshape(-1).view(torch.uint8) for x in (a, b)])


GELU = Chain(
    3,
    (
        Link(torch.add, (At(0), At(1))),
        Link(pointwise_ref.gelu, (At(3), "tanh")),
        Link(torch.mul, (At(4), 0.1)),
        Link(torch.add, (At(5), At(2))),
        Link(torch.lt, (At(6), 0.3)),
        Link(torch.where, (At(7), At(6), At(3))),
    ),
    (3, 8),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (3, 130), (0, 4)])
def test_links_round_as_kernels_of_their_own(dtype, shape):
    x, bias, rest = torch.randn(shape), torch.randn(shape[-1]), torch.randn(shape[::-1]).T
    tensors = [each.to(dtype) for each in (x, bias, rest)]
    same_bits(gpu.several(GELU)(*tensors), one_by_one(GELU, *tensors))
    for found, wanted in zip(
        gpu.several(GELU)(*tensors), reference.several(GELU)(*tensors), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_dtypes_and_numbers_promote_as_in_torch():
    chain = Chain(
        3,
        (
            Link(torch.mul, (At(0), 3)),
            Link(torch.add, (At(3), At(1))),
            Link(pointwise_ref.cast, (At(4), torch.bfloat16)),
            Link(torch.gt, (At(5), 0.1)),
            Link(torch.mul, (At(2), At(6))),
            Link(torch.sub, (1, At(7))),
        ),
        (3, 4, 5, 6, 7, 8),
    )
    x = torch.arange(-6, 6, dtype=torch.int32).view(3, 4)
    half = torch.randn(4, dtype=torch.float16)
    scalar = torch.tensor(2.5)
    same_bits(gpu.several(chain)(x, half, scalar), one_by_one(chain, x, half, scalar))
    same_bits(gpu.several(chain)(x, half, scalar), reference.several(chain)(x, half, scalar))


BINARY = [torch.add, torch.mul, torch.sub, torch.maximum, torch.div]
UNARY = [torch.neg, torch.sigmoid, torch.exp, torch.relu, torch.square]


@st.composite
def chains(draw):
    """Up to six links over up to three inputs; the last value and perhaps others are kept."""
    inputs = draw(st.integers(1, 3))
    links, values = [], inputs
    for _ in range(draw(st.integers(1, 6))):
        value = st.integers(0, values - 1).map(At)
        if draw(st.booleans()):
            links.append(Link(draw(st.sampled_from(UNARY)), (draw(value),)))
        else:
            function = draw(st.sampled_from(BINARY))
            numbers = st.nothing() if function is torch.maximum else st.sampled_from([2.0, -0.1])
            links.append(Link(function, (draw(value), draw(value | numbers))))
        values += 1
    kept = draw(st.sets(st.integers(inputs, values - 1), max_size=2)) | {values - 1}
    return Chain(inputs, tuple(links), tuple(sorted(kept)))


@settings(max_examples=15)
@given(chain=chains(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
def test_any_chain(chain, dtype, seed):
    torch.manual_seed(seed)
    tensors = [torch.randn(4, 9).to(dtype) for _ in range(chain.inputs)]
    same_bits(gpu.several(chain)(*tensors), one_by_one(chain, *tensors))


FOLDED = Chain(2, (Link(torch.mul, (At(0), At(1))), Link(torch.add, (At(2), 0.1))), (3,))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)], ids=str)
def test_reductions_compute_what_they_load(dtype, dims):
    rows = [torch.randn(13, 50).to(dtype) for _ in range(2)]
    for tensors in (rows, [x.T for x in rows]):
        check_reductions(tensors, dims)


def check_reductions(tensors, dims):
    prologue, whole = gpu.as_prologue(FOLDED, True)(*tensors)
    assert isinstance(prologue, Prologue)
    assert whole.stride() == tensors[0].stride()
    (value,) = one_by_one(FOLDED, *tensors)
    unkept, nothing = gpu.as_prologue(FOLDED, False)(*tensors)
    assert nothing is None
    for function, args in (
        (reduce_ref.total, (dims, False, None)),
        (reduce_ref.mean, (dims, True, None)),
        (reduce_ref.amax, (dims, False)),
        (reduce_ref.amin, (dims, True)),
    ):
        whole.fill_(float("nan"))
        wanted = triton_kernel(function)(value, *args)
        same_bits([triton_kernel(function)(prologue, *args), whole], [wanted, value])
        same_bits([triton_kernel(function)(unkept, *args)], [wanted])


def test_what_is_not_dense_is_computed_before_the_reduction():
    x = torch.randn(6, 5)
    for tensors in ((x, torch.randn(5)), (x.T, x.T.contiguous()), (x[:0], x[:0])):
        value, whole = gpu.as_prologue(FOLDED, True)(*tensors)
        assert value is whole
        same_bits([value], one_by_one(FOLDED, *tensors))


def test_why_not():
    x = torch.ones(3)
    assert gpu.why_not(torch.add, (x, 1.0)) == ""
    assert "dtypes" in gpu.why_not(torch.add, (x.to(torch.complex64), 1.0))
    assert "dtypes" in gpu.why_not(torch.digamma, (x,))
    assert gpu.why_not(torch.mm, (x, x)) == "no pointwise kernel"
    assert reference.why_not(torch.mm, (x, x)) == ""
