"""What models are made of leaves no work to torch on a GPU: run by the driver without one."""

import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.testing.gpu_driver import GpuDriver

F = nn.functional


def noise(*shape, dtype=torch.float32):
    return flow.randn(*shape, dtype=dtype).requires_grad_()


def backward(y):
    y.backward(flow.rand_like(y))


def both_ways(x, layer):
    backward(layer(x))


def rms_norm_with_autocast():
    norm, layer = nn.RMSNorm(64), nn.Linear(64, 64, bias=False)
    with flow.autocast("cpu", torch.bfloat16):  # where the driver's tensors are
        backward(layer(norm(layer(noise(4, 8, 64)))))


def drawn(replacement):
    """As a graph, which does not read the weights."""
    nn.Graph.trace(lambda x: flow.multinomial(x, 5, replacement))(flow.rand(4, 300))


def resized(mode, shape, last, **kw):
    x = noise(*shape)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    backward(F.interpolate(x, scale_factor=2, mode=mode, **kw))


TABLE = torch.polar(torch.ones(6, 1, 4), torch.rand(6, 1, 4))


def rotary_by_complex_numbers():
    """As Llama's reference has it."""
    x, table = noise(2, 6, 3, 8, dtype=torch.bfloat16), flow.from_torch(TABLE)
    pairs = flow.view_as_complex(x.float().reshape(2, 6, 3, 4, 2))
    backward(flow.view_as_real(pairs * table).flatten(3).type_as(x))


PROGRAMS = {
    "rms_norm": (lambda: both_ways(noise(4, 8, 256), nn.RMSNorm(256)), "_norm"),
    "rms_norm of two dims": (lambda: both_ways(noise(4, 8, 64), nn.RMSNorm((8, 64))), ""),
    "rms_norm with eps": (lambda: both_ways(noise(4, 64), nn.RMSNorm(64, 1e-5)), ""),
    "rms_norm without a weight": (
        lambda: both_ways(noise(4, 64), nn.RMSNorm(64, elementwise_affine=False)), "",
    ),
    "rms_norm of a narrower dtype": (
        lambda: both_ways(noise(4, 64, dtype=torch.bfloat16), nn.RMSNorm(64)), "_norm",
    ),
    "rms_norm with autocast": (rms_norm_with_autocast, "_norm_grad"),
    "multinomial": (lambda: drawn(False), ""),
    "multinomial with replacement": (lambda: drawn(True), "_search"),
    "nearest": (lambda: resized("nearest", (2, 8, 6, 5), False), "_resized_grad"),
    "bilinear": (lambda: resized("bilinear", (2, 8, 6, 5), True), "_resized_grad"),
    "bicubic": (lambda: resized("bicubic", (2, 8, 6, 5), False), "_resized_grad"),
    "trilinear": (lambda: resized("trilinear", (2, 8, 3, 6, 5), False), "_resized_grad"),
    "rotary by complex numbers": (rotary_by_complex_numbers, "pointwise_complex_mul"),
    "area": (lambda: resized("area", (2, 8, 6, 5), False), ""),
    "area of three dims": (lambda: resized("area", (2, 8, 3, 6, 5), False), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_left(name):
    run, kernel = PROGRAMS[name]
    with GpuDriver("none") as gpu:
        run()
        gpu.torch_work.clear()  # of what is cached
        run()
    assert gpu.problems == []
    left = set(gpu.torch_work) - {("engine.ops.creation", "full")}  # the ones of a new module
    assert not left
    assert not kernel or gpu.launches[kernel], gpu.launches
