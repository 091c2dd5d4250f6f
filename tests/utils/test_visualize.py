"""visualize_layout and what notebooks show: every part of a tensor under the rank that holds it."""

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st

import onefold as flow
from onefold.distributed.world import virtual_world
from onefold.engine.layout_view import COLORS, grid_of
from onefold.testing import nd_sbps, placements, shapes
from onefold.testing.manual_layouts import make_global, scatter

B, P, S0, S1, S2 = (
    flow.sbp.broadcast,
    flow.sbp.partial_sum,
    flow.sbp.split(0),
    flow.sbp.split(1),
    flow.sbp.split(2),
)

pytestmark = pytest.mark.usefixtures("world")


def text_of(capsys, *args, **options):
    flow.visualize_layout(*args, **options)
    return capsys.readouterr().out.splitlines()


def zeros(shape, ranks, sbp):
    return flow.zeros(shape, placement=flow.placement("cpu", ranks), sbp=sbp)


@pytest.mark.parametrize(
    ("shape", "ranks", "sbp", "lines"),
    [
        ((5, 6), [0, 1], S0, ["  0:3  rank 0", "  3:5  rank 1"]),
        ((5, 6), [3, 1], S1, ["  0:3  rank 3", "  3:6  rank 1"]),
        ((5, 6), [0, 1], B, ["  ranks 0, 1"]),
        ((5, 6), [0, 1], P, ["  ranks 0+1"]),
        ((5, 6), [[0, 1], [2, 3]], (B, P), ["  ranks 0+1, 2+3"]),
        ((6, 2), [[0, 1], [2, 3]], (S0, P), ["  0:3  ranks 0+1", "  3:6  ranks 2+3"]),
        ((6,), [[0, 1], [2, 3]], (S0, S0), [
            "  0:2  rank 0", "  2:3  rank 1", "  3:5  rank 2", "  5:6  rank 3",
        ]),
        ((4, 2, 6), [[0, 1], [2, 3]], (S0, S2), [
            "  dim 0 \\ 2  0:3     3:6",
            "  0:2        rank 0  rank 1",
            "  2:4        rank 2  rank 3",
        ]),
        ((1, 6), [0, 1], S0, ["  0:1  rank 0"]),
        ((), [0, 1], B, ["  ranks 0, 1"]),
    ],
)  # fmt: skip
def test_the_parts_of_a_tensor(shape, ranks, sbp, lines, capsys):
    x = zeros(shape, ranks, sbp)
    title, *shown = text_of(capsys, x)
    assert shown == lines
    assert title.startswith(f"float32{list(shape)} (")
    assert title.endswith(f" on cpu {ranks}")


@given(st.data())
def test_the_parts_are_the_shards(data):
    """By the layouts made by hand: each rank stands with the values that it holds."""
    with virtual_world():
        placement = data.draw(placements())
        shape = data.draw(shapes(min_ndim=1, max_ndim=3, min_size=1))
        nd_sbp = data.draw(nd_sbps(shape, placement.ndim, partial=False))
        value = np.arange(np.prod(shape)).reshape(shape)
        tensor = flow.tensor(value).shards[0]
        x = make_global(tensor, placement, nd_sbp)
        grid = grid_of(x.meta)
        by_rank = {}
        for cell in grid.cells:
            index = [slice(None)] * len(shape)
            dims = [] if grid.down is None else [grid.down, *grid.across]
            rows = [grid.rows[cell.row]] if grid.rows else []
            for dim, (start, end) in zip(dims, [*rows, *grid.columns[cell.column]], strict=True):
                index[dim] = slice(start, end)
            for holders in cell.holders:
                assert len(holders) == 1
                by_rank[holders[0]] = value[tuple(index)]
        for position, shard in scatter(tensor, placement, nd_sbp).items():
            rank = placement.flat_ranks[position]
            assert np.array_equal(shard, by_rank[rank]) if shard.numel() else rank not in by_rank


def test_modules_show_every_parameter_and_buffer(capsys):
    pair = flow.placement("cpu", [0, 1])
    model = flow.nn.Sequential(
        flow.nn.Linear(4, 6, placement=pair, sbp=S0), flow.nn.BatchNorm1d(6, affine=False)
    )
    lines = text_of(capsys, model, title="A model")
    assert lines[0] == "A model"
    assert lines[1:4] == [
        "0.weight: float32[6, 4] (S0) on cpu [0, 1]",
        "  0:3  rank 0",
        "  3:6  rank 1",
    ]
    assert "1.running_mean: float32[6] local" in lines


def test_colors_tell_ranks_apart(capsys):
    x = zeros((4,), [0, 1], S0)
    plain = text_of(capsys, x)
    colored = text_of(capsys, x, color=True)
    escapes = [set(re.findall(r"\x1b\[48;5;\d+m", line)) for line in colored]
    assert escapes[0] == set()
    assert len(escapes[1] | escapes[2]) == 2
    assert [re.sub(r"\x1b\[[\d;]+m", "", line) for line in colored] == plain


@pytest.mark.parametrize("sbp", [(B, S0), (S1, S0), (P, B)])
def test_pictures_are_drawn(sbp, tmp_path):
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    flow.visualize_layout(flow.zeros(4, 6, placement=mesh, sbp=sbp), tmp_path / "x.png", title="x")
    model = flow.nn.Sequential(
        flow.nn.Linear(4, 6, placement=mesh, sbp=(B, S0)), flow.nn.Linear(6, 2)
    )
    flow.visualize_layout(model, tmp_path / "model.png")
    for name in ("x.png", "model.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_notebooks_show_who_holds_what():
    x = zeros((4, 6), [0, 1], S0)
    html = x._repr_html_()
    assert "float32[4, 6] (S0) on cpu [0, 1]" in html
    assert f"background:{COLORS[0]};color:black'>rank 0<" in html
    assert f"background:{COLORS[1]};color:black'>rank 1<" in html
    assert flow.zeros(2)._repr_html_() is None

    class Net(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = flow.nn.Linear(4, 2, placement=x.placement, sbp=S0)

        def forward(self, x):
            return self.layer(x)

    net = Net()
    html = net._repr_html_()
    assert "layer.weight: float32[2, 4] (S0)" in html
    assert "(layer): Linear(" in html

    class Run(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net

        def build(self, x):
            return self.net(x)

    html = Run()._repr_html_()
    assert "net.layer.weight: float32[2, 4] (S0)" in html
    assert "&lt;" in html or "Graph" in html


def test_other_things_are_refused():
    with pytest.raises(TypeError, match=r"shows an onefold Tensor or nn.Module, but got list"):
        flow.visualize_layout([1])


def test_nothing_is_imported_for_it():
    program = "import sys, onefold as f; f.visualize_layout(f.zeros(2)); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("float32[2] local\n")
    assert "matplotlib" not in done.stdout.split()
