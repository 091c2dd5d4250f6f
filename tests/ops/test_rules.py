"""Every rule of every op by brute force: no declared signature is wrong, and legal ones that are
not declared are listed in undeclared.txt, each with its reason.

After changing a rule, rewrite the list (reasons are kept, new rows get an empty one) with
REWRITE_UNDECLARED=1 pytest tests/ops/test_rules.py
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest
import samples
import torch

from onefold.engine import plan as dispatch
from onefold.testing.checks import local_results
from onefold.testing.recording import OpCall, Recorder, record
from onefold.testing.rules import faults, undeclared, whole

TABLE = Path(__file__).with_name("undeclared.txt")
OPS = sorted(dispatch.ops)
FORMS = {name: list(forms) for name, forms in dispatch.ops.items()}  # as they are after import

# Ops that no sample reaches: what tests their rules.
NOT_REACHED: dict[str, str] = {}


@pytest.fixture(scope="session")
def calls():
    """The distinct op calls of all samples, forward, backward and twice backward, by op name."""
    recorder = Recorder()
    for sample in samples.load():
        with record(recorder):
            local_results(sample)
    found = defaultdict(list)
    for call in recorder.calls.values():
        found[call.op.name].append(call)
    return found


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


@pytest.mark.parametrize("op", OPS)
def test_undeclared_signatures_are_justified(op, calls):
    found = {row for call in calls[op] for row in undeclared(whole(call))}
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


# The checker must be able to fail.


def call_of(op, *values, attrs=()):
    return OpCall(op, values, attrs)


def values(*shape):
    return torch.from_numpy(__import__("numpy").random.default_rng(1).standard_normal(shape))
