"""Pipelines give what the same micro-batches give in turn, under every schedule and layout."""

from dataclasses import replace

import numpy as np
import pipelines
import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.errors import (
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    PlacementError,
)
from onefold.graph.host_copies import OFFLOAD
from onefold.graph.passes import offload_activations
from onefold.graph.schedules.actions import Action
from onefold.graph.stages.rendezvous import check_rendezvous
from onefold.graph.stages.stage_plan import Message

pytestmark = pytest.mark.filterwarnings(
    "ignore::onefold.FallbackWarning", "ignore::onefold.PipelineWarning"
)

PLAIN = ("gpipe", "1f1b", "zb-h1", "zb-h2")
MESHES = {
    "plain": [((0,), (1,)), ((0, 1), (2, 3)), ((0,), (1, 2)), ((2, 3), (0,), (1,))],
    "grid": [(((0, 1), (2, 3)), (4, 5)), ((0,), ((1, 2), (3, 4)), (5, 6))],
    "looped": [((0,), (1,), (0,), (1,)), ((0, 1), (2,), (0, 1), (2,), (0, 1), (2,))],
    "v": [((0,), (1,), (1,), (0,)), ((0, 1), (2, 3), (2, 3), (0, 1))],
}


@st.composite
def cases(draw):
    """(spec, schedule, micro-batches)"""
    kind = draw(st.sampled_from(sorted(MESHES)))
    meshes = draw(st.sampled_from(MESHES[kind]))
    several = {"looped": ("interleaved", "looped-bfs", None), "v": ("zb-v",)}
    names = several.get(kind, (*PLAIN, None))
    spec = pipelines.Spec(
        meshes=meshes,
        layouts=tuple(draw(st.integers(0, 3)) for _ in meshes),
        shortcut=draw(st.booleans()),
        tied=draw(st.booleans()),
        state=draw(st.booleans()),
        dropout=draw(st.sampled_from([0.0, 0.3])),
        boxed=draw(st.booleans()),
        frozen=draw(st.sampled_from([(), (0,), (len(meshes) - 1,)])),
        offloaded=draw(st.sampled_from([(), tuple(range(len(meshes)))])),
        returned_on=draw(st.sampled_from([(), (0,), (1,)])),
    )
    return spec, draw(st.sampled_from(names)), draw(st.integers(1, 6))


