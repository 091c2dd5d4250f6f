"""The less common optimizers of torch against torch's: steps, states, options, graphs."""

import inspect
from unittest import mock

import numpy as np
import pytest
import torch
from launched import run_ranks
from training import LAYOUTS, SHAPES, assert_same_training, gradients, parameters

import onefold as flow
from onefold import nn
from onefold.engine.inplace import fitted
from onefold.errors import OnefoldRuntimeError, OnefoldValueError
from onefold.testing.sample_checks import value_of

MATRICES = [(5, 4), (4, 7), (6, 6)]
ROWS = [(5, 4), (7,), (3, 2, 2), ()]
CASES = [  # name, options, shapes
    ("Adam", {"lr": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": True}, SHAPES),
    ("Adadelta", {"weight_decay": 0.1, "rho": 0.8}, SHAPES),
    ("Adagrad", {"lr": 0.1}, SHAPES),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.3}, SHAPES),
    ("Adagrad", {"lr": 0.1, "weight_decay": 0.2, "eps": 1e-3, "maximize": True}, SHAPES),
    ("Adamax", {}, SHAPES),
    ("Adamax", {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.2, "maximize": True}, SHAPES),
    ("ASGD", {}, SHAPES),
    ("ASGD", {"lr": 0.1, "t0": 3, "lambd": 0.1, "weight_decay": 0.1}, SHAPES),
    ("NAdam", {}, SHAPES),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "momentum_decay": 0.1}, SHAPES),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}, SHAPES),
    ("RAdam", {}, SHAPES),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9)}, SHAPES),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}, SHAPES),
    ("Rprop", {}, SHAPES),
    ("Rprop", {"etas": (0.3, 1.7), "step_sizes": (0.005, 0.1), "maximize": True}, SHAPES),
    ("Muon", {}, MATRICES),
    ("Muon", {"lr": 0.1, "adjust_lr_fn": "match_rms_adamw", "nesterov": False}, MATRICES),
    ("Adafactor", {}, ROWS),
    ("Adafactor", {"lr": 0.5, "weight_decay": 0.1, "d": 1.5, "eps": (1e-3, 1e-2)}, ROWS),
    ("Adafactor", {"lr": 0.1, "maximize": True, "beta2_decay": -0.5}, ROWS),
]
NAMES = sorted({name for name, _, _ in CASES} - {"Adam"})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "options", "shapes"), CASES)
def test_every_step_is_torchs(name, options, shapes, layout, world):
    options = {"lr": 0.01, **options} if name == "Adagrad" else options
    # The iteration of Muon is in bfloat16, in which the last bit of a sum can be seen.
    partial = name == "Muon" and "P" in "".join(LAYOUTS[layout][1:])
    close = mock.patch.dict("training.TOLERANCE", {torch.float64: 0.02 if partial else 1e-12})
    with close:
        assert_same_training(name, options, layout, torch.float64, shapes)


def test_other_options_are_noticed(world):
    with pytest.raises(AssertionError), mock.patch("torch.optim.Rprop", torch.optim.ASGD):
        assert_same_training("Rprop", {}, "split", torch.float64)


