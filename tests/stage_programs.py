"""Stages and pipelines for tests, as programs of torch or of onefold write them."""

import numpy as np
import torch

import onefold as flow
from onefold.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

WIDTH, BATCH = 6, 12
SINGLE = ("ScheduleGPipe", "Schedule1F1B")
LOOPED = ("ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble")
TURNED = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")


def part(lib, index, stages):
    """A stage, which takes and returns two tensors; the first takes one, the last returns one."""

    class Part(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = lib.nn.Linear(WIDTH, WIDTH)
            self.outer = lib.nn.Linear(WIDTH, WIDTH)

        def forward(self, x, skip=None, scale=1.0, shift=None):
            h = lib.tanh(self.inner(x)) * scale
            if shift is not None:
                h = h + shift
            if index == 0:
                return h, x  # the batch itself needs no gradient
            y = self.outer(h) + skip * 0.5
            return y if index == stages - 1 else (y, h)

    return filled(lib, Part().double(), index)


def filled(lib, module, index):
    with lib.no_grad():
        for number, weight in enumerate(module.parameters(), 2 * index + 1):
            places = lib.arange(weight.numel()).double()
            weight.copy_(lib.sin(places * number).reshape(weight.shape) * 0.4)
    return module


def data(lib):
    x = lib.arange(BATCH * WIDTH).double().reshape(BATCH, WIDTH)
    return lib.sin(x), lib.cos(x * 0.3), lib.sin(x * 0.7) * 0.1


def read(x):
    return x.detach().numpy().copy()


def indices(name, rank, ranks, per_rank):
    """The stages of a rank, and how many there are."""
    stages = ranks * per_rank
    if name in TURNED:
        return [rank, stages - 1 - rank], stages
    return [rank + ranks * i for i in range(per_rank)], stages


def train(lib, names, name, rank, ranks, m, per_rank=1, steps=2, kwargs=True, **options):
    """A program of torch or of onefold: outputs and losses of its steps, and gradients."""
    own, count = indices(name, rank, ranks, per_rank)
    stages = [names.PipelineStage(part(lib, i, count), i, count, lib.device("cpu")) for i in own]
    schedule = getattr(names, name)(
        stages if name not in SINGLE else stages[0],
        m,
        loss_fn=lib.nn.functional.mse_loss,
        **options,
    )
    optimizers = [lib.optim.SGD(stage.submod.parameters(), lr=0.3) for stage in stages]
    x, target, shift = data(lib)
    given = {"scale": 0.9, "shift": shift} if kwargs else {}
    found = []
    for _ in range(steps):
        losses = []
        for optimizer in optimizers:
            optimizer.zero_grad()
        args = (x,) if 0 in own else ()
        asked = {"target": target, "losses": losses} if count - 1 in own else {}
        y = schedule.step(*args, **asked, **given)
        for optimizer in optimizers:
            optimizer.step()
        found += [] if y is None else [read(y), *map(read, losses)]
    grads = {}  # read here: torch's eval divides them again
    for stage in stages:
        for path, weight in stage.submod.named_parameters():
            grads[f"{stage.stage_index}.{path}"] = read(
                lib.zeros_like(weight) if weight.grad is None else weight.grad
            )
    y = schedule.eval(*((x,) if 0 in own else ()), **asked, **given)
    found += [] if y is None else [read(y), *map(read, losses)]
    return found, grads


def on_one_device(stages, m, steps=2):
    """The same with torch and without stages."""
    model = [part(torch, i, stages) for i in range(stages)]
    optimizer = torch.optim.SGD([w for p in model for w in p.parameters()], lr=0.3)
    x, target, shift = data(torch)

    def forward():
        h = (x,)
        for each in model:
            h = each(*h, scale=0.9, shift=shift)
            h = h if isinstance(h, tuple) else (h,)
        return h[0]

    found = []
    for step in range(steps + 1):
        y = forward()
        pairs = zip(y.tensor_split(m), target.tensor_split(m), strict=True)
        losses = [torch.nn.functional.mse_loss(*pair) for pair in pairs]
        found += [read(y), *map(read, losses)]
        if step < steps:
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()
            optimizer.step()
    grads = {
        f"{i}.{path}": read(torch.zeros_like(w) if w.grad is None else w.grad)
        for i, each in enumerate(model)
        for path, w in each.named_parameters()
    }
    return found, grads


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def joined(ranks):
    """What the ranks found, as one."""
    outputs = [value for found, _ in ranks for value in found]
    grads = {name: grad for _, its in ranks for name, grad in its.items()}
    return outputs, grads


def map_read(tensors):
    return [read(x) for x in tensors]


def linear(index, size=4):
    return filled(flow, flow.nn.Linear(size, size).double(), index)


def both_stages(first, second, m=2, cls=ScheduleInterleaved1F1B, **options):
    stages = [PipelineStage(module, i, 2, "cpu") for i, module in enumerate((first, second))]
    options = {"loss_fn": flow.nn.functional.mse_loss, **options}
    return cls(stages, m, **options)


def rows(n, size=4):
    return flow.sin(flow.arange(n * size).double().reshape(n, size))


def layer():
    return flow.nn.Linear(4, 4)
