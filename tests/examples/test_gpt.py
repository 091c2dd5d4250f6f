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
import gpt_stages

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


# Strategy and ranks, schedule, and stages per rank where it is not the only choice.
PIPELINES = [
    ("pp", 2, "1f1b"),
    ("pp", 4, "gpipe"),
    ("pp", 4, "zb-h2"),
    ("pp", 2, "interleaved"),
    ("pp", 2, "zb-v"),
    ("mixed", 4, "1f1b"),
    ("mixed", 4, "zb-h1"),
    ("mixed", 4, "interleaved"),
    ("mixed", 3, "zb-v"),
]


@pytest.fixture(scope="module")
def deeper(text):
    """The losses of one rank and four layers."""
    with virtual_world():
        return losses_of(text, "single", 1, "--layers", "4")


@pytest.mark.parametrize(("strategy", "ranks", "schedule"), PIPELINES)
def test_losses_do_not_depend_on_the_schedule(strategy, ranks, schedule, text, deeper):
    more = ["--layers", "4", "--graph", "--schedule", schedule]
    for rest in (["--micro-batches", "2"], ["--micro-batches", "4", "--checkpoint"]):
        with virtual_world():
            losses = losses_of(text, strategy, ranks, *more, *rest)
        np.testing.assert_allclose(losses, deeper, rtol=1e-5)


def test_stages_change_nothing_but_the_order(text):
    """Bit for bit the losses of the same micro-batches in turn."""
    more = ["--layers", "4", "--graph", "--micro-batches", "4"]
    for schedule, rest in (("1f1b", []), ("interleaved", ["--chunks", "2"])):
        found = []
        for name in ([], ["--schedule", schedule]):
            with virtual_world():
                found.append(losses_of(text, "mixed", 2, *more, *rest, *name))
        assert found[0] == found[1]


