"""Steps in place of an input: the same bits, nothing else touched, less memory, planned exactly."""

from dataclasses import replace
from functools import partial

import pytest
import samples
import torch
from hypothesis import given, settings, strategies as st
from launched import run_ranks
from training_steps import (
    MODELS,
    PAIR,
    Block,
    Net,
    Train,
    inputs_for,
    lives,
    measured,
    two_layers,
)

import onefold as flow
from onefold import nn, sbp
from onefold.distributed.world import world as this_world
from onefold.engine.dispatch_plan import ops
from onefold.engine.ops.pointwise import Elementwise
from onefold.errors import OnefoldError
from onefold.graph import call_list, pass_table
from onefold.graph.ir import Program, ProgramStep, Value, show, verify
from onefold.graph.memory.memory_plan import plan_memory
from onefold.graph.passes.in_place import in_place
from onefold.testing.manual_layouts import make_local
from onefold.testing.random_programs import onefold_tensors, programs
from onefold.testing.sample_checks import value_of

B, P, S0, S1 = sbp.broadcast, sbp.partial_sum, sbp.split(0), sbp.split(1)


def without(monkeypatch):
    """Compile graphs without the pass from now on."""
    rows = tuple(row for row in pass_table.PASSES if row.run is not in_place)
    monkeypatch.setattr(pass_table, "PASSES", rows)


# Kernels.

OPS = [op for forms in ops.values() for op in forms if type(op) is Elementwise and op.into]
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
ATTRS = {
    "gelu": ("none",),
    "gelu_backward": ("tanh",),
    "hardtanh_backward": (-1.0, 1.0),
    "softplus_backward": (1.5, 4.0),
    "threshold": (0.5, 2.0),
}


