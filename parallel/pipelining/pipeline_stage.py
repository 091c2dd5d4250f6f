"""PipelineStage: one part of a model, which runs the micro-batches of a pipeline on this rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...comm.process_groups import GroupMember, ProcessGroup
from ...distributed.world import world
from ...engine.argument_types import DeviceLike
from ...engine.convert import read_device
from ...engine.tensor import Tensor
from ...errors import OnefoldTypeError, OnefoldValueError, PlacementError, ShapeError
from ...graph.setting_checks import integer
from ...nn.module import Module
from ...nn.parallel import DistributedDataParallel
from .stage_messages import Form, forms_of, listed

Example = Tensor | tuple[Tensor, ...] | None


class PipelineStage:
    """A module as stage `stage_index` of `num_stages` stages, for a schedule to run.

    The module stays on its device; `device` is that of the tensors that the stage before sends.
    `group` has the ranks of the pipeline, by default all. Every stage but the last returns a local
    tensor or a tuple of them, which are the arguments of the next. Shapes and dtypes are found as
    the stages run, and may differ from step to step; `input_args` and `output_args`, examples of
    one micro-batch, are only compared with what is found. Raises OnefoldTypeError for what is no
    module and for `dw_builder`, OnefoldValueError for an index out of range, or fewer stages than
    ranks.

    >>> import onefold as flow
    >>> layers = [flow.nn.Linear(4, 8), flow.nn.Linear(8, 2)]
    >>> [stage.is_last for stage in (PipelineStage(x, i, 2, "cpu") for i, x in enumerate(layers))]
    [False, True]
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: DeviceLike,
        input_args: Example = None,
        output_args: Example = None,
        output_grads: object = None,
        input_grads: object = None,
        group: ProcessGroup | None = None,
        dw_builder: Callable[..., object] | None = None,
        get_mesh: object = None,
    ) -> None:
        if not isinstance(submodule, Module):
            raise OnefoldTypeError(
                f"PipelineStage needs an onefold Module, but got {type(submodule).__name__}"
            )
        if dw_builder is not None:
            raise OnefoldTypeError(
                "PipelineStage takes no dw_builder: leave it out, gradients of weights are made "
                "together with those of the stage's inputs"
            )
        integer("PipelineStage: num_stages", num_stages, least=1)
        integer("PipelineStage: stage_index", stage_index, least=0)
        if stage_index >= num_stages:
            raise OnefoldValueError(
                f"PipelineStage: stage_index must be 0 to {num_stages - 1}, but is {stage_index}"
            )
        self.submod = submodule
        self.stage_index = stage_index
        self.num_stages = num_stages
        self.device: torch.device = read_device(device)  # type: ignore[arg-type]
        self.group = group
        self.has_backward = False
        self.ranks: tuple[int, ...] = (0,)  # of the pipeline; where one process has all ranks, one
        if world().launched:
            self.ranks = (group or GroupMember.WORLD).ranks
        self.group_rank = self.ranks.index(world().rank or 0) if self._is_here() else -1
        self.group_size = len(self.ranks)
        if self.group_size > num_stages:
            raise OnefoldValueError(
                f"PipelineStage: {num_stages} stages cannot be dealt out to {self.group_size} "
                "ranks: make more stages, or give group= the ranks of one pipeline"
            )
        self._examples = {"input_args": _forms(input_args), "output_args": _forms(output_args)}

    def _is_here(self) -> bool:
        return not world().launched or world().rank in self.ranks

    @property
    def is_first(self) -> bool:
        """Whether it takes the arguments of `step`."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether it makes the outputs and the loss."""
        return self.stage_index == self.num_stages - 1

    def check(self, what: str, found: Sequence[object]) -> None:
        """Raise ShapeError unless tensors are as the examples `what` of the constructor."""
        wanted, forms = self._examples[what], forms_of(found, False)
        if wanted is not None and wanted != forms:
            raise ShapeError(
                f"stage {self.stage_index}: {what} of PipelineStage are {listed(wanted)}, but a "
                f"micro-batch has {listed(forms)}: give examples of one micro-batch, or leave "
                f"{what} out"
            )

    def check_placements(self) -> None:
        """Raise PlacementError for parameters that ranks with other stages should hold, too."""
        others = {*self.ranks} - {self.ranks[self.group_rank]}
        for name, param in self.submod.named_parameters():
            if param.is_global and others & {*param.placement.flat_ranks}:
                raise PlacementError(
                    f"stage {self.stage_index}: {name} is on ranks "
                    f"{list(param.placement.flat_ranks)}, but "
                    f"{sorted(others & {*param.placement.flat_ranks})} have other stages. Lay a "
                    "stage over the ranks that have it only: name the axis of the stages 'pp', as "
                    "in init_device_mesh('cuda', (2, 4), mesh_dim_names=('pp', 'dp')), and take "
                    "mesh['dp'] of it"
                )

    @contextmanager
    def gradients_summed(self, now: bool) -> Iterator[None]:
        """In the block, `DistributedDataParallel` sums gradients over its ranks only if `now`."""
        if not isinstance(self.submod, DistributedDataParallel):
            yield
            return
        with self.submod.no_sync():
            self.submod.require_backward_grad_sync = now
            self.submod._reducer.enabled = now
            yield

    def __repr__(self) -> str:
        return f"PipelineStage({self.stage_index} of {self.num_stages}, on ranks {self.ranks})"


def _forms(example: Any) -> tuple[Form, ...] | None:
    if example is None:
        return None
    return forms_of(example if isinstance(example, (tuple, list)) else (example,), False)