@pytest.fixture(scope="module", autouse=True)
def soon():
    """No activation is needed too soon to wait on the host: the stages here have few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offload_activations, "_SOON", 0)
        yield


@given(cases())
def test_any_pipeline_equals_its_micro_batches_in_turn(case):
    spec, schedule, micro_batches = case
    with virtual_world():
        graph, found = pipelines.run(spec, schedule, micro_batches)
        _, wanted = pipelines.run(spec, None, micro_batches, staged=False)
    # The tied weight's gradients of one stage are summed before they travel.
    assert not pipelines.differ(found, wanted, exact=not spec.tied)
    check_rendezvous(graph._latest("test").stages)
    copied = any(step.origin == OFFLOAD for step in graph.program.steps)
    assert copied == bool(spec.offloaded)


MIXED = pipelines.Spec(meshes=((0, 1), (2, 3)), layouts=(0, 1), dropout=0.3)


def test_a_difference_is_seen(world):
    _, found = pipelines.run(MIXED, "1f1b", 4)
    _, other = pipelines.run(MIXED, "1f1b", 2, each=4)
    assert pipelines.differ(found, other)


LAUNCHED = {
    2: [
        (pipelines.Spec(((0,), (1,)), (0, 0), dropout=0.3, state=True), "1f1b"),
        (pipelines.Spec(((0,), (1,)), (0, 0), tied=True, returned_on=(0,)), "zb-h1"),
        (pipelines.Spec(((0,), (1,)), (0, 0), dropout=0.3, offloaded=(0, 1)), "zb-h1"),
        (pipelines.Spec(((0,), (1,), (0,), (1,)), (0, 0, 0, 0), shortcut=True), "interleaved"),
        (pipelines.Spec(((0,), (1,), (0,), (1,)), (0, 0, 0, 0), tied=True), "looped-bfs"),
        (pipelines.Spec(((0,), (1,), (1,), (0,)), (0, 0, 0, 0), shortcut=True), "zb-v"),
    ],
    4: [
        (replace(MIXED, shortcut=True, tied=True), "1f1b"),
        (pipelines.Spec(((0,), (1,), (2,), (3,)), (0, 0, 0, 0), shortcut=True), "zb-h2"),
        (pipelines.Spec((((0, 1), (2, 3)),) * 2, (0, 1), returned_on=(0,)), "interleaved"),
        (pipelines.Spec(((0, 1, 2), (3,)), (1, 0), boxed=False), "gpipe"),
    ],
}


@pytest.mark.parametrize("size", [2, 4])
def test_processes_give_what_one_process_gives(size):
    def run_all():
        return [pipelines.run(spec, name, 4)[1] for spec, name in LAUNCHED[size]]

    with virtual_world():
        wanted = run_all()
    for found in run_ranks(size, run_all, timeout=120.0):
        for one, other in zip(found, wanted, strict=True):
            assert not pipelines.differ(one, other)


def test_processes_agree_under_the_check_too():
    """ONEFOLD_CHECK compares both ends of every message before it starts."""

    def program():
        return pipelines.run(MIXED, "1f1b", 4)[1]

    with virtual_world():
        wanted = program()
    for found in run_ranks(4, program, timeout=120.0, env={"ONEFOLD_CHECK": "1"}):
        assert not pipelines.differ(found, wanted)


def test_a_graph_without_backward(world):
    model = pipelines.Model(MIXED, staged=True).eval()

    class Evaluate(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.config.set_gradient_accumulation_steps(2)

        def build(self, x):
            return self.model(x)

    x, _ = pipelines.data(model, 6)
    graph = Evaluate()
    np.testing.assert_allclose(graph(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6)
    assert graph.schedule().splitlines()[1:] == ["0 F0 F1 ..", "1 .. F0 F1"]


@pytest.mark.parametrize("ranks", [((0, 1),), ((0,), (1,)), ((2, 3), (0, 1))])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_outputs_on_the_first_rank(world, ranks, micro_batches):
    """The loss of OneFlow's programs goes to rank 0, of whichever stages there are."""
    spec = pipelines.Spec(ranks, (0,) * len(ranks), returned_on=(0,))
    _, found = pipelines.run(spec, None, micro_batches)
    _, wanted = pipelines.run(replace(spec, returned_on=()), None, micro_batches)
    losses = [2 * wanted.pop(at) for at in (2, 0)]
    assert not pipelines.differ([found.pop(at) for at in (2, 0)], losses)
    assert not pipelines.differ(found, wanted)


# With other settings.


def checkpointed(graph):
    for block in graph.model.blocks:
        block.to(nn.graph.GraphModule).activation_checkpointing = True


def saved_in_part(graph):
    checkpointed(graph)
    for block in graph.model.blocks:
        block.to(nn.graph.GraphModule).saved_activations = ["*linear"]


SETTINGS = {
    "checkpointing": checkpointed,
    "saved activations": saved_in_part,
    "bfloat16": lambda graph: graph.config.enable_amp(dtype=flow.bfloat16),
    "scaler": lambda graph: graph.set_grad_scaler(flow.amp.StaticGradScaler(64.0)),
    **{
        f"zero-{stage}": lambda graph, stage=stage: graph.config.enable_zero(
            stage=stage, shard_min_size=1
        )
        for stage in (1, 2, 3)
    },
}


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_works_with_stages(world, setting, tied, schedule):
    spec = replace(MIXED, tied=tied, shortcut=True, state=True)
    change = SETTINGS[setting]
    _, found = pipelines.run(spec, schedule, 4, change=change)
    _, wanted = pipelines.run(spec, None, 4, staged=False, change=change)
    assert not pipelines.differ(found, wanted, exact=not tied)


# What a plan says.


def test_a_plan_prints(world):
    graph, _ = pipelines.run(replace(MIXED, dropout=0.0), "1f1b", 3)
    text = graph.plan(0)
    assert text.splitlines()[0] == (
        "ranks [0, 1], stage 0: 1f1b, 3 micro-batches, at most 2 in flight"
    )
    assert "  run F0.0" in text
    assert "F0.0 to F1.0 (#0)" in text
    assert "receive" in text
    assert "F0:\n" in text
    assert "gelu(" in text
    assert "F1:\n" not in text
    assert graph.plan(7) == "rank 7 is on no stage"
    assert graph.schedule().splitlines() == [
        "1f1b, one column per unit of time",
        "0 F0 F1 .. .. b0 b0 F2 b1 b1 .. b2 b2 U",
        "1 .. F0 b0 b0 F1 b1 b1 F2 b2 b2 U  .. ..",
    ]