def values(dtype, seed):
    """More than whole vectors of elements, among them zeros of both signs, infinity and nan."""
    x = torch.randn(7, 41, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 3
    x.view(-1)[:5] = torch.tensor([0.0, -0.0, torch.nan, torch.inf, 1.0])
    if not dtype.is_floating_point and not dtype.is_complex:
        x = torch.nan_to_num(x, 0, 2, -2).round()
    return x.to(dtype)


def bits(x):
    return (torch.view_as_real(x) if x.is_complex() else x).contiguous().view(torch.uint8)


def calls(op, dtype):
    """Arguments with which the op can be called: tensors, the last perhaps a number."""
    for tensors, number in ((1, False), (2, False), (3, False), (1, True), (2, True)):
        args = [values(dtype, seed) for seed in range(tensors)]
        args += [0.37 if dtype.is_floating_point else 2] * number
        if op.name == "where":
            if tensors < 3:
                continue
            args[0] = args[0].real > 0
        try:
            yield args, op.kernel(*args, *ATTRS.get(op.name, ()))
        except (TypeError, RuntimeError):
            continue


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_result_put_in_place_has_the_bits_of_a_new_one(op):
    count = 0
    for dtype in DTYPES:
        for args, wanted in calls(op, dtype):
            for place, arg in enumerate(args):
                if type(arg) is not torch.Tensor or arg.dtype is not wanted.dtype:
                    continue
                own = [x.clone() if type(x) is torch.Tensor else x for x in args]
                found = op.into(*own, *ATTRS.get(op.name, ()), out=own[place])
                assert found is own[place]
                assert torch.equal(bits(found), bits(wanted))
                count += 1
    assert count > 0


def test_the_ops_that_training_is_made_of_can_be_done_in_place():
    names = {op.name for op in OPS}
    assert {"add", "sub", "mul", "div", "neg", "exp", "relu", "gelu", "silu", "tanh"} <= names
    assert {f"{name}_backward" for name in ("relu", "gelu", "silu", "tanh", "sigmoid")} <= names


# Where it may be done.


def placed(function, *inputs):
    """The op and the place of each step that is in place, and the program."""
    graph = nn.Graph.trace(function)
    graph(*inputs)
    program = graph.program
    verify(program)
    number = {v.number: i for i, s in enumerate(program.steps) for v in s.outputs}
    return [(s.name, number[s.place.number]) for s in program.steps if s.place is not None]


def local(*shape):
    return flow.arange(24, dtype=flow.float32).view(*(shape or (4, 6)))


def on_two(split):
    return flow.ones(4, 6, placement=PAIR, sbp=split)


def read_later(x):
    y = x * 2
    z = y + 1
    return z * y


def view_alive(x):
    y = x * 2
    v = y.view(-1)
    return (y + 1).sum() + v.sum()


def view_dead(x):
    y = x * 2
    total = y.view(-1).sum()
    return y + 1, total


def part_of_itself(x):
    y = x.reshape(24)[:16].view(4, 4) * 2
    return y + y.t()


def twice(x):
    y = x * 2
    return y * y


def wanted(x):
    y = x * 2
    return y, y + 1


CASES = {
    "an input ends": (lambda x: x * 2 + 1, [("add", 0)]),
    "all of a view": (lambda x: (x * 2).view(-1) + 1, [("add", 1)]),
    "a view that ended": (view_dead, [("add", 0)]),
    "twice the same": (twice, [("mul", 0)]),
    "the larger of two": (lambda x: x[:1] * 2 + x * 3, [("add", 2)]),
    "a number first": (lambda x: 2.0 ** (x * 2), [("pow", 0)]),
    "a chain": (lambda x: flow.exp(-(x * 2)), [("neg", 0), ("exp", 1)]),
    "an input of the graph": (lambda x: x + 1, []),
    "an input's view": (lambda x: x.view(-1) + 1, []),
    "wanted at the end": (wanted, []),
    "read later": (read_later, [("mul", 1)]),
    "a view is read later": (view_alive, [("add", 3)]),  # of the sums
    "another input lies in it": (part_of_itself, []),
    "smaller than the result": (lambda x: (x[:1] * 2).add(x), []),
    "a part": (lambda x: (x * 2)[1:3] + 1, []),
    "turned": (lambda x: (x * 2).t() + 1, []),
    "a part of a size": (lambda x: (x * 2)[1:].view(-1) + 1, []),
    "expanded": (lambda x: (x * 2)[:, :1].expand(4, 6) + 1, []),
    "a source": (lambda x: (flow.tensor([1.0, 2.0]) + 1, x * 2), []),
    "another dtype": (lambda x: (x * 2).to(flow.float64), []),
    "a comparison": (lambda x: (x * 2) > 1, []),
    "a draw": (lambda x: flow.dropout(x * 2, 0.5), []),
    "no elementwise op": (lambda x: flow.softmax(x * 2, 1), []),
    "several outputs": (lambda x: (x * 2).max(1)[0] + 1, [("add", 1)]),
    "perhaps parts of one": (lambda x: flow.linalg.qr(x)[0] + 1, []),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_in_place_only_where_nothing_else_is_touched(name, world):
    function, found = CASES[name]
    assert placed(function, local()) == found


def test_a_variable_keeps_its_memory(world):
    weight = flow.ones(4, 6)
    assert placed(lambda x: (weight * 2 + x).exp() * weight, local()) == [
        ("add", 0), ("exp", 1), ("mul", 2),
    ]  # fmt: skip
    assert placed(lambda x: weight.exp() + x, local()) == [("add", 0)]
    assert value_of(weight).eq(1).all()


LAYOUTS = {
    "split": (S0, lambda x: x * 2 + 1, [("add", 0)]),
    "replicas": (B, lambda x: x * 2 + 1, [("add", 0)]),
    "addends": (P, lambda x: x * 2 + x, [("add", 0)]),
    "what a group made": (B, lambda x: (x.t() @ x.to_global(PAIR, S0)).to_global(PAIR, B) + 1, 1),
    "a whole that was gathered": (S0, lambda x: x.to_global(PAIR, B) + 1, [("add", 0)]),
    "an exchange": (S0, lambda x: x.to_global(PAIR, S1) + 1, []),
    "a cut": (B, lambda x: (x * 2).to_global(PAIR, S0) + 1, []),
    "replicas with shards": (B, lambda x: (x * 2) * x.to_global(PAIR, S0), []),
    "replicas with addends": (B, lambda x: (x * 2) * x.to_global(PAIR, P), []),
    "addends with replicas": (B, lambda x: (x.to_global(PAIR, P) * 2) * x, [("mul", 1)]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_replicas_are_written_once(name, world):
    split, function, found = LAYOUTS[name]
    x = flow.tensor(torch.arange(24.0).view(4, 6), placement=PAIR, sbp=split)
    steps = placed(function, x)
    assert len(steps) == found if type(found) is int else steps == found
    eager, graph = function(x), nn.Graph.trace(function)(x)
    assert [s.tolist() for s in graph.shards] == [s.tolist() for s in eager.shards]


def test_what_ranks_share_is_not_written_for_each(world):
    """A replicated value that is read along with addends: no op makes that a replica, though."""
    program = hand_made()
    assert [s.place is not None for s in in_place(program).steps] == [False, True]
    add = program.steps[1]
    addends = Value(99, add.outputs[0].meta.like(nd_sbp=(P,)))
    program.inputs.append(addends)
    program.steps[1] = replace(add, inputs=(add.inputs[0], addends))
    assert [s.place is not None for s in in_place(program).steps] == [False, False]


def hand_made():
    graph = nn.Graph.trace(lambda x: (x * 2) + x)
    graph._compile(on_two(B))
    program = graph.program
    program.steps = [replace(step, place=None) for step in program.steps]
    return program


def test_what_is_being_sent_is_not_changed(world):
    """Until the step that reads the sum, the addends may be on their way to other ranks."""

    def early(x):
        y = x.t() @ x
        z = y * 2
        return y.to_global(PAIR, B) * z.to_global(PAIR, B)

    def late(x):
        y = x.t() @ x
        total = y.to_global(PAIR, B).sum()
        return total, y * 2

    graphs = [nn.Graph.trace(function) for function in (early, late)]
    for graph in graphs:
        graph(on_two(S0))
    first, second = ([show(s).split(": ")[0] for s in g.program.steps] for g in graphs)
    assert first == ["%2", "%3", "%5", "%4", "%6", "%7"]  # %5 is the sum of %3
    assert second == ["%2", "%3", "%4", "%5", "%6"]  # %4 is
    found = [[(s.name, s.place) for s in g.program.steps if s.place is not None] for g in graphs]
    assert [[(name, repr(place)) for name, place in each] for each in found] == [
        [("mul", "%5")],
        [("mul", "%3")],
    ]
    program = graphs[1].program
    steps = [replace(step, place=None) for step in program.steps]
    assert steps[-1].name == "mul"
    for order, is_placed in ((steps, True), ([*steps[:3], steps[4], steps[3]], False)):
        changed = in_place(replace(program, steps=order)).steps
        assert any(step.place is not None for step in changed) == is_placed


def test_what_another_rank_may_have_a_part_of_is_not_changed(world):
    """Where one process has all ranks, what one addend is moved to is that addend itself."""
    here, there = flow.placement("cpu", [0]), flow.placement("cpu", [1])

    def function(x):
        y = x * 2
        moved = y.to_global(there, B)
        first = moved * 5  # after which it is on its way no more
        return first, y * 3, moved * 7

    x = flow.ones(3, placement=here, sbp=P)
    assert [value_of(y)[0] for y in nn.Graph.trace(function)(x)] == [10, 6, 14]
    assert placed(function, x) == []


# All programs of a few steps: against running them on named memory.


def cells(steps, kept):
    """Whether every read finds what was written for it, however long a message is under way."""
    holds, lies, symbol = {}, {}, {}
    under_way = []
    first = {}
    for index, step in enumerate(steps):
        for value in step.reads():
            first.setdefault(value.number, index)

    def intact(number):
        return number not in lies or holds[lies[number]] == symbol[number]

    for index, step in enumerate(steps):
        if not all(intact(sent) for until, sent in under_way if until >= index):
            return False
        under_way = [each for each in under_way if each[0] > index]
        if not all(intact(value.number) for value in step.reads()):
            return False
        (made,) = step.outputs
        symbol[made.number] = made.number
        if step.aliases:
            (given,) = step.inputs
            if given.number in lies:
                lies[made.number] = lies[given.number]
                symbol[made.number] = symbol[given.number]
        else:
            lies[made.number] = lies[step.place.number] if step.place else f"new {made.number}"
            holds[lies[made.number]] = made.number
        if step.start is not None:
            under_way.append((first.get(made.number, len(steps)), step.inputs[0].number))
    return all(intact(number) for number in (*kept, *(sent for _, sent in under_way)))


META = flow.ones(4, 4, placement=PAIR, sbp=B).meta
ADD = next(op for op in OPS if op.name == "add")
(VIEW,) = ops["view"]


def small_program(drawn):
    given = Value(1, META)
    made, steps = [given], []
    for number, (kind, left, right) in enumerate(drawn, 2):
        a, b = made[left % len(made)], made[right % len(made)]
        out = Value(number, META)
        if kind == "add":
            step = ProgramStep("add", "add", (a, b), (), (out,), None, op=ADD)
        elif kind == "view":
            step = ProgramStep("view", "view", (a,), (), (out,), None, op=VIEW, aliases=True)
        else:
            step = ProgramStep("send", "send", (a,), (), (out,), None, start=lambda: None)
        steps.append(step)
        made.append(out)
    return given, steps, made


@settings(max_examples=1000)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "view", "send"]), st.integers(0, 6), st.integers(0, 6)
        ),
        max_size=7,
    ),
    st.sets(st.integers(1, 8), max_size=2),
)
def test_a_step_is_in_place_exactly_where_running_on_named_memory_allows_it(drawn, kept):
    """`send` makes memory that is never written to; every `add` may be put in place of one."""
    given, steps, made = small_program(drawn)
    outputs = [v for v in made if v.number in kept]
    kept = [v.number for v in outputs]
    found = in_place(Program(steps=steps, outputs=outputs)).steps
    assert cells(found, kept)
    sends = {s.outputs[0].number for s in steps if s.start is not None} | {given.number}
    roots = {v.number: v.number for v in made}
    for step in steps:
        if step.aliases:
            roots[step.outputs[0].number] = roots[step.inputs[0].number]
    for index, step in enumerate(found):
        if step.name != "add" or step.place is not None:
            continue
        for value in step.reads():
            others = {roots[v.number] for v in step.reads() if v.number != value.number}
            if roots[value.number] in sends or roots[value.number] in others:
                continue
            tried = [*found[:index], replace(step, place=value), *found[index + 1 :]]
            assert not cells(tried, kept), f"{show(step)} could be in place of {value!r}"


