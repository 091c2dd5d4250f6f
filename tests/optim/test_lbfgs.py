"""LBFGS against torch's: losses, parameters, evaluations and states, in several layouts."""

import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

OPTIONS = [
    {"lr": 0.1},
    {"lr": 0.05, "history_size": 2, "max_iter": 5},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 2, "max_eval": 7},
]
LAYOUTS = [None, ([0, 1], "(B)"), ([0, 1], "(S0)"), ([0, 1], "(P)"), ([[0, 1], [2, 3]], "(S0, B)")]


def rosenbrock(w, b):
    return (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum() + ((b - 2) ** 2).sum()


class Pair:
    """The same problem here and in torch."""

    def __init__(self, layout, **options):
        values = torch.tensor([-1.2, 1.0, 0.5, -0.3]).double(), torch.ones(2, 2).double()
        self.theirs = [v.clone().requires_grad_() for v in values]
        self.params = []
        for value in values:
            if layout is None:
                laid = make_local(value.clone())
            else:
                laid = make_global(value, flow.placement("cpu", layout[0]), parse(layout[1]))
            self.params.append(flow.nn.Parameter(laid))
        self.unused = flow.nn.Parameter(flow.ones(2, dtype=flow.float64))
        self.options = options
        self.ours = flow.optim.LBFGS([*self.params, self.unused], **options)
        unused = torch.ones(2, dtype=torch.float64, requires_grad=True)
        self.optimizer = torch.optim.LBFGS([*self.theirs, unused], **options)

    def step(self):
        losses = []
        for optimizer, params in ((self.ours, self.params), (self.optimizer, self.theirs)):

            def closure(optimizer=optimizer, params=params):
                optimizer.zero_grad()
                loss = rosenbrock(*params)
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)
        mine, right = (o.state[p[0]] for o, p in self.pairs())
        assert mine["func_evals"] == right["func_evals"] and mine["n_iter"] == right["n_iter"]

    def pairs(self):
        return (self.ours, self.params), (self.optimizer, self.theirs)

    def assert_same(self):
        for p, q in zip(self.params, self.theirs, strict=True):
            torch.testing.assert_close(value_of(p.detach()), q.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_step_is_torchs(options, layout, world):
    pair = Pair(layout, **options)
    metas = [p.meta for p in pair.params]
    for _ in range(4):
        pair.step()
        pair.assert_same()
    assert [p.meta for p in pair.params] == metas


def test_another_step_is_noticed(world):
    pair = Pair(None, lr=0.1, max_iter=3)
    pair.ours.param_groups[0]["lr"] = 0.2
    pair.step()  # of which the first loss is the same
    with pytest.raises(AssertionError):
        pair.assert_same()


@pytest.mark.parametrize("torchs", [False, True])
def test_a_state_that_is_loaded_goes_on(torchs, world):
    pair = Pair(([0, 1], "(S0)"), lr=0.1, max_iter=4)
    pair.step()
    state = (pair.optimizer if torchs else pair.ours).state_dict()
    pair.ours = flow.optim.LBFGS([*pair.params, pair.unused], lr=3.0)
    pair.ours.load_state_dict(state)
    pair.step()
    pair.assert_same()


def test_errors(world):
    w = flow.nn.Parameter(flow.ones(2))
    optimizer = flow.optim.LBFGS([w])
    with pytest.raises(OnefoldTypeError, match="needs a closure"):
        optimizer.step()
    with pytest.raises(OnefoldValueError, match="doesn't support per-parameter options"):
        flow.optim.LBFGS([{"params": [w]}, {"params": [flow.nn.Parameter(flow.ones(1))]}])
    with pytest.raises(OnefoldValueError, match="line_search_fn must be 'strong_wolfe' or None"):
        flow.optim.LBFGS([w], line_search_fn="armijo")
    with pytest.raises(OnefoldRuntimeError, match="LBFGS evaluates the loss several times"):
        flow.nn.Graph().add_optimizer(optimizer)
