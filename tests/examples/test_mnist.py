"""The main job: the same losses under every strategy and world, and a network that learns."""

import sys

import numpy as np
import pytest
from launched import run_ranks
from source_tree import REPO

from onefold.distributed.world import virtual_world

sys.path.insert(0, str(REPO / "examples"))
import mnist
import mnist_images

STEPS = 12
STRATEGIES = [name for name in mnist.STRATEGIES if name != "single"]


@pytest.fixture(scope="module")
def images():
    return mnist_images.load()


def run(strategy, images, ranks, *more, steps=STEPS):
    arguments = ["--strategy", strategy, "--steps", str(steps), "--picture", ""]
    return mnist.train(mnist.parse([*arguments, "--ranks", str(ranks), *more]), images)


@pytest.fixture(scope="module")
def single(images):
    """The losses of one rank: what every strategy must repeat."""
    small = few_test_images(images)
    with virtual_world():
        return run("single", small, 1)[0]


def few_test_images(images):
    """Only a few images to test with: these runs are about their losses."""
    return mnist_images.Images(
        images.train_images, images.train_labels, images.test_images[:50], images.test_labels[:50],
        images.source,
    )  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_losses_do_not_depend_on_the_strategy(strategy, ranks, images, single):
    with virtual_world():
        losses, _ = run(strategy, few_test_images(images), ranks)
    np.testing.assert_allclose(losses, single, rtol=1e-4)


@pytest.mark.parametrize("strategy", mnist.STRATEGIES)
def test_a_graph_gives_the_losses_of_eager(strategy, images):
    small = few_test_images(images)
    found = []
    for more in ([], ["--graph"]):
        with virtual_world():
            found.append(run(strategy, small, 2, *more, steps=6))
    assert found[0] == found[1]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("schedule", mnist.SCHEDULES)
def test_losses_do_not_depend_on_the_schedule(schedule, ranks, images, single):
    more = ["--graph", "--schedule", schedule]
    with virtual_world():
        losses, _ = run("pp", few_test_images(images), ranks, *more, steps=4)
    np.testing.assert_allclose(losses, single[:4], rtol=1e-4)


def test_processes_run_a_pipeline(images, single):
    def program():
        more = ["--graph", "--schedule", "1f1b"]
        return run("pp", few_test_images(images), 2, *more, steps=4)[0]

    for losses in run_ranks(2, program, timeout=120):
        np.testing.assert_allclose(losses, single[:4], rtol=1e-4)


@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_do_not_depend_on_the_number_of_processes(ranks, images, single):
    small = few_test_images(images)

    def program():
        return {strategy: run(strategy, small, ranks, steps=6)[0] for strategy in STRATEGIES}

    for by_strategy in run_ranks(ranks, program, timeout=200):
        for losses in by_strategy.values():
            np.testing.assert_allclose(losses, single[:6], rtol=1e-4)


@pytest.mark.slow
def test_the_demo_learns_to_read_digits_along_the_path_of_one_rank(images):
    whole = 6 * len(images.train_labels) // 100
    ran = {}
    for strategy, ranks in (("single", 1), ("mixed", 4)):
        with virtual_world():
            ran[strategy], accuracy = run(strategy, images, ranks, steps=whole)
        assert accuracy >= 0.96
    assert len(ran["mixed"]) == whole
    smooth = np.convolve(ran["single"], np.ones(5) / 5, "valid")  # without the noise of a batch
    assert (smooth - np.minimum.accumulate(smooth)).max() < 0.3
    np.testing.assert_allclose(ran["mixed"], ran["single"], rtol=1e-4)


def test_the_picture_shows_every_parameter(tmp_path):
    with virtual_world():
        layout = mnist.Layout.of("mixed", [0, 1, 2, 3], "cpu")
        path = tmp_path / "layout.png"
        mnist.flow.visualize_layout(mnist.LeNet(layout), path, title="mixed")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_picture_of_a_schedule(tmp_path, images, capsys):
    path = tmp_path / "schedule.png"
    more = ["--graph", "--schedule", "1f1b", "--schedule-picture", str(path)]
    with virtual_world():
        run("pp", few_test_images(images), 3, *more, steps=1)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"schedule drawn in {path}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--micro-batches 2", "--micro-batches needs --graph"),
        ("--warm-up -1", "--warm-up must be at least 0 steps, but got -1"),
        ("--graph --micro-batches 3", "--batch-size 100 cannot be cut into 3 --micro-batches"),
        ("--graph --micro-batches 0", "--batch-size 100 cannot be cut into 0 --micro-batches"),
        ("--graph --schedule 1f1b", "--schedule needs --strategy pp, whose parts have ranks"),
        ("--strategy pp --schedule 1f1b", "--schedule needs --graph"),
        ("--schedule zb-v", "invalid choice: 'zb-v' (choose from 'gpipe', '1f1b'"),
        ("--schedule-picture a.png", "--schedule-picture needs --schedule"),
    ],
)
def test_bad_arguments_are_refused(arguments, said, capsys):
    with pytest.raises(SystemExit):
        mnist.parse(arguments.split())
    assert said in capsys.readouterr().err


def test_a_pipeline_of_one_rank_is_refused(images):
    with virtual_world(), pytest.raises(SystemExit, match="at least 2 ranks, but --ranks is 1"):
        run("pp", images, 1, "--graph", "--schedule", "1f1b")


def test_more_ranks_than_processes_is_explained():
    def program():
        mnist.choose_ranks(3, "dp")

    with pytest.raises(Exception, match=r"--ranks 3 needs 3 processes, but 2 were launched"):
        run_ranks(2, program, timeout=60)


def test_idx_files_are_read(tmp_path):
    path = tmp_path / "train-labels-idx1-ubyte"
    path.write_bytes(b"\0\0\x08\x01" + (3).to_bytes(4, "big") + bytes([7, 2, 1]))
    assert mnist_images.read_idx(path).tolist() == [7, 2, 1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is damaged: it has 10 bytes, not 11"):
        mnist_images.read_idx(path)
    path.write_bytes(b"not an idx file")
    with pytest.raises(ValueError, match="is no IDX file"):
        mnist_images.read_idx(path)
    with pytest.raises(FileNotFoundError, match="has no train-images-idx3-ubyte"):
        mnist_images.load(str(tmp_path))