# Results.


class Last(nn.Graph):
    """A graph of a random program that returns only its last value and the gradients."""

    def __init__(self, program, seed):
        super().__init__()
        self.drawn, self.seed = program, seed

    def build(self):
        pool, gradients = onefold_tensors(self.drawn, self.seed)
        return pool[-1], [x for x in gradients if x is not None]


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@given(programs(), st.integers(0, 9))
def test_random_programs_are_the_same_in_less_memory(program, seed):
    with pytest.MonkeyPatch.context() as patch:
        graphs = [Last(program, seed)]
        results = [[graphs[0]() for _ in range(2)]]  # the second run finds what the first left
        without(patch)
        graphs.append(Last(program, seed))
        results.append([graphs[1]() for _ in range(2)])
    assert all(step.place is None for step in graphs[1].program.steps)
    ours, theirs = [[x for y, g in runs for x in (y, *g)] for runs in results]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(value_of(a), value_of(b), rtol=0, atol=0, equal_nan=True)
    ranks = {r for m in program.placements for r in torch.tensor(m).view(-1).tolist()}
    for rank in ranks & members(graphs[0].program):
        before, after = [plan_memory(graph.program, rank) for graph in (graphs[1], graphs[0])]
        assert after.live <= before.live


def members(program):
    places = [v.meta.placement for step in program.steps for v in step.outputs]
    return {rank for place in places if place is not None for rank in place.flat_ranks}


