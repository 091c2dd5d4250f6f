"""Products that add weights' gradients to their sums over micro-batches: no sum is another one.

They are there where Triton does the work; here the programs are told so, and torch runs them: then
a product is rounded before it is added, as in an addition of its own, and no bit may change.
"""

from functools import partial
from itertools import pairwise

import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.graph.passes import accumulate_products, fuse_chains
from onefold.graph.passes.accumulate_products import Accumulate

B, S = flow.sbp.broadcast, flow.sbp.split
TWO = flow.placement("cpu", [0, 1])
MESH = flow.placement("cpu", [[0, 1], [2, 3]])
LAYOUTS = {  # of weights, and of the batch
    "local": ({}, {}),
    "data": ({"placement": TWO, "sbp": B}, {"placement": TWO, "sbp": S(0)}),
    "tensor": ({"placement": TWO, "sbp": S(0)}, {"placement": TWO, "sbp": B}),
    "both": ({"placement": MESH, "sbp": (B, S(0))}, {"placement": MESH, "sbp": (S(0), B)}),
}
HALVES = (flow.float32, flow.bfloat16, flow.float16)


@pytest.fixture(autouse=True)
def _accumulating(monkeypatch):
    monkeypatch.setattr(fuse_chains, "uses_triton", lambda device_type: True)


class Net(nn.Module):
    """Two layers; the rows of the last have two dims."""

    def __init__(self, where):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8, **where), nn.Linear(8, 6, **where)

    def forward(self, x):
        return self.last(flow.gelu(self.first(x)).unsqueeze(1))


class Twice(nn.Module):
    """A layer that is used twice."""

    def __init__(self, where):
        super().__init__()
        self.layer = nn.Linear(6, 6, bias=False, **where)

    def forward(self, x):
        return self.layer(flow.gelu(self.layer(x)))


class Step(nn.Graph):
    def __init__(self, model, dtype=flow.float32, count=4, change=lambda graph: None):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
        self.config.set_gradient_accumulation_steps(count)
        if dtype is not flow.float32:
            self.config.enable_amp(dtype=dtype)
        if dtype is flow.float16:
            self.set_grad_scaler(flow.amp.GradScaler(init_scale=64.0))
        change(self)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def trained(make, there, *how, **named):
    """The losses and the weights after some calls, and the graph."""
    flow.manual_seed(0)
    graph = Step(make(), *how, **named)
    x = flow.randn(8, 6, **there)
    losses = [graph(x).numpy().tolist() for _ in range(3)]
    return losses, [p.numpy().tolist() for p in graph.model.parameters()], graph


def plainly(monkeypatch, *args, **named):
    """The same with additions of their own."""
    with monkeypatch.context() as patched:
        patched.setattr(accumulate_products, "on_triton", lambda step: False)
        losses, weights, graph = trained(*args, **named)
    assert adding(graph.program.steps) == []
    return losses, weights


def adding(steps):
    return [step for step in steps if isinstance(step.op, Accumulate)]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_bit_changes(layout, dtype, world, monkeypatch):
    where, there = LAYOUTS[layout]
    make = partial(Net, where)
    wanted = plainly(monkeypatch, make, there, dtype)
    *found, graph = trained(make, there, dtype)
    assert (*found,) == wanted
    steps = adding(graph.program.steps)
    assert len(steps) == 2 * 4
    assert all(step.outputs[0].meta.dtype is flow.float32 for step in steps)
    assert [step.place is None for step in steps] == [True] * 2 + [False] * 6
    assert all(step.place is step.inputs[2] for step in steps[2:])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_weight_that_is_used_twice(layout, dtype, world, monkeypatch):
    """Both products add to one sum, so the order of the addends is another one."""
    where, there = LAYOUTS[layout]
    make = partial(Twice, where)
    _, wanted = plainly(monkeypatch, make, there, dtype)
    _, found, graph = trained(make, there, dtype)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), rtol=1e-5, atol=1e-6)
    steps = adding(graph.program.steps)
    if layout in ("tensor", "both"):  # where one of the products moves to the other's layout
        assert steps == []
        return
    assert [step.place is None for step in steps] == [True] + [False] * 7
    for before, step in pairwise(steps):
        assert step.place is before.outputs[0]


