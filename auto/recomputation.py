"""Recomputation: which activations of a module to save, and which to recompute in backward.

At a price of memory each activation that backward needs is saved, or recomputed from others, which
are saved or recomputed in turn. The cheapest choice is a minimum of sums over the steps and pairs
of them, found exactly. The choices for all prices are the corners of the convex hull of seconds
over bytes. Sources: Everett, "Generalized Lagrange multiplier method" (1963); Jain et al.,
"Checkmate: breaking the memory wall with optimal tensor rematerialization" (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..graph.layouts.cost_network import CostNetwork, States
from ..graph.layouts.elimination import Solver

_WORTH = 0.02  # of the bytes: a choice that saves less than the one before it is left out
_CLOSE = 1e-9  # relative: sums that differ by rounding alone
# The states of a step in backward. Of what is saved, only what is read is kept: by backward itself,
# or by steps that are recomputed, too.
_ABSENT, _RECOMPUTED, _SAVED, _SAVED_WHOLE = range(4)


@dataclass(frozen=True, slots=True)
class Activation:
    """What one step makes: the bytes to keep it, and the seconds to recompute it."""

    name: str  # as in `saved_activations`; "" for what cannot be saved
    nbytes: int  # of those results of the step that backward reads
    rest: int  # bytes of its other results
    seconds: float  # of its step, on a rank
    comm: float  # of these, for communication
    reads: tuple[int, ...]  # the activations that the step reads, by their places in the list
    reads_rest: tuple[int, ...] = ()  # of these, those of which it reads results of the rest

    @property
    def needed(self) -> bool:
        """Whether backward reads a result."""
        return self.nbytes > 0


@dataclass(frozen=True, slots=True)
class Recomputation:
    """A choice for one module: what it saves, if it is checkpointed."""

    saved: tuple[str, ...]
    freed: int  # bytes that are not kept, of those that would be without a checkpoint
    seconds: float  # of recomputing, without communication
    comm: float  # of the communication that is repeated

    @property
    def time(self) -> float:
        """Seconds of both."""
        return self.seconds + self.comm


@lru_cache(1 << 10)
def recomputations(activations: tuple[Activation, ...]) -> tuple[Recomputation, ...]:
    """The choices that are best at some price of memory, from the fewest bytes freed to the most.

    Each takes more seconds for a byte than those before it. `activations` are in the order of their
    steps; what is not among them, such as a module's inputs, is there in any case.

    >>> norm = Activation("norm", 100, 0, 1.0, 0.0, reads=())
    >>> up = Activation("up.linear", 300, 0, 9.0, 0.0, reads=(0,))
    >>> for each in recomputations((norm, up)):
    ...     print(each.saved, each.freed, each.seconds)
    ('up.linear',) 100 1.0
    () 400 10.0
    """
    activations = _of_use(activations)
    if not activations:
        return ()
    choices = _Choices(activations)
    found = choices.between(choices.most(), choices.least())
    kept: list[Recomputation] = []
    for each in found:
        before = kept[-1].freed if kept else 0
        last = each is found[-1] and each.freed > before
        if last or each.freed - before > _WORTH * found[-1].freed:
            kept.append(each)
    return _convex(kept)


def _of_use(activations: Sequence[Activation]) -> tuple[Activation, ...]:
    """Those that backward reads, and those that they follow from."""
    used: set[int] = set()
    for number in reversed(range(len(activations))):
        if activations[number].needed or number in used:
            used.update((number, *activations[number].reads))
    place = {number: at for at, number in enumerate(sorted(used))}
    return tuple([
        replace(
            activations[number],
            reads=tuple([place[other] for other in activations[number].reads]),
            reads_rest=tuple([place[other] for other in activations[number].reads_rest]),
        )
        for number in place
    ])  # fmt: skip


class _Choices:
    """The choices for one module, as states of the steps that its backward may need again."""

    def __init__(self, activations: Sequence[Activation]) -> None:
        self.activations = activations
        self.whole = sum(each.nbytes for each in activations)
        never = 2 * sum(each.seconds for each in activations) + 1.0
        network = CostNetwork()
        for each in activations:
            absent = never if each.needed else 0.0
            saved = 0.0 if each.name and each.needed else never
            costs = [absent, each.seconds, saved, 0.0 if each.name else never]
            memory = [0, 0, each.nbytes, each.nbytes + each.rest]
            network.node(np.array(costs), np.array(memory, np.float64))
        for number, each in enumerate(activations):
            for other in dict.fromkeys(each.reads):
                apart = np.zeros((4, 4))
                apart[_ABSENT, _RECOMPUTED] = never
                apart[_SAVED, _RECOMPUTED] = never if other in each.reads_rest else 0.0
                network.edge(other, number, apart)
        self.solver = Solver(network)

    def most(self) -> States:
        """Every activation that backward needs is saved, as without a checkpoint.

        What cannot be saved is here, too: a step may make something that has no name.
        """
        return np.array([_SAVED if each.needed else _ABSENT for each in self.activations], np.intp)

    def least(self) -> States:
        """Nothing is saved: the steps that backward needs, and all that they need."""
        states = np.full(len(self.activations), _ABSENT, np.intp)
        for number in reversed(range(len(states))):
            each = self.activations[number]
            if each.needed or states[number] == _RECOMPUTED:
                states[number] = _RECOMPUTED
                states[list(each.reads)] = _RECOMPUTED
        return states

    def between(self, more: States, less: States) -> list[Recomputation]:
        """The best choices with fewer bytes than the first and no fewer than the second."""
        a, b = self.choice(more), self.choice(less)
        if b.freed - a.freed <= _WORTH * self.whole:
            return [b]
        price = max(b.time - a.time, 0.0) / (b.freed - a.freed)
        middle = self.solver.solve(price).states
        found = self.choice(middle)
        line = b.time - price * b.freed
        below = found.time - price * found.freed < line - _CLOSE * b.time
        if not below or not a.freed < found.freed < b.freed:
            return [b]
        return [*self.between(more, middle), *self.between(middle, less)]

    def choice(self, states: States) -> Recomputation:
        """What states of the steps stand for."""
        pairs = list(zip(self.activations, states.tolist(), strict=True))
        recomputed = [each for each, state in pairs if state == _RECOMPUTED]
        saved = [each for each, state in pairs if state >= _SAVED]
        kept = sum(each.nbytes for each in saved)
        kept += sum(each.rest for each, state in pairs if state == _SAVED_WHOLE)
        comm = sum(each.comm for each in recomputed)
        seconds = sum(each.seconds for each in recomputed) - comm
        return Recomputation(tuple([each.name for each in saved]), self.whole - kept, seconds, comm)


def _convex(choices: Sequence[Recomputation]) -> tuple[Recomputation, ...]:
    """Those of the choices that are corners of their convex hull, which starts at nothing freed."""
    corners: list[Recomputation] = []
    for each in choices:
        while corners and _rate(each, corners) < _rate(corners[-1], corners[:-1]):
            corners.pop()
        corners.append(each)
    return tuple(corners)


def _rate(choice: Recomputation, before: Sequence[Recomputation]) -> float:
    """Seconds for each byte more that is freed than by the last of those before."""
    freed, seconds = (before[-1].freed, before[-1].time) if before else (0, 0.0)
    return (choice.time - seconds) / (choice.freed - freed)
