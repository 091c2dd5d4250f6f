"""The picture of a schedule: a PNG with a bar for every action, and a command line for it."""

import struct
import subprocess
import sys
from itertools import pairwise

import pytest
from import_graph import read_imports
from source_tree import REPO

from onefold.graph.schedules import picture
from onefold.graph.schedules.actions import Action
from onefold.graph.schedules.named_schedules import SCHEDULES, make
from onefold.graph.schedules.simulate import Times, simulate

STAGES = {"interleaved": (8, 4), "zb-v": (8, 4)}


UNEVEN = Times(1.0, 1.5, 0.5, 0.1)


def timeline(name, micro_batches=6, times=UNEVEN):
    stages, ranks = STAGES.get(name, (4, 4))
    return simulate(make(name, stages, micro_batches, ranks), times)


def bars(line):
    (axes,) = picture.picture(line).axes
    return axes.patches


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_action_is_a_bar_at_its_time(name):
    line = timeline(name)
    rank_of = line.schedule.rank_of
    wanted = sorted(
        (rank_of[action.stage], start, end, picture.color_of(line.schedule, action))
        for action, (start, end) in line.spans.items()
    )
    found = sorted(
        (
            round(bar.get_y() + bar.get_height() / 2),
            bar.get_x(),
            bar.get_x() + bar.get_width(),
            bar.get_facecolor()[:3],
        )
        for bar in bars(line)
    )
    assert len(found) == len(wanted) == sum(map(len, line.schedule.ranks))
    for one, other in zip(found, wanted, strict=True):
        assert one[0] == other[0]
        assert one[1:3] == pytest.approx(other[1:3])
        assert one[3] == pytest.approx(other[3])


def test_the_words_of_a_picture():
    drawn = picture.picture(timeline("1f1b", micro_batches=8, times=Times()))
    (axes,) = drawn.axes
    assert axes.get_title() == (
        "1f1b: 4 stages, 8 micro-batches\nbubble: 9 of 33 units of time (27.3%)"
    )
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"rank {r}" for r in range(4)]
    assert sorted({text.get_text() for text in axes.texts}) == [str(i) for i in range(8)]
    assert len(axes.texts) == 4 * 8 * 2
    named = picture.picture(timeline("zb-v"), rows=[*"abcd"]).axes[0]
    assert [label.get_text() for label in named.get_yticklabels()] == [*"abcd"]
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["forward", "backward"]
    assert legend.get_title().get_text() == ""
    (legend,) = picture.picture(timeline("zb-v")).legends
    assert len(legend.get_texts()) == 3
    assert legend.get_title().get_text() == "the later stages of a rank are darker"


def test_numbers_that_do_not_fit_are_left_out():
    line = timeline("1f1b", micro_batches=12, times=Times(1.0, 1.0, 1000.0))
    (axes,) = picture.picture(line).axes
    assert len(axes.texts) == 4 * 12  # of the backwards
    assert len(axes.patches) == 2 * 4 * 12


def test_kinds_differ_in_grey_for_every_stage():
    """From the lightest kind to the darkest, with room between the shades of one and the next."""
    shades = [sorted(map(picture.grey, pair)) for pair in picture.COLORS.values()]
    for (low, _), (_, high) in pairwise(shades):
        assert low - high > 0.05


def test_stages_of_a_rank_are_shades():
    schedule = make("interleaved", stages=6, micro_batches=2, ranks=2)
    greys = [picture.grey(picture.color_of(schedule, Action("F", s, 0))) for s in (0, 2, 4)]
    assert greys == sorted(greys, reverse=True)
    assert len(set(greys)) == 3
    assert picture.color_of(schedule, Action("F", 0, 0)) == picture.COLORS["F"][0]
    assert picture.color_of(schedule, Action("F", 1, 1)) == picture.COLORS["F"][0]


