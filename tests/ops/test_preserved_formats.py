"""Results lie in memory as torch's do: channels-last where an input does, values as in torch."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold.kernels import pool_ref

LAST = torch.channels_last


def functional(name, *args, **kwargs):
    return lambda lib, x, y: getattr(lib.nn.functional, name)(x, *args, **kwargs)


def tensors(name, *args):
    return lambda lib, x, y: getattr(lib, name)(x, *args)


OPS = {
    "add": lambda lib, x, y: x + y,
    "mul by a number": lambda lib, x, y: x * 2,
    "a number for each channel": lambda lib, x, y: x * x.detach()[:1, :, :1, :1],
    "where": lambda lib, x, y: lib.where(x > 0, x, y),
    "lerp": lambda lib, x, y: lib.lerp(x, y, 0.5),
    "double": lambda lib, x, y: x.double(),
    "to": lambda lib, x, y: x.to(torch.float64),
    "clone": lambda lib, x, y: x.clone(),
    "slice": lambda lib, x, y: x[:, :, 1:] * 1,
    "cat": lambda lib, x, y: lib.cat([x, x], 1),
    "flip": tensors("flip", (2,)),
    "exp": tensors("exp"),
    "softmax": tensors("softmax", 1),
    "cumsum": tensors("cumsum", 1),
    "relu": functional("relu"),
    "silu": functional("silu"),
    "gelu": functional("gelu"),
    "pad": functional("pad", (1, 1, 1, 1)),
    "max_pool2d": functional("max_pool2d", 2, 1),
    "overlapping max_pool2d": functional("max_pool2d", 3, 2, 1),
    "avg_pool2d": functional("avg_pool2d", 2),
    "adaptive_avg_pool2d": functional("adaptive_avg_pool2d", 2),
    "adaptive_max_pool2d": functional("adaptive_max_pool2d", 2),
    "nearest": functional("interpolate", scale_factor=2),
    "bilinear": functional("interpolate", scale_factor=2, mode="bilinear"),
    "batch_norm": functional("batch_norm", None, None, training=True),
    "conv2d": lambda lib, x, y: lib.nn.functional.conv2d(
        x, lib.linspace(-1, 1, 9 * x.shape[1] * 2).reshape(2, x.shape[1], 3, 3), padding=1
    ),
    "zeros_like": tensors("zeros_like"),
    "full_like": tensors("full_like", 3),
    "empty_like": lambda lib, x, y: lib.empty_like(x).zero_(),
}
SHAPES = st.tuples(st.integers(2, 3), st.integers(2, 20), *[st.integers(4, 6)] * 2)
FORMATS = st.tuples(*[st.sampled_from((torch.contiguous_format, LAST))] * 2)


def is_last(x):
    return x.is_contiguous(memory_format=LAST), x.is_contiguous()


@pytest.mark.parametrize("name", OPS)
@given(shape=SHAPES, formats=FORMATS, seed=st.integers(0, 99))
def test_results_and_gradients(name, shape, formats, seed):
    make = torch.Generator().manual_seed(seed)
    given_ = [torch.randn(shape, generator=make).contiguous(memory_format=f) for f in formats]
    theirs = [x.clone().requires_grad_() for x in given_]
    ours = [flow.from_torch(x.clone()).requires_grad_() for x in given_]
    wanted, found = OPS[name](torch, *theirs), OPS[name](flow, *ours)
    assert is_last(found.shards[0]) == is_last(wanted)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), 1e-5, 1e-5)
    if wanted.requires_grad:
        seed_of = torch.ones_like(wanted)
        (dx,) = torch.autograd.grad(wanted, theirs[:1], seed_of)
        (mine,) = flow.autograd.grad(found, ours[:1], flow.from_torch(seed_of))
        assert name == "slice" or is_last(mine.shards[0])[0] >= is_last(dx)[0]
        np.testing.assert_allclose(mine.numpy(), dx.numpy(), 1e-4, 1e-4)


WINDOWS = [(2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 1, 0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels", [3, 16, 40])
@pytest.mark.parametrize("window", WINDOWS)
def test_pools_have_the_same_bits_in_both_formats(dtype, channels, window):
    x = torch.randn(2, channels, 9, 8).to(dtype)
    size, step, edge = ((n, n) for n in window)
    largest, mean = (size, step, edge, (1, 1), False), (size, step, edge, False, True, None)

    def results(form):
        given_ = x.contiguous(memory_format=form)
        y, places = pool_ref.max_pool(given_, 2, largest)
        dy = torch.linspace(-1, 1, y.numel()).to(dtype).view(y.shape).contiguous(memory_format=form)
        return [
            y, places,
            pool_ref.max_pool_grad(dy, places, tuple(x.shape), 2, largest),
            pool_ref.avg_pool(given_, 2, mean),
            pool_ref.avg_pool_grad(dy, tuple(x.shape), 2, mean),
        ]  # fmt: skip

    for plain, last in zip(results(torch.contiguous_format), results(LAST), strict=True):
        assert plain.is_contiguous() and last.is_contiguous(memory_format=LAST)
        assert torch.equal(plain, last)
