"""Torch's module database: every module comes as far as the table says, local and in layouts.

tests/module_database.txt lists the modules that are not right in construction, state, forward and
backward, with the stage that all of their samples reach, and what is wrong. After a change, rewrite
it with
REWRITE_MODULES=1 pytest tests/nn/test_module_database.py
"""

import os

import module_database as database
import pytest

from onefold import nn

ENTRIES = {database.name_of(entry): entry for entry in database.DATABASE}

pytestmark = pytest.mark.filterwarnings("ignore")  # samples call what torch deprecates


@pytest.mark.parametrize("name", ENTRIES)
def test_module(name):
    stage, why = database.stage(ENTRIES[name])
    if os.environ.get("REWRITE_MODULES"):
        database.TABLE.write(name, stage, why)
    assert stage == database.TABLE.expected(name), why


def test_how_many_are_right():
    table = database.TABLE.read()
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
