"""Eager mixed precision with kernels that write casts: the bits of casts by themselves."""

from unittest import mock

import pytest
import torch
from device_checks import DEVICE

import onefold as flow
from onefold import nn
from onefold.engine import parameter_casts


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_bits_are_those_of_casts(norm, dtype):
    flow.manual_seed(0)
    layers = [nn.ModuleList([norm(24), nn.Linear(24, 24), nn.Linear(24, 24)]) for _ in range(2)]
    x = flow.randn(2, 5, 24, requires_grad=True)
    found = []
    for low_copies in (True, False):
        with (
            mock.patch.object(parameter_casts, "uses_triton", return_value=low_copies),
            flow.autocast(DEVICE, dtype),
        ):
            y = x
            for before, *products in layers:
                z = before(y)
                assert hasattr(z, "_low_copy") == low_copies
                for product in products:
                    y = y + product(z)
        y.sum().backward()
        params = [param for layer in layers for param in layer.parameters()]
        found.append([y.tolist(), *(each.grad.tolist() for each in (x, *params))])
        for each in (x, *params):
            each.grad = None
    assert found[0] == found[1]
