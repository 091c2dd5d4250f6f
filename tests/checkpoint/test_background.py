"""Saving in the background: the values of the moment, whatever training does meanwhile."""

import os
import threading
import time

import numpy as np
import pytest
from launched import run_ranks
from strategy_runs import Run, assert_same

import onefold as flow
from onefold.checkpoint import background, sharded_writer
from onefold.engine import commit
from onefold.errors import CheckpointError, RankMismatch


@pytest.fixture
def gate(monkeypatch):
    """Writing waits until this event is set."""
    event = threading.Event()
    write = sharded_writer.write_box

    def waits(*args):
        assert event.wait(30)
        return write(*args)

    monkeypatch.setattr(sharded_writer, "write_box", waits)
    yield event
    event.set()


def assert_saved(folder, wanted):
    """A run of another layout that loads the checkpoint has these values."""
    other = Run("tp4", seed=1)
    flow.checkpoint.load(folder, other.state())
    assert_same(other.values(), wanted)


@pytest.mark.parametrize("strategy", ["dp4", "2x2", "zero3"])
def test_the_values_of_the_moment_are_written(world, tmp_path, gate, strategy):
    run = Run(strategy)
    run.step(0)
    wanted = run.values()
    saving = flow.checkpoint.save(tmp_path, run.state(), 1, async_=True)
    assert not saving.done() and flow.checkpoint.latest(tmp_path) is None
    for number in range(3):
        run.step(number)
    gate.set()
    assert saving.wait() == tmp_path / "step-1" == saving.path
    assert saving.done()
    assert_saved(tmp_path, wanted)


@pytest.fixture
def slow_copies(monkeypatch):
    """Copying begins late, when the next step has long begun."""
    copy = background._copy_together

    def waits(pairs):
        time.sleep(0.3)
        copy(pairs)

    monkeypatch.setattr(background, "_copy_together", waits)


@pytest.mark.parametrize("strategy", ["dp4", "2x2", "zero3"])
def test_a_step_waits_until_the_values_are_copied(world, tmp_path, slow_copies, strategy):
    run = Run(strategy)
    run.step(0)
    wanted = run.values()
    saving = flow.checkpoint.save(tmp_path, run.state(), 1, async_=True)
    begun = time.monotonic()
    run.step(1)
    assert time.monotonic() - begun > 0.2 and not commit.readers
    saving.wait()
    assert_saved(tmp_path, wanted)


def test_a_graphs_call_and_lbfgs_wait_too(world, tmp_path, slow_copies):
    model = flow.nn.Linear(2, 2)
    optimizer = flow.optim.LBFGS(model.parameters(), max_iter=1)

    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.5))

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    def closure():
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss

    graph, x = Train(), flow.ones(1, 2)
    graph(x)
    for number, step in enumerate((lambda: graph(x), lambda: optimizer.step(closure))):
        wanted = model.weight.numpy().copy()
        saving = flow.checkpoint.save(tmp_path, {"model": model}, number, async_=True)
        step()
        assert (model.weight.numpy() != wanted).any()
        saving.wait()
        flow.checkpoint.load(tmp_path, {"model": model})
        assert (model.weight.numpy() == wanted).all()


