"""Cyclic schedules, their momentum and SWALR against torch's."""

import pytest
import torch
from lr_rates import assert_torchs, group_rates, ours, sgd, theirs, torch_sgd

import onefold as flow
from onefold.errors import OnefoldTypeError, OnefoldValueError

STEPS = 30

CYCLIC = [
    {"cycle_momentum": False, "step_size_up": 4},
    {"cycle_momentum": False, "step_size_up": 3, "step_size_down": 5, "mode": "triangular2"},
    {"cycle_momentum": False, "step_size_up": 3, "mode": "exp_range", "gamma": 0.9},
    {"cycle_momentum": False, "step_size_up": 3, "scale_fn": lambda x: 1 / x},
    {"step_size_up": 4, "scale_fn": lambda x: 0.5**x, "scale_mode": "iterations"},
    {"step_size_up": 4, "mode": "triangular2", "base_momentum": [0.5, 0.6], "max_momentum": 0.8},
]
ONE = [
    {"total_steps": 31, "cycle_momentum": False},
    {"epochs": 4, "steps_per_epoch": 8, "anneal_strategy": "linear", "pct_start": 0.25},
    {"total_steps": 40, "three_phase": True, "base_momentum": [0.5, 0.6]},
    {"total_steps": 33, "div_factor": 5.0, "final_div_factor": 10.0, "max_momentum": 0.99},
]


@pytest.mark.parametrize("options", CYCLIC, ids=range(len(CYCLIC)))
def test_cyclic_lr(options):
    assert_torchs(lambda lib, opt: lib.CyclicLR(opt, [0.1, 0.2], [1.0, 3.0], **options), [7.0, 8.0])


@pytest.mark.parametrize("options", ONE, ids=range(len(ONE)))
def test_one_cycle_lr(options):
    assert_torchs(lambda lib, opt: lib.OneCycleLR(opt, [1.0, 2.0], **options), [7.0, 8.0])


def momenta(optimizer):
    return [g["betas"][0] if "betas" in g else g["momentum"] for g in optimizer.param_groups]


def both(name, **options):
    """The same optimizer here and in torch, with two groups."""
    w = [flow.nn.Parameter(flow.ones(1)) for _ in range(2)]
    v = [torch.ones(1, requires_grad=True) for _ in range(2)]
    return [
        getattr(lib, name)([{"params": [x]} for x in given], lr=0.1, **options)
        for lib, given in ((flow.optim, w), (torch.optim, v))
    ]


def assert_same_momenta(make, name, **options):
    mine, right = both(name, **options)
    schedules = make(ours, mine), make(theirs, right)
    for step in range(STEPS):
        for optimizer, schedule in zip((mine, right), schedules, strict=True):
            if step:
                optimizer.step()
                schedule.step()
        assert momenta(mine) == pytest.approx(momenta(right), rel=1e-12)
        assert group_rates(mine) == pytest.approx(group_rates(right), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [("SGD", {"momentum": 0.9}), ("Adam", {}), ("NAdam", {}), ("RMSprop", {"momentum": 0.5})],
)
def test_momentum_cycles(name, options):
    for given in CYCLIC[4:]:
        assert_same_momenta(
            lambda lib, opt, g=given: lib.CyclicLR(opt, 0.1, 1.0, **g), name, **options
        )
    for given in ONE[1:]:
        assert_same_momenta(
            lambda lib, opt, g=given: lib.OneCycleLR(opt, 0.5, **g), name, **options
        )


def test_another_momentum_is_noticed():
    def make(lib, optimizer):
        return lib.OneCycleLR(optimizer, 0.5, 40, base_momentum=0.5 if lib is ours else 0.6)

    with pytest.raises(AssertionError):
        assert_same_momenta(make, "Adam")


def test_a_graph_cycles_its_momentum(world):
    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            flow.manual_seed(0)
            self.model = flow.nn.Linear(3, 2)
            self.optimizer = flow.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
            self.schedule = ours.OneCycleLR(self.optimizer, 0.5, total_steps=10)
            self.add_optimizer(self.optimizer, lr_sch=self.schedule)

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    graph, eager = Train(), Train()
    x = flow.ones(4, 3)
    for _ in range(6):
        graph(x)
        eager.model(x).square().mean().backward()
        eager.optimizer.step()
        eager.optimizer.zero_grad()
        eager.schedule.step()
        assert momenta(graph.optimizer) == momenta(eager.optimizer)
    torch.testing.assert_close(
        graph.model.weight.detach().to_torch(), eager.model.weight.detach().to_torch()
    )


