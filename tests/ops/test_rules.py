"""Every rule of every op by brute force: no declared signature is wrong, and legal ones that are
not declared are listed in undeclared.txt, each with its reason.

After changing a rule, rewrite the list (reasons are kept, new rows get an empty one) with
REWRITE_UNDECLARED=1 pytest tests/ops/test_rules.py
"""

import math
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import samples
import torch

from onefold.engine.dispatch_plan import ops
from onefold.engine.op import Op
from onefold.engine.sbp import parse
from onefold.engine.signature import Signature
from onefold.testing.missing_rules import undeclared
from onefold.testing.recording import OpCall, Recorder, record
from onefold.testing.rules import faults, whole
from onefold.testing.sample_checks import local_results

TABLE = Path(__file__).with_name("undeclared.txt")
OPS = sorted(ops)
FORMS = {name: list(forms) for name, forms in ops.items()}  # as they are after import

# Ops that no sample reaches: what tests their rules.
NOT_REACHED: dict[str, str] = {}

# Ops on which undeclared layouts are not tried out, and why.
_UNCHECKED = "torch's kernel leaves its memory where shapes do not fit, and ends the process"
NOT_SEARCHED = {
    "adaptive_avg_pool_grad": _UNCHECKED,
    "avg_pool_grad": _UNCHECKED,
}

MAX_TRIES = 4000  # layouts tried in search of undeclared ones, per op
MAX_CALLS = 30  # per form of an op; the commonest are called by the gradients of all others


@pytest.fixture(scope="session")
def calls():
    """The distinct op calls of all samples, forward, backward and twice backward, by op name."""
    recorder = Recorder()
    for sample in samples.load():
        with record(recorder):
            local_results(sample, second=False)  # some gradients have a form for this case only
            local_results(sample, second=True)
    forms = defaultdict(list)
    for call in recorder.calls.values():
        forms[call.op].append(call)
    found = defaultdict(list)
    for op, some in forms.items():
        found[op.name] += chosen(some)
    return found


