"""What is launched for channels-last images: no copies of what lies as kernels need it."""

from collections import Counter

import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.testing.gpu_driver import GpuDriver

LAST = torch.channels_last


def last(*shape):
    return flow.from_torch(torch.ones(shape).contiguous(memory_format=LAST))


def launched(step, gpu, calls=4):
    """What the last of some calls launches, and what torch computes in it."""
    for _ in range(calls):
        before = Counter(gpu.launches), Counter(gpu.torch_work)
        step()
    return dict(gpu.launches - before[0]), dict(gpu.torch_work - before[1])


@pytest.mark.parametrize("kind", ["groups", "no weights", "instances"])
def test_group_norm_copies_nothing(kind):
    with GpuDriver("none") as gpu:
        x, slope = last(2, 16, 6, 5).requires_grad_(), last(2, 16, 6, 5)
        norm = (
            nn.InstanceNorm2d(16)
            if kind == "instances"
            else nn.GroupNorm(4, 16, affine=kind == "groups")
        )

        def step():
            x.grad = None
            norm.zero_grad()
            y = norm(x)
            y.backward(slope)
            for made in (y, x.grad):
                assert made.to_torch().stride() == x.to_torch().stride()

        names = (
            ("group_normalized", "group_norm_slope")
            if kind == "groups"
            else ("standardized", "standard_slope")
        )
        kernels = ["_moments", "_join_moments", "_sums", "_join_group_sums"]
        kernels += [f"pointwise_{name}" for name in names]
        assert launched(step, gpu) == (dict.fromkeys(kernels, 1), {})


def test_a_gradient_that_lies_otherwise_is_copied_once():
    with GpuDriver("none") as gpu:
        x, slope = last(2, 16, 6, 5).requires_grad_(), flow.ones(2, 16, 6, 5)
        norm = nn.GroupNorm(4, 16)

        def step():
            x.grad = None
            norm.zero_grad()
            norm(x).backward(slope)
            assert x.grad.to_torch().stride() == x.to_torch().stride()

        found, others = launched(step, gpu)
        assert (sum(found.values()), found["pointwise_copy"], others) == (7, 1, {})


def test_a_part_of_a_gradient_stays_channels_last():
    """A step up in a U-Net: the gradient of `cat` is cut in two, and one part made small."""
    with GpuDriver("none"):
        small, kept = last(2, 16, 3, 4).requires_grad_(), last(2, 8, 6, 8).requires_grad_()
        slope = last(2, 24, 6, 8)

        def step():
            small.grad = kept.grad = None
            large = flow.nn.functional.interpolate(small, scale_factor=2)
            flow.cat([large, kept], 1).backward(slope)
            assert small.grad.to_torch().stride() == small.to_torch().stride()

        step()
