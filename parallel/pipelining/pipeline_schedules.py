"""Schedules of pipelines under torch's names: in which order stages run their micro-batches.

The orders are those of `graph/schedules/`, as in an `nn.Graph` with stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ...distributed.world import world
from ...engine import interpreter
from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ...graph.schedules.named_schedules import make
from ...graph.setting_checks import integer
from ...graph.stages.stage_plan import forward_only
from .chunk_specs import merge_chunks, split_args_kwargs_into_chunks, split_tree
from .pipeline_stage import PipelineStage
from .pipeline_step import Memory, PipelineStep, StepInputs, instructions, whole_backwards

__all__ = [
    "PipelineScheduleMulti",
    "PipelineScheduleSingle",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "get_schedule_class",
]


class _PipelineSchedule:
    """Runs the stages of this rank; all ranks of the pipeline make it, and call it together."""

    order: ClassVar[str | None] = None  # in the table of `graph/schedules/named_schedules.py`

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None,
        args_chunk_spec: tuple[Any, ...] | None,
        kwargs_chunk_spec: dict[str, Any] | None,
        output_merge_spec: Any,
        scale_grads: bool,
    ) -> None:
        name = type(self).__name__
        if self.order is None:
            raise OnefoldTypeError(f"{name} has no order: use Schedule1F1B, or another of its kind")
        if not stages or not all(isinstance(stage, PipelineStage) for stage in stages):
            raise OnefoldTypeError(f"{name} takes PipelineStage objects, but got {stages!r}")
        integer(f"{name}: n_microbatches", n_microbatches, least=1)
        if loss_fn is not None and not callable(loss_fn):
            raise OnefoldTypeError(f"{name}: loss_fn must be a function, but is {loss_fn!r}")
        self.scale_grads = scale_grads
        self._n_microbatches = n_microbatches
        self._loss_fn = loss_fn
        self._has_backward = loss_fn is not None
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self._by_index = {stage.stage_index: stage for stage in stages}
        first = stages[0]
        _check_ranks(name, first, self.order)
        schedule = make(self.order, first.num_stages, n_microbatches, first.group_size)
        _check_stages(name, stages, schedule.rank_of)
        for stage in stages:
            stage.check_placements()
        whole = whole_backwards(schedule)
        rank = first.group_rank
        self._plans = {
            each: (chosen, instructions(chosen, rank))
            for each, chosen in ((True, whole), (False, forward_only(whole)))
        }
        self._memory = Memory()

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run all micro-batches of a batch, backward too if there is a `loss_fn`.

        The rank of the first stage gives `args`, that of the last stage `target`; `kwargs` go to
        the stages of the rank that gives them. The last stage's rank gets the outputs, unless
        `return_outputs` is False, and the micro-batches' losses in the list `losses`. Gradients
        are added to `.grad`: of the losses' mean, or of their sum with `scale_grads=False`. Raises
        OnefoldRuntimeError where gradients are disabled, OnefoldValueError for what cannot be cut
        into micro-batches, or a missing `target`.
        """
        name = type(self).__name__
        if self._has_backward and not interpreter.is_grad_enabled():
            raise OnefoldRuntimeError(
                f"{name}.step() computes gradients, which no_grad disables: call eval() there"
            )
        last = any(stage.is_last for stage in self._by_index.values())
        if last and self._has_backward and target is None:
            raise OnefoldValueError(
                f"{name}.step() needs target= on the rank of the last stage, for loss_fn"
            )
        if losses is not None and not isinstance(losses, list):
            raise OnefoldTypeError(f"losses must be a list, but got {type(losses).__name__}")
        schedule, todo = self._plans[self._has_backward]
        for stage in self._by_index.values():
            stage.has_backward = self._has_backward
        inputs = self._inputs(args, kwargs, target if last else None, loss_kwargs, return_outputs)
        run = PipelineStep(schedule, name, self._by_index, inputs, self._memory, self._has_backward)
        run.run(todo)
        if losses is not None and last:
            losses[:] = run.losses
        if last and return_outputs:
            return merge_chunks(run.outputs, self._output_merge_spec)
        return None

    def eval(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """As `step`, without backward; the losses are computed if there is a `target`."""
        before, self._has_backward = self._has_backward, False
        try:
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _inputs(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        loss_kwargs: Mapping[str, Any] | None,
        keeps_outputs: bool,
    ) -> StepInputs:
        """What a step is given, cut into micro-batches; only the first stage takes `args`."""
        count = self._n_microbatches
        here = 0 in self._by_index
        of_args, of_kwargs = split_args_kwargs_into_chunks(
            args if here else (),
            kwargs,
            count,
            self._args_chunk_spec if here else None,
            self._kwargs_chunk_spec if kwargs else None,
        )
        targets = None if target is None else split_tree(target, None, count, "target", "target")
        scale = 1.0 / count if self.scale_grads else 1.0
        return StepInputs(
            of_args, of_kwargs, targets, self._loss_fn, loss_kwargs or {}, scale, keeps_outputs
        )

    def __str__(self) -> str:
        return str(self._plans[True][0])


def _check_ranks(name: str, stage: PipelineStage, order: str) -> None:
    if stage.group_rank < 0:
        raise OnefoldValueError(
            f"{name}: this is rank {world().rank}, but the stages are on the ranks "
            f"{list(stage.ranks)}: make them on those ranks only, or with another group="
        )
    if not world().launched and order in ("1f1b", "gpipe") and stage.num_stages > 1:
        raise OnefoldRuntimeError(
            f"{name}: {stage.num_stages} stages need as many processes, but this program was not "
            f"launched: start it with torchrun --nproc_per_node {stage.num_stages}, or `python -m "
            f"onefold.distributed.launch --nproc_per_node {stage.num_stages}`; or make all stages "
            "in this process and pass their list to ScheduleInterleaved1F1B"
        )


def _check_stages(name: str, stages: Sequence[PipelineStage], rank_of: Sequence[int]) -> None:
    """Raise OnefoldValueError unless these are the stages of this rank, of one pipeline."""
    first = stages[0]
    if any((each.num_stages, each.ranks) != (first.num_stages, first.ranks) for each in stages):
        raise OnefoldValueError(
            f"{name}: stages must have one num_stages and one group, but are {list(stages)}"
        )
    rank = first.group_rank
    wanted = [stage for stage, its in enumerate(rank_of) if its == rank]
    found = sorted(stage.stage_index for stage in stages)
    if found != wanted:
        raise OnefoldValueError(
            f"{name}: rank {rank} of the pipeline's {first.group_size} has the stages {wanted}, "
            f"but got {found}: make PipelineStage objects with these indices"
        )


class PipelineScheduleSingle(_PipelineSchedule):
    """A schedule of one stage per rank."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: tuple[Any, ...] | None = None,
        kwargs_chunk_spec: dict[str, Any] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        self._stage = stage
        super().__init__(
            [stage],
            n_microbatches,
            loss_fn,
            args_chunk_spec,
            kwargs_chunk_spec,
            output_merge_spec,
            scale_grads,
        )


class PipelineScheduleMulti(_PipelineSchedule):
    """A schedule of several stages per rank; the arguments after `scale_grads` change nothing."""

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: tuple[Any, ...] | None = None,
        kwargs_chunk_spec: dict[str, Any] | None = None,
        output_merge_spec: Any = None,
        use_full_backward: bool | None = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        self._stages = stages
        super().__init__(
            stages,
            n_microbatches,
            loss_fn,
            args_chunk_spec,
            kwargs_chunk_spec,
            output_merge_spec,
            scale_grads,
        )


class ScheduleGPipe(PipelineScheduleSingle):
    """All forwards, then all backwards (Huang et al., 2019)."""

    order = "gpipe"


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward, as soon as there are gradients (Narayanan et al., 2019)."""

    order = "1f1b"


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B of several stages per rank, which go round the ranks (Narayanan et al., 2021).

    One process may also have all stages. Any number of micro-batches will do.

    >>> import onefold as flow
    >>> stages = [PipelineStage(flow.nn.Linear(2, 2), i, 4, "cpu") for i in range(4)]
    >>> schedule = ScheduleInterleaved1F1B(stages, 2, loss_fn=flow.nn.functional.mse_loss)
    >>> losses = []
    >>> y = schedule.step(flow.ones(6, 2), target=flow.ones(6, 2), losses=losses)
    >>> y.shape, len(losses)
    (torch.Size([6, 2]), 2)
    """

    order = "interleaved"


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All micro-batches in one stage of a rank, then in its next (Lamy-Poirier, 2023)."""

    order = "looped-bfs"


class ScheduleInterleavedZeroBubble(ScheduleInterleaved1F1B):
    """As `ScheduleInterleaved1F1B`: weights' gradients are made with those of inputs.

    An `nn.Graph` with the schedule "zb-h1" parts the two, and fills the waiting time.
    """


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """Two stages per rank, down the ranks and up again (Qi et al., 2024).

    Weights' gradients are made with those of inputs. An `nn.Graph` with the schedule "zb-v" parts
    the two, and fills the waiting time.
    """

    order = "zb-v"


class ScheduleDualPipeV(ScheduleZBVZeroBubble):
    """As `ScheduleZBVZeroBubble`, whose stages lie in the same way."""


_CLASSES: Mapping[str, type[_PipelineSchedule]] = {
    "1f1b": Schedule1F1B,
    "dualpipev": ScheduleDualPipeV,
    "gpipe": ScheduleGPipe,
    "interleaved1f1b": ScheduleInterleaved1F1B,
    "interleavedzerobubble": ScheduleInterleavedZeroBubble,
    "loopedbfs": ScheduleLoopedBFS,
    "pipelineschedulemulti": PipelineScheduleMulti,
    "pipelineschedulesingle": PipelineScheduleSingle,
    "zbvzerobubble": ScheduleZBVZeroBubble,
}


def get_schedule_class(schedule_name: str) -> type[_PipelineSchedule]:
    """The class of a name such as "1F1B" or "Interleaved1F1B"; case does not matter.

    Raises OnefoldValueError, which lists them, for another name.

    >>> get_schedule_class("gpipe").__name__
    'ScheduleGPipe'
    """
    found = _CLASSES.get(schedule_name.lower())
    if found is None:
        names = ", ".join(each.__name__.removeprefix("Schedule") for each in _CLASSES.values())
        raise OnefoldValueError(f"unknown schedule name {schedule_name!r}; choose one of {names}")
    return found
