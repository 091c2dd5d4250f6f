"""distributed.pipelining: what is refused, and what ranks are told that do not fit together."""

import pytest
from launched import run_ranks
from stage_programs import both_stages, layer, linear, rows

import onefold as flow
from onefold.distributed import pipelining as ours
from onefold.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from onefold.distributed.pipelining.microbatch import TensorChunkSpec
from onefold.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    get_schedule_class,
)
from onefold.distributed.world import world
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError


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
            lambda: both_stages(
                layer(), layer(), kwargs_chunk_spec={"mask": TensorChunkSpec(0)}
            ).step(rows(2).float(), target=rows(2), bias=rows(2)),
            OnefoldValueError,
            "kwargs_chunk_spec has specs for 'mask', but the values are 'bias'",
        ),
        (
            lambda: both_stages(layer(), layer(), loss_fn=lambda y, target: y - target).step(
                rows(2).float(), target=rows(2)
            ),
            OnefoldTypeError,
            r"loss_fn must return a tensor of one element, but returned float64 \(1, 4\)",
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
        mesh = flow.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "stages"))
        module = flow.distributed.fsdp.fully_shard(layer(), mesh=mesh["dp"])
        Schedule1F1B(PipelineStage(module, rank % 2, 2, "cpu", group=mesh["stages"].get_group()), 2)

    for rank, found in enumerate(raised_on(4, program)):
        assert f"but [{rank ^ 1}] have other stages" in found
        assert "name the axis of the stages 'pp'" in found


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
    assert (
        "rank 0" in found[1]
        and "pipeline stage" in found[1]
        and "test_pipelining_errors.py" in found[1]
    )
