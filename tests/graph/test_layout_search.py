"""The search over layouts: never worse than eager, as good as trying all, the same values."""

from itertools import product

import pipelines
import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks

import onefold as flow
from onefold import nn, sbp
from onefold.engine import boxing
from onefold.engine.sbp import parse
from onefold.errors import OnefoldTypeError, OnefoldValueError
from onefold.graph import pass_table
from onefold.graph.ir import verify
from onefold.graph.passes.in_place import in_place
from onefold.graph.passes.layout_graph import LayoutGraph
from onefold.graph.passes.layout_search import modeled_time, search_layouts
from onefold.graph.passes.pass_utils import time
from onefold.testing.manual_layouts import make_global
from onefold.testing.random_programs import onefold_tensors, programs
from onefold.testing.sample_checks import value_of

B, P, S0, S1 = sbp.broadcast, sbp.partial_sum, sbp.split(0), sbp.split(1)


def tensor(shape, nd_sbp, ranks=(0, 1, 2, 3), seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return make_global(values, flow.placement("cpu", list(ranks)), parse(nd_sbp), seed)


def greedy_and_searched(function, *inputs):
    """The program with eager's layouts, the one that the search makes of it, and both's values."""
    graph = nn.Graph.trace(function)
    wanted = graph(*inputs)
    searching = nn.Graph.trace(function)
    searching.config.enable_layout_search()
    found = searching(*inputs)
    after = search_layouts(graph.program)
    verify(after)
    return graph.program, after, wanted, found


def assert_near(found, wanted):
    assert found.meta is wanted.meta
    torch.testing.assert_close(value_of(found), value_of(wanted), rtol=1e-6, atol=1e-6)


def bytes_of(function, *inputs):
    function(*inputs)
    with flow.profiler.comm() as log:
        function(*inputs)
    return log.total_bytes()


# Each is better with layouts that no op would take by itself.


def to_one_column(x, w):
    """The product is partial; gelu needs a sum, and what follows only a part of it."""
    return flow.gelu(flow.matmul(x, w)).to_global(sbp=S0)


def both_ways(x, w):
    y = flow.exp(x.to_global(sbp=S1))
    return y.to_global(sbp=S0) * x, y


def rows_again(x, w):
    return flow.tanh(flow.sigmoid(flow.matmul(x, w))) * 2.0 + flow.ones(
        256, 256, placement=x.placement, sbp=S0
    )


CASES = [
    (to_one_column, "(S1)", "(S0)"),
    (rows_again, "(S1)", "(S0)"),
    (both_ways, "(S0)", "(B)"),
]


def seconds(graph):
    """The modeled time of all ops and boxing; a boxing counts once for all that want a layout."""
    wants = {
        (number, meta, node.step.recomputation, node.step.stage)
        for node in graph.nodes
        for number, meta in zip(node.reads, node.wanted, strict=True)
        if number is not None and meta is not None
    }
    for value in graph.program.wanted():
        near = graph.near(value)
        wants.add((graph.root(value), value.meta, near.recomputation, near.stage))
    boxings = sum(time(graph.meta[number], meta) for number, meta, *_ in wants)
    return boxings + sum(node.form.time for node in graph.nodes)


def optimum(program, axis=None):
    """The least modeled time over all forms of all ops, by brute force."""
    graph = LayoutGraph(program, axis)
    free = [node for node in graph.nodes if node.free]
    least = seconds(graph)
    for forms in product(*map(graph.forms, free)):
        for node, form in zip(free, forms, strict=True):
            if node.form is not form:
                graph.lay(node, form)
        least = min(least, seconds(graph))
    return least


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_as_good_as_trying_everything(case, world):
    function, *layouts = case
    x, w = (tensor((256, 256), layout, seed=i) for i, layout in enumerate(layouts))
    before, after, wanted, found = greedy_and_searched(function, x, w)
    least = optimum(before)
    assert least <= modeled_time(before)
    assert modeled_time(after) == pytest.approx(least)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for ours, theirs in pairs:
        assert_near(ours, theirs)


@pytest.mark.parametrize("axis", [0, 1])
def test_along_one_axis_the_other_stays(axis, world):
    """A product that is partial along one axis, and wanted split along both."""

    def function(x, w):
        return flow.gelu(flow.matmul(x, w)).to_global(sbp=(S0, S1) if axis else (S1, S0))

    layouts = ["(S0, S1)", "(B, S0)"] if axis else ["(S1, S0)", "(S0, B)"]
    mesh = [[0, 1], [2, 3]]
    x, w = (tensor((128, 128), each, mesh, i).double() for i, each in enumerate(layouts))
    graph, searching = (nn.Graph.trace(function) for _ in range(2))
    searching.config.enable_auto_parallel(axis=axis)
    assert_near(searching(x, w), graph(x, w))
    after = search_layouts(graph.program, axis=axis)
    verify(after)
    least = optimum(graph.program, axis)
    assert modeled_time(after) == pytest.approx(least)
    assert optimum(graph.program) <= least < modeled_time(graph.program)
    laid = LayoutGraph(graph.program, axis)
    for node in laid.nodes:
        for form in laid.forms(node):
            pairs = zip(form.outputs, node.form.outputs, strict=True)
            assert all(a.nd_sbp[1 - axis] is b.nd_sbp[1 - axis] for a, b in pairs)


def test_a_sum_goes_to_the_layout_that_is_needed_in_the_end(world):
    x, w = tensor((256, 256), "(S1)"), tensor((256, 256), "(S0)", seed=1)
    before, after, _, _ = greedy_and_searched(rows_again, x, w)
    graph = nn.Graph.trace(rows_again)
    graph.config.enable_layout_search()
    assert modeled_time(after) <= modeled_time(before)
    assert bytes_of(graph, x, w) <= bytes_of(rows_again, x, w)
    assert bytes_of(graph, x, w) == 4 * 256 * 256 * 3  # one reduction to splits


class TwoPlacements(nn.Module):
    """Data-parallel, then model-parallel elsewhere: gradients come back as partial sums."""

    def __init__(self):
        super().__init__()
        self.first, self.second = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])
        self.body = nn.Linear(64, 128, placement=self.first, sbp=B)
        self.head = nn.Linear(128, 64, placement=self.second, sbp=S0)

    def forward(self, x):
        return self.head(flow.gelu(self.body(x)).to_global(self.second, B))