@pytest.mark.parametrize("name", MODELS)
def test_training_is_the_same_in_less_memory(name, monkeypatch):
    make, where, split = MODELS[name]
    ranks = [0] if where is None else where.flat_ranks
    losses, peaks, held, counts = [], [], [], []
    for _ in range(2):
        flow.manual_seed(0)
        graph = Train(make())
        inputs = inputs_for(where, split)
        losses.append([value_of(graph(*inputs)) for _ in range(3)])
        losses[-1] += [value_of(p) for p in graph.model.parameters()]
        peaks.append([graph.memory(rank).live for rank in ranks])
        held.append([lives(graph.program, rank) for rank in ranks])
        counts.append(sum(step.place is not None for step in graph.program.steps))
        without(monkeypatch)
    assert all(torch.equal(a, b) for a, b in zip(*losses, strict=True))
    assert counts[0] > counts[1] == 0
    assert all(a <= b for a, b in zip(*peaks, strict=True))
    assert all(sum(a) < sum(b) for a, b in zip(*held, strict=True))


def test_every_program_runs_the_pass_last(world):
    graph = nn.Graph.trace(lambda x: x * 2 + 1)
    graph(local())
    assert "add(%2, 1) in place of %2" in str(graph.program)
    again = in_place(Program(graph.program.inputs, [], graph.program.steps, graph.program.outputs))
    assert str(again) == str(graph.program)


