"""Every environment variable: its default, its values, and the error for a bad one."""

import pytest

from onefold.env import (
    CHECK,
    DEVICE,
    KERNELS,
    MASTER_PORT,
    RANK,
    TIMEOUT,
    VARIABLES,
    describe,
    node_rank,
)
from onefold.errors import OnefoldValueError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)


def test_defaults():
    found = [variable.read() for variable in (DEVICE, TIMEOUT, CHECK, KERNELS)]
    assert found == ["", 300.0, False, "auto"]
    assert RANK.read() is None
    assert MASTER_PORT.read() == 29500


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (DEVICE, "cpu", "cpu"),
        (DEVICE, "", ""),
        (TIMEOUT, "2.5", 2.5),
        (TIMEOUT, "", 300.0),
        (CHECK, "1", True),
        (CHECK, "Off", False),
        (CHECK, "YES", True),
        (KERNELS, "triton", "triton"),
        (RANK, "0", 0),
        (MASTER_PORT, " 80 ", 80),
    ],
)
def test_values(monkeypatch, variable, text, value):
    monkeypatch.setenv(variable.name, text)
    assert variable.read() == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (DEVICE, "tpu"),
        (TIMEOUT, "soon"),
        (TIMEOUT, "0"),
        (TIMEOUT, "inf"),
        (TIMEOUT, "nan"),
        (CHECK, "2"),
        (KERNELS, "Auto"),
        (RANK, "-1"),
        (RANK, "1.0"),
        (MASTER_PORT, "65536"),
    ],
)
def test_bad_values_name_variable_found_and_allowed(monkeypatch, variable, text):
    monkeypatch.setenv(variable.name, text)
    with pytest.raises(OnefoldValueError) as caught:
        variable.read()
    message = str(caught.value)
    assert f"{variable.name}={text!r}" in message
    assert variable.allowed in message


def test_node_rank_prefers_torchruns_name(monkeypatch):
    assert node_rank() is None
    monkeypatch.setenv("NODE_RANK", "1")
    assert node_rank() == 1
    monkeypatch.setenv("GROUP_RANK", "2")
    assert node_rank() == 2


def test_describe_has_a_line_per_variable(monkeypatch):
    monkeypatch.setenv("ONEFOLD_TIMEOUT", "7")
    lines = describe().splitlines()
    assert len(lines) == 1 + len(VARIABLES)
    for variable, line in zip(VARIABLES, lines[1:], strict=True):
        assert line.startswith(variable.name)
        assert variable.doc in line
    assert next(line for line in lines if line.startswith("ONEFOLD_TIMEOUT")).split()[1] == "7.0"


def test_names_are_unique():
    names = [variable.name for variable in VARIABLES]
    assert len(set(names)) == len(names)
