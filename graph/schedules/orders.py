"""Orders: what each rank of a pipeline does under every schedule, one function each."""

from __future__ import annotations

from collections.abc import Iterator

from .actions import Action, Kind

Order = Iterator[Action]


def gpipe(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """All forwards, then all backwards (Huang et al., 2019)."""
    yield from (Action("F", rank, i) for i in range(m))
    yield from (Action("B", rank, i) for i in range(m))


def looped_bfs(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """All micro-batches in one stage of a rank, then in its next (Lamy-Poirier, 2023)."""
    stages = range(rank, ranks * chunks, ranks)
    yield from (Action("F", stage, i) for stage in stages for i in range(m))
    yield from (Action("B", stage, i) for stage in reversed(stages) for i in range(m))


def one_forward_one_backward(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """As many forwards as there are ranks after this one, then in turn (Narayanan et al., 2019)."""
    warm = min(m, ranks - 1 - rank)
    yield from (Action("F", rank, i) for i in range(warm))
    for i in range(m):
        if warm + i < m:
            yield Action("F", rank, warm + i)
        yield Action("B", rank, i)


def interleaved(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """Several stages per rank, in groups of as many micro-batches as ranks (Narayanan, 2021).

    For other numbers of micro-batches it is the schedule of the next multiple without the
    micro-batches that do not exist; no rank waits for an action that is left out.
    """
    if chunks == 1:
        yield from one_forward_one_backward(rank, ranks, chunks, m)
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


def zb_h1(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """Zero-bubble with the memory of 1f1b."""
    return _zero_bubble(rank, ranks, m, min(m, ranks - 1 - rank), rank)


def zb_h2(rank: int, ranks: int, chunks: int, m: int) -> Order:
    """Zero-bubble with about twice the memory of 1f1b, and no bubble where F = I = W."""
    return _zero_bubble(rank, ranks, m, min(m, 2 * (ranks - 1 - rank)), 2 * rank)


def zb_v(rank: int, ranks: int, chunks: int, m: int) -> Order:
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