def test_weight_gradients_are_cut_off(world):
    """The halves of a backward: I makes what other stages wait for, W only gradients."""
    graph, _ = pipelines.run(replace(MIXED, dropout=0.0), "zb-h1", 2)
    segments = graph._latest("test").stages.staged.segments
    assert [step.name for step in segments["I", 0]] == []
    names = {part: {step.name for step in steps} for part, steps in segments.items()}
    assert "mm_tn" in names["W", 1]
    assert "mm_tn" not in names["I", 1]
    assert "gelu_backward" in names["I", 1]
    assert "mm_tn" in names["W", 0]


def test_a_tied_weight_is_sent_once_and_its_gradient_too(world):
    graph, _ = pipelines.run(replace(MIXED, tied=True, dropout=0.0), "1f1b", 4)
    staged = graph._latest("test").stages.staged
    assert [step.name for step in staged.once] == ["boxing"]
    assert [step.name for step in staged.after if step.name != "boxing"] == ["add"]
    assert len(staged.transfers) == 2  # the activation and its gradient


def test_activations_are_dropped_in_time(world):
    """1f1b holds at most as many micro-batches as it says; gpipe holds all of them."""
    graph, _ = pipelines.run(replace(MIXED, dropout=0.0), "1f1b", 6)
    plan = graph._latest("test").stages
    assert [plan.in_flight(group) for group in range(2)] == [2, 1]
    graph, _ = pipelines.run(replace(MIXED, dropout=0.0), "gpipe", 6)
    assert graph._latest("test").stages.in_flight(1) == 6


# A wrong plan is noticed.


def changed(plan, group, change):
    lists = [list(each) for each in plan.instructions]
    change(lists[group])
    return replace(plan, instructions=tuple(map(tuple, lists)))


def swap(a, b):
    def change(items):
        items[a], items[b] = items[b], items[a]

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda items: items.pop(1), "is there 0 times"),
        (lambda items: items.append(items[1]), "not in the global order"),
        (swap(0, 1), "comes before"),
        (lambda items: items.sort(key=lambda i: isinstance(i, Message)), "cannot run"),
    ],
)
def test_a_wrong_plan_is_noticed(world, change, text):
    graph, _ = pipelines.run(replace(MIXED, dropout=0.0), "1f1b", 3)
    plan = graph._latest("test").stages
    check_rendezvous(plan)
    assert plan.instructions[0][0] == Action("F", 0, 0)
    with pytest.raises(OnefoldRuntimeError, match=text):
        check_rendezvous(changed(plan, 0, change))


# Bad input.


class Two(nn.Module):
    def __init__(self, first=(0,), second=(1,)):
        super().__init__()
        self.where = [flow.placement("cpu", list(first)), flow.placement("cpu", list(second))]
        self.a = nn.Linear(2, 2, placement=self.where[0], sbp=B)
        self.b = nn.Linear(2, 2, placement=self.where[1], sbp=B)

    def forward(self, x):
        return self.b(self.a(x).to_global(self.where[1], B))


B = flow.sbp.broadcast


class Forward(nn.Graph):
    def __init__(self, model, build=None):
        super().__init__()
        self.model = model
        self.other = build

    def build(self, x):
        return self.model(x) if self.other is None else self.other(self.model, x)


def view(module):
    return module.to(nn.graph.GraphModule)


def fails(model, error, text, build=None, x=None):
    if x is None:
        x = flow.ones(4, 2, placement=model.where[0], sbp=B)
    graph = Forward(model, build)
    with pytest.raises(error, match=text):
        graph(x)
    assert not graph.is_compiled


def test_a_stage_is_where_its_parameters_are(world):
    model, given = Two(), Two()
    given.load_state_dict(model.state_dict())
    x = flow.ones(4, 2, placement=model.where[0], sbp=B)
    for each, where in ((model, (None, None)), (given, given.where)):
        view(each.a).set_stage(0, where[0])
        view(each.b).set_stage(1, where[1])
    assert view(model.b).stage_placement is model.where[1]
    found, wanted = Forward(model)(x), Forward(given)(x)
    assert found.meta is wanted.meta
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def test_a_stage_without_placement(world):
    model = Two()
    model.b = flow.nn.ReLU()  # without parameters, whose placement it would be
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(1)
    fails(
        model,
        OnefoldRuntimeError,
        r"stage 1 has no placement: model\.b \(stage 1, set at .*test_stages\.py:\d+",
    )


def test_a_stage_that_no_module_is_on(world):
    model = Two()
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(2, model.where[1])
    fails(model, OnefoldRuntimeError, r"no module is on stage 1, but model\.b .* 0, 1, 2")


