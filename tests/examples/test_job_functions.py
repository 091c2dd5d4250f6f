"""The programs of job functions run, and learn."""

import runpy
import sys

import numpy as np
import pytest
from source_tree import REPO

import onefold
import onefold.job as flow

FOLDER = REPO / "examples" / "job_functions"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "job_training")


def run(program, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    flow.clear_default_session()
    onefold.manual_seed(0)
    main = runpy.run_path(str(FOLDER / f"{program}.py"))["main"]
    try:
        with pytest.warns(flow.data.FewImagesWarning):
            return main(list(arguments))
    finally:
        flow.clear_default_session()


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("program", [name for name in PROGRAMS if "lenet" not in name])
def test_networks_of_two_layers_learn(program, monkeypatch):
    losses, accuracy = run(program, monkeypatch, "--epochs", "1")
    assert len(losses) == 40
    assert accuracy > 0.8


@pytest.mark.usefixtures("world")
def test_the_layouts_give_the_same_losses(monkeypatch):
    """Mixed and mirrored: one network, under two layouts and on two numbers of devices."""
    found = [
        run(program, monkeypatch, "--steps", "8", "--devices", devices)[0]
        for program, devices in (("mixed_mlp", "2"), ("mirrored_mlp", "2"), ("mirrored_mlp", "4"))
    ]
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("world")
def test_lenets_learn_alike(monkeypatch):
    steps = ("--steps", "12")
    losses = {
        program: run(program, monkeypatch, *steps)[0]
        for program in ("consistent_lenet", "placement_lenet")
    }
    assert all(found[-1] < found[0] for found in losses.values())
    assert losses["consistent_lenet"][0] == pytest.approx(losses["placement_lenet"][0], rel=1e-4)
