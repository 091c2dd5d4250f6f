"""Updates in backward: the bits of a step stay, gradients do not, and no step overtakes another."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.engine.meta import Meta
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError
from onefold.graph import pass_table
from onefold.graph.ir import UPDATE, Program, ProgramStep, Value, Variable, verify
from onefold.graph.memory.liveness import buffers_of, live_bytes
from onefold.graph.memory.program_events import call_events
from onefold.graph.passes.in_place import in_place
from onefold.graph.passes.update_in_backward import update_in_backward

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)
PAIR = flow.placement("cpu", [0, 1])
WORDS, WIDTH = 11, 8


class Net(nn.Module):
    """An embedding, blocks that share a layer, and a head, which may be the embedding's weight."""

    def __init__(self, depth, tied, dropout, **where):
        super().__init__()
        self.tied, self.dropout = tied, dropout
        self.words = nn.Embedding(WORDS, WIDTH, **where)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, **where) for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH, **where)
        self.head = nn.Linear(WIDTH, WORDS, bias=False, **where)

    def forward(self, words):
        x = self.words(words)
        for layer in (*self.layers, self.layers[0]):
            y = nn.functional.dropout(flow.tanh(layer(self.norm(x))), self.dropout)
            x = x + y
        if self.tied:
            return x @ self.words.weight.t() + self.head(x) * 0.0
        return self.head(x)


class Train(nn.Graph):
    def __init__(self, in_backward, model, optimizers, change=lambda graph: None):
        super().__init__()
        self.model = model
        self.optimizers = optimizers(model)
        for optimizer in self.optimizers:
            self.add_optimizer(optimizer)
        self.config.enable_optimizer_in_backward(in_backward)
        change(self)

    def build(self, words, following):
        scores = self.model(words)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
        loss.backward()
        return loss


def adamw(model):
    return [flow.optim.AdamW(model.parameters(), lr=0.1)]


def sgd(model):
    return [flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)]


def lamb(model):
    return [flow.optim.LAMB(model.parameters(), lr=0.1)]


def two_groups(model):
    first, *others = model.parameters()
    return [flow.optim.AdamW([{"params": others}, {"params": [first], "lr": 0.01}], lr=0.1)]


def two_optimizers(model):
    first, *others = model.parameters()
    return [flow.optim.Adafactor([first], lr=0.1), flow.optim.Adam(others, lr=0.1)]


OPTIMIZERS = [adamw, sgd, lamb, two_groups, two_optimizers]
CHANGES = {
    "plain": lambda graph: None,
    "amp": lambda graph: graph.config.enable_amp(dtype=flow.bfloat16),
    "micro-batches": lambda graph: graph.config.set_gradient_accumulation_steps(2),
    "zero 1": lambda graph: graph.config.enable_zero(stage=1, shard_min_size=1),
    "zero 2": lambda graph: graph.config.enable_zero(stage=2, shard_min_size=1),
    "zero 3": lambda graph: graph.config.enable_zero(stage=3, shard_min_size=1),
    "checkpoint": lambda graph: setattr(
        graph.model.to(nn.graph.GraphModule), "activation_checkpointing", True
    ),
    "scaled": lambda graph: graph.set_grad_scaler(flow.amp.StaticGradScaler(8.0)),
}


def batches(count, rows=4, **where):
    rng = np.random.default_rng(3)
    return [[flow.tensor(rng.integers(0, WORDS, (rows, 3)), **where) for _ in "xy"]
            for _ in range(count)]  # fmt: skip


def made(in_backward, depth=3, tied=True, dropout=0.2, optimizers=adamw, change="plain", **where):
    flow.manual_seed(5)
    return Train(in_backward, Net(depth, tied, dropout, **where), optimizers, CHANGES[change])


def trained(graph, given):
    """The losses, and what the steps left."""
    flow.manual_seed(7)
    losses = [graph(*each).numpy() for each in given]
    states = [
        x.numpy() if isinstance(x, flow.Tensor) else x
        for optimizer in graph.optimizers
        for entry in optimizer.state_dict()["state"].values()  # in the order of the parameters
        for _, x in sorted(entry.items())
    ]
    return [*losses, *(x.numpy() for x in graph.model.parameters()), *states]


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# The values.


@settings(max_examples=30)
@given(
    st.sampled_from(OPTIMIZERS),
    st.sampled_from(sorted(CHANGES)),
    st.integers(1, 20),
    st.booleans(),
    st.booleans(),
)
def test_no_bit_changes(optimizers, change, depth, tied, split):
    options = {"optimizers": optimizers, "change": change, "depth": depth, "tied": tied}
    split |= change.startswith("zero")
    where = {"placement": PAIR, "sbp": B} if split else {}
    data = {"placement": PAIR, "sbp": S0} if split else {}
    with virtual_world(2):
        graphs = [made(on, **options, **where) for on in (False, True)]
        wanted, found = (trained(graph, batches(3, **data)) for graph in graphs)
    assert_same(found, wanted)


