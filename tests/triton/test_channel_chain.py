"""The sums over channels with the chain that makes them: the bits of one kernel after the other."""

import pytest
import torch

from onefold.kernels import (
    batch_norm_ref,
    channel_chain_ref as reference,
    group_norm_ref,
    pointwise_ref,
)
from onefold.kernels.channel_chain_ref import ChannelChain
from onefold.kernels.gpu.pointwise import pointwise_chain_kernels as chains
from onefold.kernels.gpu.reduce import channel_chain_kernels as gpu
from onefold.kernels.pointwise_chain_ref import At, Chain, Link
from onefold.kernels.select import triton_kernel

SHAPES = [(4, 7, 9), (3, 5, 4, 7), (2, 3, 2, 5, 3)]
WIDER = [(2, 66, 2, 1), (9, 3, 31, 33)]  # several programs for all channels, and for each
CASES = [(shape, dtype) for shape in SHAPES for dtype in
         (torch.float32, torch.float64, torch.bfloat16)]  # fmt: skip
CASES += [(shape, torch.float32) for shape in WIDER]
MEMORY = {4: torch.channels_last, 5: torch.channels_last_3d}
BEHIND_RELU = Chain(
    6,
    (
        Link(batch_norm_ref.batch_normalized, (*[At(i) for i in range(1, 6)], 1e-5)),
        Link(torch.relu, (At(6),)),
        Link(pointwise_ref.relu_backward, (At(0), At(7))),
    ),
    (8,),
)
OF_SUM = Chain(
    6,
    (
        Link(torch.add, (At(0), At(1))),
        Link(torch.add, (At(6), 1.0)),  # not 0 where there is no element
        Link(pointwise_ref.relu_backward, (At(7), At(2))),
    ),
    (8,),
)


def given(shape, dtype, tensors, last):
    """Tensors like x, x, and vectors of channels."""
    alike = [torch.randn(shape).to(dtype) for _ in range(tensors + 1)]
    if last:
        alike = [x.contiguous(memory_format=MEMORY[x.ndim]) for x in alike]
    wide = torch.promote_types(dtype, torch.float32)
    vector = (1, shape[1], *(1,) * (len(shape) - 2))
    mean, rstd, weight, bias = torch.rand(4, *vector, dtype=wide)
    return (*alike, mean, rstd, *((weight, bias) if tensors == 1 else ()))


@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_one_kernel_has_the_bits_of_several(shape, dtype):
    for last in {False, len(shape) in MEMORY}:
        for chain, tensors, kept in ((BEHIND_RELU, 1, False), (OF_SUM, 3, True)):
            inputs = given(shape, dtype, tensors, last)
            made = ChannelChain(chain, tensors, kept)
            found = gpu.with_chain(made)(*inputs)
            sums = triton_kernel(batch_norm_ref.channel_sums)
            wanted = reference.in_parts(made, chains.one(chain), sums)(*inputs)
            assert len(found) == len(wanted) == 2 + kept
            assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
            if kept:
                assert found[2].stride() == inputs[0].stride()


@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_sums_of_groups_have_the_bits_of_several_kernels(shape, dtype):
    """The statistics are those of each sample, weight and bias those of all."""
    size = 2 if shape[1] % 2 == 0 else 1
    for last in {False, len(shape) in MEMORY}:
        for chain, tensors, kept in ((BEHIND_RELU, 1, True), (OF_SUM, 3, False)):
            *alike, mean, rstd = given(shape, dtype, tensors, last)[: tensors + 3]
            mean, rstd = (each + torch.rand(shape[0], *mean.shape[1:]) for each in (mean, rstd))
            weight, bias = torch.rand(2, *mean[:1].shape, dtype=mean.dtype)
            inputs = (*alike, mean, rstd, weight, *((bias,) if tensors == 1 else ()))
            made = ChannelChain(chain, tensors, kept, size, tensors + 3)
            found = gpu.with_chain(made)(*inputs)
            sums = triton_kernel(group_norm_ref.group_sums)
            wanted = reference.in_parts(made, chains.one(chain), sums)(*inputs)
            assert len(found) == len(wanted) == 4 + kept
            assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
            for a, b in zip(found, reference.with_chain(made)(*inputs), strict=True):
                torch.testing.assert_close(a, b, rtol=2e-2, atol=5e-2)


def test_against_the_reference():
    inputs = given((3, 5, 8, 6), torch.float64, 1, False)
    made = ChannelChain(BEHIND_RELU, 1, True)
    for found, wanted in zip(
        gpu.with_chain(made)(*inputs), reference.with_chain(made)(*inputs), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_what_does_not_fit_is_done_one_after_the_other():
    inputs = given((3, 5, 4), torch.float32, 1, False)
    made = ChannelChain(BEHIND_RELU, 1, True)
    alone = inputs[0].mean(0, keepdim=True)  # a gradient that is the same for the whole batch
    broadcast = gpu.with_chain(made)(alone.expand(3, 5, 4), *inputs[1:])
    for found, wanted in zip(gpu.with_chain(made)(alone, *inputs[1:]), broadcast, strict=True):
        torch.testing.assert_close(found, wanted)
