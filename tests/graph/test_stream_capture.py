"""Stream capture where torch.cuda is a stand-in: what a capture that fails leaves behind."""

import gc
from contextlib import nullcontext

import pytest
import torch

from onefold.graph.cuda_graphs import stream_capture

DEVICE = torch.device("cuda", 0)
POOL = (0, 7)


class Cuda:
    """Torch's allocator and generator as far as captures tell them when they begin and end.

    `notes_all` says whether the allocator is told of the end of a spoiled capture, too.
    """

    def __init__(self, monkeypatch, notes_all):
        self.notes_all = notes_all
        self.spoiled = False
        self.underway = []
        self.users = 0  # of the pool
        self.draws_in_a_capture = False
        for name, value in {
            "device": nullcontext, "stream": nullcontext, "current_stream": lambda device: device,
            "Stream": lambda device: device, "CUDAGraph": lambda: Graph(self), "graph": self.graph,
            "graph_pool_handle": lambda: POOL,
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.end, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_releasePool", self.release, raising=False)

    def graph(self, graph, pool=None, stream=None, capture_error_mode="global"):
        return Capture(self, pool)

    def end(self, index, pool):
        if (index, pool) not in self.underway:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.underway.remove((index, pool))

    def release(self, index, pool):
        assert (index, pool) == (0, POOL)
        self.users -= 1


class Graph:
    def __init__(self, cuda):
        self.cuda = cuda

    def replay(self):
        assert not self.cuda.draws_in_a_capture


class Capture:
    def __init__(self, cuda, pool):
        self.cuda, self.pool = cuda, pool

    def __enter__(self):
        assert not self.cuda.underway, "captures_underway.empty() INTERNAL ASSERT FAILED"
        self.cuda.underway.append((0, self.pool))
        self.cuda.users += self.pool == POOL
        self.cuda.draws_in_a_capture = True

    def __exit__(self, *args):
        spoiled, self.cuda.spoiled = self.cuda.spoiled, False
        if not spoiled or self.cuda.notes_all:
            self.cuda.end(0, self.pool)
        if spoiled:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.cuda.draws_in_a_capture = False


class Static:
    device = DEVICE

    def new_zeros(self, shape):
        pass


def capture(function):
    return stream_capture.CudaCapturer().capture(function, [Static()])


@pytest.mark.parametrize("notes_all", [False, True], ids=["torch 2.11", "torch 2.13"])
def test_a_spoiled_capture_is_over(monkeypatch, notes_all):
    cuda = Cuda(monkeypatch, notes_all)
    before, _ = capture(lambda: 3)

    def spoil():
        cuda.spoiled = True
        raise ValueError("not permitted when a stream is capturing")

    with pytest.raises(RuntimeError, match="previous error") as raised:
        capture(spoil)
    assert isinstance(raised.value.__context__, ValueError)
    assert cuda.underway == [] and cuda.users == 1 + notes_all
    before()
    assert capture(lambda: 5)[1] == 5


def test_an_error_of_python_ends_a_capture_as_torch_does(monkeypatch):
    cuda = Cuda(monkeypatch, False)
    with pytest.raises(ValueError, match="mine"):
        capture(lambda: raise_(ValueError("mine")))
    assert cuda.underway == [] and cuda.users == 1  # which the graph gives back


def raise_(error):
    raise error


def test_nothing_is_collected_in_a_capture(monkeypatch):
    Cuda(monkeypatch, True)
    assert gc.isenabled()
    assert capture(gc.isenabled)[1] is False
    assert gc.isenabled()
