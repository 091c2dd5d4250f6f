"""distributed.pipelining: programs of torch, with its numbers in processes and on one device."""

from collections import deque
from dataclasses import replace

import pytest
import torch
import torch.distributed.pipelining as theirs
from hypothesis import given, strategies as st
from launched import run_ranks
from nccl_stand_in import run_like_nccl
from stage_programs import (
    LOOPED,
    SINGLE,
    TURNED,
    both_stages,
    data,
    filled,
    joined,
    linear,
    map_read,
    on_one_device,
    part,
    read,
    rows,
    same,
    train,
)

import onefold as flow
from onefold.distributed import pipelining as ours
from onefold.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from onefold.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
    sum_reducer,
)
from onefold.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from onefold.distributed.world import world
from onefold.errors import OnefoldRuntimeError
from onefold.graph.schedules.actions import Action
from onefold.graph.schedules.named_schedules import make
from onefold.parallel.pipelining.pipeline_step import instructions, whole_backwards

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


@pytest.mark.parametrize("check", ["0", "1"])
def test_uneven_micro_batches(check):
    """12 rows in 5 micro-batches; torch has one shape for all of them."""

    def program():
        cases = [("Schedule1F1B", 1), ("ScheduleGPipe", 1), ("ScheduleInterleaved1F1B", 2)]
        return [train(flow, ours, name, world().rank, 2, 5, each) for name, each in cases]

    found = run_ranks(2, program, env={"ONEFOLD_CHECK": check})
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
    done, arrived = set(), set()

    def act(rank, action):
        source = replace(action, stage=action.stage + (-1 if action.kind == "F" else 1))
        if 0 <= source.stage < schedule.stages:
            here = schedule.rank_of[source.stage] == rank
            if not (source in done if here else (source, action.stage) in arrived):
                return False
        done.add(action)
        todo[rank].popleft()
        return True

    def move(rank, each):
        """A message waits until its other end is the next thing of the other rank."""
        assert not each.is_send or each.source in done
        peer = schedule.rank_of[each.target if each.is_send else each.source.stage]
        other = replace(each, is_send=not each.is_send)
        if not todo[peer] or todo[peer][0] != other:
            return False
        todo[rank].popleft()
        todo[peer].popleft()
        arrived.add((each.source, each.target))
        return True

    def step(rank):
        if not todo[rank]:
            return False
        each = todo[rank][0]
        return act(rank, each) if isinstance(each, Action) else move(rank, each)

    while any([step(rank) for rank in range(ranks)]):  # noqa: C419 (all take their step)
        pass
    assert not any(todo)
    assert len(done) == 2 * m * schedule.stages


# What torch has not, or has otherwise.


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
        stage.submod.float()
        for enabled in (False, True, False):
            with flow.autocast("cpu", dtype=flow.bfloat16, enabled=enabled):
                out = schedule.eval(rows(4).float()) if rank == 0 else schedule.eval()
            assert rank == 0 or out.dtype == (flow.bfloat16 if enabled else flow.float32)
        return found

    _, found = run_ranks(2, program)
    wanted = [read(linear(1)(linear(0)(rows(n)))) for n in (4, 6, 4, 3, 6, 2) for _ in range(2)]
    same(found, wanted)


def test_a_stage_that_is_frozen_and_thawed():
    def program():
        rank = world().rank
        stage = PipelineStage(linear(rank), rank, 2, "cpu")
        weight = stage.submod.weight

        def schedule():
            return Schedule1F1B(stage, 2, loss_fn=flow.nn.functional.mse_loss)

        def step(schedule):
            stage.submod.zero_grad()
            schedule.step(*((rows(4),) if rank == 0 else ()), target=rows(4).cos())
            return None if weight.grad is None else read(weight.grad)

        first = schedule()
        found = [step(first)]
        stage.submod.requires_grad_(rank == 1)
        found.append(step(first))
        second = schedule()
        found.append(step(second))
        stage.submod.requires_grad_(True)
        if rank == 0:
            with pytest.raises(OnefoldRuntimeError, match="make a new schedule on all ranks"):
                step(second)
        return found

    (trained, *frozen), others = run_ranks(2, program)
    assert trained is not None and frozen == [None, None]
    same(others, [others[0]] * 3)


@pytest.mark.usefixtures("world")
def test_how_arguments_are_cut_and_outputs_joined():
    class First(flow.nn.Module):
        def forward(self, x, table, factor=1, columns=None):
            return (x * factor + columns.T) @ table

    class Last(flow.nn.Module):
        def forward(self, x, **unused):
            return {"name": "y", "total": x.sum(), "y": x.T}

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
    found = schedule.step(x, table, columns=rows(4, 5), factor=2)  # specs are found by name
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
            flow.distributed.fsdp.fully_shard(module, mesh=copies)
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


def test_pipelines_with_shards_and_tensor_parallelism():
    """Eight ranks: two stages, each on a mesh of data-parallel and tensor-parallel ranks."""

    def model(lib, at):
        nn = lib.nn
        norm = nn.LayerNorm(16)
        return filled(
            lib, nn.Sequential(norm, nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 16)).double(), at
        )

    def batch(lib):
        x = lib.sin(lib.arange(8 * 16).double()).reshape(8, 16)
        return x, lib.cos(x)

    def program():
        names = ("pp", "dp", "tp")
        mesh = flow.distributed.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=names)
        at, half = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
        assert len({*mesh["pp"].placement.flat_ranks}) == 8
        assert mesh["dp", "tp"].placement.flat_ranks == tuple(range(4 * at, 4 * at + 4))
        plan = {"1": ColwiseParallel(), "3": RowwiseParallel()}
        module = parallelize_module(model(flow, at), mesh["tp"], plan)
        for each in (module[1], module[3], module):
            flow.distributed.fsdp.fully_shard(each, mesh=mesh["dp"])
        stage = PipelineStage(module, at, 2, "cpu", group=mesh["pp"].get_group())
        schedule = Schedule1F1B(stage, 2, loss_fn=flow.nn.functional.mse_loss)
        optimizer = flow.optim.SGD(module.parameters(), lr=0.3)
        x, y = (each[4 * half : 4 * half + 4] for each in batch(flow))
        for _ in range(3):
            optimizer.zero_grad()
            schedule.step(*((x,) if at == 0 else ()), target=y)
            optimizer.step()
        places = [str(weight.placements) for weight in module.parameters()]
        whole = (flow.distributed.tensor.Replicate(),) * 2
        weights = [weight.redistribute(placements=whole) for weight in module.parameters()]
        return places, [weight.to_local().numpy() for weight in weights]

    found = run_ranks(8, program, timeout=120)
    stages = [model(torch, at) for at in range(2)]
    optimizer = torch.optim.SGD([w for each in stages for w in each.parameters()], lr=0.3)
    x, y = batch(torch)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(stages[1](stages[0](x)), y).backward()
        optimizer.step()
    for rank, (places, weights) in enumerate(found):
        assert places[2] == "(Shard(dim=0), Shard(dim=0))"
        same(weights, [read(w) for w in stages[rank // 4].parameters()])
