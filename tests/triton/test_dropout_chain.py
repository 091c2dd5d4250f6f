"""Dropout and what follows it in one kernel: the bits of one kernel after the other."""

import pytest
import torch

from onefold.kernels import dropout_chain_ref as reference, pointwise_ref, random_ref
from onefold.kernels.gpu.pointwise import pointwise_chain_kernels as chains
from onefold.kernels.gpu.random import dropout_chain_kernels as gpu
from onefold.kernels.pointwise_chain_ref import At, Chain, Link
from onefold.kernels.select import triton_kernel

SUM = Chain(2, (Link(torch.add, (At(0), At(1))),), (2,))
WIDE = Chain(
    3,
    (
        Link(pointwise_ref.cast, (At(0), torch.float32)),
        Link(torch.mul, (At(3), 0.5)),
        Link(torch.add, (At(4), At(1))),
        Link(torch.sub, (At(5), At(2))),
    ),
    (6,),
)
BOXES = [
    ((64,), (0,), (64,)),
    ((4, 1030), (1, 3), (3, 1021)),
    ((2, 3, 4, 5, 6), (0, 1, 0, 2, 0), (2, 2, 3, 3, 6)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "offset", "size"), BOXES, ids=str)
def test_one_kernel_has_the_bits_of_two(dtype, shape, offset, size):
    x, rest = torch.randn(size).to(dtype), torch.randn(size).to(dtype)
    draw = {"shape": shape, "offset": offset, "p": 0.3, "seed": 7, "call": 5}
    for chain, tensors in ((SUM, (x, rest)), (WIDE, (x, rest.float(), rest.float()))):
        found = gpu.with_chain(chain)(*tensors, **draw)
        parts = reference.in_parts(triton_kernel(random_ref.dropout), chains.one(chain))
        for wanted in (parts(*tensors, **draw), reference.with_chain(chain)(*tensors, **draw)):
            assert found.dtype == wanted.dtype and torch.equal(found, wanted)
        in_memory = {**draw, "seed": torch.tensor([7, 5]), "call": 0}
        assert torch.equal(gpu.with_chain(chain)(*tensors, **in_memory), found)


def test_what_does_not_fit_is_done_one_after_the_other():
    draw = {"shape": (6, 5), "offset": (0, 0), "p": 0.5, "seed": 1, "call": 2}
    for x, rest in ((torch.randn(6, 5), torch.randn(5)), (torch.randn(5, 6).T, torch.randn(6, 5))):
        found = gpu.with_chain(SUM)(x, rest, **draw)
        assert torch.equal(found, reference.with_chain(SUM)(x, rest, **draw))