class Train(nn.Graph):
    def __init__(self, model, search, micro=1):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(micro)
        self.config.enable_layout_search(search)

    def build(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def training(search, steps=3, micro=1):
    """Losses and parameters, and the program of a step, of the same model and data."""
    flow.manual_seed(3)
    model = TwoPlacements()
    x = flow.randn(64, 64, placement=model.first, sbp=S0)
    graph = Train(model, search, micro)
    losses = [graph(x).numpy() for _ in range(steps)]
    return [*losses, *[p.numpy() for p in model.parameters()]], graph.program


def received(program):
    """Bytes that all ranks receive in the program's own boxing."""
    steps = [step for step in program.steps if step.name == "boxing"]
    plans = [boxing.plan(step.inputs[0].meta, step.outputs[0].meta) for step in steps]
    return sum(plan.received(rank) for plan in plans for rank in range(4))


@pytest.mark.parametrize("micro", [1, 2])
def test_gradients_between_placements_come_as_they_are_needed(micro, world):
    wanted, greedy = training(False, micro=micro)
    found, program = training(True, micro=micro)
    assert pipelines.differ(found, wanted, exact=False) == []
    assert 1.1 * received(program) < received(greedy)


def test_processes_run_what_virtual_ranks_run(world):
    wanted, _ = training(True)
    for found in run_ranks(4, lambda: training(True)[0]):
        assert pipelines.differ(found, wanted) == []


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_stages_and_schedules(schedule, world):
    spec = pipelines.Spec(([0, 1], [2, 3], [[4, 5], [6, 7]]), (0, 1, 0), shortcut=True, dropout=0.1)

    def change(graph):
        graph.config.enable_layout_search()

    _, wanted = pipelines.run(spec, schedule, 4)
    _, found = pipelines.run(spec, schedule, 4, change=change)
    assert pipelines.differ(found, wanted, exact=False) == []


@pytest.mark.parametrize(
    ("data", "first", "second"),
    [("(S0)", "(B)", "(B)"), ("(B)", "(S1)", "(S0)"), ("(B)", "(B)", "(B)")],
)
def test_what_is_best_already_stays(data, first, second, world):
    x, w, v = (tensor((64, 64), layout, seed=i) for i, layout in enumerate((data, first, second)))
    graph = nn.Graph.trace(lambda x, w, v: flow.matmul(flow.relu(flow.matmul(x, w)), v))
    graph(x, w, v)
    assert search_layouts(graph.program) is graph.program


def test_layouts_that_were_asked_for_stay(world):
    x = tensor((64, 64), "(S0)")

    def function(x):
        return flow.exp(flow.tanh(x).to_global(sbp=S1)).to_global(sbp=S0)

    before, after, _, _ = greedy_and_searched(function, x)
    layouts = [[v.meta for s in p.steps if s.asked and s.op is None for v in s.outputs]
               for p in (before, after)]  # fmt: skip
    assert layouts[0] == layouts[1] and len(layouts[0]) == 2


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(programs(), st.integers(0, 9))
def test_never_worse_than_eager(program, seed):
    graph = nn.Graph.trace(lambda: onefold_tensors(program, seed))
    with pytest.MonkeyPatch.context() as patch:
        rows = [row for row in pass_table.PASSES if row.run is not in_place]  # which comes last
        patch.setattr(pass_table, "PASSES", rows)
        graph()
    after = search_layouts(graph.program)
    verify(after)
    if after is not graph.program:
        assert modeled_time(after) < modeled_time(graph.program)
    assert [v.meta for v in after.outputs] == [v.meta for v in graph.program.outputs]


def test_the_setting(world):
    graph = nn.Graph.trace(lambda x: x + 1)
    with pytest.raises(OnefoldTypeError, match="mode must be True or False, but got 1"):
        graph.config.enable_layout_search(1)
    with pytest.raises(OnefoldValueError, match="axis must be at least 0, but got -1"):
        graph.config.enable_auto_parallel(axis=-1)
    assert graph.config.layout_search is False
    before = graph.config.settings
    assert graph.config.enable_layout_search() is None
    assert graph.config.layout_search is True and graph.config.settings != before
