"""Each pass before and after, and the verifier that runs between them."""

import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold import nn, sbp
from onefold.graph.ir import ProgramStep, Value, Variable, show, verify
from onefold.graph.passes.cse import eliminate_common
from onefold.graph.passes.dead_code import eliminate_dead
from onefold.testing.random_programs import onefold_tensors, programs, run_onefold
from onefold.testing.sample_checks import value_of


def program_of(function, *inputs):
    """The compiled program of a function."""
    graph = nn.Graph.trace(function)
    graph(*inputs)
    return graph.program


def names_of(program):
    return [step.name for step in program.steps]


def test_unused_steps_are_dropped(world):
    def function(x):
        flow.exp(x)
        return flow.sin(x)

    assert names_of(program_of(function, flow.ones(2))) == ["sin"]


def test_what_is_done_twice_is_done_once(world):
    def function(x):
        return flow.sin(x) + flow.sin(x), flow.add(x, 1), flow.add(x, 1.0)

    names = names_of(program_of(function, flow.ones(2, dtype=torch.int64)))
    assert sorted(names) == ["add", "add", "add", "sin"]  # 1 and 1.0 are not the same


def test_a_boxing_used_twice_is_done_once(world):
    placement = flow.placement("cpu", [0, 1])
    x = flow.ones(4, 4, placement=placement, sbp=sbp.split(0))

    def function(x):
        return [f(x.to_global(sbp=sbp.broadcast)) for f in (flow.sin, flow.cos)]

    assert names_of(program_of(function, x)) == ["boxing", "sin", "cos"]


def test_what_a_loss_has_as_its_own_gradient_multiplies_nothing(world):
    """The gradients of a linear cross entropy are made with it, and need no other step."""

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 7)
            self.add_optimizer(flow.optim.SGD(self.layer.parameters(), lr=0.1))

        def build(self, x, target):
            weight = self.layer.weight
            nn.functional.linear_cross_entropy(x, weight, target).backward()

    graph = Step()
    graph(flow.randn(3, 4), flow.tensor([0, 2, 6]))
    assert not {"mul", "constant_like"} & {*names_of(graph.program)}


def test_a_product_with_one_that_is_returned_is_made(world):
    x = flow.randn(3)
    program = program_of(lambda x: (flow.ones_like(x) * x, flow.ones_like(x) * flow.sin(x)), x)
    assert names_of(program).count("mul") == 2


def test_random_steps_are_never_shared(world):
    def function(x):
        f = flow.nn.functional.dropout
        return f(x, 0.5), f(x, 0.5), flow.rand(2), flow.rand(2)

    assert names_of(program_of(function, flow.ones(2))) == ["dropout"] * 2 + ["rand"] * 2


def value(number):
    return Value(number, flow.ones(2).meta)


def step(name, inputs, output, **more):
    return ProgramStep(name, name, inputs, (), (output,), lambda *x: x, **more)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3)), max_size=9))
def test_passes_keep_what_a_program_computes(drawn):
    """Symbolic execution: every output is the same expression before and after."""
    program = program_of(lambda x: x + 1, flow.ones(2))
    program.steps.clear()
    values = [program.inputs[0]]
    for number, (name, left, right) in enumerate(drawn, 100):
        inputs = values[left % len(values)], values[right % len(values)]
        values.append(value(number))
        program.steps.append(step(name, inputs, values[-1]))
    program.outputs = [values[-1], values[len(values) // 2]]
    verify(program)
    shared = eliminate_common(program)
    small = eliminate_dead(shared)
    verify(small)
    assert expressions(small) == expressions(shared) == expressions(program)
    assert len(small.steps) == len({e for e in subexpressions(program) if e[0] in "ab"})


def expressions(program):
    known = {value.number: ("input",) for value in program.inputs}
    for each in program.steps:
        known[each.outputs[0].number] = (each.name, *[known[v.number] for v in each.inputs])
    return [known[value.number] for value in program.outputs]


def subexpressions(program):
    left = expressions(program)
    while left:
        found = left.pop()
        yield found
        left.extend(found[1:])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda p, x: p.steps.append(step("neg", (value(99),), value(100))), "before it is made"),
        (lambda p, x: p.steps.append(step("neg", (x,), p.outputs[0])), "is made twice"),
        (lambda p, x: p.outputs.append(value(99)), "wanted but never made"),
        (
            lambda p, x: p.assigns.append(
                (Variable(Value(98, flow.ones(3).meta), flow.ones(3)), p.outputs[0])
            ),
            "gets",
        ),
    ],
)
def test_a_broken_program_is_noticed(change, text, world):
    program = program_of(lambda x: -x, flow.ones(2))
    verify(program)
    change(program, program.inputs[0])
    with pytest.raises(AssertionError, match=text):
        verify(program)


def test_a_step_prints_on_one_line(world):
    program = program_of(lambda x: flow.softmax(x, 1), flow.ones(2, 3))
    assert show(program.steps[0]) == "%2: float32[2, 3] cpu = softmax(%input.0, 1, None)"
    assert str(program).splitlines() == [
        "input %input.0: float32[2, 3] cpu",
        "# build",
        "%2: float32[2, 3] cpu = softmax(%input.0, 1, None)",
        "return %2",
    ]


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(programs(), st.integers(0, 9))
def test_random_programs_equal_eager(program, seed):
    """A step at a time in eager, and all of it in a graph: the same values and gradients."""
    wanted = run_onefold(program, seed)
    found = nn.Graph.trace(lambda: onefold_tensors(program, seed))()
    for ours, theirs in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(value_of(ours), theirs, rtol=0, atol=0, equal_nan=True)


def test_equal_numbers_that_are_not_the_same_are_told_apart(world):
    def build(x):
        return x / 0.0, x / -0.0, flow.clamp(-x, min=-1.0, max=1.0), flow.clamp(-x, min=-1, max=1)

    given = flow.ones(2)
    for found, wanted in zip(flow.nn.Graph.trace(build)(given), build(given), strict=True):
        assert found.dtype is wanted.dtype
        assert found.tolist() == wanted.tolist()
