"""Source location: the module, stage and direction that a captured step belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.placement import Placement


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The module and its stage, and whether a gradient or a checkpoint makes the step."""

    scope: str = ""  # the path of the module
    stage: int | None = None  # the stage that the module was put on
    ranks: Placement | None = None  # the stage's
    backward: bool = False  # whether in the gradient of one of the module's ops
    of: int = 0  # there: the number of the value whose maker it is the gradient of
    again: int = 0  # the number of the function that is run again, 0 for none
    checkpointed: bool = False  # whether inside a checkpointed module
    as_called: bool = False  # whether the dtypes of ops are what they are called with