# What the pass relies on.

SAMPLES = samples.load()


class Build(nn.Graph):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def build(self):
        return self.function()


def with_gradients(sample, tensors):
    outputs = sample.run(tensors)
    leaves = [x for x in tensors if x.requires_grad]
    ends = [x for x in outputs if x.requires_grad]
    if not leaves or not ends:
        return [*outputs]
    seeds = [flow.ones_like(x) for x in ends]
    return [*outputs, *flow.autograd.grad(ends, leaves, seeds, allow_unused=True)]


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
def test_ops_that_may_not_alias_make_new_memory(monkeypatch, world):
    """In every sample, and its gradients."""
    found = []
    call = call_list.Places.call

    def storages(parts):
        tensors = [t for part in parts if type(part) is tuple for t in part]
        return {t.untyped_storage().data_ptr() for t in tensors if t.untyped_storage().nbytes()}

    def noting(places, step, dead):
        run, *rest = call(places, step, dead)

        def watched(*args):
            result = run(*args)
            made = storages(result if step.several else [result])
            if not step.aliases and step.place is None and made & storages(args):
                found.append(step.name)
            return result

        return (watched, *rest)

    monkeypatch.setattr(call_list.Places, "call", noting)
    for sample in SAMPLES:
        tensors = [make_local(value) for value in sample.tensors()]
        for x in tensors:
            if sample.grad and (x.dtype.is_floating_point or x.dtype.is_complex):
                x.requires_grad_()
        try:
            Build(partial(with_gradients, sample, tensors))()
        except OnefoldError:  # of those that read values
            continue
    assert found == []
    monkeypatch.setattr(Elementwise, "aliases", True)
    Build(lambda: flow.ones(3).view(3) + 1)()
    assert found == []


# Ranks that are processes.


