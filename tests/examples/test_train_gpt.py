"""train_gpt.py: one run, however it is laid out and however often it is stopped."""

import csv
import signal
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks
from source_tree import REPO

import onefold as flow
from onefold.distributed.world import virtual_world

sys.path.insert(0, str(REPO / "examples"))
import byte_pairs
import layouts
import stop_request
import train_gpt
import train_gpt_data
import train_gpt_log
import train_gpt_options

SMALL = (
    "--max-mb 0.03 --vocabulary 280 --validation 0.2 --layers 2 --width 16 --heads 2 --length 16 "
    "--batch 8 --steps 6 --warmup 2 --eval-every 3 --eval-batches 2 --save-every 4 --sample 3"
).split()
STRATEGIES = [name for name in layouts.STRATEGIES if name != "single"]


def arguments(out, *more):
    return train_gpt.parse([*SMALL, "--data", str(REPO / "docs"), "--out", str(out), *more])


def train(out, *more):
    with virtual_world():
        return train_gpt.train(arguments(out, *more))


def column(out, name="loss"):
    with (out / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    return [float(row[name]) for row in rows if row[name]]


def weights(out):
    return flow.checkpoint.load(out / "checkpoints")["model"]


def stop_in(monkeypatch, step):
    """Let this process be asked to stop while it logs a step."""
    write = train_gpt_log.RunLog.write

    def asked(log, at, *values):
        write(log, at, *values)
        if at == step:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(train_gpt_log.RunLog, "write", asked)


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The folder of a run on one rank."""
    out = tmp_path_factory.mktemp("single")
    assert train(out, "--strategy", "single") == 0
    return out


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("more", [[], ["--graph"], ["--graph", "--micro-batches", "2"]])
def test_losses_do_not_depend_on_the_strategy(strategy, more, single, tmp_path):
    ranks = "4" if strategy == "mixed" else "2"
    assert train(tmp_path, "--strategy", strategy, "--ranks", ranks, *more) == 0
    assert len(column(tmp_path)) == 6
    for name in ("loss", "validation_loss", "lr"):
        np.testing.assert_allclose(column(tmp_path, name), column(single, name), rtol=0, atol=1e-4)


def test_eager_micro_batches_have_the_losses_of_the_batch(single, tmp_path):
    assert train(tmp_path, "--ranks", "2", "--micro-batches", "4") == 0
    np.testing.assert_allclose(column(tmp_path), column(single), rtol=0, atol=1e-4)


def test_the_learning_rate_rises_and_falls(single):
    assert column(single, "lr") == pytest.approx(
        [1e-3, 1.5e-3, 2e-3, 2e-4 + 1.8e-3 * (1 + 0.5**0.5) / 2, 1.1e-3,
         2e-4 + 1.8e-3 * (1 - 0.5**0.5) / 2]
    )  # fmt: skip


def test_a_run_leaves_its_files(single, capsys):
    assert (single / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (single / "checkpoints").iterdir()) == ["step-4", "step-6"]
    assert (single / "sample.txt").exists()
    assert train(single, "--strategy", "single") == 0  # nothing is left to do
    assert "goes on after step 6" in capsys.readouterr().out
    assert len(column(single)) == 6


@pytest.mark.parametrize("more", [["--save-every", "3"], ["--graph"]])
def test_a_run_goes_on_as_if_it_had_not_been_stopped(more, tmp_path, monkeypatch, capsys):
    more = [*more, "--dropout", "0.2", "--ranks", "2"]
    assert train(tmp_path / "whole", *more) == 0
    stopped = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        stop_in(patch, 3)
        assert train(stopped, *more) == 128 + signal.SIGINT
    assert "stopped after step 3; the same command goes on from" in capsys.readouterr().out
    with (stopped / "log.csv").open("a") as file:
        file.write("4,1.0,,0.1,5\n5,0.")  # as if it had been killed after the checkpoint
    assert train(stopped, *more) == 0
    for name in ("loss", "validation_loss", "lr"):
        assert column(stopped, name) == column(tmp_path / "whole", name)
    one, other = weights(tmp_path / "whole"), weights(stopped)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key].to_torch(), other[key].to_torch()) for key in one)


def test_a_run_goes_on_under_another_strategy_on_processes(single, tmp_path, monkeypatch):
    def program():
        # Rank 1 alone is asked to stop; both save the same step.
        if flow.env.get_rank() == 1:
            evaluate = train_gpt.evaluate
            monkeypatch.setattr(
                train_gpt,
                "evaluate",
                lambda *given: (signal.raise_signal(signal.SIGTERM), evaluate(*given))[1],
            )
        found = [train_gpt.train(arguments(tmp_path, "--strategy", "tp"))]
        monkeypatch.undo()
        return [*found, train_gpt.train(arguments(tmp_path, "--strategy", "zero", "--graph"))]

    first, second = run_ranks(2, program, timeout=100)
    assert first == [128 + signal.SIGINT, 0]
    assert second == [128 + signal.SIGTERM, 0]
    np.testing.assert_allclose(column(tmp_path), column(single), rtol=0, atol=1e-4)
    # And in one process, from a checkpoint that is not the newest.
    more = ["--strategy", "pp", "--ranks", "2", "--resume", str(tmp_path / "checkpoints/step-4")]
    assert train(tmp_path / "other", *more) == 0
    with (tmp_path / "other/log.csv").open() as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(losses, column(single)[4:], rtol=0, atol=1e-4)


@pytest.mark.parametrize("more", [[], ["--graph"]])
def test_bfloat16_stays_near(more, single, tmp_path):
    assert train(tmp_path, "--precision", "bfloat16", *more) == 0
    assert column(tmp_path) != column(single)
    np.testing.assert_allclose(column(tmp_path), column(single), rtol=0, atol=0.02)


def test_tensorboard_gets_every_number(tmp_path, monkeypatch):
    told = []

    class Writer:
        def __init__(self, folder, purge_step):
            told.append((folder, purge_step))

        def add_scalar(self, name, value, step):
            told.append((name, value, step))

        def close(self):
            told.append("closed")

    monkeypatch.setattr(train_gpt_log, "SummaryWriter", Writer)
    with train_gpt_log.RunLog(tmp_path, 0) as log:
        log.write(1, 2.0, None, 0.1, 7)
        log.write(2, 1.5, 1.75, 0.2, 8)
    numbers = [(1, "loss", 2.0), (1, "lr", 0.1), (1, "tokens_per_s", 7), (2, "loss", 1.5)]
    numbers += [(2, "validation_loss", 1.75), (2, "lr", 0.2), (2, "tokens_per_s", 8)]
    assert told == [
        (str(tmp_path / "tensorboard"), 1),
        *((name, value, step) for step, name, value in numbers),
        "closed",
    ]


def test_what_cannot_go_on_is_refused(single, tmp_path):
    for more, said in (
        (["--width", "32"], "is of a run with width 16, not 32; go on with"),
        (["--resume", "never"], "step-6 already exists, but this run continues from step 0"),
        (["--vocabulary", "270"], "holds the text of a run with vocabulary 280, not 270"),
        (["--resume", str(tmp_path)], "is not a complete checkpoint"),
    ):
        with pytest.raises((train_gpt_options.UsageError, flow.errors.CheckpointError)) as error:
            train(single, "--strategy", "single", *more)
        assert said in str(error.value)


def test_a_folder_without_text_is_refused(tmp_path):
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\xff")
    where = ["--data", str(tmp_path)]
    with pytest.raises(
        train_gpt_options.UsageError, match=r"has 1 files '\*', and none of them can"
    ):
        train(tmp_path / "out", *where)
    with pytest.raises(train_gpt_options.UsageError, match="there is no folder"):
        train(tmp_path / "out", "--data", str(tmp_path / "nothing"))
    (tmp_path / "short.txt").write_text("To be, or not to be. " * 9)
    with pytest.raises(train_gpt_options.UsageError, match=r"training has .* windows of --length"):
        train(tmp_path / "out", *where)


def test_text_files_are_found_and_cut(tmp_path):
    (tmp_path / "a" / "__pycache__").mkdir(parents=True)
    for name, data in (
        ("a/one.txt", "é".encode() * 4),
        ("two.py", b"two"),
        ("a/__pycache__/three.py", b"three"),
        (".four.py", b"four"),
        ("latin.txt", b"caf\xe9"),
        ("zeros.txt", b"a\0b"),
    ):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing")
    found = train_gpt_data.read(tmp_path, "*", 100)
    assert sorted(found.split(b"\0")) == [b"", b"two", "é".encode() * 4]
    assert train_gpt_data.read(tmp_path, "*.py", 100) == b"two\0"
    assert train_gpt_data.read(tmp_path, "one*", 5) == "éé".encode() + b"\xc3\0"


def test_the_program_ends_with_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train_gpt.py", "--data", str(tmp_path / "nothing")])
    with virtual_world(), pytest.raises(SystemExit) as end:
        train_gpt.main()
    assert end.value.code.startswith("train_gpt.py: --data: there is no folder")


def test_bad_arguments_are_refused(capsys, tmp_path):
    for words, said in (
        ("--batch 6 --micro-batches 4", "--batch 6 cannot be cut into 4 --micro-batches"),
        ("--width 15", "--width 15 must be divisible by --heads 2"),
        ("--save-every 0", "--save-every must be at least 1, not 0"),
        ("--clip -1", "--clip must be at least 0, not -1.0"),
        ("--lr 1e-5", "--lr must be at least --min-lr (0.0002), not 1e-05"),
        ("--temperature 0", "--temperature must be above 0, not 0.0"),
        ("--vocabulary 100", "--vocabulary must be 256 to 4096, not 100"),
        ("--validation 1", "--validation must be between 0 and 1, not 1.0"),
        (
            "--strategy pp --ranks 4 --graph --micro-batches 2",
            "--layers 2 are too few for 4 stages",
        ),
        ("--strategy magic", "invalid choice: 'magic' (choose from 'dp', 'single'"),
    ):
        with pytest.raises(SystemExit):
            arguments(tmp_path, *words.split())
        assert said in capsys.readouterr().err


@pytest.fixture
def interruptible():
    """Ctrl-C interrupts, which a process started in the background ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_stops_at_once():
    with stop_request.StopRequest() as stop:
        assert not stop.agreed()
        signal.raise_signal(signal.SIGINT)
        assert stop.agreed()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


TEXTS = st.text("ab\n", max_size=60).map(str.encode)


@given(TEXTS, st.integers(256, 262))
def test_byte_pairs_are_those_of_the_textbook(text, size):
    pairs = byte_pairs.learn(text, size)
    tokens = byte_pairs.encode(text, pairs).tolist()
    assert byte_pairs.decode(tokens, pairs) == text
    wanted = list(text)
    for new, pair in enumerate(pairs, 256):
        counts = Counter(pairwise(wanted))
        assert counts[pair] == max(counts.values()) >= 2
        merged = []
        for token in wanted:
            if merged and (merged[-1], token) == pair:
                merged[-1] = new
            else:
                merged.append(token)
        wanted = merged
    assert tokens == wanted


def test_no_token_spans_two_files():
    text = b"ab\0ab\0ab\0ab\0"
    assert byte_pairs.learn(text, 260) == [(ord("a"), ord("b"))]


def test_windows_overlap_by_a_token():
    windows = train_gpt_data.Windows(np.arange(10, dtype=np.uint16), 3)
    assert [window.tolist() for window in map(windows.__getitem__, range(len(windows)))] == [
        [0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9],
    ]  # fmt: skip
