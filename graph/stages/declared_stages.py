"""The modules that the user put on stages, and the checks of these declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ...engine.placement import Placement
from ...errors import OnefoldRuntimeError
from ..graph_config import GraphModule


@dataclass(frozen=True)
class Declared:
    """A module that `set_stage` put on a stage, and the user's line that did."""

    path: str
    stage: int
    placement: Placement | None
    line: str

    def __str__(self) -> str:
        return f"{self.path} (stage {self.stage}, set at {self.line})"


def declared(views: Mapping[int, GraphModule], paths: Mapping[int, str]) -> list[Declared]:
    """The modules with a stage, in the order of the stages."""
    found = [
        Declared(paths[key], view.stage_id, view.stage_placement, view.line)
        for key, view in views.items()
        if view.stage_id is not None
    ]
    return sorted(found, key=lambda each: each.stage)


def check_declared(found: Sequence[Declared]) -> tuple[frozenset[int], ...]:
    """The ranks of each stage. Raises OnefoldRuntimeError unless each has one placement.

    >>> from onefold.graph.stages.declared_stages import Declared
    >>> p = onefold.placement("cpu", [0, 1])
    >>> check_declared([Declared("model.first", 0, p, "train.py:3")])
    (frozenset({0, 1}),)
    """
    ranks: dict[int, tuple[frozenset[int], Declared]] = {}
    for each in found:
        if each.placement is None:
            continue
        here = each.placement.members
        before, by = ranks.setdefault(each.stage, (here, each))
        if before != here:
            raise OnefoldRuntimeError(
                f"stage {each.stage} was put on ranks {sorted(before)} by {by} and on ranks "
                f"{sorted(here)} by {each}; a stage has one set of ranks"
            )
    for stage in range(max((each.stage for each in found), default=-1) + 1):
        there = [each for each in found if each.stage == stage]
        if not there:
            raise OnefoldRuntimeError(
                f"no module is on stage {stage}, but {found[-1]} needs the stages 0 to "
                f"{found[-1].stage}; number the stages 0, 1, 2, ... without gaps"
            )
        if stage not in ranks:
            raise OnefoldRuntimeError(
                f"stage {stage} has no placement: {there[0]}; say where it runs with "
                f"set_stage({stage}, placement)"
            )
    for (some, by), (others, of) in combinations(ranks.values(), 2):
        if some & others and some != others:
            raise OnefoldRuntimeError(
                f"{by} runs on ranks {sorted(some)} and {of} on ranks {sorted(others)}; two "
                "stages have the same ranks or none in common"
            )
    return tuple(ranks[stage][0] for stage in range(len(ranks)))
