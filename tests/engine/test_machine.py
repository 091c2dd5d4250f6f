"""The constants of eager's choices are those of the hardware files, read when they are needed."""

import subprocess
import sys

import pytest
import torch

from onefold.engine.boxing import axis_cost
from onefold.engine.machine import machine
from onefold.engine.sbp import broadcast, partial_sum
from onefold.graph.hardware import read


@pytest.mark.parametrize(("device_type", "name"), [("cpu", "cpu"), ("cuda", "h100")])
def test_the_constants_are_those_of_a_file(device_type, name):
    found, hardware = machine(device_type), read(name)
    near, far = hardware.links[0], hardware.links[-1]
    assert (found.link.launch, found.link.step) == (near.launch, near.latency)
    assert found.link.message == near.message
    assert found.link.byte == pytest.approx(1 / near.speed(1e6))
    assert found.link.remote == pytest.approx(1 / far.speed(1e6))
    assert found.copy == 1 / hardware.host_bandwidth
    assert found.byte == pytest.approx(1 / (hardware.memory_bandwidth * hardware.memory.at(1e15)))
    rate = hardware.flops(torch.bfloat16) * hardware.matmul.at(1e18)
    assert found.flop == pytest.approx(1 / rate)
    link = found.link
    cost = axis_cost(partial_sum, broadcast, 8, 1e6, device_type)
    assert cost == pytest.approx(link.launch + 6 * link.step + 2 * 1e6 * 7 / 8 * link.byte)


def test_an_import_reads_no_file():
    code = "import onefold, sys; assert 'tomllib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