class Both:
    """A model's parameters, here and in torch, with the same gradients."""

    def __init__(self, name, layout="split", **options):
        shapes = MATRICES if name == "Muon" else ROWS
        self.params = parameters(layout, torch.float64, shapes)
        self.theirs = [value_of(p.detach()).clone().requires_grad_() for p in self.params]
        self.layout, self.step_number = layout, 0
        self.ours = getattr(flow.optim, name)(self.params, **options)
        self.optimizer = getattr(torch.optim, name)(self.theirs, **options)

    def grads(self):
        self.step_number += 1
        for p, grad, q in zip(
            self.params,
            gradients(self.step_number, self.layout, self.params),
            self.theirs,
            strict=True,
        ):
            p.grad, q.grad = grad, value_of(grad)

    def assert_same(self):
        for p, q in zip(self.params, self.theirs, strict=True):
            torch.testing.assert_close(value_of(p.detach()), q.detach(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", [*NAMES, "Adam", "AdamW", "RMSprop", "SGD"])
def test_the_states_of_torch_go_on_here(name, world):
    options = {"lr": 0.05, **({"momentum": 0.9} if name in ("RMSprop", "SGD") else {})}
    both = Both(name, **options)
    for _ in range(3):
        both.grads()
        both.optimizer.step()
    for p, q in zip(both.params, both.theirs, strict=True):
        p.data.copy_(flow.tensor(q.detach().numpy(), placement=p.placement, sbp=p.sbp))
    both.ours.load_state_dict(both.optimizer.state_dict())
    for _ in range(3):
        both.grads()
        both.optimizer.step()
        both.ours.step()
    both.assert_same()
    kept = both.ours.state[both.params[0]]
    assert set(kept) | {"step"} == set(both.optimizer.state[both.theirs[0]]) | {"step"}
    again = Both(name, **{**options, "lr": 9.0})
    again.params = both.params
    again.ours = getattr(flow.optim, name)(both.params, **{**options, "lr": 9.0})
    again.ours.load_state_dict(both.ours.state_dict())
    both.grads()
    both.optimizer.step()
    again.ours.step()
    both.assert_same()


@pytest.mark.parametrize("name", NAMES)
def test_the_arguments_are_torchs(name):
    """Their names, order and defaults; a rate that OneFlow has is OneFlow's."""
    mine = list(inspect.signature(getattr(flow.optim, name)).parameters.values())
    right = list(inspect.signature(getattr(torch.optim, name)).parameters.values())
    mine = [each for each in mine if each.name != "contiguous_params"]
    for a, b in zip(mine, right, strict=True):
        assert (a.name, a.kind) == (b.name, b.kind)
        assert a.default == b.default or (name, a.name, a.default) == ("Adagrad", "lr", 1e-3)
    w, v = nn.Parameter(flow.ones(2, 2)), torch.ones(2, 2, requires_grad=True)
    if name != "Adadelta":  # of which only what changes numbers is kept
        found = repr(getattr(flow.optim, name)([w], lr=0.5))
        assert found == repr(getattr(torch.optim, name)([v], lr=0.5))


def test_three_defaults_are_not_torchs():
    """They are OneFlow's, and docs/differences.md lists them."""
    found = set()
    for name, theirs in vars(torch.optim).items():
        mine = getattr(flow.optim, name, None)
        if inspect.isclass(theirs) and inspect.isclass(mine):
            defaults = inspect.signature(mine).parameters
            found |= {
                (name, each.name, defaults[each.name].default)
                for each in inspect.signature(theirs).parameters.values()
                if each.name in defaults and defaults[each.name].default != each.default
            }
    assert found == {
        ("AdamW", "weight_decay", 0.0),
        ("Adagrad", "lr", 1e-3),
        ("RMSprop", "lr", 1e-3),
    }


@pytest.mark.parametrize(
    "name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adadelta", "RAdam", "Rprop", "ASGD"]
)
def test_options_that_change_no_number(name, world):
    w = nn.Parameter(flow.ones(2))
    cls = getattr(flow.optim, name)
    more = {} if name in ("SGD", "Adagrad") else {"capturable": True}
    cls([w], lr=0.1, foreach=True, **more)
    with pytest.raises(OnefoldValueError, match=f"{name}: differentiable=True is not supported"):
        cls([w], lr=0.1, differentiable=True)
    if "fused" in inspect.signature(cls).parameters:
        cls([w], lr=0.1, fused=True)
        with pytest.raises(OnefoldRuntimeError, match="cannot be `True` together"):
            cls([w], lr=0.1, fused=True, foreach=True)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("Adagrad", {"lr_decay": -1.0}, "Adagrad: lr_decay must be >= 0, but got -1.0"),
        ("Adamax", {"betas": (0.9, 1.0)}, "Adamax: betas must be two numbers"),
        ("NAdam", {"momentum_decay": -1.0}, "NAdam: momentum_decay must be >= 0"),
        ("Rprop", {"etas": (1.5, 1.2)}, r"Rprop: etas must be a number in \(0, 1\) and one"),
        ("Adafactor", {"d": 0.5}, "Adafactor: d must be >= 1, but got 0.5"),
        ("Adafactor", {"beta2_decay": 0.5}, "beta2_decay must be <= 0"),
        ("Adafactor", {"eps": (-1.0, 0.1)}, r"Adafactor: eps\[0\] must be >= 0"),
        ("Muon", {"adjust_lr_fn": "other"}, "Muon: adjust_lr_fn must be one of"),
        ("Muon", {"ns_steps": 100}, "ns_steps must be at least 0 and below 100, but got 100"),
        ("Muon", {"ns_coefficients": (1.0,)}, "ns_coefficients must be 3 numbers"),
    ],
)
def test_bad_options(name, options, text):
    with pytest.raises(OnefoldValueError, match=text):
        getattr(flow.optim, name)([nn.Parameter(flow.ones(2, 2))], **options)


