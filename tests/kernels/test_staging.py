"""Copies between the host and a device: which of them the host waits for."""

import pytest
import torch

from onefold.kernels import staging
from onefold.optim import clip
from onefold.optim.device_scalar import DeviceScalar, Given

HOST, DEVICE = torch.device("cpu"), torch.device("cuda", 0)


class On:
    """Stands for a tensor on a device; notes whether what copies it waits."""

    def __init__(self, device, log):
        self.device, self.log = device, log

    def pin_memory(self):
        return self

    def to(self, device, *dtype, non_blocking):
        self.log.append((device.type, non_blocking))
        return self


@pytest.mark.parametrize(("source", "target", "non_blocking"), [
    (HOST, DEVICE, True), (DEVICE, DEVICE, True), (DEVICE, HOST, False),
])  # fmt: skip
def test_the_host_waits_for_what_comes_to_it(monkeypatch, source, target, non_blocking):
    log = []
    staging.to_device(On(source, log), target)
    DeviceScalar(On(source, log)).on(target)
    monkeypatch.setattr(torch, "cat", list)
    clip._together([On(target, log), On(source, log)])
    assert log[:2] == [(target.type, non_blocking)] * 2
    assert log[2:] == [(target.type, non_blocking)] * 2


def test_a_learning_rate_of_a_device_is_waited_for(monkeypatch):
    copies = []
    rate = torch.tensor(0.5)
    monkeypatch.setattr(
        torch.Tensor, "to", lambda x, *_, non_blocking=False: copies.append(non_blocking) or x
    )
    assert Given(rate).rate(HOST) is rate
    assert copies == [False]
