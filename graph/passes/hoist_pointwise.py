"""Hoisting: pointwise steps move up to the pointwise steps whose values they use up.

Applies where Triton does the work. A step between the two may read such a value. The kernel of both
runs before it then, and would otherwise have to run before what the second of them reads is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..ir import Program, ProgramStep
from .fuse_chains import why_not_fused
from .fusion_groups import is_pointwise
from .pass_utils import same_segment

_END = 1 << 60  # the place of what reads a value when the program has ended


def hoist_pointwise(program: Program) -> Program:
    """The program in which pointwise steps follow the last pointwise steps that they need.

    Steps move together with those that read what they make. They move if they make no more bytes
    for others than they use up, so that no more memory is needed.
    """
    steps = program.steps
    fusible = [is_pointwise(step) and not why_not_fused(step) for step in steps]
    makers = {value.number: at for at, step in enumerate(steps) for value in step.outputs}
    ends = _ends_of_runs(steps, fusible)
    root: dict[int, int] = {}  # of a step that may move: behind which
    following: dict[int, list[int]] = defaultdict(list)  # by root
    for at, step in enumerate(steps):
        before = [makers[value.number] for value in step.reads() if value.number in makers]
        last = max(before, default=at)
        if not (fusible[at] and last < at and fusible[last] and same_segment(step, steps[last])):
            continue
        start = root.get(last, ends[last])
        if start < at and all(root.get(each) == start or each <= start for each in before):
            root[at] = start
            following[start].append(at)
    readers = _readers(program)
    place = [(at, 0) for at in range(len(steps))]
    for start, moved in following.items():
        if _saves(steps, readers, start, moved):
            for at in moved:
                place[at] = (start, at)
    order = sorted(range(len(steps)), key=place.__getitem__)
    return replace(program, steps=[steps[at] for at in order])


def _ends_of_runs(steps: Sequence[ProgramStep], fusible: Sequence[bool]) -> list[int]:
    """For each step, the last of the steps after it without another kind of step between."""
    ends = list(range(len(steps)))
    for at in range(len(steps) - 2, -1, -1):
        if fusible[at] and fusible[at + 1] and same_segment(steps[at], steps[at + 1]):
            ends[at] = ends[at + 1]
    return ends


def _readers(program: Program) -> dict[int, set[int]]:
    """By the number of a value, the indices of the steps that read it."""
    found: dict[int, set[int]] = defaultdict(set)
    for at, step in enumerate(program.steps):
        for value in step.reads():
            found[value.number].add(at)
    given = [*program.inputs, *program.states, *(v.value for v in program.variables)]
    for value in (*program.wanted(), *given):
        found[value.number].add(_END)
    return found


def _saves(
    steps: Sequence[ProgramStep], readers: dict[int, set[int]], start: int, moved: Sequence[int]
) -> bool:
    """Whether steps that move behind another free at least as much as they allocate for others."""
    inside = set(moved)
    own = {value.number: value for at in moved for value in steps[at].outputs}
    read = {value.number: value for at in moved for value in steps[at].reads()}
    made = sum(value.meta.nbytes for n, value in own.items() if readers[n] - inside)
    used_up = [
        value
        for n, value in read.items()
        if n not in own and all(at <= start or at in inside for at in readers[n])
    ]
    return made <= sum(value.meta.nbytes for value in used_up)
