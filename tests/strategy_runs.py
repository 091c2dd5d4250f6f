"""A small training run under every strategy, eager and as a graph."""

import numpy as np

import onefold as flow
from onefold import nn

B, S = flow.sbp.broadcast, flow.sbp.split


class Run:
    """A model, its optimizer and schedule, and a step, laid out by a strategy."""

    def __init__(self, strategy, seed=0, graph=False):
        flow.manual_seed(seed)
        self.ends = [nn.Linear(6, 7), nn.Linear(7, 5)]
        self.model = nn.Sequential(self.ends[0], nn.BatchNorm1d(7), nn.Dropout(0.5), self.ends[1])
        self.first = self.last = None
        STRATEGIES[strategy](self)
        self.optimizer = flow.optim.AdamW(self.model.parameters(), lr=0.1)
        if strategy in ("zero1", "zero2"):
            self.optimizer.enable_zero(stage=int(strategy[-1]), shard_min_size=1)
        self.schedule = flow.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.graph = Step(self) if graph else None

    def batch(self, number):
        rows = flow.arange(24.0).reshape(4, 6).mul(number + 1).sin()
        return to(rows, self.first, S(0))

    def loss(self, x):
        for layer in self.model:
            if layer is self.ends[1]:
                x = x.to_global(self.last, self.sbp_of(self.last))
            x = layer(x)
        return x.square().mean()

    def sbp_of(self, placement):
        return (S(0),) + (B,) * (placement.ndim - 1)

    def step(self, number):
        x = self.batch(number)
        if self.graph is not None:
            return self.graph(x).item()
        loss = self.loss(x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def state(self):
        rest = {"generator": flow.default_generator}
        if self.graph is not None:
            return {"graph": self.graph, **rest}
        parts = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        return {**parts, **rest}

    def values(self):
        """Every number of the state, by name."""
        return values_of(self.model, self.optimizer)


def values_of(model, optimizer):
    """Every number of a model and its optimizer, by name."""
    found = {name: x.numpy() for name, x in model.state_dict().items()}
    for number, param in enumerate(model.parameters()):
        for key, x in optimizer.state[param].items():
            found[f"{number}.{key}"] = x.numpy() if isinstance(x, flow.Tensor) else float(x)
    return {**found, "lr": optimizer.param_groups[0]["lr"]}


class Step(nn.Graph):
    def __init__(self, run):
        super().__init__()
        self.model = run.model
        self.run = run
        self.add_optimizer(run.optimizer, lr_sch=run.schedule)

    def build(self, x):
        loss = self.run.loss(x)
        loss.backward()
        return loss


def to(x, placement, sbp):
    """A local value, the same on every process, as a global one."""
    whole = (B,) * placement.ndim
    sbp = (sbp,) + (B,) * (placement.ndim - 1)
    return x.to_global(placement, whole).to_global(sbp=sbp)


def whole(run, placement):
    run.model.to_global(placement, (B,) * placement.ndim)
    run.first = run.last = placement


def cpu(ranks):
    return flow.placement("cpu", ranks)


def split(run, placement, first, last):
    whole(run, placement)
    run.ends[0].to_global(sbp=first)
    run.ends[1].weight.data = run.ends[1].weight.data.to_global(sbp=last)


def pipeline(run):
    run.first, run.last = cpu([0, 1]), cpu([2, 3])
    for layer in run.model:
        layer.to_global(run.last if layer is run.ends[1] else run.first, B)


def zero3(run):
    whole(run, cpu([0, 1, 2, 3]))
    run.model.shard_()


STRATEGIES = {
    "one": lambda run: whole(run, cpu([0])),
    "dp4": lambda run: whole(run, cpu([0, 1, 2, 3])),
    "dp2": lambda run: whole(run, cpu([0, 1])),
    "tp4": lambda run: split(run, cpu([3, 1, 0, 2]), S(0), S(1)),
    "tp2": lambda run: split(run, cpu([0, 1]), S(0), S(1)),
    "2x2": lambda run: split(run, cpu([[0, 1], [2, 3]]), (B, S(0)), (B, S(1))),
    "pp2xdp2": pipeline,
    "zero1": lambda run: whole(run, cpu([0, 1, 2, 3])),
    "zero2": lambda run: whole(run, cpu([0, 1, 2, 3])),
    "zero3": zero3,
}


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
