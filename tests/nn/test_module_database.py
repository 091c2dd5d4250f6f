"""Torch's module database: every module comes as far as the table says, local and in layouts.

tests/module_database.txt lists the modules that are not right in construction, state, forward and
backward, with the stage that all of their samples reach, and what is wrong. After a change, rewrite
it with
REWRITE_MODULES=1 pytest tests/nn/test_module_database.py
"""

import os
import re

import module_database as database
import pytest

from onefold import nn

ENTRIES = {database.name_of(entry): entry for entry in database.DATABASE}
COMPLETE = database.STAGES[-1]

pytestmark = pytest.mark.filterwarnings("ignore")  # samples call what torch deprecates


def write_row(name, stage, why):
    table = database.read_table()
    table.pop(name, None)
    if stage != COMPLETE:
        table[name] = (stage, re.sub(r"0x[0-9a-f]+", "0x", why)[:120].replace(" | ", " "))
    head = [line for line in database.TABLE.read_text().splitlines() if line[:1] == "#"]
    rows = [" | ".join([name, *row]) for name, row in sorted(table.items())]
    database.TABLE.write_text("\n".join([*head, *rows]) + "\n")


@pytest.mark.parametrize("name", ENTRIES)
def test_module(name):
    stage, why = database.stage(ENTRIES[name])
    if os.environ.get("REWRITE_MODULES"):
        write_row(name, stage, why)
    expected, _ = database.read_table().get(name, (COMPLETE, ""))
    assert stage == expected, why


def test_how_many_are_right():
    table = database.read_table()
    assert set(table) <= set(ENTRIES)
    assert len(table) <= 0.1 * len(ENTRIES)


# The check must be able to fail.


def test_a_wrong_module_is_found(monkeypatch):
    class ELU(nn.ELU):
        def forward(self, input):
            return super().forward(input) * 1.001

    monkeypatch.setattr(nn, "ELU", ELU)
    assert database.stage(ENTRIES["ELU"])[0] == "built"
    monkeypatch.setattr(nn, "ELU", nn.SELU)
    assert database.stage(ENTRIES["ELU"])[0] == "nothing"
