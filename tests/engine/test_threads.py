"""Threads: each has modes of its own, and several train and serve at a time."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.engine import interpreter
from onefold.engine.meta import Meta

BATCH = torch.linspace(-1, 1, 64).reshape(8, 8)
STEPS = 20
LIMIT = 60  # seconds


@pytest.fixture(autouse=True)
def switching_often():
    """Let threads take turns every few bytecodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def model(seed):
    flow.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 1))


def loss_of(net, x):
    return ((net(x) - 1) ** 2).mean()


def train(net):
    optimizer = flow.optim.AdamW(net.parameters(), lr=1e-2)
    x, losses = flow.from_torch(BATCH), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(net, x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Training(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.add_optimizer(flow.optim.AdamW(net.parameters(), lr=1e-2))

    def build(self, x):
        loss = loss_of(self.net, x)
        loss.backward()
        return loss


def train_graph(net):
    step, x = Training(net), flow.from_torch(BATCH)
    return [step(x).item() for _ in range(STEPS)]


def serve(net, ended):
    """Call a model without gradients until others have ended; whether none was recorded."""
    x, clean = flow.from_torch(BATCH), True
    while not ended.is_set():
        with flow.no_grad(), flow.autocast("cpu", dtype=flow.bfloat16):
            clean = clean and not net(x).requires_grad
    return clean


@pytest.mark.parametrize("train", [train, train_graph])
def test_four_threads_train_while_one_serves(train):
    wanted = [train(model(seed)) for seed in range(4)]
    models = [model(seed) for seed in range(4)]
    ended = threading.Event()
    with ThreadPoolExecutor(5) as pool:
        server = pool.submit(serve, model(9), ended)
        try:
            runs = [pool.submit(train, net) for net in models]
            found = [run.result(LIMIT) for run in runs]
        finally:
            ended.set()
        assert server.result(LIMIT)
    assert found == wanted


@pytest.mark.parametrize(
    "make",
    [
        lambda n: Meta.of((n, 1000), torch.float32, device=torch.device("cpu")),
        lambda n: flow.placement("cpu", [0, n]),
        flow.sbp.split,
    ],
    ids=["meta", "placement", "sbp"],
)
def test_threads_that_make_equal_objects_get_the_same_one(make):
    """Metas, placements and layouts are compared by identity."""
    together = threading.Barrier(4)

    def made(n):
        together.wait()
        return make(n)

    with ThreadPoolExecutor(4) as pool:
        for n in range(3000, 3200):
            found = [run.result(LIMIT) for run in [pool.submit(made, n) for _ in range(4)]]
            assert len(set(map(id, found))) == 1


def in_a_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(LIMIT)


def test_a_thread_starts_with_torchs_modes():
    pair = flow.placement("cpu", [0, 1])
    with (
        flow.no_grad(),
        flow.autocast("cpu"),
        flow.utils.global_view.global_mode(True, pair, flow.sbp.broadcast),
    ):
        assert in_a_thread(flow.is_grad_enabled)
        assert in_a_thread(interpreter.get_current) is None
        assert in_a_thread(lambda: flow.ones(2).is_local)
        assert not flow.is_grad_enabled() and flow.ones(2).is_global


def test_modes_of_a_thread_end_with_it():
    in_a_thread(lambda: flow.set_grad_enabled(False))
    assert flow.is_grad_enabled()


def test_hooks_of_saved_tensors_are_those_of_the_thread():
    packed = []

    def product():
        x = flow.ones(2, requires_grad=True)
        return (x * x).sum()

    with flow.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        in_a_thread(product).backward()
        assert not packed
        product().backward()
    assert packed
