"""distributed.pipelining: programs of torch, with its numbers in processes and on one device."""

from collections import deque

import numpy as np
import pytest
import torch
import torch.distributed.pipelining as theirs
from hypothesis import given, strategies as st
from launched import run_ranks
from nccl_stand_in import run_like_nccl

import onefold as flow
from onefold.distributed import pipelining as ours
from onefold.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from onefold.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
    sum_reducer,
)
from onefold.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    get_schedule_class,
)
from onefold.distributed.world import world
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.graph.schedules.actions import Action
from onefold.graph.schedules.named_schedules import make
from onefold.parallel.pipelining.pipeline_step import instructions, whole_backwards

WIDTH, BATCH = 6, 12
SINGLE = ("ScheduleGPipe", "Schedule1F1B")
LOOPED = ("ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble")
TURNED = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")


def part(lib, index, stages):
    """A stage, which takes and returns two tensors; the first takes one, the last returns one."""

    class Part(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = lib.nn.Linear(WIDTH, WIDTH)
            self.outer = lib.nn.Linear(WIDTH, WIDTH)

        def forward(self, x, skip=None, scale=1.0, shift=None):
            h = lib.tanh(self.inner(x)) * scale
            if shift is not None:
                h = h + shift
            if index == 0:
                return h, x  # the batch itself needs no gradient
            y = self.outer(h) + skip * 0.5
            return y if index == stages - 1 else (y, h)

    return filled(lib, Part().double(), index)


def filled(lib, module, index):
    with lib.no_grad():
        for number, weight in enumerate(module.parameters(), 2 * index + 1):
            places = lib.arange(weight.numel()).double()
            weight.copy_(lib.sin(places * number).reshape(weight.shape) * 0.4)
    return module


def data(lib):
    x = lib.arange(BATCH * WIDTH).double().reshape(BATCH, WIDTH)
    return lib.sin(x), lib.cos(x * 0.3), lib.sin(x * 0.7) * 0.1


def read(x):
    return x.detach().numpy().copy()


def indices(name, rank, ranks, per_rank):
    """The stages of a rank, and how many there are."""
    stages = ranks * per_rank
    if name in TURNED:
        return [rank, stages - 1 - rank], stages
    return [rank + ranks * i for i in range(per_rank)], stages


def train(lib, names, name, rank, ranks, m, per_rank=1, steps=2, kwargs=True, **options):
    """A program of torch or of onefold: outputs and losses of its steps, and gradients."""
    own, count = indices(name, rank, ranks, per_rank)
    stages = [names.PipelineStage(part(lib, i, count), i, count, lib.device("cpu")) for i in own]
    schedule = getattr(names, name)(
        stages if name not in SINGLE else stages[0],
        m,
        loss_fn=lib.nn.functional.mse_loss,
        **options,
    )
    optimizers = [lib.optim.SGD(stage.submod.parameters(), lr=0.3) for stage in stages]
    x, target, shift = data(lib)
    given = {"scale": 0.9, "shift": shift} if kwargs else {}
    found = []
    for _ in range(steps):
        losses = []
        for optimizer in optimizers:
            optimizer.zero_grad()
        args = (x,) if 0 in own else ()
        asked = {"target": target, "losses": losses} if count - 1 in own else {}
        y = schedule.step(*args, **asked, **given)
        for optimizer in optimizers:
            optimizer.step()
        found += [] if y is None else [read(y), *map(read, losses)]
    grads = {}  # read here: torch's eval divides them again
    for stage in stages:
        for path, weight in stage.submod.named_parameters():
            grads[f"{stage.stage_index}.{path}"] = read(
                lib.zeros_like(weight) if weight.grad is None else weight.grad
            )
    y = schedule.eval(*((x,) if 0 in own else ()), **asked, **given)
    found += [] if y is None else [read(y), *map(read, losses)]
    return found, grads


def on_one_device(stages, m, steps=2):
    """The same with torch and without stages."""
    model = [part(torch, i, stages) for i in range(stages)]
    optimizer = torch.optim.SGD([w for p in model for w in p.parameters()], lr=0.3)
    x, target, shift = data(torch)

    def forward():
        h = (x,)
        for each in model:
            h = each(*h, scale=0.9, shift=shift)
            h = h if isinstance(h, tuple) else (h,)
        return h[0]

    found = []
    for step in range(steps + 1):
        y = forward()
        pairs = zip(y.tensor_split(m), target.tensor_split(m), strict=True)
        losses = [torch.nn.functional.mse_loss(*pair) for pair in pairs]
        found += [read(y), *map(read, losses)]
        if step < steps:
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()
            optimizer.step()
    grads = {
        f"{i}.{path}": read(torch.zeros_like(w) if w.grad is None else w.grad)
        for i, each in enumerate(model)
        for path, w in each.named_parameters()
    }
    return found, grads


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def joined(ranks):
    """What the ranks found, as one."""
    outputs = [value for found, _ in ranks for value in found]
    grads = {name: grad for _, its in ranks for name, grad in its.items()}
    return outputs, grads


CASES = {
    2: [
        *[(name, 4, 1) for name in SINGLE],
        ("Schedule1F1B", 3, 1),
        *[(name, 4, 2) for name in (*LOOPED, *TURNED)],
        ("ScheduleInterleaved1F1B", 2, 3),
    ],
    4: [
        ("ScheduleGPipe", 6, 1),
        ("Schedule1F1B", 4, 1),
        ("ScheduleInterleaved1F1B", 4, 2),
        ("ScheduleZBVZeroBubble", 8, 2),
    ],
}


@pytest.mark.parametrize("ranks", CASES)
def test_programs_of_torch_have_the_same_numbers(ranks):
    """On torch with Gloo, here, and on one device of torch: outputs, losses and gradients."""

    def program():
        both = []
        for case in CASES[ranks]:
            for lib, names in ((torch, theirs), (flow, ours)):
                # torch's zero-bubble schedules detach outputs that backward of this loss needs.
                if lib is flow or case[0] not in (*TURNED, LOOPED[-1]):
                    both.append((case, train(lib, names, case[0], world().rank, ranks, *case[1:])))
        return both

    found = run_ranks(ranks, program, timeout=120)
    assert len(found[0]) >= len(CASES[ranks]) + 3
    for column in zip(*found, strict=True):
        _, m, per_rank = column[0][0]
        outputs, grads = joined([result for _, result in column])
        wanted, all_grads = on_one_device(ranks * per_rank, m)
        same(outputs, wanted)
        same([grads[key] for key in all_grads], all_grads.values())


def test_uneven_micro_batches():
    """12 rows in 5 micro-batches; torch has one shape for all of them."""

    def program():
        cases = [("Schedule1F1B", 1), ("ScheduleGPipe", 1), ("ScheduleInterleaved1F1B", 2)]
        return [train(flow, ours, name, world().rank, 2, 5, each) for name, each in cases]

    found = run_ranks(2, program)
    for at, stages in enumerate((2, 2, 4)):
        outputs, grads = joined([rank[at] for rank in found])
        wanted, all_grads = on_one_device(stages, 5)
        same(outputs, wanted)
        same([grads[key] for key in all_grads], all_grads.values())


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(("name", "per_rank"), [*((name, 3) for name in LOOPED), (TURNED[0], 2)])
def test_one_process_with_all_stages(name, per_rank):
    found, grads = train(flow, ours, name, 0, 1, 5, per_rank)
    wanted, all_grads = on_one_device(per_rank, 5)
    same(found, wanted)
    same([grads[key] for key in all_grads], all_grads.values())


def test_the_rules_of_nccl():
    def program():
        return [
            train(flow, ours, name, world().rank, 4, 5, each)
            for name, each in (("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2))
        ]

    found = run_like_nccl(4, program, timeout=120)
    for at, stages in enumerate((4, 8)):
        outputs, _ = joined([rank[at] for rank in found])
        same(outputs, on_one_device(stages, 5)[0])


# Plans of all ranks, without processes.


@given(
    st.sampled_from(["gpipe", "1f1b", "interleaved", "looped-bfs", "zb-v"]),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 3),
)
def test_plans_end_with_blocking_messages(name, ranks, m, per_rank):
    per_rank = {"interleaved": per_rank, "looped-bfs": per_rank, "zb-v": 2}.get(name, 1)
    schedule = whole_backwards(make(name, ranks * per_rank, m, ranks))
    todo = [deque(instructions(schedule, rank)) for rank in range(ranks)]
    done, arrived, posted = set(), set(), [deque() for _ in range(ranks)]
    moved = True
    while moved:
        moved = False
        for rank in range(ranks):
            if not todo[rank]:
                continue
            each = todo[rank][0]
            if not isinstance(each, Action):
                assert not each.is_send or each.source in done
                # Waits for its other end, which is at the head of the other rank's list.
                peer = schedule.rank_of[each.target if each.is_send else each.source.stage]
                head = todo[peer][0] if todo[peer] else None
                if isinstance(head, Action) or head is None:
                    continue
                if (head.source, head.target) != (each.source, each.target):
                    continue
                assert head.is_send is not each.is_send
                posted[rank].append(each)
                todo[rank].popleft()
                todo[peer].popleft()
                arrived.add((each.source, each.target))
                moved = True
                continue
            step = -1 if each.kind == "F" else 1
            source = Action(each.kind, each.stage + step, each.micro_batch)
            if 0 <= source.stage < schedule.stages:
                here = schedule.rank_of[source.stage] == rank
                if not (source in done if here else (source, each.stage) in arrived):
                    continue
            done.add(each)
            todo[rank].popleft()
            moved = True
    assert not any(todo)
    assert len(done) == 2 * m * schedule.stages


# What torch has not, or has otherwise.


def linear(index, size=4):
    return filled(flow, flow.nn.Linear(size, size).double(), index)


def both_stages(first, second, m=2, cls=ScheduleInterleaved1F1B, **options):
    stages = [PipelineStage(module, i, 2, "cpu") for i, module in enumerate((first, second))]
    options = {"loss_fn": flow.nn.functional.mse_loss, **options}
    return cls(stages, m, **options)


def rows(n, size=4):
    return flow.sin(flow.arange(n * size).double().reshape(n, size))


@pytest.mark.usefixtures("world")
def test_gradients_accumulate_over_steps():
    """torch divides those of earlier steps again."""
    first, second = linear(0), linear(1)
    schedule = both_stages(first, second)
    x, y = rows(4), rows(4).cos()
    schedule.step(x, target=y)
    once = first.weight.grad.clone()
    schedule.step(x, target=y)
    same([read(first.weight.grad)], [read(once * 2)])
    first.zero_grad()
    both_stages(first, second, scale_grads=False).step(x, target=y)
    same([read(first.weight.grad)], [read(once * 2)])


@pytest.mark.usefixtures("world")
def test_inputs_that_need_gradients():
    x, y = rows(6).requires_grad_(), rows(6).cos()
    first, second = linear(0), linear(1)
    both_stages(first, second, m=3).step(x, target=y)
    found, x.grad = x.grad, None
    flow.nn.functional.mse_loss(second(first(x)), y).backward()
    same([read(found)], [read(x.grad)])


def test_shapes_that_change_from_step_to_step():
    def program():
        rank = world().rank
        stage = PipelineStage(linear(rank), rank, 2, "cpu")
        schedule = Schedule1F1B(stage, 2, loss_fn=flow.nn.functional.mse_loss)
        found = []
        for n in (4, 6, 4, 3, 6, 2):
            x, y = rows(n), rows(n).cos()
            out = schedule.step(x) if rank == 0 else schedule.step(target=y)
            found += [] if out is None else [read(out)]
            out = schedule.eval(x) if rank == 0 else schedule.eval()
            found += [] if out is None else [read(out)]
        return found

    _, found = run_ranks(2, program)
    wanted = [read(linear(1)(linear(0)(rows(n)))) for n in (4, 6, 4, 3, 6, 2) for _ in range(2)]
    same(found, wanted)


@pytest.mark.usefixtures("world")
def test_how_arguments_are_cut_and_outputs_joined():
    class First(flow.nn.Module):
        def forward(self, x, table, factor=1, columns=None):
            return (x * factor + columns.T) @ table

    class Last(flow.nn.Module):
        def forward(self, x, **unused):
            return {"y": x.T, "total": x.sum(), "name": "y"}

    schedule = both_stages(
        First(),
        Last(),
        loss_fn=None,
        args_chunk_spec=(TensorChunkSpec(0), ours.microbatch._Replicate),
        kwargs_chunk_spec={
            "factor": ours.microbatch._Replicate(),
            "columns": TensorChunkSpec(1),
        },
        output_merge_spec={"y": TensorChunkSpec(1), "total": sum_reducer, "name": None},
    )
    x, table = rows(5), rows(4)
    found = schedule.step(x, table, factor=2, columns=rows(4, 5))
    wanted = (x * 2 + rows(4, 5).T) @ table
    same([read(found["y"]), read(found["total"])], [read(wanted.T), read(wanted.sum())])
    assert found["name"] == "y"
    assert schedule.step(x, table, factor=2, columns=rows(4, 5), return_outputs=False) is None


def test_chunks_are_those_of_torch():
    args = (torch.arange(10).reshape(5, 2), [torch.arange(6), 3])
    found, _ = split_args_kwargs_into_chunks(
        (flow.from_torch(args[0]), [flow.from_torch(args[1][0]), 3]), {}, 4
    )
    wanted, _ = theirs.microbatch.split_args_kwargs_into_chunks(args, {}, 4)
    for one, other in zip(found, wanted, strict=True):
        assert one[0].tolist() == other[0].tolist()
        assert (one[1][0].tolist(), one[1][1]) == (other[1][0].tolist(), other[1][1])
    assert merge_chunks([x for x, _ in found], None).tolist() == args[0].tolist()
    assert TensorChunkSpec.from_tuple((0, (1, 2)))[1][1].split_dim == 2


@pytest.mark.usefixtures("world")
def test_keywords_of_the_loss():
    def loss(output, target, weight=1.0):
        return ((output - target) ** 2).mean() * weight

    first, second = linear(0), linear(1)
    schedule = both_stages(first, second, loss_fn=loss)
    losses = [1, 2, 3]
    schedule.step(rows(4), target=rows(4).cos(), losses=losses, loss_kwargs={"weight": 3.0})
    once = []
    both_stages(first, second).eval(rows(4), target=rows(4).cos(), losses=once)
    same(map_read(losses), map_read([3 * x for x in once]))


def map_read(tensors):
    return [read(x) for x in tensors]


def test_frozen_stages_and_ones_that_pass_on_what_they_get():
    class Through(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear(1)

        def forward(self, x, kept):
            return self.layer(x.detach()) + x, kept, flow.arange(3)

    class Begin(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear(0)

        def forward(self, x):
            return self.layer(x), self.layer(x) * 2

    class End(flow.nn.Module):
        def forward(self, x, kept, numbers):
            return x + kept * numbers.sum()

    def stages():
        return Begin(), Through(), End()

    def program():
        rank = world().rank
        stage = PipelineStage(
            stages()[rank], rank, 3, "cpu", group=flow.distributed.new_group([0, 1, 2])
        )
        schedule = ScheduleGPipe(stage, 2, loss_fn=flow.nn.functional.mse_loss)
        for _ in range(2):
            for weight in stage.submod.parameters():
                weight.grad = None
            schedule.step(*((rows(4),) if rank == 0 else ()), target=rows(4).cos())
        return [read(weight.grad) for weight in stage.submod.parameters()]

    found = [grad for rank in run_ranks(3, program) for grad in rank]
    model = stages()
    h = (rows(4),)
    for each in model:
        h = each(*h)
        h = h if isinstance(h, tuple) else (h,)
    flow.nn.functional.mse_loss(h[0], rows(4).cos()).backward()
    same(found, [read(w.grad) for each in model for w in each.parameters()])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_each_stage_on_two_ranks(kind):
    """Pipelines beside each other, whose stages are data parallel."""

    def program():
        mesh = flow.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
        pipe, copies = mesh["pp"], mesh["dp"]
        at = pipe.get_local_rank()
        module = part(flow, at, 2)
        if kind == "ddp":
            module = flow.nn.parallel.DistributedDataParallel(
                module, process_group=copies.get_group()
            )
        else:
            own = flow.distributed.DeviceMesh("cpu", copies.mesh)
            flow.distributed.fsdp.fully_shard(module, mesh=own)
        stage = PipelineStage(module, at, 2, "cpu", group=pipe.get_group())
        schedule = Schedule1F1B(stage, 3, loss_fn=flow.nn.functional.mse_loss)
        optimizer = flow.optim.SGD(module.parameters(), lr=0.3)
        half = slice(0, 6) if copies.get_local_rank() == 0 else slice(6, 12)
        x, target, shift = (each[half] for each in data(flow))
        for _ in range(3):
            optimizer.zero_grad()
            schedule.step(*((x,) if at == 0 else ()), target=target, scale=0.9, shift=shift)
            optimizer.step()
        whole = (flow.distributed.tensor.Replicate(),)
        weights = [weight.redistribute(placements=whole) for weight in module.parameters()]
        return [weight.to_local().numpy() for weight in weights]

    found = run_ranks(4, program, timeout=120)
    model = [part(torch, i, 2) for i in range(2)]
    optimizer = torch.optim.SGD([w for p in model for w in p.parameters()], lr=0.3)
    x, target, shift = data(torch)
    for _ in range(3):
        optimizer.zero_grad()
        h = model[0](x, scale=0.9, shift=shift)
        y = model[1](*h, scale=0.9, shift=shift)
        torch.nn.functional.mse_loss(y, target).backward()
        optimizer.step()
    for rank, weights in enumerate(found):
        same(weights, [read(w) for w in model[rank % 2].parameters()])


# What is refused.


def layer():
    return flow.nn.Linear(4, 4)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("make_it", "error", "text"),
    [
        (lambda: PipelineStage(abs, 0, 2, "cpu"), OnefoldTypeError, "needs an onefold Module"),
        (
            lambda: PipelineStage(layer(), 2, 2, "cpu"),
            OnefoldValueError,
            "must be 0 to 1, but is 2",
        ),
        (
            lambda: PipelineStage(layer(), 0, 2, "cpu", dw_builder=abs),
            OnefoldTypeError,
            "takes no dw_builder: leave it out",
        ),
        (
            lambda: Schedule1F1B(PipelineStage(layer(), 0, 2, "cpu"), 4),
            OnefoldRuntimeError,
            "2 stages need as many processes.*--nproc_per_node 2.*ScheduleInterleaved1F1B",
        ),
        (
            lambda: ScheduleInterleaved1F1B([PipelineStage(layer(), 0, 2, "cpu")], 4),
            OnefoldValueError,
            r"rank 0 of the pipeline's 1 has the stages \[0, 1\], but got \[0\]",
        ),
        (lambda: Schedule1F1B(layer(), 4), OnefoldTypeError, "takes PipelineStage objects"),
        (
            lambda: Schedule1F1B(PipelineStage(layer(), 0, 1, "cpu"), 0),
            OnefoldValueError,
            "n_microbatches must be at least 1",
        ),
        (
            lambda: PipelineScheduleSingle(PipelineStage(layer(), 0, 1, "cpu"), 1),
            OnefoldTypeError,
            "has no order: use Schedule1F1B",
        ),
        (
            lambda: both_stages(layer(), layer(), cls=ours.ScheduleZBVZeroBubble).step(rows(4)),
            OnefoldValueError,
            "needs target= on the rank of the last stage",
        ),
        (
            lambda: both_stages(layer(), layer(), m=3).step(rows(2), target=rows(2)),
            OnefoldValueError,
            "cannot be cut into 3 micro-batches along dim 0, whose size is 2: pass a larger",
        ),
        (
            lambda: both_stages(layer(), layer(), args_chunk_spec=()).step(rows(2), target=rows(2)),
            OnefoldValueError,
            "args_chunk_spec has 0 specs, but args 1 values",
        ),
        (
            lambda: both_stages(layer(), layer()).step(flow.ones(()), target=rows(2)),
            OnefoldValueError,
            r"of shape \(\) has no dim 0 along which to cut it",
        ),
        (lambda: get_schedule_class("best"), OnefoldValueError, "choose one of 1F1B, DualPipeV"),
    ],
)
def test_what_is_refused(make_it, error, text):
    with pytest.raises(error, match=text):
        make_it()


@pytest.mark.usefixtures("world")
def test_steps_without_gradients():
    schedule = both_stages(linear(0), linear(1))
    with flow.no_grad():
        with pytest.raises(OnefoldRuntimeError, match="which no_grad disables: call eval"):
            schedule.step(rows(4), target=rows(4))
        assert not schedule.eval(rows(4)).requires_grad
    assert str(schedule).startswith("interleaved: 2 stages on 1 ranks, 2 micro-batches")
    assert get_schedule_class("Interleaved1f1b") is ScheduleInterleaved1F1B
    assert issubclass(ScheduleInterleaved1F1B, PipelineScheduleMulti)


class Returns(flow.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return self.value


def raised_on(ranks, program):
    """The errors of the ranks, which go on without the others."""

    def caught():
        try:
            program(world().rank)
        except Exception as error:  # noqa: BLE001 (any is looked at)
            return "\n".join([str(error), *getattr(error, "__notes__", ())])
        return ""

    return run_ranks(ranks, caught)


@pytest.mark.parametrize(
    ("first", "second", "options", "texts"),
    [
        (
            lambda: Returns((1, 2)),
            layer,
            {},
            ["stage 0 returned int, but what a stage returns is sent to the next one: return a"],
        ),
        (
            lambda: Returns((rows(2), rows(2))),
            lambda: linear(1),
            {},
            [
                None,
                "in stage 1 of 2, micro-batch 0, which was given float64 (2, 4), float64 (2, 4) by "
                "stage 0; a stage must take what the one before it returns",
            ],
        ),
        (
            lambda: linear(0),
            lambda: linear(1),
            {"output_args": flow.ones(3, 4).double()},
            [
                "stage 0: output_args of PipelineStage are float64 (3, 4), but a micro-batch has "
                "float64 (2, 4): give examples of one micro-batch, or leave output_args out"
            ],
        ),
        (
            lambda: linear(0),
            lambda: linear(1, 6),
            {},
            [None, "micro-batch 0, which was given float64 (2, 4) by stage 0"],
        ),
    ],
)
def test_what_does_not_fit_between_stages(first, second, options, texts):
    def program(rank):
        stage = PipelineStage((first, second)[rank](), rank, 2, "cpu", **options)
        schedule = ScheduleGPipe(stage, 2, loss_fn=flow.nn.functional.mse_loss)
        schedule.step(*((rows(4),) if rank == 0 else ()), target=rows(4))

    for text, found in zip(texts, raised_on(2, program), strict=False):
        assert text is None or text in found


@pytest.mark.parametrize(
    ("of_second", "text"),
    [
        ({"loss_fn": None}, "rank 0 has has_backward=True, but this rank False"),
        ({"n_microbatches": 3}, "rank 0 has n_microbatches=2, but this rank 3"),
        ({"cls": ScheduleGPipe}, "rank 0 has schedule=Schedule1F1B, but this rank ScheduleGPipe"),
    ],
)
def test_ranks_with_other_schedules(of_second, text):
    def program(rank):
        own = {"n_microbatches": 2, "loss_fn": flow.nn.functional.mse_loss, "cls": Schedule1F1B}
        own |= of_second if rank else {}
        schedule = own.pop("cls")(PipelineStage(linear(rank), rank, 2, "cpu"), **own)
        schedule.step(*((rows(6),) if rank == 0 else ()), target=rows(6))

    assert text in raised_on(2, program)[1]


def test_outputs_whose_shape_depends_on_values():
    class Positive(flow.nn.Module):
        def forward(self, x):
            return x[x[:, 0] > 0]

    def program(rank):
        stage = PipelineStage(Positive() if rank == 0 else layer(), rank, 2, "cpu")
        schedule = Schedule1F1B(stage, 1)
        for x in (rows(4), -rows(4)[1:3], rows(4) * -1):
            schedule.step(*((x.float(),) if rank == 0 else ()))

    assert "Pad what depends on values" in raised_on(2, program)[0]


def test_parameters_on_ranks_of_other_stages():
    def program(rank):
        mesh = flow.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
        module = flow.distributed.fsdp.fully_shard(layer(), mesh=mesh["dp"])
        Schedule1F1B(PipelineStage(module, rank % 2, 2, "cpu", group=mesh["pp"].get_group()), 2)

    for rank, found in enumerate(raised_on(4, program)):
        assert f"but [{rank ^ 1}] have other stages" in found
        assert "mesh=DeviceMesh('cuda', mesh['dp'].mesh)" in found


def test_a_hanging_stage_is_named():
    def program(rank):
        stage = PipelineStage(linear(rank), rank, 2, "cpu")
        schedule = Schedule1F1B(stage, 1)
        if rank == 1:
            schedule.step()

    def caught():
        try:
            program(world().rank)
        except Exception as error:  # noqa: BLE001 (any is looked at)
            return str(error)
        world().disconnect()
        return ""

    found = run_ranks(2, caught, timeout=20, env={"ONEFOLD_TIMEOUT": "2"})
    assert "rank 0" in found[1] and "test_pipelining.py" in found[1]


# Models that are cut.


def gpt(lib, dropout=0.0):
    """A model as a program for one device writes it: ops and positions between its modules."""
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.up = nn.Linear(WIDTH, 2 * WIDTH)
            self.down = nn.Linear(2 * WIDTH, WIDTH)
            self.drop = nn.Dropout(dropout)

        def forward(self, x, scale):
            return x + self.drop(self.down(lib.nn.functional.gelu(self.up(self.norm(x)))) * scale)

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(10, WIDTH)
            self.places = nn.Embedding(8, WIDTH)
            self.layers = nn.ModuleDict({str(i): Block() for i in range(4)})
            self.gain = nn.Parameter(lib.ones(WIDTH))
            self.register_buffer("shift", lib.full((1,), 0.1))
            self.head = nn.Linear(WIDTH, 10)

        def forward(self, words, scale=1.0):
            batch, length = words.shape
            x = self.words(words) + self.places(lib.arange(length))
            first = x
            for block in self.layers.values():
                x = block(x, scale)
            x = (x * self.gain + first).view(batch, length, WIDTH)
            return self.head(x + self.shift)

    return filled(lib, GPT().double(), 0)


WORDS = [[(i * 3 + j) % 10 for j in range(5)] for i in range(8)]
CUTS = {"layers.1": "BEGINNING", "layers.2": "END", "head": "BEGINNING"}


def loss_of(lib):
    return lambda y, words: lib.nn.functional.cross_entropy(y.flatten(0, 1), words.flatten())


def cut(lib, names, model, rows=2, cuts=CUTS, **kwargs):
    spec = {path: getattr(names.SplitPoint, point) for path, point in cuts.items()}
    example = lib.tensor(WORDS[:rows])
    return names.pipeline(model, (example,), mb_kwargs=kwargs, split_spec=spec)


def cut_and_train(lib, names, steps=2):
    """A program of torch or of onefold on four ranks, as `train`."""
    rank = world().rank
    pipe = cut(lib, names, gpt(lib), scale=0.5)
    stage = pipe.build_stage(rank, lib.device("cpu"))
    schedule = names.Schedule1F1B(stage, 4, loss_fn=loss_of(lib))
    optimizer = lib.optim.SGD(stage.submod.parameters(), lr=0.3)
    found, words = [], lib.tensor(WORDS)
    for _ in range(steps):
        losses = []
        optimizer.zero_grad()
        asked = {"target": words, "losses": losses} if rank == 3 else {}
        y = schedule.step(
            *((words,) if rank == 0 else ()), **asked, **({"scale": 0.5} if rank == 0 else {})
        )
        optimizer.step()
        found += [] if y is None else [read(y), *map(read, losses)]
    return found, {name: read(w.grad) for name, w in stage.submod.named_parameters()}


def test_a_model_is_cut_as_by_torch():
    def program():
        return [cut_and_train(flow, ours)]

    found = run_ranks(4, program, timeout=120)
    model = gpt(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    wanted, words = [], torch.tensor(WORDS)
    for _ in range(2):
        y = model(words, scale=0.5)
        losses = [loss_of(torch)(*pair) for pair in zip(y.chunk(4), words.chunk(4), strict=True)]
        wanted += [read(y), *map(read, losses)]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    outputs, grads = joined([rank[0] for rank in found])
    same(outputs, wanted)
    assert grads.keys() == dict(model.named_parameters()).keys()
    same(
        [grads[name] for name, _ in model.named_parameters()],
        [read(w.grad) for w in model.parameters()],
    )


@pytest.mark.usefixtures("world")
def test_the_parts_of_a_model():
    model = gpt(flow)
    pipe = cut(flow, ours, model)
    assert pipe.num_stages == pipe.info().num_stages == 4
    same([read(pipe(flow.tensor(WORDS[:2])))], [read(model(flow.tensor(WORDS[:2])))])
    states = [set(pipe.get_stage_module(i).state_dict()) for i in range(4)]
    assert set.union(*states) == set(model.state_dict())
    assert sum(map(len, states)) == len(model.state_dict())
    assert "gain" in states[2] and "shift" in states[2]
    peers = cut(torch, theirs, gpt(torch))
    for index in range(4):
        names = {name for name, _ in pipe.get_stage_module(index).named_parameters()}
        assert names == {name for name, _ in peers.get_stage_module(index).named_parameters()}
    assert "arange" in str(pipe) and str(pipe).count("gives") == 4
    stage = ours.build_stage(pipe.get_stage_module(3), 3, pipe.info(), "cpu")
    assert (stage.is_last, stage.num_stages) == (True, 4)


@pytest.mark.usefixtures("world")
def test_modes_buffers_and_random_numbers_of_a_cut_model():
    model = flow.nn.Sequential(flow.nn.BatchNorm1d(4), flow.nn.Dropout(0.5), flow.nn.Linear(4, 4))
    x = rows(8).float()
    flow.manual_seed(0)
    pipe = ours.pipeline(model, (x,), split_spec={"1": ours.SplitPoint.END})
    assert model[0].num_batches_tracked.item() == 0
    one = pipe(x)
    flow.manual_seed(0)
    assert flow.equal(one, model(x))  # no number was drawn when it was cut
    assert not flow.equal(one, pipe(x))
    assert model[0].num_batches_tracked.item() == 3
    pipe.eval()
    assert flow.equal(pipe(x), pipe(x))


@pytest.mark.usefixtures("world")
def test_pipe_split_in_a_forward():
    class Two(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = layer(), layer()

        def forward(self, x):
            y = self.one(x)
            ours.pipe_split()
            return {"y": self.two(y), "x": x}

    model = Two()
    pipe = ours.pipeline(model, (rows(2).float(),))
    x = rows(2).float()
    assert pipe.num_stages == 2 and flow.equal(pipe(x)["y"], model(x)["y"])
    assert pipe(x)["x"] is x


def between(function):
    """A model that calls a function between two modules."""

    class Between(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = layer(), layer()

        def forward(self, x):
            return self.two(function(self.one(x)))

    return Between()


BEFORE_TWO = {"two": ours.SplitPoint.BEGINNING}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("make_it", "error", "text"),
    [
        (lambda: ours.pipeline(abs, ()), OnefoldTypeError, "needs an onefold Module"),
        (
            lambda: ours.pipeline(layer(), (flow.ones(2, 4),), split_policy=abs),
            OnefoldTypeError,
            "takes no split_policy.*give split_spec the names",
        ),
        (
            lambda: ours.pipeline(between(abs), (), split_spec={"three": ours.SplitPoint.END}),
            OnefoldValueError,
            "names 'three', which is no submodule of Between; it has one, two",
        ),
        (
            lambda: ours.pipeline(between(abs), (), split_spec={"two": "end"}),
            OnefoldValueError,
            "it takes SplitPoint.BEGINNING and SplitPoint.END",
        ),
        (
            lambda: ours.pipeline(
                between(lambda x: x.add_(1)), (flow.ones(2, 4),), split_spec=BEFORE_TWO
            ),
            OnefoldRuntimeError,
            "changed in place between modules, at test_pipelining.py:.*write x = x",
        ),
        (
            lambda: ours.pipeline(
                between(lambda x: flow.nn.functional.dropout(x, 0.5)),
                (flow.ones(2, 4),),
                split_spec=BEFORE_TWO,
            ),
            OnefoldRuntimeError,
            "random numbers are drawn between modules, at test_pipelining.py:",
        ),
        (
            lambda: ours.pipeline(between(lambda x: x), (flow.ones(2, 4),), split_spec=BEFORE_TWO)(
                flow.ones(3, 4)
            ),
            OnefoldValueError,
            r"stage 0 was given float32 \(3, 4\), but pipeline\(\) traced the model with float32",
        ),
        (
            lambda: ours.pipeline(between(abs), (flow.ones(2, 4),)).get_stage_module(1),
            OnefoldValueError,
            "stage_idx must be 0 to 0, but is 1",
        ),
    ],
)
def test_what_cannot_be_cut(make_it, error, text):
    with pytest.raises(error, match=text):
        make_it()


@pytest.mark.usefixtures("world")
def test_shared_parameters_of_a_cut_model():
    model = between(abs)
    model.two.weight = model.one.weight
    with pytest.warns(UserWarning, match=r"one.weight is a parameter of the stages \[0, 1\]"):
        ours.pipeline(model, (flow.ones(2, 4),), split_spec=BEFORE_TWO)