def test_the_program_names_the_sums(world):
    *_, graph = trained(partial(Net, {}), {}, flow.bfloat16, 2)
    lines = str(graph.program).splitlines()
    last, first, last_again, first_again = [line for line in lines if "accumulate_" in line]
    assert "= accumulate_rows_tn(" in last and "= accumulate_mm_tn(" in first
    assert last_again.endswith(f"in place of {last.split(':')[0]}")
    assert first_again.endswith(f"in place of {first.split(':')[0]}")


class Tied(nn.Module):
    """A table that is the last layer's weight, too."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 6)
        self.layer = nn.Linear(6, 6, bias=False)

    def forward(self, x):
        y = self.layer(self.table(x.abs().argmax(1)))
        return nn.functional.linear(y, self.table.weight)


class Kept(nn.Module):
    """A layer whose gradient is read by another use of its weight: a penalty."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6, bias=False)

    def forward(self, x):
        return self.layer(x) + 0.1 * self.layer.weight.square().sum()


@pytest.mark.parametrize(("make", "count"), [(Tied, 4), (Kept, 0)], ids=["tied", "penalty"])
def test_what_is_no_product_is_added_by_itself(make, count, world, monkeypatch):
    wanted = plainly(monkeypatch, make, {})
    *found, graph = trained(make, {})
    assert (*found,) == wanted
    assert len(adding(graph.program.steps)) == count


def test_one_micro_batch_has_no_sums(world):
    *_, graph = trained(partial(Net, {}), {}, flow.bfloat16, 1)
    assert adding(graph.program.steps) == []


def zero(stage):
    return lambda graph: graph.config.enable_zero(stage=stage, shard_min_size=1)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero(stage, world, monkeypatch):
    """Gradients that are scattered as they are made are not added by products."""
    where, there = LAYOUTS["data"]
    how = {"dtype": flow.bfloat16, "change": zero(stage)}
    wanted = plainly(monkeypatch, partial(Net, where), there, **how)
    *found, graph = trained(partial(Net, where), there, **how)
    assert (*found,) == wanted
    assert bool(adding(graph.program.steps)) == (stage == 1)


class Staged(nn.Module):
    """Two stages, of which the last uses the weight of the first, too."""

    def __init__(self):
        super().__init__()
        here, self.there = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])
        self.body = Net({"placement": here, "sbp": B})
        self.head = nn.Linear(6, 6, placement=self.there, sbp=S(0))
        self.body.to(nn.graph.GraphModule).set_stage(0, here)
        self.head.to(nn.graph.GraphModule).set_stage(1, self.there)

    def forward(self, x):
        y = self.head(self.body(x))
        return flow.matmul(y, self.body.last.weight.to_global(self.there, B))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
def test_stages(schedule, dtype, world, monkeypatch):
    there = LAYOUTS["data"][1]
    how = {"dtype": dtype, "change": lambda graph: graph.config.set_schedule(schedule)}
    wanted = plainly(monkeypatch, Staged, there, **how)
    *found, graph = trained(Staged, there, **how)
    assert (*found,) == wanted
    # The gradient of the shared weight moves from layout to layout before it is added on the
    # first stage; on the last it is added up, and sent once.
    for stage, count in enumerate((1, 2)):
        part = f"{'W' if schedule == 'zb-h1' else 'B'}{stage}:"
        before, _, after = graph.plan(2 * stage).partition(part)
        assert "accumulate_" not in before
        lines = [line for line in after.splitlines() if "accumulate_" in line]
        assert len(lines) == count
        assert all(line.endswith(".sum") and ".sum) in place of %" in line for line in lines)


def test_ranks_that_are_processes():
    """Two ranks, each with half of the batch, have the sums of one process."""

    def run():
        pytest.MonkeyPatch().setattr(fuse_chains, "uses_triton", lambda device_type: True)
        placement = flow.placement("cpu", [0, 1])
        where = {"placement": placement, "sbp": B}
        make, there = partial(Net, where), {"placement": placement, "sbp": S(0)}
        losses, _, graph = trained(make, there, flow.bfloat16)
        assert len(adding(graph.program.steps)) == 2 * 4
        return losses

    with virtual_world():
        wanted = run()
    assert run_ranks(2, run) == [wanted] * 2
