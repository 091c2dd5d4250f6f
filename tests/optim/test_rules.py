"""Optimizers of one class: against their formulas for every layout, in graphs, and in jobs."""

import numpy as np
import pytest
import torch
from optimizer_samples import OPTIMIZERS
from training import LAYOUTS, assert_formula

import onefold as flow
import onefold.job
from onefold import nn
from onefold.job.update_rule import Optimizer as JobOptimizer
from onefold.kernels import select
from onefold.kernels.update_rule_ref import states_of, update_by_rule
from onefold.optim import elementwise_rules

IDS = [sample.name for sample in OPTIMIZERS]


def test_every_rule_has_a_row():
    assert {sample.name for sample in OPTIMIZERS} == set(elementwise_rules.__all__)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sample", OPTIMIZERS, ids=IDS)
def test_every_step_is_the_formulas(sample, layout, dtype, world):
    assert_formula(sample.formula, sample.name, sample.options, layout, dtype)


class Train(nn.Graph):
    def __init__(self, sample):
        super().__init__()
        flow.manual_seed(0)
        self.model = nn.Linear(6, 4)
        self.optimizer = getattr(flow.optim, sample.name)(self.model.parameters(), **sample.options)
        self.add_optimizer(self.optimizer)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


@pytest.mark.parametrize("sample", OPTIMIZERS, ids=IDS)
def test_a_graph_trains_as_eager_does(sample, world):
    graph, eager = Train(sample), Train(sample)
    for number in range(4):
        x = flow.tensor(np.random.default_rng(number).normal(size=(3, 6)).astype(np.float32))
        graph(x)
        eager.model(x).square().mean().backward()
        eager.optimizer.step()
        eager.optimizer.zero_grad()
    for mine, right in zip(graph.model.parameters(), eager.model.parameters(), strict=True):
        np.testing.assert_array_equal(mine.numpy(), right.numpy())
    other = Train(sample)
    other.load_state_dict(graph.state_dict())
    x = flow.ones(3, 6)
    assert other(x).item() == graph(x).item()
    assert other(x).item() == graph(x).item()  # with the state, too


@pytest.mark.parametrize("sample", OPTIMIZERS, ids=IDS)
def test_jobs_have_it_by_its_name(sample):
    options = {key: value for key, value in sample.options.items() if key != "lr"}
    schedule = onefold.job.job_optimizer.PiecewiseConstantScheduler([], [0.5])
    made = getattr(onefold.job.job_optimizer, sample.name)(schedule, **options)
    assert isinstance(made, JobOptimizer)
    engine = made.engine([{"params": [nn.Parameter(flow.ones(2))]}], lr=0.25)
    assert type(engine) is getattr(flow.optim, sample.name)
    assert engine.param_groups[0]["lr"] == 0.25
    for key, value in options.items():
        assert engine.param_groups[0][key] == value


@pytest.mark.parametrize("name", elementwise_rules.__all__)
def test_the_state_is_named_by_the_rule(name):
    w = nn.Parameter(flow.ones(2))
    w.grad = flow.ones(2)
    optimizer = getattr(flow.optim, name)([w])
    optimizer.step()
    kept = states_of(type(optimizer).rule)
    assert tuple(optimizer.state[w]) == kept == optimizer.state_names(optimizer.param_groups[0])
    assert select.triton_kernel(update_by_rule) is not None


class Only(elementwise_rules.ElementwiseRule):
    options = {"rho": 0.9}  # noqa: RUF012 - as a user writes it


def test_options_that_are_refused(world):
    w = nn.Parameter(flow.ones(2))
    with pytest.raises(TypeError, match="Only has no option 'momentum'; it has lr, rho, weight"):
        Only([w], momentum=0.9)
    with pytest.raises(ValueError, match="Adadelta: rho must be >= 0, but got -1"):
        flow.optim.Adadelta([w], rho=-1)


def test_adadelta_is_torchs(world):
    mine, right = nn.Parameter(flow.ones(3)), torch.ones(3, requires_grad=True)
    options = {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1}
    ours, theirs = flow.optim.Adadelta([mine], **options), torch.optim.Adadelta([right], **options)
    for step in range(5):
        right.grad = torch.tensor([1.0, -2.0, 0.5]) * (step + 1)
        mine.grad = flow.from_torch(right.grad.clone())
        ours.step()
        theirs.step()
    torch.testing.assert_close(mine.detach().to_torch(), right.detach())
