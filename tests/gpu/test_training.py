"""Training steps on the GPU: a graph gives the bits of eager, and both learn as the CPU does."""

import sys

import numpy as np
import pytest
import torch
from device_checks import DEVICE
from source_tree import REPO

from onefold.distributed.world import virtual_world
from onefold.testing.sample_checks import value_of

sys.path.insert(0, str(REPO / "examples"))
import gpt

pytestmark = pytest.mark.gpu

SMALL = "--steps 3 --batch 2 --length 8 --layers 1 --width 16 --heads 2".split()
RUNS = {
    "one rank": ("single", 1),
    "data": ("dp", 2),
    "tensor": ("tp", 2),
    "pipeline": ("pp", 2),
}


def trained(strategy, ranks, *more, device=DEVICE):
    """The losses of a few steps, and the parameters after them."""
    options = [*SMALL, "--strategy", strategy, "--ranks", str(ranks), "--device", device, *more]
    text = np.frombuffer(bytes(range(32, 127)) * 40, dtype=np.uint8).astype(np.int64)
    with virtual_world():
        model, losses = gpt.train(gpt.parse(options), text)
        return losses, [value_of(x.detach()).cpu() for x in model.parameters()]


@pytest.mark.parametrize("name", RUNS)
def test_a_graph_gives_the_bits_of_eager(name):
    layers = ["--layers", "2"] if name == "pipeline" else []
    eager = trained(*RUNS[name], *layers)
    graph = trained(*RUNS[name], *layers, "--graph")
    assert graph[0] == eager[0]
    assert all(torch.equal(a, b) for a, b in zip(graph[1], eager[1], strict=True))


@pytest.mark.parametrize("mode", [[], ["--graph"]], ids=["eager", "graph"])
def test_twice_the_same_bits(mode):
    first, second = (trained("dp", 2, *mode) for _ in range(2))
    assert first[0] == second[0]
    assert all(torch.equal(a, b) for a, b in zip(first[1], second[1], strict=True))


def test_it_learns_as_the_references_on_the_cpu_do(monkeypatch):
    found = trained("single", 1)
    monkeypatch.setenv("ONEFOLD_KERNELS", "torch")
    wanted = trained("single", 1, device="cpu")
    np.testing.assert_allclose(found[0], wanted[0], rtol=5e-3)