def test_muon_takes_matrices_only():
    with pytest.raises(OnefoldValueError, match=r"Muon only supports 2D parameters .* \(3,\)"):
        flow.optim.Muon([nn.Parameter(flow.ones(3))])


# SparseAdam: torch's takes sparse gradients only.


@pytest.mark.parametrize("layout", ["local", "split", "mesh"])
def test_sparse_adam_leaves_rows_without_a_gradient(layout, world):
    (param,) = parameters(layout, torch.float64, [(6, 4)])
    right = value_of(param.detach()).clone().requires_grad_()
    options = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-4, "maximize": True}
    ours = flow.optim.SparseAdam([param], **options)
    theirs = torch.optim.SparseAdam([right], **options)
    for step in range(10):
        (grad,) = gradients(step, layout, [param])
        rows = torch.tensor([step % 6, (step * step + 3) % 6]).unique()
        mask = torch.zeros(6, 1, dtype=torch.float64).index_fill_(0, rows, 1.0)
        right.grad = (value_of(grad) * mask).to_sparse(1).coalesce()
        param.grad = fitted(value_of(grad) * mask, param)
        ours.step()
        theirs.step()
        torch.testing.assert_close(value_of(param.detach()), right.detach())


# Graphs.


class Train(nn.Graph):
    def __init__(self, name, clipped=False, scaler=False, **layout):
        super().__init__()
        flow.manual_seed(0)
        self.model = nn.Linear(6, 4, bias=name != "Muon").to(flow.float64)
        if layout:
            self.model.to_global(layout["placement"], flow.sbp.broadcast).to_global(**layout)
        options = {"lr": 0.05}
        self.optimizer = getattr(flow.optim, name)(self.model.parameters(), **options)
        self.add_optimizer(self.optimizer)
        if scaler:
            self.set_grad_scaler(flow.amp.GradScaler(init_scale=8.0))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


@pytest.mark.parametrize("where", ["local", "split"])
@pytest.mark.parametrize("name", [*NAMES, "SparseAdam"])
def test_a_graph_trains_as_eager_does(name, where, world):
    place = flow.placement("cpu", [0, 1])
    layout = {"placement": place, "sbp": flow.sbp.split(0)} if where == "split" else {}
    graph, eager = Train(name, **layout), Train(name, **layout)
    graph.model.load_state_dict(eager.model.state_dict())
    graph_of = {"placement": place, "sbp": flow.sbp.broadcast} if layout else {}
    for number in range(4):
        values = np.random.default_rng(number).normal(size=(3, 6))
        x = flow.tensor(values, **graph_of)
        graph(x)
        eager.model(x).square().mean().backward()
        eager.optimizer.step()
        eager.optimizer.zero_grad()
    for mine, right in zip(graph.model.parameters(), eager.model.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), right.numpy(), rtol=1e-12, atol=1e-13)
    other = Train(name, **layout)
    other.load_state_dict(graph.state_dict())
    for _ in range(2):  # the second with the state, too
        assert other(x).item() == graph(x).item()