class Several(nn.Module):
    """Addends that are read again, of integers and extrema, and sums that are needed later."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.weight = nn.Parameter(flow.full((12, 12), 1e-3, placement=where, sbp=B))

    def forward(self, x):
        h = x @ self.weight
        rows = h.view(-1, 12)
        once = rows.t() @ rows
        again = once * 2
        total = self.whole(once) + self.whole(again) + again * 3
        ends = self.whole(h.amax((0, 1))) + self.whole((h > 0).sum((0, 1)))
        return 0.001 * (h @ total + ends)

    def whole(self, x):
        return x.to_global(self.where, B)


LAUNCHED = {
    "mlp, data-parallel": (two_layers, S0),
    "mlp, model-parallel": (lambda where: two_layers(where, S0, S1), B),
    "blocks, data-parallel": (lambda where: Net(*(Block(12, B, B, where) for _ in range(2))), S0),
    "block, tensor-parallel": (lambda where: Net(Block(12, S0, S1, where)), B),
    "several": (Several, S0),
}


def step_of(name):
    """The graph of a training step of this world, and its inputs."""
    make, split = LAUNCHED[name]
    where = flow.placement("cpu", [0, 1])
    flow.manual_seed(0)
    return Train(make(where)), inputs_for(where, split)


def trained(graph, inputs):
    losses = [value_of(graph(*inputs)) for _ in range(3)]
    return [*losses, *(value_of(p) for p in graph.model.parameters())]


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_launched_rank_holds_what_is_planned(name):
    def program():
        graph, inputs = step_of(name)
        rank = this_world().rank
        probe = measured(graph, inputs, [rank])
        steps = [step for _, steps in probe._executable.call_lists() for step in steps]
        kinds = [(s.name, s.place is not None) for s in steps]
        plan = graph.memory(rank)
        return (
            plan.live,
            lives(graph.program, rank),
            probe.live[rank],
            kinds,
            trained(*step_of(name)),
        )

    wanted = trained(*step_of(name))
    for live, planned, held, kinds, values in run_ranks(2, program):
        assert held == planned
        assert live == max(held)
        assert ("boxing", True) in kinds  # a sum in place of its addends
        assert any(is_placed for step, is_placed in kinds if step != "boxing")
        assert all(a.isfinite().all() for a in values)
        assert all(torch.equal(a, b) for a, b in zip(values, wanted, strict=True))


def test_a_launched_plan_that_forgets_what_is_in_place_is_noticed():
    def program():
        graph, inputs = step_of("several")
        rank = this_world().rank
        probe = measured(graph, inputs, [rank])
        forgetful = [replace(step, place=None) for step in graph.program.steps]
        planned = lives(replace(graph.program, steps=forgetful), rank)
        return sum(probe.live[rank]), sum(planned)

    assert all(held < planned for held, planned in run_ranks(2, program))


def test_a_source_of_the_program_is_not_overwritten():
    """A tensor of addends that the program holds: the sum over ranks must not be put there."""

    def program():
        where = flow.placement("cpu", [0, 1])

        def build(x):
            addends = flow.tensor([1.0, 2.0], placement=where, sbp=P)
            return x + addends.to_global(where, B)

        graph = nn.Graph.trace(build)
        x = flow.zeros(2, placement=where, sbp=B)
        return [value_of(graph(x)).tolist() for _ in range(3)]

    assert run_ranks(2, program) == [[[1.0, 2.0]] * 3] * 2


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_memory_of_images_in_each_format(memory_format, world):
    """The results of all steps are in one place, with the bits and the format of eager mode."""

    def function(x):
        y = (x * 2).relu()
        return ((y + 1).exp() - 1).mul(0.5)

    x = flow.randn(2, 5, 6, 7).contiguous(memory_format=memory_format)
    graph = nn.Graph.trace(function)
    wanted, found = function(x), graph(x)
    probe = measured(graph, [x], [0])
    assert probe.peak(0) == graph.memory(0).live == x.numel() * 4
    assert found.is_contiguous(memory_format=memory_format)
    assert torch.equal(found.to_torch(), wanted.to_torch())
