"""Memory plan: the bytes that one rank needs for one call of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...distributed.world import shortened
from ...errors import OnefoldValueError
from ..garbage import uncollected
from ..host_copies import OFFLOAD
from ..ir import UPDATE, Program
from ..memory_traffic import local_bytes
from ..setting_checks import integer
from ..stages.stage_plan import StagePlan
from . import arena
from .arena import Arena
from .liveness import Buffer, buffers_of, live_bytes
from .program_events import call_events
from .stage_events import stage_events
from .storages import Known


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one rank.

    `persistent` are the variables (parameters, buffers) and what the optimizers keep, `inputs` what
    the call is given, and the rest is what the call allocates: `live` at most at once, in an arena
    of `peak` bytes, of which `kept` are live after the last step (outputs). Not known here:
    the memory that kernels, updates and boxing allocate and free inside.

    Without stages it is exact in the world that it is made in. Where ranks are processes, sums over
    ranks may take the place of their addends, and what is sent is held until it has arrived; where
    one process has all ranks, neither applies.
    """

    rank: int
    persistent: int
    inputs: int
    live: int
    kept: int
    moment: str  # the first step during which `live` bytes are live, and its place in the call
    steps: int  # in a call, by which buffers begin and end
    states: int  # of `persistent`, what the optimizers keep
    buffers: Sequence[Buffer] = field(repr=False)  # of the call
    host: int = 0  # bytes at most that activations take in host memory, in none of the others

    @cached_property
    def arena(self) -> Arena:
        """The offset of each buffer of the call."""
        with uncollected():
            return arena.plan(self.buffers)

    @property
    def peak(self) -> int:
        """Bytes of the arena that holds all that the call allocates."""
        return self.arena.peak

    @cached_property
    def lower_bound(self) -> int:
        """A lower bound of the arena: the most aligned bytes that are live at one time."""
        with uncollected():
            return arena.lower_bound(self.buffers)

    @property
    def ratio(self) -> float:
        """Peak over lower bound; 1.0 proves that the arena is optimal."""
        return self.arena.ratio

    @property
    def total(self) -> int:
        """Total bytes: persistent, inputs and the arena."""
        return self.persistent + self.inputs + self.peak

    def __str__(self) -> str:
        rows = [
            ("persistent", self.persistent, "variables, and what the optimizers keep"),
            ("inputs", self.inputs, ""),
            ("one call", self.peak, f"an arena for {len(self.arena.buffers):,} buffers"),
            ("  at least", self.lower_bound, f"lower bound, ratio {self.ratio:.4f}"),
            ("  kept", self.kept, "outputs, when the last step is done"),
            ("total peak", self.total, ""),
        ]
        if self.host:
            rows.append(("on the host", self.host, "activations that wait for backward"))
        lines = [f"{name:<12}{nbytes:>18,}  {note}".rstrip() for name, nbytes, note in rows]
        return "\n".join([f"memory of rank {self.rank}, in bytes", *lines])


@uncollected()
def plan_memory(
    program: Program, rank: int, stages: StagePlan | None = None, known: Known | None = None
) -> MemoryPlan:
    """The memory of one call; with `stages` of a program for each of their micro-batches.

    What was `known` of other ranks is used, and more is noted there.

    Raises OnefoldValueError for a rank that is in none of the program's placements.
    """
    _check_rank(program, rank)
    if stages is None:
        events = call_events(program, rank, known)
    else:
        events = stage_events(stages, rank, known=known)
    buffers, away = _on_device(buffers_of(events), program)
    last = set(events[-1].freed) if events else set()
    states = (program if stages is None else stages.staged.end.program).states
    kept = [*(variable.value for variable in program.variables), *states]
    count = 1 if stages is None else stages.schedule.micro_batches
    live = live_bytes(buffers, len(events))
    at = live.index(max(live)) if live else 0
    inputs = [value.meta for value in program.inputs]
    if count > 1:  # those of one micro-batch
        inputs = [m.like(shape=(count * m.shape[0], *m.shape[1:])) for m in inputs]
    return MemoryPlan(
        rank=rank,
        persistent=sum(local_bytes(value.meta, rank) for value in kept),
        inputs=sum(local_bytes(meta, rank) for meta in inputs),
        live=max(live, default=0),
        kept=sum(b.nbytes for b in buffers if b.last == len(events) - 1 and b.key not in last),
        moment=f"{events[at].label}, {at + 1} of {len(events)}" if live else "",
        steps=len(events),
        states=sum(local_bytes(value.meta, rank) for value in states),
        buffers=buffers,
        host=max(live_bytes(away, len(events)), default=0),
    )


def _on_device(
    buffers: Sequence[Buffer], program: Program
) -> tuple[Sequence[Buffer], Sequence[Buffer]]:
    """The buffers in the memory of the device, and those of the host."""
    copies = [step for step in program.steps if step.origin is OFFLOAD]
    if not copies:
        return buffers, ()
    # The key of a buffer begins with the number of the value that it was made for.
    away = {value.number for step in copies for value in step.outputs}
    here: list[Buffer] = []
    there: list[Buffer] = []
    for buffer in buffers:
        assert isinstance(buffer.key, tuple)
        (there if buffer.key[0] in away else here).append(buffer)
    return here, there


def _check_rank(program: Program, rank: int) -> None:
    integer("memory: rank", rank)
    values = [*program.inputs, *(variable.value for variable in program.variables)]
    # The numbers of an update are local, wherever its parameters are.
    values += [x for step in program.steps if step.scope != UPDATE for x in step.outputs]
    placements = {value.meta.placement for value in values}
    everywhere = None in placements
    members = [placement.members for placement in placements if placement is not None]
    if not any(rank in each for each in members) and not (everywhere and rank >= 0):
        there = shortened(sorted(frozenset().union(*members)))
        raise OnefoldValueError(
            f"memory: rank {rank} is in none of the program's placements, whose ranks are {there}; "
            "ask about one of those"
        )
