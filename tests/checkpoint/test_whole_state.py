"""All that a run is, saved by one call: what is resumed goes on bit for bit, scaled steps too."""

import numpy as np
import pytest
from launched import run_ranks
from strategy_runs import values_of
from torch.utils.data import Dataset

import onefold as flow
from onefold import nn
from onefold.errors import CheckpointError, OnefoldTypeError
from onefold.utils.data import GlobalLoader

B, S = flow.sbp.broadcast, flow.sbp.split
INTERVAL = 2  # steps after which the scale grows


class Rows(Dataset):
    """Samples with noise; one of them is too large for any scale."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        row = flow.rand(6) + index / 24
        return row * float("inf") if index == 7 else row


class Run:
    """A model, its optimizer, schedule, scaler, loader and generators; eager, or as a graph."""

    def __init__(self, layout, graph, seed=0):
        flow.manual_seed(seed)
        ranks, sbp = LAYOUTS[layout]
        placement = flow.placement("cpu", ranks)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 4))
        self.model.to_global(placement, (B,) * placement.ndim)
        self.model[0].to_global(sbp=sbp)
        self.optimizer = flow.optim.AdamW(self.model.parameters(), lr=0.05 * (seed + 1))
        self.schedule = flow.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 8)
        self.scaler = flow.amp.GradScaler(init_scale=64.0 * (seed + 1), growth_interval=INTERVAL)
        self.own = flow.Generator().manual_seed(3 + seed)
        data = (S(0),) + (B,) * (placement.ndim - 1)
        self.loader = GlobalLoader(Rows(), placement, data, batch_size=4, shuffle=True)
        self.graph = Step(self) if graph else None
        self.number = 0

    def loss(self, x):
        return self.model(x).square().mean()

    def step(self, x):
        x = x + flow.rand(1, generator=self.own).item()
        self.number += 1
        if self.graph is not None:
            return self.graph(x).item()
        loss = self.loss(x)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        return loss.item()

    def train(self, until):
        """The losses of the steps up to that number, over the ends of epochs."""
        losses = []
        while self.number < until:
            for x in self.loader:
                losses.append(self.step(x))
                if self.number == until:
                    break
        return losses

    def state(self):
        parts = {"loader": self.loader, "own": self.own, "generator": flow.default_generator}
        if self.graph is not None:
            return {"graph": self.graph, **parts}
        training = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        return {**training, "scaler": self.scaler, **parts}

    def values(self):
        """Every number of the state, by name."""
        scale = self.scaler.get_scale()
        return {**values_of(self.model, self.optimizer), "scale": scale}


class Step(nn.Graph):
    def __init__(self, run):
        super().__init__()
        self.model = run.model
        self.run = run
        self.add_optimizer(run.optimizer, lr_sch=run.schedule)
        self.set_grad_scaler(run.scaler)

    def build(self, x):
        loss = self.run.loss(x)
        loss.backward()
        return loss


LAYOUTS = {
    "one": ([0], (B,)),
    "tp2": ([0, 1], (S(0),)),
    "2x2": ([[0, 1], [2, 3]], (B, S(0))),
}


def goes_on(folder, layout, graph, save_at, end=14):
    """Train, save, and train on; then again, from what was saved."""
    first = Run(layout, graph)
    first.train(save_at)
    flow.checkpoint.save(folder, first.state(), save_at)
    losses = first.train(end)
    second = Run(layout, graph, seed=4)
    second.number = flow.checkpoint.load(folder, second.state())["step"]
    np.testing.assert_array_equal(second.train(end), losses)
    wanted, found = first.values(), second.values()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    return np.isfinite(losses).tolist()


@pytest.mark.parametrize("save_at", [4, 6, 9])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_run_goes_on(world, tmp_path, layout, graph, save_at):
    finite = goes_on(tmp_path, layout, graph, save_at)
    assert not all(finite)  # a step was skipped after loading, and the scale became smaller


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_real_processes(tmp_path, graph):
    assert len(set(map(str, run_ranks(2, goes_on, tmp_path, "tp2", graph, 5)))) == 1


def test_save_without_a_step_says_what_to_give(tmp_path):
    with pytest.raises(OnefoldTypeError, match=r"no step was given.*save\(dir, state, step=N\)"):
        flow.checkpoint.save(tmp_path, {"model": flow.nn.Linear(2, 2)})
    assert not list(tmp_path.iterdir())


def test_objects_under_keys_of_any_type(world, tmp_path):
    def state():
        return {"models": {0: nn.Linear(2, 2), 1: {"a": nn.Linear(2, 2)}}, "epoch": 3}

    saved = state()
    flow.checkpoint.save(tmp_path, saved, 1)
    found = state()
    assert flow.checkpoint.load(tmp_path, found) == {"epoch": 3, "step": 1}
    for first, second in (
        (saved["models"][0], found["models"][0]),
        (saved["models"][1]["a"], found["models"][1]["a"]),
    ):
        np.testing.assert_array_equal(second.weight.numpy(), first.weight.numpy())
    with pytest.raises(CheckpointError, match=r"nothing for models\.2"):
        flow.checkpoint.load(tmp_path, {"models": {2: nn.Linear(2, 2)}})