def test_the_modules_of_a_pipeline_are_on_its_stages(text):
    with virtual_world():
        args = gpt.parse([*SMALL, *"--layers 4 --ranks 2 --strategy pp".split()])
        model = gpt.GPT(args, gpt.layout_of(args, "pp"))
        model.set_stages()
    found = {
        name: module.to(gpt.nn.graph.GraphModule).stage_id
        for name, module in model.named_modules()
        if name.count(".") == (1 if name.startswith("blocks.") else 0) and name
    }
    blocks = {f"blocks.{i}": i // 2 for i in range(4)}
    assert found == {
        "tokens": 0, "places": 0, "blocks": None, **blocks, "norm": 1, "head": 1,
    }  # fmt: skip


@pytest.mark.parametrize("more", [[], ["--graph"]])
def test_checkpointing_changes_no_bit(more, text):
    found = []
    for rest in ([], ["--checkpoint"]):
        with virtual_world():
            found.append(losses_of(text, "mixed", 2, *more, *rest))
    assert found[0] == found[1]


def test_checkpointing_saves_memory(text):
    def peak(*more):
        with virtual_world():
            args = gpt.parse([*SMALL, "--strategy", "single", "--graph", *more])
            model = gpt.GPT(args, gpt.layout_of(args, "single"))
            optimizer = gpt.flow.optim.AdamW(model.parameters())
            graph = gpt.Training(model, optimizer, 1, None, args.checkpoint)
            where = model.layout[0].placement
            bytes_ = gpt.flow.zeros(
                32, 16, dtype=gpt.flow.int64, placement=where, sbp=gpt.flow.sbp.broadcast
            )
            graph._compile(bytes_, bytes_)
            return graph.memory(0).peak

    assert peak("--checkpoint") < 0.8 * peak()


def test_processes_run_pipelines(text, deeper):
    def program():
        more = ["--layers", "4", "--graph", "--schedule"]
        return [
            losses_of(text, "mixed", 2, *more, "1f1b"),
            losses_of(text, "pp", 2, *more, "zb-v", "--checkpoint"),
        ]

    for by_schedule in run_ranks(2, program, timeout=200):
        for losses in by_schedule:
            np.testing.assert_allclose(losses, deeper, rtol=1e-5)


def test_the_list_of_strategies(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", "gpt.py --list --ranks 3 --layers 2".split())
    with virtual_world():
        gpt.main()
    shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [words[0] for words in shown if not words[0].isdigit()] == ["strategy", *gpt.STRATEGIES]
    with virtual_world():
        layouts = {"mixed": gpt.stages("mixed", [0, 1, 2, 3], "cpu", turns=True)}
    assert gpt_stages.table(layouts, 2).splitlines() == [
        "strategy  stage  ranks  layout         holds",
        "mixed     0      0, 1   batch split    embeddings, block 0",
        "          1      2, 3   weights split  nothing (fewer layers than stages)",
        "          2      2, 3   weights split  block 1",
        "          3      0, 1   batch split    norm, head",
    ]


def test_the_picture_of_a_schedule(capsys, monkeypatch, tmp_path, text):
    path = tmp_path / "schedule.png"
    words = [*SMALL, *"--strategy mixed --ranks 3 --graph --schedule 1f1b --sample 1".split()]
    words += ["--curve", "", "--schedule-picture", str(path)]
    monkeypatch.setattr(sys, "argv", ["gpt.py", *words])
    with virtual_world():
        gpt.main()
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"schedule drawn in {path}" in capsys.readouterr().out


def test_it_learns_and_speaks(text, tmp_path):
    arguments = "--steps 60 --strategy mixed --graph --layers 2 --width 32 --lr 0.01".split()
    with virtual_world():
        args = gpt.parse([*arguments, "--batch", "8", "--length", "32"])
        model, losses = gpt.train(args, text)
        spoken = bytes(gpt.generate(model, b"def ", 20, args.length))
    assert np.mean(losses[-5:]) < 3.0 < losses[0]  # all bytes alike would be 5.5
    assert spoken.startswith(b"def ")
    assert len(spoken) == 24
    gpt_curve.save(losses, str(tmp_path / "curve.png"), "test")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_bad_arguments_are_refused(capsys, tmp_path):
    for arguments, said in (
        ("--micro-batches 2", "--micro-batches needs --graph"),
        ("--width 10 --heads 4", "--width 10 must be divisible by --heads 4"),
        ("--graph --batch 6 --micro-batches 4", "6 cannot be cut into 4 --micro-batches"),
        ("--ranks 0", "--ranks must be at least 1, not 0"),
        ("--schedule 1f1b", "--schedule needs --graph"),
        ("--schedule magic", "invalid choice: 'magic' (choose from 'gpipe', '1f1b'"),
        ("--schedule-picture a.png", "--schedule-picture needs --schedule"),
        ("--graph --schedule 1f1b --schedule-picture no/a.png", "there is no folder 'no'"),
        ("--graph --schedule 1f1b --strategy tp", "needs --strategy pp or mixed; tp has one stage"),
        ("--strategy dp --chunks 2", "--chunks needs --strategy pp or mixed; dp has one stage"),
        ("--graph --schedule 1f1b --ranks 1", "at least 2 ranks, but --ranks is 1"),
        ("--graph --schedule 1f1b --chunks 2", "--chunks 2 needs --schedule interleaved"),
        ("--graph --schedule zb-v --chunks 3", "2 stages per rank, so --chunks cannot be 3"),
        ("--graph --schedule zb-v --strategy pp", "--layers 4 are too few for 8 stages"),
    ):
        with pytest.raises(SystemExit):
            gpt.parse(arguments.split())
        assert said in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match=r"has no \.py files; name another folder"):
        gpt_data.load(str(tmp_path))


def test_drawn_bytes_are_printed_without_control_characters():
    assert gpt.readable(b"def \x1b[2J\x07f():\n\treturn '\xc3\xa4\xff'") == (
        "def \ufffd[2J\ufffdf():\n\treturn '\u00e4\ufffd'"
    )
