"""What a user says about a graph and its modules: stages, accumulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..engine.placement import Placement
from ..errors import OnefoldTypeError, OnefoldValueError, user_line
from .schedules.generate import SCHEDULES


class GraphConfig:
    """The settings of one graph (`self.config`)."""

    def __init__(self) -> None:
        self._micro_batches = 1
        self._schedule: str | None = None
        self.training = False  # set by the graph: whether a call trains

    @property
    def micro_batches(self) -> int:
        return self._micro_batches

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Cut every call's inputs along dim 0 into this many micro-batches.

        Gradients are the mean over them; a returned scalar gets one entry for each.
        """
        if isinstance(value, bool) or not isinstance(value, int):
            raise OnefoldTypeError(
                f"set_gradient_accumulation_steps needs an integer, but got {value!r}"
            )
        if value < 1:
            raise OnefoldValueError(
                f"set_gradient_accumulation_steps needs at least 1 step, but got {value}"
            )
        self._micro_batches = value

    @property
    def schedule(self) -> str | None:
        return self._schedule

    def set_schedule(self, name: str | None) -> None:
        """Choose the schedule by which a graph with stages runs its micro-batches.

        One of gpipe, 1f1b, interleaved, zb-h1, zb-h2 and zb-v; None takes 1f1b, or interleaved
        where ranks have several stages.
        """
        if name is not None and name not in SCHEDULES:
            raise OnefoldValueError(
                f"set_schedule: unknown schedule {name!r}; choose one of "
                f"{', '.join(map(repr, SCHEDULES))}"
            )
        self._schedule = name

    def key(self) -> tuple[object, ...]:
        """What of the settings makes another program."""
        return self._micro_batches, self._schedule

    def __repr__(self) -> str:
        return (
            f"GraphConfig(training={self.training}, gradient_accumulation_steps="
            f"{self._micro_batches}, schedule={self._schedule!r})"
        )


@dataclass
class GraphModule:
    """A module as graphs see it; `module.to(nn.graph.GraphModule)` gives it."""

    module: Any
    stage_id: int | None = field(default=None, init=False)
    stage_placement: Placement | None = field(default=None, init=False)
    line: str = field(default="", init=False)  # the user's, where the stage was set

    def set_stage(self, stage_id: int | None = None, placement: Placement | None = None) -> None:
        """Say which pipeline stage the module is, and the ranks to which its inputs go.

        A stage needs a number or a placement; with a placement every tensor that the module is
        called with is boxed there first.
        """
        if stage_id is None and placement is None:
            raise OnefoldValueError("set_stage needs a stage_id, a placement, or both")
        if stage_id is not None and (isinstance(stage_id, bool) or not isinstance(stage_id, int)):
            raise OnefoldTypeError(f"set_stage: stage_id must be an integer, but got {stage_id!r}")
        if stage_id is not None and stage_id < 0:
            raise OnefoldValueError(f"set_stage: stage_id must be >= 0, but got {stage_id}")
        if placement is not None and not isinstance(placement, Placement):
            raise OnefoldTypeError(
                f"set_stage: placement must be an onefold.placement, but got {placement!r}"
            )
        self.stage_id = stage_id
        self.stage_placement = placement
        self.line = user_line()

    def to(self, view: Any) -> Any:
        """`to(nn.Module)` gives the module back."""
        return self if view is GraphModule else self.module
