"""Triton's updates of torch's less common optimizers, against torch's."""

import pytest
import torch
from triton_updates import DTYPES, assert_skips, assert_updates, lists

import onefold as flow
from onefold.engine.commit import finish
from onefold.optim.device_scalar import LocalStep

CASES = [  # name, how many lists, options, what was kept before the step
    ("Adagrad", 3, {"weight_decay": 0.1, "eps": 1e-2}, None),
    ("Adamax", 4, {"weight_decay": 0.1, "eps": 1e-2}, None),
    ("ASGD", 3, {"t0": 1, "lambd": 0.1}, {"step": 3.0, "eta": 0.05, "mu": 0.5}),
    ("ASGD", 3, {"weight_decay": 0.1}, {}),
    ("NAdam", 4, {"weight_decay": 0.1, "eps": 1e-2}, {"step": 3.0, "mu_product": 0.2}),
    ("NAdam", 4, {"weight_decay": 0.1, "eps": 1e-2, "decoupled_weight_decay": True}, {}),
    ("RAdam", 4, {"eps": 1e-2, "betas": (0.9, 0.99)}, {"step": 30.0}),
    ("RAdam", 4, {"weight_decay": 0.1, "decoupled_weight_decay": True}, {}),
    ("Rprop", 4, {"step_sizes": (0.1, 1.0)}, None),
    ("SparseAdam", 4, {"eps": 1e-2}, None),
]


def update_of(name, options, kept, found_inf=None):
    """The update of lists by an optimizer of `flow.optim` at a later step."""
    optimizer = getattr(flow.optim, name)([flow.nn.Parameter(flow.ones(1))], **options)
    (group,) = optimizer.param_groups
    if kept is not None:
        group = {**group, **optimizer.advance(group, 0.1, kept)[0]}
    return lambda columns: finish(
        optimizer.update_lists(group, columns, LocalStep(0.1, 3, None, found_inf))
    )


def given(count, dtype):
    """Lists; of each gradient some elements are 0, and states are not negative."""
    columns = [*lists(2, dtype), *([x.abs() for x in row] for row in lists(count - 2, dtype))]
    for gradient in columns[1]:
        gradient.view(-1)[::3] = 0.0
    return columns


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "count", "options", "kept"), CASES)
def test_an_update_is_torchs(name, count, options, kept, dtype):
    assert_updates(update_of(name, options, kept), given(count, dtype))


@pytest.mark.parametrize(("name", "count", "options", "kept"), CASES)
def test_a_skipped_update_changes_no_bit(name, count, options, kept):
    def update(columns, found):
        update_of(name, options, kept, found)(columns)

    assert_skips(update, lists(count, torch.float32), (0, 2))
