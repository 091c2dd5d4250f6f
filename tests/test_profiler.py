"""profiler.comm and profiler.dispatch count what happens, and nothing outside their blocks."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

import onefold as flow
from onefold import profiler
from onefold.engine import interpreter
from onefold.engine.dispatch_plan import clear_plans
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, partial_sum, split
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

PAIR = Placement("cpu", [0, 1])


def normal(*shape):
    return torch.from_numpy(np.random.default_rng(1).standard_normal(shape))


@pytest.fixture(autouse=True)
def no_plans():
    clear_plans()


def test_hits_and_misses():
    x = make_local(normal(4, 3))
    with profiler.dispatch() as log:
        for _ in range(3):
            y = names.tanh(x)
    assert torch.equal(value_of(y), value_of(x).tanh())
    tanh = log.ops["tanh"]
    assert (tanh.calls, tanh.hits, tanh.misses, tanh.collectives) == (3, 2, 1, 0)
    assert (log.calls, log.hits, log.misses) == (3, 2, 1)
    names.tanh(x)
    assert log.calls == 3, "calls after the block are not counted"
    assert interpreter.current is None


def test_backward_is_counted():
    x = make_local(normal(4, 3)).requires_grad_()
    with profiler.dispatch() as log:
        names.sum(names.tanh(x)).backward()
    assert log.calls > 3
    assert log.calls == sum(counts.calls for counts in log.ops.values())


def test_boxing_is_counted_for_the_op_that_needs_it():
    x = make_global(normal(4, 3), PAIR, (partial_sum,))
    w = make_global(normal(3, 2), PAIR, (partial_sum,))
    with profiler.dispatch() as log, profiler.comm() as traffic:
        y = names.tanh(x)
        z = names.mm(x, w)
    assert log.ops["tanh"].collectives > 0
    assert log.ops["mm"].collectives > 0
    assert log.collectives == len(traffic.records)
    assert torch.allclose(value_of(y), normal(4, 3).tanh())
    assert torch.allclose(value_of(z), normal(4, 3) @ normal(3, 2))


def test_to_global_is_counted():
    x = make_global(normal(4, 3), PAIR, (split(0),))
    with profiler.dispatch() as log:
        names.to_global(x, sbp=broadcast)
        names.to_global(x, sbp=split(0))
    assert log.ops["to_global"].collectives == 1


def test_values_can_be_read_inside_the_block():
    x = make_global(normal(4, 3), PAIR, (split(0),))
    with profiler.dispatch() as log:
        assert np.allclose(x.numpy(), normal(4, 3).numpy())
        assert "tensor" in repr(x)
        x.to_local()
    assert log.misses == 0


def test_an_op_that_raises_is_counted_and_the_block_ends():
    x = make_local(normal(4, 3))
    with pytest.raises(RuntimeError), profiler.dispatch() as log:
        names.mm(x, x)
    assert log.ops["mm"].calls == 1
    assert interpreter.current is None


def test_blocks_nest():
    x = make_local(normal(4, 3))
    with profiler.dispatch() as outer:
        names.tanh(x)
        with profiler.dispatch() as inner:
            names.tanh(x)
    assert (outer.calls, inner.calls) == (2, 1)


class Train(flow.nn.Graph):
    def __init__(self, block):
        super().__init__()
        self.block = block
        flow.manual_seed(1)
        shared = flow.nn.Linear(3, 3)
        self.first = flow.nn.Sequential(shared, flow.nn.Tanh(), shared)
        self.last = flow.nn.LayerNorm(3)
        parameters = [*self.first.parameters(), *self.last.parameters()]
        self.add_optimizer(flow.optim.SGD(parameters, lr=0.1))

    def build(self, x):
        with self.block():
            kept = self.first[0].weight.detach()
            y = self.last(self.first(x)) @ kept + x.detach()
            loss = y.sum()
            loss.backward()
        return loss, y


@pytest.mark.parametrize("around", [False, True])
def test_a_capture_is_the_same_in_a_block(around):
    """The same steps, of the same modules, with the same names."""
    x = flow.from_torch(normal(4, 3).float())
    plain, looked_at = Train(nullcontext), Train(nullcontext if around else profiler.dispatch)
    plain(x)
    with profiler.dispatch() if around else nullcontext():
        looked_at(x)
    assert "first.0" in plain.plan(0) and "last" in plain.plan(0)
    assert looked_at.plan(0) == plain.plan(0)
    assert str(looked_at.program) == str(plain.program)


def test_an_interpreter_that_only_looks_hands_everything_on():
    wanted = {name for name in vars(interpreter.Interpreter) if not name.startswith("_")}
    assert wanted <= vars(interpreter.Through).keys()


def test_the_table_has_a_row_per_op_and_a_sum():
    x = make_local(normal(4, 3))
    with profiler.dispatch() as log:
        names.tanh(x)
        names.tanh(x)
        names.sum(x)
    lines = str(log).splitlines()
    assert lines[0].split()[:4] == ["op", "calls", "hits", "misses"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["tanh", "2", "1", "1"],
        ["sum", "1", "0", "1"],
        ["all", "3", "1", "2"],
    ]


def test_comm_counts_bytes_per_rank():
    x = make_global(normal(4, 3), PAIR, (split(0),))
    with profiler.comm() as log:
        names.to_global(x, sbp=broadcast)
    assert [log.total_bytes(rank) for rank in (0, 1)] == [48, 48]
    assert log.records[0].ranks == (0, 1)
    assert log.records[0].op == "to_global"
    assert log.records[0].line.startswith("test_profiler.py:")