def in_two_processes(change):
    everyone = flow.placement("cpu", [0, 1])
    graphs = [made(on, 6, change=change, placement=everyone, sbp=B) for on in (False, True)]
    given = batches(3, placement=everyone, sbp=S0)
    return [trained(graph, given) for graph in graphs]


@pytest.mark.parametrize("change", ["plain", "amp", "micro-batches", "zero 2", "zero 3"])
def test_in_processes(change):
    for wanted, found in run_ranks(2, in_two_processes, change):
        assert_same(found, wanted)


class Scaled(nn.Module):
    """A parameter that is read where its gradient is made already."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(flow.arange(4.0) + n) for n in (1, 2))

    def forward(self, x):
        return (self.b * (self.a * x).sin()).sum()


@pytest.mark.parametrize("given", ["a tensor", "the parameter", "a view of it", "its memory"])
def test_an_input_that_is_a_parameter_is_read_as_it_was(given):
    class Step(Train):
        def build(self, x):
            loss = self.model(x)
            loss.backward()
            return loss

    def run(in_backward):
        step, found = Step(in_backward, Scaled(), sgd), []
        own = {
            "a tensor": lambda: flow.arange(4.0),
            "the parameter": lambda: step.model.b,
            "a view of it": step.model.b.detach,
            "its memory": lambda: nn.Parameter(step.model.b),
        }[given]
        for _ in range(3):
            found.append(step(own()).numpy().copy())
        return [*found, *(x.numpy() for x in step.model.parameters())]

    assert_same(run(True), run(False))


# The order.


def roots(steps):
    """By the number of a value, those of the values in whose memory it may lie."""
    found = {}
    for step in steps:
        read = [found.get(x.number, {x.number}) for x in step.reads()] if step.aliases else []
        for value in step.outputs:
            found[value.number] = {value.number}.union(*read)
    return found


def overtaking(before, after):
    """Pairs of steps in the other order, of which one makes or writes what the other touches."""
    own = roots(before)

    def memory(values):
        return {root for x in values for root in own.get(x.number, {x.number})}

    place = {id(step): at for at, step in enumerate(after)}
    found = []
    for first, second in combinations(before, 2):
        made = {x.number for x in first.outputs}.intersection(x.number for x in second.reads())
        clash = memory(first.writes) & memory([*second.reads(), *second.writes])
        clash |= memory(second.writes) & memory(first.reads())
        if (made or clash) and place[id(first)] > place[id(second)]:
            found.append((first.name, second.name))
    return found


def without_passes(monkeypatch, *left_out):
    kept = tuple(each for each in pass_table.PASSES if each.run not in left_out)
    monkeypatch.setattr(pass_table, "PASSES", kept)


def programs(monkeypatch, **options):
    """A program with its update at the end, and with each step of it where the pass puts it."""
    with monkeypatch.context() as patch:
        patch.setattr("onefold.engine.boxing.efficient_bytes", lambda kind: 600)
        without_passes(patch, update_in_backward, in_place)
        graph = made(True, **options)
        split = "placement" in options
        graph._compile(*batches(1, **({"placement": PAIR, "sbp": S0} if split else {}))[0])
    return graph.program, update_in_backward(graph.program)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("optimizers", OPTIMIZERS)
def test_no_step_overtakes_what_it_depends_on(optimizers, change, monkeypatch, world):
    options = {"depth": 5, "change": change, "optimizers": optimizers}
    before, after = programs(monkeypatch, placement=PAIR, sbp=B, **options)
    verify(after)
    assert sorted(map(id, before.steps)) == sorted(map(id, after.steps))
    assert not overtaking(before.steps, after.steps)
    first = [next(i for i, step in enumerate(x.steps) if step.writes) for x in (before, after)]
    assert change == "micro-batches" or first[1] < first[0]


META = Meta.of((), flow.float32, device=flow.device("cpu"))


@st.composite
def any_programs(draw):
    """Steps that view and send things, and an update that reads, makes and writes any of them."""
    program = Program(inputs=[Value(number, META) for number in range(4)], updates=True)
    known = [*program.inputs]
    for number in range(4, draw(st.integers(6, 20))):
        update = any(s.scope for s in program.steps) or (number > 4 and draw(st.booleans()))
        read = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        written = [x for x in read if update and draw(st.booleans())]
        made = () if written else (Value(number, META),)
        options = {"scope": UPDATE * update, "writes": tuple(written), "several": True}
        options["aliases"] = not written and draw(st.booleans())
        options["start"] = print if not update and draw(st.booleans()) else None
        step = ProgramStep("any", "any", tuple(read), (), made, print, **options)
        program.steps.append(step)
        known += made
    program.outputs = draw(st.lists(st.sampled_from(known), max_size=2))
    wanted = draw(st.lists(st.sampled_from(known), max_size=4))
    program.gradients = [(Variable(value, None), value) for value in wanted]
    return program


@settings(max_examples=300)
@given(any_programs())
def test_no_step_of_any_program_overtakes(program):
    after = update_in_backward(program)
    verify(after)
    assert sorted(map(id, program.steps)) == sorted(map(id, after.steps))
    assert not overtaking(program.steps, after.steps)


def test_the_check_finds_a_step_that_overtakes(monkeypatch, world):
    before, after = programs(monkeypatch)
    steps = after.steps
    at = next(i for i, step in enumerate(steps) if step.writes)
    assert overtaking(before.steps, [steps[at], *steps[:at], *steps[at + 1 :]])
    gone = next(i for i, step in enumerate(steps) if step.name == "embedding")
    assert overtaking(before.steps, [*steps[:gone], *steps[gone + 1 :], steps[gone]])


def test_what_is_sent_travels_while_the_next_gradients_are_made(monkeypatch, world):
    _, program = programs(monkeypatch, depth=8, placement=PAIR, sbp=B)
    steps = program.steps
    flat = [step.outputs[0] for step in steps if step.name == "flatten_gradients"]
    sent = [at for at, step in enumerate(steps) if flat and {*step.reads()} & {*flat}]
    assert len(sent) > 4
    for at, following in pairwise(sent):
        reader = next(i for i, step in enumerate(steps) if steps[at].outputs[0] in step.inputs)
        assert any(step.backward and step.op is not None for step in steps[at + 1 : reader])
        assert at < reader < following


# The memory.


def test_gradients_are_gone_before_later_ones_are_made(world):
    class Deep(nn.Graph):
        def __init__(self, in_backward):
            super().__init__()
            self.model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(40)))
            self.add_optimizer(flow.optim.AdamW(self.model.parameters()))
            self.config.enable_optimizer_in_backward(in_backward)

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    graph, plain = Deep(True), Deep(False)
    for each in (graph, plain):
        each._compile(flow.ones(1, 32))
    program = graph.program
    gradients = {value.number: value.meta.nbytes for _, value in program.gradients}
    whole, largest = sum(gradients.values()), max(gradients.values())
    events = call_events(program, 0)
    buffers = [each for each in buffers_of(events) if each.key[0] in gradients]
    assert max(live_bytes(buffers, len(events))) <= whole / 16 + 2 * largest
    assert plain.memory(0).peak > whole > 6 * graph.memory(0).peak
    assert sum(step.name == "adamw" for step in program.steps) == 16


# What does not go together with it.


def clipped(graph):
    build = graph.build

    def clipping(*given):
        loss = build(*given)
        nn.utils.clip_grad_norm_(graph.model.parameters(), 1.0)
        return loss

    graph.build = clipping


REFUSED = {
    "clip_grad_norm_ inside build()": clipped,
    "clip_grad_max_norm of a parameter group": lambda graph: (
        graph.optimizers[0].param_groups[0].update(clip_grad_max_norm=1.0, clip_grad_norm_type=2.0)
    ),
    "a GradScaler": lambda graph: graph.set_grad_scaler(flow.amp.GradScaler()),
    "without stages": lambda graph: graph.model.to(nn.graph.GraphModule).set_stage(0, PAIR),
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_update_that_needs_all_gradients_is_refused(text, world):
    where = {"placement": PAIR, "sbp": B}
    graph = made(True, **where)
    REFUSED[text](graph)
    before = [x.numpy() for x in graph.model.parameters()]
    given = batches(1, placement=PAIR, sbp=S0)[0]
    with pytest.raises(OnefoldRuntimeError, match="enable_optimizer_in_backward") as error:
        graph(*given)
    assert text in str(error.value)
    assert_same([x.numpy() for x in graph.model.parameters()], before)
    graph.config.enable_optimizer_in_backward(False)
    graph(*given)


def test_it_is_off_unless_asked_for(world):
    graph = made(False)
    graph._compile(*batches(1)[0])
    assert graph.program.steps[-1].name == "adamw"
    assert sum(step.name == "adamw" for step in graph.program.steps) == 1
    with pytest.raises(OnefoldTypeError, match="must be True or False, but got 1"):
        graph.config.enable_optimizer_in_backward(1)
    graph.config.enable_optimizer_in_backward()
    assert "optimizer_in_backward=True" in repr(graph.config)
    graph(*batches(1)[0])  # compiles anew
    assert sum(step.name == "adamw" for step in graph.program.steps) > 1
