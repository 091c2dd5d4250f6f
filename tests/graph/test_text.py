"""What graphs print: the tree of repr, before and after compiling, and the levels of debug."""

import re
import warnings

import pytest

import onefold as flow
from onefold import nn, sbp
from onefold.errors import OnefoldTypeError, OnefoldValueError, user_stack

B, S0 = sbp.broadcast, sbp.split(0)
FIRST, SECOND = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8, placement=FIRST, sbp=B)
        self.head = nn.Linear(8, 2, placement=SECOND, sbp=B, bias=False)
        self.register_buffer("count", flow.zeros((), placement=FIRST, sbp=B))

    def forward(self, x):
        self.count.add_(1)
        x = flow.gelu(self.body(x))
        return self.head(x.to_global(SECOND, S0))


class Train(nn.Graph):
    def __init__(self, staged=False, **options):
        super().__init__(**options)
        self.model = Net()
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))
        if staged:
            self.model.body.to(nn.graph.GraphModule).set_stage(0, FIRST)
            self.model.head.to(nn.graph.GraphModule).set_stage(1, SECOND)

    def build(self, x):
        loss = self.model(x).sum()
        loss.backward()
        return loss


def x():
    return flow.ones(4, 6, placement=FIRST, sbp=S0)


ON_FIRST = r'placement=onefold.placement\(type="cpu", ranks=\[0, 1\]\)'


def tagged(text, tag):
    return [line.strip() for line in text.splitlines() if line.strip().startswith(f"({tag}:")]


def test_before_the_first_call(world):
    text = repr(Train())
    assert text.splitlines()[0] == "(GRAPH:Train:Train): ("
    assert text.splitlines()[-1] == ")"
    assert text.count("(") == text.count(")")
    assert tagged(text, "CONFIG") == [
        "(CONFIG:config:GraphConfig(training=True, gradient_accumulation_steps=1, "
        "schedule=None, amp=None, layout_search=False, zero=None))"
    ]
    assert tagged(text, "MODULE") == [
        "(MODULE:model:Net()): (",
        "(MODULE:model.body:Linear(in_features=6, out_features=8, bias=True)): (",
        "(MODULE:model.head:Linear(in_features=8, out_features=2, bias=False)): (",
    ]
    parameters = tagged(text, "PARAMETER")
    assert len(parameters) == 3
    assert re.fullmatch(
        r"\(PARAMETER:model.body.weight:tensor\(sbp=\(B\), size=\(8, 6\), dtype=float32, "
        + ON_FIRST
        + r"\)\): \(\)",
        parameters[0],
    )
    assert tagged(text, "BUFFER")[0].startswith("(BUFFER:model.count:tensor(sbp=(B), size=()")
    assert not any(tagged(text, tag) for tag in ("INPUT", "OUTPUT", "OPERATOR"))


def test_after_the_first_call(world):
    graph = Train()
    graph(x())
    text = repr(graph)
    lines = text.splitlines()
    assert re.fullmatch(
        r"  .INPUT:input.0:tensor\(sbp=\(S0\), size=\(4, 6\), dtype=float32, " + ON_FIRST + r"\)\)",
        lines[2],
    )
    start = next(i for i, line in enumerate(lines) if "(MODULE:model.body:" in line)
    end = lines.index("    )", start)
    body = "\n".join(lines[start : end + 1])
    assert re.search(
        r"\(OPERATOR: linear\(%input.0:\(sbp=\(S0\), size=\(4, 6\), dtype=float32\), "
        r"%model.body.weight:\(sbp=\(B\), size=\(8, 6\), dtype=float32\), .*\) -> "
        r"\(%\d+:\(sbp=\(S0\), size=\(4, 8\), dtype=float32\)\), " + ON_FIRST + r"\)\n",
        body,
    )
    operators = tagged(body, "OPERATOR")
    backward = ["backward" in line for line in operators]
    assert backward == sorted(backward)
    assert any(backward)
    assert len(tagged(body, "INPUT")) == len(tagged(body, "OUTPUT")) == 1
    assert len(tagged(text, "OPERATOR")) == len(graph.program.steps)
    assert tagged(text, "GRADIENT")[0].startswith("(GRADIENT:model.body.weight:%")
    assert tagged(text, "ASSIGN")[0].startswith("(ASSIGN:model.count:%")
    assert "location=" not in text
    assert lines[-2].startswith("  (OUTPUT:%")