def test_a_state_that_is_loaded_goes_on():
    mine, _ = both("Adam")
    first = ours.OneCycleLR(mine, 0.5, 20)
    for _ in range(7):
        first.step()
    again, _ = both("Adam")
    second = ours.OneCycleLR(again, 0.5, 20)
    again.load_state_dict(mine.state_dict())
    second.load_state_dict(first.state_dict())
    first.step()
    second.step()
    assert group_rates(mine) == group_rates(again) and momenta(mine) == momenta(again)
    assert second.last_epoch == 8


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda o: ours.OneCycleLR(o, 1.0), "You must define either total_steps OR"),
        (lambda o: ours.OneCycleLR(o, 1.0, 0), "total_steps must be a positive integer"),
        (lambda o: ours.OneCycleLR(o, 1.0, None, 3, 1.5), "steps_per_epoch must be a positive"),
        (lambda o: ours.OneCycleLR(o, 1.0, 5, pct_start=2.0), r"pct_start must be a float in \[0"),
        (lambda o: ours.OneCycleLR(o, 1.0, 5, anneal_strategy="x"), "anneal_strategy must be one"),
        (lambda o: ours.OneCycleLR(o, [1.0, 2.0], 5), "max_lr must have the same length"),
        (lambda o: ours.CyclicLR(o, 0.1, 1.0, mode="x"), "CyclicLR: mode must be one of"),
        (lambda o: ours.CyclicLR(o, 0.1, 1.0, 0), "step_size_up and step_size_down must be > 0"),
        (lambda o: flow.optim.swa_utils.SWALR(o, 0.1, 2.5), "anneal_epochs must be an integer"),
        (lambda o: flow.optim.swa_utils.SWALR(o, 0.1, 2, "x"), "anneal_strategy must be one of"),
    ],
)
def test_bad_arguments(make, text):
    with pytest.raises(OnefoldValueError, match=text):
        make(sgd(1.0))


def test_optimizers_without_momentum():
    optimizer = flow.optim.Adagrad([flow.nn.Parameter(flow.ones(1))])
    with pytest.raises(OnefoldValueError, match="Adagrad has neither; pass cycle_momentum=False"):
        ours.CyclicLR(optimizer, 0.1, 1.0)
    ours.CyclicLR(optimizer, 0.1, 1.0, cycle_momentum=False)
    with pytest.raises(OnefoldTypeError, match="int is not an Optimizer"):
        ours.OneCycleLR(3, 1.0, 5)


def test_schedules_of_several_do_not_drop_momentum():
    optimizer = both("Adam")[0]
    cycle = ours.OneCycleLR(optimizer, 0.5, 20)
    makers = [ours.WarmupLR, lambda s: ours.ChainedScheduler([s])]
    for make in makers:
        with pytest.raises(OnefoldValueError, match="OneCycleLR cycles momentum, too"):
            make(cycle)
    plain = ours.OneCycleLR(optimizer, 0.5, 20, cycle_momentum=False)
    assert ours.ChainedScheduler([plain]).rates(6) == plain.rates(6)


def test_too_many_steps():
    schedule = ours.OneCycleLR(sgd(1.0), 1.0, 3)
    for _ in range(3):
        schedule.step()
    with pytest.raises(OnefoldValueError, match=r"^Tried to step 4 times"):
        schedule.step()


@pytest.mark.parametrize("epochs", [0, 1, 5])
@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_swa_lr(epochs, strategy):
    """Alone, and where another schedule has set the rates."""
    optimizers = sgd(1.0, 0.5), torch_sgd(1.0, 0.5)
    swa = flow.optim.swa_utils, torch.optim.swa_utils
    pairs = [
        (lib.ExponentialLR(opt, 0.9), utils.SWALR(opt, [0.3, 0.2], epochs, strategy), opt)
        for lib, utils, opt in zip((ours, theirs), swa, optimizers, strict=True)
    ]
    for step in range(12):
        for before, after, optimizer in pairs:
            optimizer.step()
            (before if step < 3 and epochs else after).step()
        assert group_rates(optimizers[0]) == pytest.approx(group_rates(optimizers[1]), rel=1e-12)


@pytest.mark.parametrize("last_epoch", [-1, 0, 4])
@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_swa_lr_begins_when_it_is_made(strategy, last_epoch):
    told = []
    for optimizer, utils in (
        (sgd(1.0), flow.optim.swa_utils),
        (torch_sgd(1.0), torch.optim.swa_utils),
    ):
        optimizer.param_groups[0]["initial_lr"] = 1.0
        swa = utils.SWALR(optimizer, 0.5, 4, strategy, last_epoch=last_epoch)
        rates = []
        for _ in range(6):
            rates.append((swa.last_epoch, *swa.get_last_lr()))
            optimizer.step()
            swa.step()
        told.append(rates)
    for ours_now, torchs in zip(*told, strict=True):
        assert ours_now == pytest.approx(torchs, rel=1e-12)
    with pytest.raises(OnefoldValueError, match="'initial_lr' is not specified"):
        flow.optim.swa_utils.SWALR(sgd(1.0), 0.5, last_epoch=2)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("StepLR", {"step_size": 3}),
        ("MultiStepLR", {"milestones": [2, 5]}),
        ("ConstantLR", {}),
        ("LinearLR", {}),
        ("ExponentialLR", {"gamma": 0.9}),
        ("CosineAnnealingLR", {"T_max": 5}),
        ("CosineAnnealingWarmRestarts", {"T_0": 3}),
        ("LambdaLR", {"lr_lambda": lambda step: 0.9**step}),
        ("MultiplicativeLR", {"lr_lambda": lambda step: 0.9}),
    ],
)
def test_the_last_epoch_is_the_last_step(name, options):
    optimizer = sgd(1.0)
    first = getattr(ours, name)(optimizer, **options, last_epoch=-1)
    for _ in range(4):
        first.step()
    again = getattr(ours, name)(optimizer, **options, last_epoch=3)
    assert again.last_epoch == 4 and again.get_last_lr() == first.get_last_lr()
