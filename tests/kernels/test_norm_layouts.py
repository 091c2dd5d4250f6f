"""How rows lie in registers where a norm is fused with narrower tensors, on a driver without a GPU.

The order of a sum over a row depends on it, and so do the bits of a graph and of eager.
"""

import re

import torch

from onefold.kernels import norm_ref, pointwise_ref
from onefold.kernels.aot.compile_kernel import compile_source
from onefold.kernels.gpu.reduce import norm_chain_kernels as chains
from onefold.kernels.norm_chain_ref import NormChain
from onefold.kernels.pointwise_chain_ref import At, Chain, Link
from onefold.kernels.select import triton_kernel
from onefold.testing.gpu_driver import GpuDriver

LOW = Chain(1, (Link(pointwise_ref.cast, (At(0), torch.bfloat16)),), (1,))
WIDE = Chain(1, (Link(pointwise_ref.cast, (At(0), torch.float32)),), (1,))
SUM_AND_LOW = Chain(
    2,
    (Link(torch.add, (At(0), At(1))), Link(pointwise_ref.cast, (At(2), torch.bfloat16))),
    (2, 3),
)
LAST = (768,)
X = torch.ones(64, *LAST)
STATS = torch.ones(64, 1)


def sums_of(call, *tensors):
    """The layouts of what each kernel adds, in the order of its sums."""
    with GpuDriver("none") as gpu:
        call(*tensors)
    found = []
    for source, options in gpu.sources:
        if source.name.startswith("_norm"):
            text = compile_source(source, "sm_90", options)[0].asm["ttgir"]
            layouts = dict(re.findall(r"^(#\w+) = (.*)$", text, re.MULTILINE))
            operands = re.findall(r"^ *}\) : \(tensor<(\w+), (#\w+)>\)", text, re.MULTILINE)
            found += [(shape, layouts[name]) for shape, name in operands]
    return found


def test_a_cast_behind_a_norm():
    w = torch.ones(LAST)
    alone = sums_of(triton_kernel(norm_ref.layer_norm_with_stats), X, w, w, LAST, 1e-5)
    for keeps_result in (False, True):
        arguments = (At(0), At(1), LAST, 1e-5)
        chain = NormChain(norm_ref.layer_norm_with_stats, arguments, None, LOW, keeps_result)
        assert alone and sums_of(chains.with_chains(chain), X, w, w) == alone


def test_casts_on_both_sides_of_a_gradient():
    w, low = torch.ones(LAST), X.bfloat16()
    gradient = norm_ref.layer_norm_with_stats_grad
    alone = sums_of(triton_kernel(gradient), X, X, w, STATS, STATS, LAST)
    chain = NormChain(gradient, (At(0), At(1), At(2), At(3), LAST), WIDE, SUM_AND_LOW)
    fused = sums_of(chains.with_chains(chain), low, X, w, STATS, STATS, X)
    assert alone and fused == alone


def test_layouts_are_told_apart():
    """A thread gets 16 bytes of narrower tensors, where nothing else is said."""
    w = torch.ones(LAST)
    alone = sums_of(triton_kernel(norm_ref.layer_norm_with_stats), X, w, w, LAST, 1e-5)
    low = sums_of(triton_kernel(norm_ref.layer_norm), X.bfloat16(), w, w, LAST, 1e-5)
    assert alone and low and alone != low