def test_stages_that_go_backward(world):
    model = Two()
    view(model.a).set_stage(1, model.where[0])
    view(model.b).set_stage(0, model.where[1])
    fails(
        model,
        OnefoldRuntimeError,
        r"model\.b is on stage 0 but reads, at .*test_stages\.py:\d+ in forward, what .*stage 1",
    )


def test_a_value_that_the_graph_keeps_on_an_earlier_stage(world):
    model = Two()
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(1, model.where[1])
    model.register_buffer("seen", flow.zeros((), placement=model.where[0], sbp=B))

    def build(m, x):
        y = m(x)
        m.seen.copy_(y.sum().to_global(m.seen.placement, B))
        return y

    fails(model, OnefoldRuntimeError, r"boxing of build\(\), at .*, moves .* stage 1.*\[0\]", build)


def test_a_stage_that_build_never_reaches(world):
    model = Two()
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(1, model.where[1])
    fails(model, OnefoldRuntimeError, "stage 1: build.. never calls", build=lambda m, x: m.a(x))


def test_parameters_on_other_ranks_than_their_stage(world):
    model = Two()
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(1, flow.placement("cpu", [3]))
    fails(
        model,
        PlacementError,
        r"model\.b\.weight.* is on ranks \[1\], but model\.b is on stage 1 with ranks \[3\]",
    )


def test_overlapping_stages(world):
    model = Two((0, 1), (1, 2))
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(1, model.where[1])
    fails(model, OnefoldRuntimeError, r"model\.a .* ranks \[0, 1\] and model\.b .* \[1, 2\]")


def test_two_placements_for_one_stage(world):
    model = Two()
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(0, model.where[1])
    fails(model, OnefoldRuntimeError, r"stage 0 was put on ranks \[0\] by model\.a .* \[1\]")


def test_local_tensors_between_stages(world):
    model = Two()
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(1, model.where[1])
    fails(
        model,
        OnefoldRuntimeError,
        r"ones in build\(\), at .*test_stages\.py:\d+ in <lambda>, works on a local tensor",
        build=lambda m, x: (m(x), flow.tanh(flow.ones(2))),
    )


def test_steps_on_ranks_of_no_stage(world):
    model = Two()
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(1, model.where[1])
    elsewhere = flow.placement("cpu", [5])
    fails(
        model,
        OnefoldRuntimeError,
        r"tanh of build\(\), at .*, runs on ranks \[5\].*stage 1, whose ranks are \[1\]",
        build=lambda m, x: flow.tanh(m(x).to_global(elsewhere, B)),
    )


@pytest.mark.parametrize(
    ("name", "text"), [("zb-v", "zb-v needs 2 stages"), ("interleaved", None), ("1f1b", None)]
)
def test_schedules_that_do_not_fit(world, name, text):
    model = Two()
    view(model.a).set_stage(0, model.where[0])
    view(model.b).set_stage(1, model.where[1])
    graph = Forward(model)
    graph.config.set_schedule(name)
    x = flow.ones(4, 2, placement=model.where[0], sbp=B)
    if text is None:
        np.testing.assert_array_equal(graph(x).numpy(), model(x).numpy())
        return
    with pytest.raises(OnefoldValueError, match=text):
        graph(x)


class Evaluate(nn.Graph):
    def __init__(self, model, micro_batches):
        super().__init__()
        self.model = model
        self.config.set_gradient_accumulation_steps(micro_batches)

    def build(self, x):
        return self.model(x)


@pytest.mark.parametrize("schedule", ["zb-v", None])
def test_evaluating_a_model_that_is_laid_out_for_zb_v(world, schedule):
    """Stages 0 and 3 on one rank, 1 and 2 on the other: no graph has to be told."""
    spec = pipelines.Spec(((0,), (1,), (1,), (0,)), (0,) * 4)
    flow.manual_seed(7)
    model = pipelines.Model(spec, staged=True)
    train = pipelines.Train(model, 2, schedule)
    x, y = pipelines.data(model, 4)
    train(x, y)
    model.eval()
    evaluate = Evaluate(model, 2)
    eager = np.concatenate([model(piece).numpy() for piece in x.chunk(2)])
    np.testing.assert_array_equal(evaluate(x).numpy(), eager)
    for graph in (train, evaluate):
        assert graph.schedule().startswith("zb-v")


def test_a_schedule_for_stages_that_lie_otherwise(world):
    spec = pipelines.Spec(((0,), (1,), (1,), (0,)), (0,) * 4)
    with pytest.raises(OnefoldValueError, match=r"interleaved deals the stages out .* 3 on"):
        pipelines.run(spec, "interleaved", 2)


