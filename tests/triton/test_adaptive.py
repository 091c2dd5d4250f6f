"""The updates of RMSprop, Momentum, LARS, LAMB and the rules in one launch, against torch's."""

import pytest
import torch
from optimizer_samples import OPTIMIZERS
from triton_updates import DTYPES, assert_skips, assert_updates, lists, rule

import onefold as flow
from onefold.engine.commit import finish
from onefold.kernels import update_rules
from onefold.kernels.select import pick
from onefold.kernels.update_rule_ref import states_of, update_by_rule
from onefold.optim.device_scalar import LocalStep

LAMB = {"betas": (0.9, 0.999), "eps": 0.5, "weight_decay": 0.1}
RMSPROP = {"lr": 0.05, "alpha": 0.9, "eps": 1e-2, "weight_decay": 0.1}


def squares(dtype, more):
    """Columns for RMSprop: roots are taken of the third, and of it less the fourth's square."""
    columns = lists(3 + more, dtype)
    columns[2] = [x.abs() + 40 for x in columns[2]]
    return columns


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_rmsprop(dtype, centered, momentum):
    for in_root in (False, True):
        options = {"eps_in_root": in_root, "maximize": in_root, "momentum": momentum}
        update = rule("RMSprop", centered=centered, **RMSPROP, **options)
        assert_updates(update, squares(dtype, centered + bool(momentum)), slack=20)


def rates():
    return torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)


def with_rates(found_inf=None):
    return rule("Momentum", lr=rates(), momentum=0.8, weight_decay=0.1, found_inf=found_inf)


def move(columns, found_inf=None):
    """The step of LAMB."""
    params, directions = columns
    update = pick(update_by_rule, "cpu")
    update(update_rules.move, params, directions, {}, {"lr": rates()}, found_inf=found_inf)


def direct(step=3, scale=None, **options):
    """The directions of LAMB: lists of them, of gradients, both moments and the parameters."""
    lamb = flow.optim.LAMB([flow.nn.Parameter(flow.ones(1))], **LAMB, **options)
    (group,) = lamb.param_groups

    def update(columns, found_inf=None):
        finish(lamb.direct(group, columns, LocalStep(1.0, step, scale, found_inf)))

    return update


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_momentum_with_a_rate_for_each_tensor(dtype):
    assert_updates(with_rates(), lists(3, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moves(dtype):
    assert_updates(move, lists(2, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("corrected", [False, True])
def test_directions(dtype, corrected):
    assert_updates(direct(do_bias_correction=corrected), lists(5, dtype))


def test_numbers_on_the_device():
    update = direct(torch.tensor(3.0), torch.tensor(0.25))
    assert_updates(update, lists(5, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_skipped_update_changes_no_bit(dtype):
    def rmsprop(columns, found):
        options = {"centered": True, "momentum": 0.5, "eps_in_root": True, "found_inf": found}
        rule("RMSprop", **RMSPROP, **options)(columns)

    def momentum(columns, found):
        with_rates(found)(columns)

    for update, count, changes in (
        (rmsprop, 5, (0, 2)),
        (momentum, 3, (0, 2)),
        (direct(torch.tensor(0.0)), 5, (0, 2)),
        (move, 2, (0,)),
    ):
        assert_skips(update, lists(count, dtype), changes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sample", OPTIMIZERS, ids=[sample.name for sample in OPTIMIZERS])
def test_a_rule_as_one_kernel(sample, dtype):
    count = len(states_of(getattr(flow.optim, sample.name).rule))
    columns = [
        [x.abs() if i > 1 else x for x in row] for i, row in enumerate(lists(2 + count, dtype))
    ]
    assert_updates(rule(sample.name, **sample.options), columns, slack=20)
