"""Checks a schedule: complete, in order, free of deadlock. Counts the micro-batches in flight."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import OnefoldRuntimeError
from .action_order import advance
from .actions import Action, Schedule


def check(schedule: Schedule, edges: Sequence[tuple[int, int]] | None = None) -> None:
    """Raise OnefoldRuntimeError saying what is wrong with a schedule, if anything is."""
    _complete(schedule)
    for _ in advance(schedule, edges):
        pass


def _complete(schedule: Schedule) -> None:
    """Each stage does F, and B or I and W, exactly once per micro-batch, on its own rank.

    Micro-batches come in order, since sums and buffers depend on it. Where no rank does anything
    backward, F alone.
    """
    found: dict[Action, int] = {}
    newest: dict[tuple[str, int], int] = {}
    for rank, actions in enumerate(schedule.ranks):
        for action in actions:
            if not (
                0 <= action.stage < schedule.stages
                and 0 <= action.micro_batch < schedule.micro_batches
            ):
                raise _wrong(schedule, f"{action} on rank {rank} is of no stage or micro-batch")
            if schedule.rank_of[action.stage] != rank:
                raise _wrong(
                    schedule,
                    f"{action} is on rank {rank}, but its stage lives on rank "
                    f"{schedule.rank_of[action.stage]}",
                )
            found[action] = found.get(action, 0) + 1
            before = newest.get((action.kind, action.stage), -1)
            if action.micro_batch < before:
                raise _wrong(schedule, f"{action} comes after micro-batch {before} of its stage")
            newest[action.kind, action.stage] = action.micro_batch
    twice = sorted(action for action, count in found.items() if count > 1)
    if twice:
        raise _wrong(schedule, f"{twice[0]} is done more than once")
    forward_alone = all(action.kind == "F" for action in found)
    for stage in range(schedule.stages):
        for micro in range(schedule.micro_batches):
            done = {kind for kind in "FBIW" if Action(kind, stage, micro) in found}  # type: ignore[arg-type]
            if forward_alone and done == {"F"}:
                continue
            if done not in ({"F", "B"}, {"F", "I", "W"}):
                raise _wrong(
                    schedule,
                    f"stage {stage} does {sorted(done)} for micro-batch {micro}; it must do F and "
                    "B, or F, I and W",
                )


def _wrong(schedule: Schedule, text: str) -> OnefoldRuntimeError:
    return OnefoldRuntimeError(f"schedule {schedule.name} is wrong: {text}")


def in_flight(schedule: Schedule, rank: int, end: str = "I") -> int:
    """The most (stage, micro-batch) pairs that a rank holds at once, from F to the action `end`.

    `end` "I" counts what the input's gradient still needs, "W" what anything still needs; a B
    ends both.
    """
    now = most = 0
    for action in schedule.ranks[rank]:
        if action.kind == "F":
            now += 1
            most = max(most, now)
        elif action.kind in ("B", end):
            now -= 1
    return most
