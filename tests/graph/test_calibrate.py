"""Calibration: what it measures is fitted as written, bounded in time, and a file that is read."""

import time
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks

from onefold.errors import OnefoldRuntimeError
from onefold.graph.calibrate.__main__ import main
from onefold.graph.calibrate.calibration import Calibration
from onefold.graph.calibrate.link_probes import LinkProbes, fitted_link, slowdown
from onefold.graph.calibrate.sample_step import sample_step
from onefold.graph.calibrate.turns import Budget, Repeated, average, fitted, take, turn, usual
from onefold.graph.hardware import THIS_MACHINE, Curve, read
from onefold.graph.hardware.hardware_files import this_machine
from onefold.graph.hardware.hardware_text import as_toml
from onefold.graph.simulator import simulate


def test_a_probe_measures_sleep():
    probe = Repeated(lambda: time.sleep(0.002))
    for _ in range(5):
        probe.turn()
    assert 0.002 <= probe.seconds < 0.1


def test_a_disturbed_turn_moves_no_usual_value():
    assert usual([2.0, 1.0, 3.0, 2.0, 900.0]) == pytest.approx(7 / 3)
    assert average([1.0] * 99 + [901.0]) == 1.0
    assert average([1.0] * 4 + [6.0]) == 2.0


def test_what_is_fitted_gives_the_times_again():
    sizes, seconds = [1e3, 1e4, 1e6], [1e-6, 2e-6, 1e-4]
    peak, curve = fitted(sizes, seconds)
    assert peak == 1e10
    for size, each in zip(sizes, seconds, strict=True):
        assert size / (peak * curve.at(size)) == pytest.approx(each)


def test_contention():
    assert slowdown(2.0, 5.0, 5.0) == 1.0  # all of it was hidden
    assert slowdown(2.0, 5.0, 7.0) == 8.0  # nothing was
    assert slowdown(2.0, 5.0, 4.0) == 1.0


@given(times=st.lists(st.floats(1e-7, 10.0), min_size=8, max_size=8))
def test_a_link_of_any_times_is_read(times, tmp_path_factory):
    link = fitted_link(times[0], times[1], times[2:])
    hardware = replace(read("cpu"), links=(link,))
    path = tmp_path_factory.mktemp("hardware") / "any.toml"
    path.write_text(as_toml(hardware))
    assert read(path) == hardware


def test_a_collective_takes_no_less_than_its_host():
    def ranks():
        probes = LinkProbes()
        turn(probes.probes())
        probes._layer = Mock(seconds=1.0)  # longer than the layers before any of the collectives
        return probes.link()

    for link in run_ranks(2, ranks):
        assert link.launch > 0
        assert link.bandwidth > 0


def test_probes_take_turns_while_there_is_time():
    def ranks():
        order, shares = [], []

        class Noted:
            def __init__(self, name):
                self.name = name

            def turn(self):
                order.append(self.name)
                time.sleep(0.002)

        take([Noted("a"), Noted("b")], Budget(0.1), shares.append)
        with pytest.raises(OnefoldRuntimeError, match=r"made 1 of at least 3 turns in 0 seconds"):
            take([Noted("c")], Budget(0.0), shares.append)
        return "".join(order), shares

    (order, shares), (other, _) = run_ranks(2, ranks)
    assert order == other == "ab" * (len(order) // 2) + "c"
    assert len(order) > 7
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_sample_is_a_step_of_a_transformer():
    compiled, _ = sample_step(width=16, batch=2, length=4)
    names = {step.name for step in compiled.program.steps}
    assert {"linear", "gelu", "cross_entropy", "embedding_grad", "rows_tn"} <= names
    assert len(compiled.program.gradients) == 35


def test_two_processes_measure_a_file_that_is_read(tmp_path, monkeypatch):
    def ranks():
        calibration = Calibration()
        for _ in range(2):
            turn(calibration.probes)
        return calibration.hardware(1 << 30)

    first, second = run_ranks(2, ranks)
    assert first == second  # they agree on what they have measured
    assert first.memory_bytes == 1 << 30
    assert first.skew >= 0
    assert first.collective_launch > 0
    assert {"linear", "gelu", "adamw"} <= first.ops.keys()
    assert all(type(curve) is Curve for curve in (first.matmul, first.attention, first.memory))
    monkeypatch.setenv("HOME", str(tmp_path))
    this_machine().parent.mkdir(parents=True)
    this_machine().write_text(as_toml(first))
    assert read(THIS_MACHINE) == first
    compiled, _ = sample_step(width=16, batch=2, length=4)
    assert simulate(compiled, THIS_MACHINE).step_time > 0
    assert torch.float64 in first.peak


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "x.json"], "--output must be a file that ends in .toml, but is x.json"),
        (["--seconds", "0"], "--seconds must be more than 0, but is 0"),
    ],
)
def test_bad_options_are_refused(words, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_the_command_says_what_it_does(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "--seconds" in capsys.readouterr().out