def test_unknown_schedules():
    config = nn.graph.GraphConfig()
    with pytest.raises(OnefoldValueError, match="unknown schedule 'magic'; choose one of 'gpipe'"):
        config.set_schedule("magic")
    with pytest.raises(OnefoldValueError, match="unknown schedule 3"):
        config.set_schedule(3)
    assert config.schedule is None


def test_one_micro_batch_warns(world):
    with pytest.warns(
        flow.PipelineWarning, match=r"at pipelines\.py:\d+ .* 2 stages but one micro-"
    ):
        pipelines.run(MIXED, None, 1)


def test_nothing_is_compiled_yet(world):
    graph = pipelines.Train(pipelines.Model(MIXED, staged=True), 2, None)
    for ask in (lambda: graph.plan(0), graph.schedule):
        with pytest.raises(OnefoldRuntimeError, match="nothing is compiled yet"):
            ask()
    single = Forward(Two())
    single(flow.ones(4, 2, placement=single.model.where[0], sbp=B))
    with pytest.raises(OnefoldRuntimeError, match="the graph has no stages"):
        single.schedule()
    assert "linear(" in single.plan(1)


def test_a_batch_that_cannot_be_cut_and_other_dtypes(world):
    model = pipelines.Model(MIXED, staged=True)
    graph = pipelines.Train(model, 4, None)
    x, y = pipelines.data(model, 8)
    graph(x, y)
    before = [p.numpy() for p in model.parameters()]
    with pytest.raises(OnefoldValueError, match="cannot be cut into 4 micro-batches"):
        graph(x[:6], y[:6])
    with pytest.raises(OnefoldTypeError, match="was compiled for an input 0 of dtype"):
        graph(x.double(), y)
    for parameter, value in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(parameter.numpy(), value)


def test_questions_about_what_is_no_rank(world):
    graph, _ = pipelines.run(MIXED, None, 2)
    for rank, error in (("0", OnefoldTypeError), (True, OnefoldTypeError), (-1, OnefoldValueError)):
        with pytest.raises(error, match=r"Train\.plan: rank must be"):
            graph.plan(rank)


def test_bad_stages(world):
    module = view(Two().a)
    where = flow.placement("cpu", [0])
    for arguments, error, text in (
        ((where, 0), OnefoldTypeError, r"stage_id must be an integer.*write set_stage\(0, place"),
        ((0, "cpu"), OnefoldTypeError, "placement must be an onefold.placement, but got 'cpu'"),
        ((-1, where), OnefoldValueError, "stage_id must be at least 0, but got -1"),
        ((), OnefoldValueError, "set_stage needs a stage_id, a placement, or both"),
    ):
        with pytest.raises(error, match=text):
            module.set_stage(*arguments)
    assert module.stage_id is None
    with pytest.raises(AttributeError, match="no attribute 'activation_checkpoint'"):
        module.activation_checkpoint = True


def test_inputs_that_are_no_tensors_of_ours(world):
    graph = Forward(Two())
    for data, text in (
        (torch.ones(4, 2), r"got torch\.Tensor\. Make it a Tensor with flow\.tensor\("),
        (np.ones((4, 2)), r"got numpy\.ndarray\. Make it a Tensor with flow\.tensor\("),
        (3, r"got int\. What does not change from call to call can be an attribute"),
    ):
        with pytest.raises(OnefoldTypeError, match=text):
            graph(data)


def test_an_evaluating_graph_needs_no_schedule_of_its_own(world):
    """It shares a model whose stages lie as zb-v has them."""
    spec = pipelines.Spec(((0,), (1,), (1,), (0,)), (0,) * 4)
    flow.manual_seed(0)
    model = pipelines.Model(spec, staged=True)
    train = pipelines.Train(model, 3, "zb-v")
    train(*pipelines.data(model, 12))

    class Evaluate(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.config.set_gradient_accumulation_steps(3)

        def build(self, x, y):
            return self.model(x)

    graph = Evaluate()
    inputs = pipelines.data(model, 12)
    found = graph(*inputs)
    assert graph.schedule().startswith("zb-v")
    graph.config.set_schedule("zb-v")
    np.testing.assert_array_equal(found.numpy(), graph(*inputs).numpy())
    graph.config.set_schedule("1f1b")
    with pytest.raises(flow.OnefoldError, match="needs one stage on every rank"):
        graph(*inputs)
