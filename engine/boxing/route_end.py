"""What one rank does in a route, where every process owns one rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...distributed.point_to_point import Expected, transfer
from ..meta import Box
from .boxes import Cut, cut_out, take
from .combine import Layout, reduce
from .route_step import Route


class RouteEnd:
    """The messages of one rank in a route, and the shard that it assembles from them.

    In the first round sources send addends to owners, which sum them; in the second, owners send
    results to takers. Where `straight`, the placements are disjoint, and a part that a rank of the
    source holds alone goes to its takers in the first round.
    """

    def __init__(self, route: Route, rank: int, straight: bool = False) -> None:
        self._sends: list[tuple[int, Cut]] = []  # in the first round
        self._arriving: list[tuple[int, Box]] = []
        self._passed: list[tuple[int, Box]] = []  # arriving in the second round
        self._own: list[tuple[list[Cut | int], list[int]]] = []  # of parts: addends, other takers
        pieces: list[tuple[Box, bool, int]] = []  # region, whether it is an own part, which
        for part in route.parts(rank):
            alone = straight and part.owner in route.placement.position
            assert not alone or part.sources == (part.owner,)
            owners = part.takers if alone else (part.owner,)
            if rank in part.sources:
                cut = cut_out(part.box, route.held(rank))
                self._sends += [(owner, cut) for owner in owners if owner != rank]
            if rank in owners:
                addends: list[Cut | int] = []
                for source in part.sources:
                    if source == rank:
                        addends.append(cut)
                    else:
                        addends.append(len(self._arriving))
                        self._arriving.append((source, part.box))
                others = [] if alone else [taker for taker in part.takers if taker != rank]
                self._own.append((addends, others))
                if rank in part.takers:
                    pieces.append((part.box, True, len(self._own) - 1))
            elif rank in part.takers:
                pieces.append((part.box, False, len(self._passed)))
                self._passed.append((part.owner, part.box))
        self._pieces = [(is_own, number) for _, is_own, number in pieces]
        self._layout = None
        if rank in route.target.position:
            self._layout = Layout([box for box, _, _ in pieces], route.made(rank), route.fill)
        self._reduction = route.reduction or "sum"
        self._dtype = route.before.dtype
        self._device = route.placement.device(rank)

    def run(self, shard: torch.Tensor | None) -> torch.Tensor | None:
        """The shard after the route, from the one before it; None if the rank has none."""
        outgoing = self.outgoing(shard)
        arrived = transfer(outgoing, self.expected()) if outgoing or self._arriving else []
        return self.finish(shard, arrived)

    def outgoing(self, shard: torch.Tensor | None) -> list[tuple[int, torch.Tensor]]:
        """What the rank sends in the first round, and to whom."""
        return [(to, _cut(shard, cut).contiguous()) for to, cut in self._sends]

    def expected(self) -> list[Expected]:
        """What the rank receives in the first round."""
        return self._described(self._arriving)

    def finish(
        self, shard: torch.Tensor | None, arrived: Sequence[torch.Tensor]
    ) -> torch.Tensor | None:
        """Pass on what other ranks need, and return the shard after the route."""
        made = []
        for addends, _ in self._own:
            values = [arrived[a] if isinstance(a, int) else _cut(shard, a) for a in addends]
            made.append(reduce(values, self._reduction))
        outgoing = [
            (to, value.contiguous())
            for value, (_, others) in zip(made, self._own, strict=True)
            for to in others
        ]
        passed: list[torch.Tensor] = []
        if outgoing or self._passed:
            passed = transfer(outgoing, self._described(self._passed))
        if self._layout is None:
            return None
        found = [made[number] if is_own else passed[number] for is_own, number in self._pieces]
        return self._layout.build(found, self._dtype, self._device)

    def _described(self, messages: Sequence[tuple[int, Box]]) -> list[Expected]:
        return [(source, box[1], self._dtype, self._device) for source, box in messages]


def _cut(shard: torch.Tensor | None, cut: Cut) -> torch.Tensor:
    assert shard is not None
    return take(shard, cut)