def test_stages_are_shown(world):
    graph = Train(staged=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", flow.PipelineWarning)
        graph(x())
    text = repr(graph)
    assert "(CONFIG:model.body:GraphModule(stage_id=0, stage_placement=onefold.placement(" in text
    operators = tagged(text, "OPERATOR")
    assert all(", stage=" in line for line in operators)
    assert any(line.startswith("(OPERATOR: linear") and ", stage=1" in line for line in operators)


def test_tensors_from_outside_and_local_ones(world):
    outside = flow.ones(2)
    graph = nn.Graph.trace(lambda a: a + outside)
    graph(flow.ones(2))
    text = repr(graph)
    assert "(VARIABLE:outside.0:tensor(size=(2,), dtype=float32, device=cpu))" in text
    assert "-> (%3:(size=(2,), dtype=float32)), device=cpu)" in text


def told(capsys, level, **options):
    graph = Train(debug_v_level=level, **options)
    assert capsys.readouterr().out == ""
    graph(x())
    graph(x())  # compiles nothing
    return graph, capsys.readouterr().out


def test_levels_of_debug(world, capsys):
    graph, out = told(capsys, -1)
    assert out == ""
    _, out = told(capsys, 0)
    steps = len(graph.program.steps)
    (compiled,) = graph._compiled.values()
    times = re.sub(r"\d+\.\d{3} s", "T", out)
    assert times.splitlines() == [
        "(GRAPH:Train:Train) building for (float32[4, 6] (S0) on cpu [0, 1])",
        f"(GRAPH:Train:Train) captured: {len(compiled.captured.steps)} steps, T",
        f"(GRAPH:Train:Train) rewritten by the passes: {steps} steps, T",
        f"(GRAPH:Train:Train) compiled {steps} steps in T",
    ]
    _, out = told(capsys, 1)
    assert (
        "(MODULE:model.body) 1 operators, 2 in backward: (float32[4, 6] (S0) on cpu [0, 1]) -> "
        "(float32[4, 8] (S0) on cpu [0, 1])\n"
    ) in out
    assert "OPERATOR" not in out
    _, out = told(capsys, 2)
    assert out.count("(OPERATOR: ") == steps
    assert "variable %" not in out
    _, out = told(capsys, 3)
    assert "the program:\ninput %input.0" in out
    assert "rank 3: memory of rank 3" in out


def test_ranks_of_debug(world, capsys):
    assert told(capsys, 0, debug_ranks=[1, 5])[1] == ""
    assert told(capsys, 0, debug_ranks=-1)[1] != ""
    graph = Train()
    graph.debug(0, ranks=0)
    graph(x())
    assert "compiled" in capsys.readouterr().out


def test_lines_of_operators(world):
    graph = Train(debug_op_repr_with_py_stack=True)
    graph(x())
    gelu = next(line for line in tagged(repr(graph), "OPERATOR") if ": gelu(" in line)
    found = re.search(r"location=\((.*)\)\)$", gelu)[1].split(" < ")
    assert [re.sub(r":\d+", "", line) for line in found] == [
        "test_text.py in forward",
        "test_text.py in build",
    ]
    options = {"debug_max_py_stack_depth": 3, "debug_only_user_py_stack": False}
    graph = Train(debug_op_repr_with_py_stack=True, **options)
    graph(x())
    linear = next(line for line in tagged(repr(graph), "OPERATOR") if ": linear(" in line)
    found = re.search(r"location=\((.*)\)\)$", linear)[1].split(" < ")
    assert re.sub(r":\d+", "", found[0]) == "linear.py in forward"
    assert len(found) == 3


def test_a_stack_is_as_deep_as_asked():
    def inner():
        return user_stack(2), user_stack(1)

    two, one = inner()
    assert [line.partition(" in ")[2] for line in two.split(" < ")] == [
        "inner",
        "test_a_stack_is_as_deep_as_asked",
    ]
    assert " < " not in one


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"v_level": "all"}, OnefoldTypeError, "v_level must be an integer, but got 'all'"),
        ({"v_level": True}, OnefoldTypeError, "v_level must be an integer, but got True"),
        ({"ranks": "0"}, OnefoldTypeError, r"ranks must be integers, -1 \(all\) or None, not '0'"),
        ({"ranks": [0, 1.5]}, OnefoldTypeError, r"ranks must be an integer, but got 1\.5"),
        (
            {"max_py_stack_depth": 0},
            OnefoldValueError,
            "stack_depth must be at least 1, but got 0",
        ),
        ({"only_user_py_stack": 1}, OnefoldTypeError, "only_user_py_stack must be True or False"),
        (
            {"op_repr_with_py_stack": None},
            OnefoldTypeError,
            "op_repr_with_py_stack must be True",
        ),
    ],
)
def test_bad_settings_of_debug(options, error, text, world):
    graph = Train()
    before = graph._debug
    with pytest.raises(error, match=text):
        graph.debug(**options)
    assert graph._debug is before
