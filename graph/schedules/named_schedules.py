"""Schedules by name, one row each, and how they are made for a number of stages.

A row has the order of each rank's actions, how many stages a rank has, and what is checked when the
schedule is made: its bubble and the micro-batches in flight, where closed forms are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import OnefoldValueError
from ..setting_checks import integer
from . import orders
from .actions import Schedule
from .simulate import Times


@dataclass(frozen=True)
class Pipeline:
    """How a schedule is made for `ranks` ranks with `chunks` stages each and `m` micro-batches."""

    order: Callable[[int, int, int, int], orders.Order]  # of (rank, ranks, chunks, m)
    # The time in which the busiest rank has nothing to do, of (ranks, chunks, m, times).
    bubble: Callable[[int, int, int, Times], float | None]
    # The micro-batches of its stages that a rank holds at once, of (rank, ranks, chunks, m).
    held: Callable[[int, int, int, int], int | None]
    stages_per_rank: int | None = 1  # None: any number
    turns: bool = False  # whether stages go down the ranks and up again, not round and round

    def rank_of(self, stages: int, ranks: int) -> tuple[int, ...]:
        """The rank of each stage."""
        if self.turns:
            return tuple(min(stage, stages - 1 - stage) for stage in range(stages))
        return tuple(stage % ranks for stage in range(stages))

    def fits(self, rank_of: tuple[int, ...], ranks: int) -> bool:
        """Whether stages on these ranks can run under it."""
        stages = len(rank_of)
        alike = self.stages_per_rank is None or self.stages_per_rank * ranks == stages
        return stages % ranks == 0 and alike and self.rank_of(stages, ranks) == rank_of


def make(name: str, stages: int, micro_batches: int, ranks: int | None = None) -> Schedule:
    """The schedule `name` for so many stages and micro-batches.

    Stages go round the `ranks` (by default one for each stage; for zb-v half as many), in zb-v
    down and up again. Raises OnefoldValueError for an unknown name, and for numbers that do not
    fit.

    >>> len(make("interleaved", stages=8, micro_batches=4, ranks=4).ranks)
    4
    """
    row = schedule_named(name)
    for what, value in (("stages", stages), ("micro_batches", micro_batches), ("ranks", ranks)):
        if value is not None or what != "ranks":
            integer(f"schedule {name}: {what}", value, least=1)
    count = stages // (row.stages_per_rank or 1) if ranks is None else ranks
    if count < 1 or stages % count:
        raise OnefoldValueError(
            f"schedule {name}: {stages} stages cannot be dealt out evenly to {max(count, 1)} ranks"
        )
    chunks = stages // count
    if row.stages_per_rank not in (None, chunks):
        wanted, advice = f"{row.stages_per_rank} stages", ""
        if row.stages_per_rank == 1:
            wanted, advice = "one stage", "; use 'interleaved', or 'zb-v' for 2"
        raise OnefoldValueError(
            f"schedule {name} needs {wanted} on every rank, but {stages} stages on {count} ranks "
            f"are {chunks}{advice}"
        )
    found = tuple(tuple(row.order(rank, count, chunks, micro_batches)) for rank in range(count))
    return Schedule(name, micro_batches, row.rank_of(stages, count), found)


def schedule_named(name: str) -> Pipeline:
    """The row of a schedule. Raises OnefoldValueError, which lists them, for an unknown name."""
    if name not in SCHEDULES:
        raise OnefoldValueError(
            f"unknown schedule {name!r}; choose one of {', '.join(map(repr, SCHEDULES))}"
        )
    return SCHEDULES[name]


def default_for(rank_of: tuple[int, ...]) -> str:
    """The schedule for stages on these ranks when none was chosen: the first that fits them.

    1f1b, or interleaved where ranks have several stages, comes before all others. Where none fits,
    it is one of these two, whose error says how the stages should lie.

    >>> default_for((0, 1, 1, 0))
    'zb-v'
    """
    ranks = len(set(rank_of))
    usual = "1f1b" if ranks == len(rank_of) else "interleaved"
    fitting = (name for name in (usual, *SCHEDULES) if SCHEDULES[name].fits(rank_of, ranks))
    return next(fitting, usual)


# Closed forms, where transfers take no time. Sources: Huang et al. (2019), Narayanan et al. (2019,
# 2021), Lamy-Poirier (2023), Qi et al. (2023, 2024).


def _filled(ranks: int, chunks: int, m: int, times: Times) -> float:
    return (ranks - 1) * (times.forward + times.input_gradient + times.weight_gradient)


def _interleaved_bubble(ranks: int, chunks: int, m: int, times: Times) -> float | None:
    return _filled(ranks, chunks, m, times) if chunks == 1 or m % ranks == 0 else None


def _looped_bubble(ranks: int, chunks: int, m: int, times: Times) -> float | None:
    return _filled(ranks, chunks, m, times) if chunks == 1 or m >= ranks else None


def _interleaved_held(rank: int, ranks: int, chunks: int, m: int) -> int | None:
    if chunks == 1:
        return min(m, ranks - rank)
    after = ranks - 1 - rank
    return min(m * chunks, 2 * after + (chunks - 1) * ranks + 1) if m % ranks == 0 else None


def _zero_bubble(saved: int) -> Callable[[int, int, int, Times], float | None]:
    """The bubble where so many weight gradients of each stage fill it, once all ranks are busy."""

    def bubble(ranks: int, chunks: int, m: int, times: Times) -> float | None:
        left = times.forward + times.input_gradient - saved * times.weight_gradient
        return (ranks - 1) * left if m >= 2 * ranks - 1 else None

    return bubble


def _no_bubble(ranks: int, chunks: int, m: int, times: Times) -> float | None:
    alike = times.forward == times.input_gradient == times.weight_gradient
    return 0.0 if alike and m >= 2 * ranks - 1 else None


SCHEDULES: dict[str, Pipeline] = {
    "gpipe": Pipeline(orders.gpipe, _filled, lambda rank, ranks, chunks, m: m),
    "1f1b": Pipeline(
        orders.one_forward_one_backward,
        _filled,
        lambda rank, ranks, chunks, m: min(m, ranks - rank),
    ),
    "interleaved": Pipeline(
        orders.interleaved, _interleaved_bubble, _interleaved_held, stages_per_rank=None
    ),
    "looped-bfs": Pipeline(
        orders.looped_bfs,
        _looped_bubble,
        lambda rank, ranks, chunks, m: m * chunks,
        stages_per_rank=None,
    ),
    "zb-h1": Pipeline(
        orders.zb_h1, _zero_bubble(1), lambda rank, ranks, chunks, m: min(m, ranks - rank)
    ),
    "zb-h2": Pipeline(
        orders.zb_h2,
        _zero_bubble(2),
        lambda rank, ranks, chunks, m: min(m, 2 * (ranks - 1 - rank) + 1),
    ),
    "zb-v": Pipeline(
        orders.zb_v,
        _no_bubble,
        lambda rank, ranks, chunks, m: None,
        stages_per_rank=2,
        turns=True,
    ),
}
