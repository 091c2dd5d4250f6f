"""Torch's operator database: every entry comes as far in random layouts as the table says.

tests/operator_database.txt lists the entries that are not right in value, gradient and second
gradient, with the stage that all of their samples reach, and what is wrong. After a change, rewrite
it with
REWRITE_OPERATORS=1 pytest tests/ops/test_operator_database.py
"""

import os

import operator_database as database
import pytest
import torch
from torch_oracle import IS_NAMED, needs_this_torch

# Those of these words in their names give random values, or values that are not set.
UNSET = ("bernoulli", "empty", "fractional", "multinomial")
ENTRIES = {
    database.name_of(entry): entry
    for entry in database.DATABASE
    if entry.dtypes and not any(word in entry.name for word in UNSET)
}
COMPLETE = database.STAGES[-1]

pytestmark = pytest.mark.filterwarnings("ignore")  # samples call what torch deprecates


@pytest.mark.parametrize("name", ENTRIES)
def test_entry(name):
    stage, why = database.stage(ENTRIES[name])
    if os.environ.get("REWRITE_OPERATORS"):
        database.TABLE.write(name, stage, why)
    expected = database.TABLE.expected(name)
    if IS_NAMED:
        assert stage == expected, why
    else:  # other versions of torch ask for less in some entries
        assert database.STAGES.index(stage) >= database.STAGES.index(expected), why


@needs_this_torch
def test_how_many_are_right():
    table = database.TABLE.read()
    assert set(table) <= set(ENTRIES)
    dense = [name for name, entry in ENTRIES.items() if database.is_dense(entry)]
    stages = [table.get(name, (COMPLETE, ""))[0] for name in dense]
    right = {stage: len(stages) - sum(stages.count(less) for less in database.STAGES[:i])
             for i, stage in enumerate(database.STAGES)}  # fmt: skip
    assert right["value"] >= 500 and right["gradient"] >= 500 and right[COMPLETE] >= 500, right


# The check must be able to fail.


class Entry:
    """An entry of the database for one function, with one sample."""

    name = variant_test_name = ""
    supports_autograd = supports_gradgrad = True
    dtypes = (torch.float64,)

    def __init__(self, op):
        self.op = op

    def sample_inputs(self, device, dtype, requires_grad):
        x = torch.linspace(0.5, 2, 12, dtype=dtype).reshape(3, 4)
        yield type("Sample", (), {"input": x, "args": (), "kwargs": {}})()


def wrong_for_ours(wrong):
    """The exponential, but `wrong` where it is asked for a tensor of ours."""
    return lambda x: torch.exp(x) if isinstance(x, torch.Tensor) else wrong(x)


@pytest.mark.parametrize(
    ("wrong", "stage"),
    [
        (torch.exp, COMPLETE),
        (lambda x: x.exp() * 1.001, "nothing"),
        (lambda x: x.exp()[:2], "nothing"),
        (lambda x: x.exp().float(), "nothing"),
        (lambda x: x.exp().detach() + 0 * x, "value"),
        (lambda x: x.exp().detach() * (1 + x - x.detach()), "gradient"),
    ],
)
def test_a_wrong_function_is_found(wrong, stage):
    assert database.stage(Entry(wrong_for_ours(wrong)))[0] == stage
