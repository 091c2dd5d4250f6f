"""The GPT example: one loss curve under every strategy, world and mode."""

import sys

import numpy as np
import pytest
from launched import run_ranks
from source_tree import REPO

from onefold.distributed.world import virtual_world

sys.path.insert(0, str(REPO / "examples"))
import gpt
import gpt_curve
import gpt_data

SMALL = "--steps 5 --batch 4 --length 16 --layers 2 --width 16 --heads 2".split()
STRATEGIES = [name for name in gpt.STRATEGIES if name != "single"]


@pytest.fixture(scope="module")
def text():
    return gpt_data.load()


def losses_of(text, strategy, ranks, *more):
    arguments = [*SMALL, "--strategy", strategy, "--ranks", str(ranks), *more]
    return gpt.train(gpt.parse(arguments), text)[1]


@pytest.fixture(scope="module")
def single(text):
    with virtual_world():
        return losses_of(text, "single", 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_do_not_depend_on_the_strategy_nor_the_mode(strategy, ranks, text, single):
    found = []
    for more in ([], ["--graph"], ["--graph", "--micro-batches", "2"]):
        with virtual_world():
            found.append(losses_of(text, strategy, ranks, *more))
    eager, graph, accumulated = found
    assert graph == eager
    for losses in (eager, accumulated):
        np.testing.assert_allclose(losses, single, rtol=1e-5)


@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_do_not_depend_on_the_number_of_processes(ranks, text, single):
    def program():
        more = ["--graph", "--micro-batches"]
        return [losses_of(text, strategy, ranks, *more, n) for strategy in STRATEGIES for n in "12"]

    for by_strategy in run_ranks(ranks, program, timeout=200):
        for losses in by_strategy:
            np.testing.assert_allclose(losses, single, rtol=1e-5)


def test_it_learns_and_speaks(text, tmp_path):
    arguments = "--steps 60 --strategy mixed --graph --layers 2 --width 32 --lr 0.01".split()
    with virtual_world():
        args = gpt.parse([*arguments, "--batch", "8", "--length", "32"])
        model, losses = gpt.train(args, text)
        spoken = gpt.sample(model, b"def ", 20, args.length)
    assert np.mean(losses[-5:]) < 3.0 < losses[0]  # all bytes alike would be 5.5
    assert spoken.startswith(b"def ")
    assert len(spoken) == 24
    gpt_curve.save(losses, str(tmp_path / "curve.png"), "test")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_bad_arguments_are_refused(capsys, tmp_path):
    for arguments, said in (
        (["--micro-batches", "2"], "--micro-batches needs --graph"),
        (["--width", "10", "--heads", "4"], "--width 10 must be divisible by --heads 4"),
    ):
        with pytest.raises(SystemExit):
            gpt.parse(arguments)
        assert said in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match=r"has no \.py files; name another folder"):
        gpt_data.load(str(tmp_path))
