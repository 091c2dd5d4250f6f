"""`python -m onefold`: every command is there, and the doctor finds what is wrong."""

import subprocess
import sys

import pytest
import torch

from onefold import __main__ as command_line
from onefold.utils import doctor


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["onefold", *arguments])
    try:
        return command_line.main()
    except SystemExit as end:
        return end.code


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_every_command_has_help(name, monkeypatch, capsys):
    assert run(monkeypatch, name, "--help") in (0, None)
    assert "usage: " in capsys.readouterr().out


def test_all_commands_are_listed(monkeypatch, capsys):
    assert run(monkeypatch, "--help") == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in command_line.COMMANDS)
    assert run(monkeypatch) == 2


def test_an_unknown_command_is_named(monkeypatch, capsys):
    assert run(monkeypatch, "lunch") == 2
    assert "there is no command 'lunch'" in capsys.readouterr().err


def test_the_exit_status_is_that_of_the_command():
    command = [sys.executable, "-m", "onefold", "launch", "--nproc_per_node", "0", "nothing.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "nproc_per_node" in done.stderr


def test_the_doctor_is_content_here(capsys):
    assert doctor.main([]) == 0
    said = capsys.readouterr().out
    assert torch.__version__ in said
    assert "added up what they have" in said
    assert said.endswith("all is well\n")


def test_the_doctor_says_what_to_mend(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_MIN_TORCH", (99, 0))
    monkeypatch.setattr(doctor, "_RANKS", "raise ValueError('the ranks of {device} disagree')")
    monkeypatch.setenv("ONEFOLD_TIMEOUT", "soon")
    found = [finding for check in (doctor.packages, doctor.settings) for finding in check()]
    assert [finding.what for finding in found if finding.mend] == ["torch", "ONEFOLD_TIMEOUT"]
    assert "install torch 99.0 or newer" in "\n".join(map(str, found))
    monkeypatch.delenv("ONEFOLD_TIMEOUT")
    assert doctor.main([]) == 1
    said = capsys.readouterr().out
    assert "two processes over gloo failed" in said
    assert "the ranks of cpu disagree" in said
    assert said.endswith("2 to mend\n")


def test_the_doctor_waits_for_two_processes_no_longer_than_it_says(monkeypatch):
    monkeypatch.setattr(doctor, "_RANKS", "import time\ntime.sleep(60)  # {device}")
    monkeypatch.setattr(doctor, "_SECONDS", 4)
    [finding] = doctor.communication()
    assert "did not meet within 4 s" in finding.found