def chosen(some):
    """At most MAX_CALLS or so of an op's calls: one of each kind first, then more shapes."""
    kinds = {}
    for call in some:
        kinds.setdefault((tuple((v.ndim, v.dtype) for v in call.tensors), call.attrs), call)
    rest = [call for call in some if call not in kinds.values()]
    room = max(1, MAX_CALLS - len(kinds))
    return [*kinds.values(), *rest[:: -(-len(rest) // room) or 1]]


def searched(some):
    """The first calls of an op, as many as MAX_TRIES allows: tensors of many dims cost most."""
    tried = 0
    for call in some:
        results = whole(call)
        tried += math.prod(tensor.ndim + 2 for tensor in call.tensors) * (
            sum(output.ndim + 4 for output in results.outputs) if call.op.depends_on_position else 1
        )
        yield results
        if tried > MAX_TRIES:
            return


def read_table():
    """{op: {signature: reason}}"""
    table = defaultdict(dict)
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            row, _, reason = line.partition(" | ")
            table[row.partition(":")[0]][row.strip()] = reason.strip()
    return table


def write_rows(op, rows):
    table = read_table()
    table[op] = {row: table[op].get(row, "") for row in sorted(rows)}
    head = [line for line in TABLE.read_text().splitlines() if line.startswith("#")]
    lines = [f"{row} | {reason}" for op in sorted(table) for row, reason in table[op].items()]
    TABLE.write_text("\n".join([*head, *lines]) + "\n")


@pytest.mark.parametrize("op", OPS)
def test_no_declared_signature_is_wrong(op, calls):
    assert calls[op] or op in NOT_REACHED, f"no sample reaches {op}"
    assert [text for call in calls[op] for text in faults(whole(call))] == []


@pytest.mark.parametrize("op", [op for op in OPS if op not in NOT_SEARCHED])
def test_undeclared_signatures_are_justified(op, calls):
    found = {row for results in searched(calls[op]) for row in undeclared(results)}
    if os.environ.get("REWRITE_UNDECLARED"):
        write_rows(op, found)
    table = read_table()[op]
    assert sorted(found - set(table)) == [], "declare them, or give the reason in undeclared.txt"
    assert sorted(set(table) - found) == [], "rows that are declared now, or no longer legal"
    assert [row for row, reason in table.items() if not reason] == []


def test_every_op_is_reached(calls):
    """Each form of an op: a pair of tensors, a tensor and a number, ..."""
    reached = {id(call.op) for found in calls.values() for call in found}
    missing = [op for name in OPS for op in FORMS[name] if id(op) not in reached]
    assert [repr(op) for op in missing if op.name not in NOT_REACHED] == []


def test_the_table_names_no_unknown_op():
    assert sorted(set(read_table()) - set(OPS)) == []


# The checker must be able to fail: each of these rules has one fault.


class Ruled(Op):
    """An op with a given kernel and rule."""

    def __init__(self, name, kernel, rule):
        self.name = name
        self.kernel = kernel
        self.given = [Signature(parse(left), parse(right)) for left, right in rule]

    def rule(self, axis, *args):
        return self.given


def values(*shape):
    return torch.from_numpy(np.random.default_rng(1).standard_normal(shape))


def call_of(name, kernel, rule, *shapes):
    return whole(OpCall(Ruled(name, kernel, rule), tuple(values(*s) for s in shapes), ()))


SPLITS = [("S0", "S0"), ("S1", "S1")]
WRONG = {
    "relu of a partial sum": ("relu", torch.relu, [*SPLITS, ("P", "P")], (6, 4)),
    "transpose that forgets the dim": ("transpose", torch.t, SPLITS, (6, 4)),
    "sum over the split dim": ("sum", lambda x: x.sum(0), [("S0", "B"), ("S1", "S0")], (6, 4)),
    "max that is not joined": ("amax", lambda x: x.amax(0), [("S0", "P")], (6, 4)),
    "softmax over the split dim": ("softmax", lambda x: x.softmax(0), [("S0", "S0")], (6, 4)),
    "cumsum over the split dim": ("cumsum", lambda x: x.cumsum(1), [("S1", "S1")], (6, 4)),
    "product of partial sums": ("mul", torch.mul, [("P, P", "P")], (6, 4), (6, 4)),
    "sum of one partial": ("add", torch.add, [("P, B", "P")], (6, 4), (6, 4)),
    "mm that contracts to broadcast": ("mm", torch.mm, [("S1, S0", "B")], (6, 4), (4, 5)),
    "a dim too many": ("relu", torch.relu, [("S2", "S2")], (6, 4)),
    "an input too many": ("relu", torch.relu, [("S0, S0", "S0")], (6, 4)),
    # Right on even sizes: rows 0-3 and 3-6 of 6, but rows 0-3 and 3-5 of 5.
    "view of uneven rows": ("view", lambda x: x.reshape(-1), [("S0", "S0")], (5, 4)),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_rule_is_noticed(fault):
    found = faults(call_of(*WRONG[fault]))
    assert found != []
    assert WRONG[fault][0] in found[0]
    assert "(2,) ranks" in found[0]


RIGHT = {
    "relu": ("relu", torch.relu, SPLITS, (5, 4)),
    "transpose": ("t", torch.t, [("S0", "S1"), ("S1", "S0"), ("P", "P")], (5, 4)),
    "sum": ("sum", lambda x: x.sum(0), [("S0", "P"), ("S1", "S0"), ("P", "P")], (5, 4)),
    "amax": ("amax", lambda x: x.amax(0), [("S0", "PMAX"), ("S1", "S0")], (5, 4)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_and_complete_rule_passes(name):
    found = call_of(*RIGHT[name])
    assert faults(found) == []
    assert undeclared(found) == set()


def test_missing_signatures_are_listed():
    mm = call_of("mm", torch.mm, [("S0, B", "S0")], (6, 5), (5, 7))
    assert undeclared(mm) == {
        "mm: (B, S1) -> (S1)",
        "mm: (S1, S0) -> (P)",
        "mm: (P, B) -> (P)",
        "mm: (B, P) -> (P)",
    }
    amax = call_of("amax", lambda x: x.amax(0), [("S1", "S0")], (6, 4))
    assert undeclared(amax) == {"amax: (S0) -> (PMAX)"}


def test_a_constant_result_lists_nothing():
    zeros = call_of("zeros", torch.zeros_like, [], (6, 4))
    assert undeclared(zeros) == set()


def test_a_wrong_infer_is_noticed():
    class Lies(Ruled):
        def infer(self, x):
            return x.like(dtype=torch.float32)

    with pytest.raises(AssertionError, match="infer tells"):
        whole(OpCall(Lies("lies", torch.relu, []), (values(4),), ()))


def test_a_kernel_that_changes_its_input_is_noticed():
    with pytest.raises(AssertionError, match="changed input 0"):
        call_of("relu", torch.relu_, [], (6, 4))