def test_arrays_are_copied_at_once(world, tmp_path, slow_copies):
    array = np.arange(4.0)
    saving = flow.checkpoint.save(tmp_path, {"x": array}, 1, async_=True)
    array[:] = 7.0
    saving.wait()
    assert flow.checkpoint.load(tmp_path)["x"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_an_interrupted_save_holds_up_nobody(world, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        flow.checkpoint.save(tmp_path, {"x": flow.ones(2)}, 1, async_=True)
    monkeypatch.undo()
    Run("dp4").step(0)
    assert not commit.readers


def test_the_next_save_waits_for_the_one_before(world, tmp_path, gate):
    run = Run("dp4")
    saving = flow.checkpoint.save(tmp_path, run.state(), 1, async_=True)
    threading.Timer(0.1, gate.set).start()
    flow.checkpoint.save(tmp_path, run.state(), 2)
    assert saving.done()
    assert sorted(os.listdir(tmp_path)) == ["step-1", "step-2"]


def test_an_error_in_the_background_is_raised_later(world, tmp_path, monkeypatch):
    run = Run("dp4")

    def fails(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sharded_writer, "write_box", fails)
    saving = flow.checkpoint.save(tmp_path, run.state(), 1, async_=True)
    with pytest.raises(CheckpointError, match="No space left"):
        saving.wait()
    saving = flow.checkpoint.save(tmp_path, run.state(), 2, async_=True)
    while not saving.done():
        time.sleep(0.01)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="No space left"):
        flow.checkpoint.save(tmp_path, run.state(), 3)
    flow.checkpoint.save(tmp_path, run.state(), 3)
    assert os.listdir(tmp_path) == ["step-3"]


def test_an_unexpected_error_in_the_background_is_raised_too(world, tmp_path, monkeypatch):
    run = Run("dp4")

    def fails(*args):
        raise MemoryError("no memory")

    for place, name in ((sharded_writer, "write_box"), (sharded_writer, "_sync_folder")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fails)
            saving = flow.checkpoint.save(tmp_path, run.state(), 1, async_=True)
            with pytest.raises(CheckpointError, match=r"not completed.*MemoryError: no memory"):
                saving.wait()
        assert os.listdir(tmp_path) == []


def test_real_processes(tmp_path):
    def program():
        here = flow.env.get_rank()
        run = Run("tp2")
        run.step(0)
        wanted = run.values()
        saving = flow.checkpoint.save(tmp_path, run.state(), 1, async_=True)
        run.step(1)  # communicates, while files are written
        saving.wait()
        again = Run("dp2", seed=3)
        flow.checkpoint.load(tmp_path, again.state())
        assert_same(again.values(), wanted)
        problems = []
        for state in (
            {"count": here},
            {"x": flow.ones(2) * here},
            {"x": flow.ones(2 + here)},
        ):
            try:
                flow.checkpoint.save(tmp_path, state, 2)
            except (CheckpointError, RankMismatch) as error:
                problems.append(str(error))
        try:
            flow.checkpoint.save(tmp_path / str(here), {"x": 1}, 2)
        except RankMismatch as error:
            problems.append(str(error))
        write = sharded_writer.write_box
        if here == 1:
            sharded_writer.write_box = lambda *args: write(-1, *args[1:])
        try:
            flow.checkpoint.save(tmp_path, run.state(), 3)
        except CheckpointError as error:
            problems.append(str(error))
        if here == 1:
            (tmp_path / "step-1" / "graph").mkdir()
            load = flow.checkpoint.load
            try:
                load(tmp_path / "nothing", run.state())
            except CheckpointError as error:
                problems.append(str(error))
        else:
            try:
                flow.checkpoint.load(tmp_path, run.state())
            except CheckpointError as error:
                problems.append(str(error))
        return problems, sorted(os.listdir(tmp_path))

    words = (
        "disagree on state, key 'count'",
        "the local tensor x: 'value' differs between ranks 0 and 1",
        "disagree on state, key 'x'",
        "disagree on dir",
        "on rank 1, cannot write",
        "on rank 1",
    )
    for problems, files in run_ranks(2, program):
        for problem, word in zip(problems, words, strict=True):
            assert word in problem
        assert [name for name in files if not name.isdigit()] == ["step-1"]


def test_a_program_that_ends_completes_its_checkpoint(tmp_path):
    """The thread is no daemon; `ends` stands for the end of the interpreter."""
    saving = flow.checkpoint.save(tmp_path, {"x": flow.ones(1000)}, 1, async_=True)
    assert saving._thread is None or not saving._thread.daemon
    end = time.monotonic() + 10
    while not saving.done():
        assert time.monotonic() < end
    assert flow.checkpoint.latest(tmp_path) == str(tmp_path / "step-1")
    saving.wait()