def size_of(path):
    """The width and height in a PNG's header."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", data[16:24])


@pytest.mark.parametrize(("name", "micro_batches"), [("1f1b", 1), ("zb-v", 8), ("gpipe", 200)])
def test_the_file_is_a_png_of_sensible_size(tmp_path, name, micro_batches):
    path = tmp_path / "out.png"
    picture.draw(timeline(name, micro_batches), path)
    width, height = size_of(path)
    assert 600 <= width <= 5000
    assert 300 <= height <= 500


def test_nothing_else_needs_matplotlib():
    """It is an optional dependency: only these files import it, and nobody these files."""
    drawing = {"graph.schedules.picture", "utils.layout_figure"}
    imports = read_imports(REPO)
    assert {i.importer for i in imports if i.target.split(".")[0] == "matplotlib"} == drawing
    assert [i for i in imports if i.target in drawing] == []


# The command line.

COMMAND = [sys.executable, "-W", "error", "-m", "onefold.graph.schedules.picture"]


def run(*arguments, cwd=None):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=cwd
    )


def test_the_command_draws(tmp_path):
    done = run("1f1b", "--stages", "4", "--micro-batches", "8", "out.png", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "1f1b: 4 stages, 8 micro-batches",
        "drawn in out.png",
        "bubble: 9 of 33 units of time (27.3%)",
    ]
    size_of(tmp_path / "out.png")


def test_without_matplotlib_the_error_says_so(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError(name='matplotlib')\n")
    done = run("1f1b", "out.png", cwd=tmp_path)  # python -m looks here first
    assert done.returncode == 1
    assert "need matplotlib; install it with: pip install matplotlib" in done.stderr


def test_the_command_prints(capsys):
    picture.main("1f1b --stages 2 --micro-batches 2 --text".split())
    assert capsys.readouterr().out.splitlines() == [
        "1f1b: 2 stages, 2 micro-batches",
        "one column per 1",
        "0 F0 F1 .. .. b0 b0 .. b1 b1",
        "1 .. F0 b0 b0 F1 b1 b1 .. ..",
        "bubble: 3 of 9 units of time (33.3%)",
    ]
    picture.main("zb-h1 --text --stages 2 --micro-batches 1 --forward 3 --input-gradient 6".split())
    assert capsys.readouterr().out.splitlines()[2:4] == [
        "0 F0 F0 F0 .. .. .. .. .. .. .. .. .. b0 b0 b0 b0 b0 b0 w0",
        "1 .. .. .. F0 F0 F0 b0 b0 b0 b0 b0 b0 w0 .. .. .. .. .. ..",
    ]


def test_several_stages_per_rank_unless_told(capsys):
    for more, ranks in (([], 4), (["--ranks", "2"], 2), (["--ranks", "8"], 8)):
        picture.main(["interleaved", "--stages", "8", "--text", *more])
        assert len(capsys.readouterr().out.splitlines()) == ranks + 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "the following arguments are required: name"),
        ("1f1b", "name the PNG file to write, or pass --text to print the schedule"),
        ("magic --text", "unknown schedule 'magic'; choose one of 'gpipe', '1f1b'"),
        ("1f1b out.jpg", "is a PNG file, so name it so: out.png"),
        ("1f1b none/out.png", "there is no folder 'none' for 'none/out.png'"),
        ("1f1b --text out.png", "leave out --text or 'out.png'"),
        ("1f1b --text --stages 0", "stages must be at least 1, but got 0"),
        ("1f1b --text --stages two", "argument --stages: invalid int value: 'two'"),
        ("1f1b --text --stages 4 --ranks 2", "use 'interleaved', or 'zb-v' for 2"),
        ("zb-v --text --stages 3", "3 stages on 1 ranks are 3"),
        ("interleaved --text --stages 5", "5 stages cannot be dealt out evenly to 2 ranks"),
        ("1f1b --text --forward 0", "--forward must be more than 0, not 0"),
        ("1f1b --text --transfer -1", "--transfer must be 0 or more, not -1"),
        ("1f1b --text --input-gradient nan", "--input-gradient must be 0 or more, not nan"),
    ],
)
def test_mistakes_are_explained(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        picture.main(arguments.split())
    assert end.value.code == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit):
        picture.main(["--help"])
    shown = capsys.readouterr().out
    options = "--stages --micro-batches --ranks --forward --input-gradient --weight-gradient"
    for option in [*options.split(), "--transfer", "--text", *SCHEDULES]:
        assert option in shown
