"""Schedules by name: gpipe, 1f1b, interleaved, zb-h1, zb-h2 and zb-v."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...errors import OnefoldTypeError, OnefoldValueError
from .actions import Action, Kind, Schedule

Order = Iterator[Action]


def make(name: str, stages: int, micro_batches: int, ranks: int | None = None) -> Schedule:
    """The schedule `name` for so many stages and micro-batches.

    Stages go round the `ranks` (by default one for each stage; for zb-v half as many), in zb-v
    down and up again. Raises OnefoldValueError for an unknown name, and for numbers that do not
    fit.

    >>> len(make("interleaved", stages=8, micro_batches=4, ranks=4).ranks)
    4
    """
    check_known(name)
    for what, value in (("stages", stages), ("micro_batches", micro_batches), ("ranks", ranks)):
        if value is None and what == "ranks":
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise OnefoldTypeError(f"schedule {name}: {what} must be an integer, not {value!r}")
        if value < 1:
            raise OnefoldValueError(f"schedule {name}: {what} must be at least 1, not {value}")
    per_rank = 2 if name == "zb-v" else 1
    count = stages // per_rank if ranks is None else ranks
    if count < 1 or stages % count:
        raise OnefoldValueError(
            f"schedule {name}: {stages} stages cannot be dealt out evenly to {max(count, 1)} ranks"
        )
    chunks = stages // count
    if name == "zb-v" and chunks != 2:
        raise OnefoldValueError(
            f"schedule zb-v needs 2 stages on every rank, but {stages} stages on {count} ranks are "
            f"{chunks}"
        )
    if name not in ("zb-v", "interleaved") and chunks != 1:
        raise OnefoldValueError(
            f"schedule {name} needs one stage on every rank, but {stages} stages on {count} ranks "
            f"are {chunks}; use 'interleaved', or 'zb-v' for 2"
        )
    order = SCHEDULES[name]
    found = tuple(tuple(order(rank, count, chunks, micro_batches)) for rank in range(count))
    return Schedule(name, micro_batches, _rank_of(name, stages, count), found)


def check_known(name: str) -> None:
    """Raise OnefoldValueError, with the names there are, for a schedule that is none of them."""
    if name not in SCHEDULES:
        raise OnefoldValueError(
            f"unknown schedule {name!r}; choose one of {', '.join(map(repr, SCHEDULES))}"
        )


def default_for(rank_of: tuple[int, ...]) -> str:
    """The schedule for stages that lie on these ranks when none was chosen.

    1f1b for one stage on every rank; where they have several, interleaved or zb-v, by whether the
    stages go round the ranks or down and up again. Interleaved where they do neither: it says so.

    >>> default_for((0, 1, 1, 0))
    'zb-v'
    """
    stages, ranks = len(rank_of), len(set(rank_of))
    if stages == ranks:
        return "1f1b"
    looped = _rank_of("interleaved", stages, ranks) == rank_of
    v_shaped = stages == 2 * ranks and _rank_of("zb-v", stages, ranks) == rank_of
    return "zb-v" if v_shaped and not looped else "interleaved"


def _rank_of(name: str, stages: int, ranks: int) -> tuple[int, ...]:
    if name == "zb-v":
        return tuple(min(stage, stages - 1 - stage) for stage in range(stages))
    return tuple(stage % ranks for stage in range(stages))


def _gpipe(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """All forwards, then all backwards (Huang et al., 2019)."""
    yield from (Action("F", rank, i) for i in range(m))
    yield from (Action("B", rank, i) for i in range(m))


def _one_forward_one_backward(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """As many forwards as there are ranks after this one, then in turn (Narayanan et al., 2019)."""
    warm = min(m, ranks - 1 - rank)
    yield from (Action("F", rank, i) for i in range(warm))
    for i in range(m):
        if warm + i < m:
            yield Action("F", rank, warm + i)
        yield Action("B", rank, i)


def _interleaved(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """Several stages per rank, in groups of as many micro-batches as ranks (Narayanan, 2021).

    For other numbers of micro-batches it is the schedule of the next multiple without the
    micro-batches that do not exist: what is left out nobody waits for.
    """
    if chunks == 1:
        yield from _one_forward_one_backward(rank, ranks, chunks, m)
        return
    total = -(-m // ranks) * ranks * chunks
    warm = min(total, 2 * (ranks - 1 - rank) + (chunks - 1) * ranks)

    def action(kind: Kind, k: int) -> Action:
        group, inside = divmod(k, ranks * chunks)
        chunk = inside // ranks if kind == "F" else chunks - 1 - inside // ranks
        return Action(kind, chunk * ranks + rank, group * ranks + k % ranks)

    order = [action("F", k) for k in range(warm)]
    for k in range(total):
        if warm + k < total:
            order.append(action("F", warm + k))
        order.append(action("B", k))
    yield from (each for each in order if each.micro_batch < m)


def _zero_bubble(rank: int, ranks: int, m: int, warm: int, behind: int) -> Order:
    """One forward, one input gradient; weight gradients follow `behind` later (Qi et al., 2023)."""
    yield from (Action("F", rank, i) for i in range(warm))
    done = 0
    for i in range(m):
        if warm + i < m:
            yield Action("F", rank, warm + i)
        yield Action("I", rank, i)
        if i + 1 - done > behind:
            yield Action("W", rank, done)
            done += 1
    yield from (Action("W", rank, i) for i in range(done, m))


def _zb_h1(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """Zero-bubble with the memory of 1f1b."""
    return _zero_bubble(rank, ranks, m, min(m, ranks - 1 - rank), rank)


def _zb_h2(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """Zero-bubble with about twice the memory of 1f1b, and no bubble where F = I = W."""
    return _zero_bubble(rank, ranks, m, min(m, 2 * (ranks - 1 - rank)), 2 * rank)


def _zb_v(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """Two stages per rank, down and up again: no bubble in the memory of 1f1b (Qi et al., 2024)."""
    p, r = ranks, rank
    down, up = r, 2 * p - 1 - r
    total = max(m, 2 * p - 1)
    made: dict[tuple[Kind, int], int] = {}
    order: list[Action] = []

    def do(*steps: tuple[Kind, int]) -> None:
        for kind, stage in steps:
            number = made.get((kind, stage), 0)
            if number < total:
                made[kind, stage] = number + 1
                order.append(Action(kind, stage, number))

    for _ in range(2 * (p - r) - 1):
        do(("F", down))
    for _ in range(r):
        do(("F", up), ("F", down))
    for _ in range(p - r):
        do(("F", up), ("I", up), ("W", up))
    while made.get(("F", up), 0) < total:
        do(("F", down), ("I", down), ("W", down), ("F", up), ("I", up), ("W", up))
    for _ in range(r):
        do(("I", down), ("I", up))
    for _ in range(p - r):
        do(("I", down), ("W", down))
    for _ in range(r):
        do(("W", up))
    for _ in range(r):
        do(("W", down))
    yield from (each for each in order if each.micro_batch < m)


SCHEDULES: dict[str, Callable[[int, int, int, int], Order]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
    "zb-h1": _zb_h1,
    "zb-h2": _zb_h2,
    "zb-v": _zb_v,
}