@pytest.mark.parametrize("name", NAMES)
def test_a_scaler_skips_a_step(name, world):
    graph = Train(name, scaler=True)
    x = flow.tensor(np.ones((2, 6)))
    graph(x)
    before = [p.numpy().copy() for p in graph.model.parameters()]
    graph(x * np.inf)
    for param, old in zip(graph.model.parameters(), before, strict=True):
        np.testing.assert_array_equal(param.numpy(), old)
    graph(x)
    assert any(
        not np.array_equal(p.numpy(), old)
        for p, old in zip(graph.model.parameters(), before, strict=True)
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "LBFGS"])
def test_numbers_under_a_scaler_are_torchs(name, world):
    def run(lib):
        start = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
        w = lib.nn.Parameter(lib.tensor(start.tolist(), dtype=lib.float64))
        optimizer = getattr(lib.optim, name)([w], lr=0.05)
        device = {"device": "cpu"} if lib is torch else {}
        scaler = lib.amp.GradScaler(**device, init_scale=8.0)
        for factor in (np.inf, 1.0, -2.0, np.nan, 3.0, 0.5):
            optimizer.zero_grad()
            scaler.scale((w * w * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.param_groups[0]["lr"] *= 0.5
        return w.detach().numpy()

    limit = 1e-2 if name == "Muon" else 1e-13  # Muon computes in bfloat16
    np.testing.assert_allclose(run(flow), run(torch), limit, limit)


# Processes, with a parameter that only some of them have.


def _train(name):
    flow.manual_seed(0)
    everyone, some = flow.placement("cpu", [0, 1, 2]), flow.placement("cpu", [1, 2])
    params = [
        nn.Parameter(flow.randn(5, 4, dtype=flow.float64, placement=p, sbp=flow.sbp.split(dim)))
        for p, dim in ((everyone, 0), (everyone, 1), (some, 0))
    ]
    optimizer = getattr(flow.optim, name)(params, lr=0.05)

    def closure():
        optimizer.zero_grad()
        losses = [(param * param).sum() for param in params]
        for loss in losses:
            loss.backward()
        return flow.tensor(sum(loss.item() for loss in losses))

    for _ in range(3):
        optimizer.step(closure)
    return [param.detach().numpy() for param in params]


@pytest.mark.parametrize("name", ["NAdam", "Muon", "Adafactor", "LBFGS"])
def test_processes_train_alike(name, world):
    wanted = _train(name)
    for found in run_ranks(3, _train, name):
        for mine, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, right, rtol=1e-9)


@pytest.mark.parametrize("name", [*NAMES, "SparseAdam"])
def test_a_rate_may_be_a_tensor(name, world):
    found = []
    for rate in (0.05, flow.tensor(0.05, dtype=flow.float64)):
        (param,) = parameters("split", torch.float64, MATRICES[:1])
        optimizer = getattr(flow.optim, name)([param], lr=rate)
        for step in range(3):
            (param.grad,) = gradients(step, "split", [param])
            optimizer.step()
        found.append(value_of(param.detach()))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*NAMES, "SparseAdam"])
def test_half_precision(name, world):
    param = nn.Parameter(flow.ones(4, 4, dtype=flow.bfloat16))
    rate = 250.0 if name == "Adadelta" else 0.25  # whose first step is small
    optimizer = getattr(flow.optim, name)([param], lr=rate)
    param.grad = flow.ones(4, 4, dtype=flow.bfloat16)
    optimizer.step()
    found = value_of(param.detach())
    assert found.dtype is torch.bfloat16 and found.isfinite().all() and (found < 1).all()
