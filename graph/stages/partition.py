"""Partitions a program into segments, and the transfers between the ranks of the stages.

A segment is the work of one action of a schedule: the forward or backward steps of one stage. Steps
that do not depend on the micro-batch run once, before. Inputs are moved to the ranks of their
stages before, too. Transfers of gradients that are only accumulated run once, after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...engine.convert import BOXING
from ...errors import OnefoldRuntimeError
from ..ir import Program, ProgramStep, Value, show
from ..micro_batches import Joining
from ..passes.accumulate_products import begun
from ..schedules.actions import Kind
from .assign_stages import crosses, draws, is_backward, ranks_of
from .stage_copies import with_copies_apart

Part: TypeAlias = tuple[Kind, int]  # a kind of action of a stage


@dataclass(frozen=True, eq=False)
class Transfer:
    """A boxing between the ranks of two stages: after one segment, before another."""

    step: ProgramStep
    source: Part
    target: Part

    @property
    def value(self) -> Value:
        return self.step.source

    @property
    def result(self) -> Value:
        return self.step.outputs[0]

    def __str__(self) -> str:
        return f"{self.value!r} -> {self.result!r}"


@dataclass(slots=True)
class Staged:
    """The program of one micro-batch, cut into segments that a schedule puts in order."""

    program: Program
    ranks: tuple[tuple[int, ...], ...]  # of each group of ranks: a schedule's rank
    group_of: tuple[int, ...]  # the group of each stage
    once: list[ProgramStep] = field(default_factory=list)
    feeds: list[ProgramStep] = field(default_factory=list)
    segments: dict[Part, list[ProgramStep]] = field(default_factory=dict)
    firsts: dict[Part, Sequence[ProgramStep]] = field(default_factory=dict)  # see `first`
    transfers: list[Transfer] = field(default_factory=list)
    sums: list[Value] = field(default_factory=list)  # values to add up over the micro-batches
    slices: Program = field(default_factory=Program)  # cuts the inputs
    after: list[ProgramStep] = field(default_factory=list)  # of the sums
    last: list[ProgramStep] = field(default_factory=list)  # of the outputs, on no stage
    end: Joining = field(default_factory=lambda: Joining(Program(), (), (), ()))

    def edges(self) -> list[tuple[int, int]]:
        """The pairs (earlier stage, later stage) with transfers between them."""
        users = self.users()
        ends = [(t.source[1], t.target[1]) for t in self.transfers]
        ends += [(part[1], at) for part, value in self._made() for _, at in users[value.number]]
        return sorted({(min(pair), max(pair)) for pair in ends if pair[0] != pair[1]})

    def sums_by_part(self) -> dict[Part | None, list[Value]]:
        """The values that are added up after the segment that makes each.

        None stands for what no segment makes: inputs, variables and what is done before all.
        """
        makers = self.makers()
        carried = {value.number for _, value in self.program.carried}
        found: dict[Part | None, list[Value]] = {}
        for value in self.sums:
            if value.number not in carried:
                found.setdefault(makers.get(value.number), []).append(value)
        return found

    def carried_by_part(self) -> dict[Part, list[tuple[Value, Value]]]:
        """By segment, the sums that its steps add to: as they were before, and then are."""
        makers = self.makers()
        found: dict[Part, list[tuple[Value, Value]]] = {}
        for before, value in self.program.carried:
            found.setdefault(makers[value.number], []).append((before, value))
        return found

    def first(self, part: Part) -> Sequence[ProgramStep]:
        """The steps of a segment as the first micro-batch does them, the same list each time."""
        if part not in self.firsts:
            self.firsts[part] = begun(self.program, self.segments[part])
        return self.firsts[part]

    def assigns_after(self) -> dict[Part | None, list[tuple[Value, Value]]]:
        """(variable, new value) by the segment after which the variable takes it; None: before all.

        A variable that takes another one's value does so when that changes.
        """
        makers = self.makers()
        taken = {v.value.number: value.number for v, value in self.program.assigns}
        found: dict[Part | None, list[tuple[Value, Value]]] = {}
        for variable, value in self.program.assigns:
            number, seen = value.number, {variable.value.number}
            while number in taken and number not in seen:
                seen.add(number)
                number = taken[number]
            found.setdefault(makers.get(number), []).append((variable.value, value))
        return found

    def shared_by_stages(self) -> tuple[list[Value], ...]:
        """For each group, the values that segments of several of its stages need, but no output.

        Which of the segments is the last differs between micro-batches.
        """
        kept, users = self.kept(), self.users()
        found: tuple[list[Value], ...] = tuple([[] for _ in self.ranks])
        for (_, at), value in (*self._made(), *self._arrived()):
            stages = {stage for _, stage in users[value.number]}
            if len(stages) > 1 and value.number not in kept:
                found[self.group_of[at]].append(value)
        return found

    def results(self) -> list[Value]:
        """The values of a micro-batch of which the outputs are made after all of them."""
        made = {value.number for step in self.last for value in step.outputs}
        read = [value for step in self.last for value in step.reads()]
        wanted = {value.number: value for value in (*self.program.outputs, *read)}
        return [value for number, value in wanted.items() if number not in made]

    def kept(self) -> set[int]:
        """The numbers of the values that must exist when a micro-batch ends, without sums."""
        found = {value.number for value in self.results()}
        return found | {value.number for _, value in self.program.assigns}

    def makers(self) -> dict[int, Part]:
        """By the number of a value, the segment that makes it or before which it arrives."""
        return {value.number: part for part, value in (*self._made(), *self._arrived())}

    def users(self) -> dict[int, set[Part]]:
        """By the number of a value: the segments that make, read or send it."""
        found = {number: {part} for number, part in self.makers().items()}
        for part, steps in self.segments.items():
            for step in steps:
                for value in step.reads():
                    if value.number in found:  # else it is there before any segment
                        found[value.number].add(part)
        for transfer in self.transfers:
            found[transfer.value.number].add(transfer.source)
        return found

    def _made(self) -> Iterator[tuple[Part, Value]]:
        for part, steps in self.segments.items():
            yield from ((part, value) for step in steps for value in step.outputs)

    def _arrived(self) -> Iterator[tuple[Part, Value]]:
        return ((transfer.target, transfer.result) for transfer in self.transfers)

    def text(self, stages: Sequence[int]) -> str:
        """The steps of every segment of these stages, and those before and after."""
        sums = self.sums_by_part()
        lines = _listed("once, before all", [*self.once, *self.slices.steps])
        lines += _listed("before all, for every micro-batch", self.feeds)
        for (kind, stage), steps in self.segments.items():
            if stage in stages:
                lines += _listed(f"{kind}{stage}", steps)
                lines += [
                    f"  add {value!r} to its sum over the micro-batches"
                    for value in sums.get((kind, stage), ())
                ]
        return "\n".join([*lines, *_listed("once, after all", self.end.program.steps)])

    def __str__(self) -> str:
        return self.text(range(len(self.group_of)))


def _listed(title: str, steps: Sequence[ProgramStep]) -> list[str]:
    return [f"{title}:", *(f"  {show(step)}" for step in steps)] if steps else []


def partition(program: Program, ranks: Sequence[frozenset[int]], split_backward: bool) -> Staged:
    """Cut a program whose steps have stages; `ranks` are those of each stage.

    With `split_backward` the backward segments are cut in two: what the gradients for other
    stages need (I), and the rest (W).
    """
    groups = list(dict.fromkeys(ranks))
    staged = Staged(
        program, tuple(tuple(sorted(group)) for group in groups), tuple(map(groups.index, ranks))
    )
    late = dict(zip(map(id, program.steps), is_backward(program), strict=True))
    staged.last = [step for step in program.steps if step.stage is None]
    staged.once, staged.feeds = _before(program)
    staged.after = _after(program)
    apart = staged.once, staged.feeds, staged.after, staged.last
    done = {id(step) for steps in apart for step in steps}
    staged.sums = _sums(program, staged.after)
    _deal(staged, [step for step in program.steps if id(step) not in done], late)
    if split_backward:
        _split(staged)
    staged.segments = with_copies_apart(staged.segments)
    return staged


def _before(program: Program) -> tuple[list[ProgramStep], list[ProgramStep]]:
    """The steps that bring variables and inputs to other ranks, and those that they need."""
    assigned = {variable.value.number for variable, _ in program.assigns}
    constant = {v.value.number for v in program.variables} - assigned
    inputs = {value.number for value in program.inputs}
    once = _leading(program.steps, constant, lambda step: step.origin is BOXING or not draws(step))
    known = constant | {value.number for step in once for value in step.outputs}
    feeds = _leading(program.steps, inputs | known, lambda step: step.origin is BOXING)
    taken = {id(step) for step in once}
    return once, [step for step in feeds if id(step) not in taken]


def _leading(
    steps: Sequence[ProgramStep], known: set[int], fits: Callable[[ProgramStep], bool]
) -> list[ProgramStep]:
    """The steps that cross and depend on the values `known` alone, with those they depend on."""
    found: list[ProgramStep] = []
    there = set(known)
    for step in steps:
        reads = [value.number for value in step.reads()]
        first = step.stage is not None and fits(step)
        if reads and first and all(number in there for number in reads):
            found.append(step)
            there.update(value.number for value in step.outputs)
    return _needed(found, (), crosses)


def _needed(
    steps: Sequence[ProgramStep], values: Iterable[int], by_itself: Callable[[ProgramStep], bool]
) -> list[ProgramStep]:
    """The steps that are needed by themselves or make these values, with those they need."""
    numbers = set(values)
    kept = []
    for step in reversed(steps):
        if by_itself(step) or any(value.number in numbers for value in step.outputs):
            kept.append(step)
            numbers.update(value.number for value in step.reads())
    return kept[::-1]


def _after(program: Program) -> list[ProgramStep]:
    """The boxings to other ranks that only gradients read, and the additions after them."""
    readers: dict[int, list[ProgramStep]] = {}
    for step in program.steps:
        for value in step.reads():
            readers.setdefault(value.number, []).append(step)
    ends = {value.number for _, value in program.gradients}
    others = {value.number for value in program.outputs}
    others |= {value.number for _, value in program.assigns}
    linear: set[int] = set()  # identities of steps of which a sum may be taken before them
    for step in reversed(program.steps):
        if step.origin is not BOXING and step.name != "add":
            continue
        (value,) = step.outputs
        read_by = readers.get(value.number, [])
        if value.number in others or not (read_by or value.number in ends):
            continue
        if all(id(reader) in linear for reader in read_by):
            linear.add(id(step))
    found = []
    reached: set[int] = set()
    for step in program.steps:
        if id(step) in linear and (crosses(step) or any(v.number in reached for v in step.reads())):
            found.append(step)
            reached.update(value.number for value in step.outputs)
    return found


def added(program: Program) -> list[Value]:
    """The values that are added up over the micro-batches of a program with stages."""
    return _sums(program, _after(program))


def _sums(program: Program, after: Sequence[ProgramStep]) -> list[Value]:
    made = {value.number for step in after for value in step.outputs}
    wanted = [value for step in after for value in step.reads()]
    wanted += [value for _, value in program.gradients]
    return list({v.number: v for v in wanted if v.number not in made}.values())


def _deal(staged: Staged, steps: Sequence[ProgramStep], late: dict[int, bool]) -> None:
    """Put every step into its segment, or make it a transfer."""
    stages = len(staged.group_of)
    order: list[Part] = [("F", stage) for stage in range(stages)]
    if any(late[id(step)] for step in steps):
        order += [("B", stage) for stage in reversed(range(stages))]
    staged.segments = {part: [] for part in order}
    made: dict[int, Part] = {}
    for step in steps:
        assert step.stage is not None
        part: Part = ("B" if late[id(step)] else "F", step.stage)
        source = _source(step, made, staged) if crosses(step) else None
        if source is None:
            staged.segments[part].append(step)
        else:
            staged.transfers.append(Transfer(step, source, part))
        made.update((value.number, part) for value in step.outputs)


def _source(step: ProgramStep, made: dict[int, Part], staged: Staged) -> Part | None:
    """Where what a step moves to other ranks comes from; None if both are ranks of its stage."""
    assert step.stage is not None
    (value,) = step.reads()
    its, there = staged.ranks[staged.group_of[step.stage]], ranks_of(step.outputs[0])
    if (ranks_of(value) | there).issubset(its):
        return None
    if value.number not in made:
        raise OnefoldRuntimeError(
            f"{value!r} is changed by the program and read on other ranks by {step.name} of "
            f"{step.scope or 'build()'}, at {step.line}; in a graph with stages a tensor that "
            "changes during the call stays on the ranks of its stage"
        )
    if not there.issubset(its):
        raise OnefoldRuntimeError(
            f"{step.name} of {step.scope or 'build()'}, at {step.line}, moves {value!r} from stage "
            f"{step.stage} to ranks {sorted(there)}, which are of no later stage; there it can be "
            "an output of build(), but no value that the graph keeps"
        )
    return made[value.number]


def _split(staged: Staged) -> None:
    """Cut every backward segment: I makes what leaves it, W the rest (Qi et al., 2023)."""
    leaving = {t.value.number for t in staged.transfers}
    readers: dict[int, set[Part]] = {}
    for part, steps in staged.segments.items():
        for step in steps:
            for value in step.reads():
                readers.setdefault(value.number, set()).add(part)
    segments: dict[Part, list[ProgramStep]] = {}
    made: dict[int, Part] = {}
    first_read: dict[int, Part] = {}
    for (kind, stage), steps in staged.segments.items():
        if kind != "B":
            segments[kind, stage] = steps
            continue
        needed = leaving | {
            value.number
            for step in steps
            for value in step.outputs
            if readers.get(value.number, set()) - {("B", stage)}
        }
        first = _needed(steps, needed, lambda step: False)
        ids = set(map(id, first))
        segments["I", stage] = first
        segments["W", stage] = [step for step in steps if id(step) not in ids]
    for part, steps in segments.items():
        for step in steps:
            made.update((value.number, part) for value in step.outputs)
            for value in step.reads():
                first_read.setdefault(value.number, part)
    staged.segments = segments
    staged.transfers = [_renamed(each, made, first_read) for each in staged.transfers]


def _renamed(transfer: Transfer, made: dict[int, Part], first_read: dict[int, Part]) -> Transfer:
    """The transfer between the halves of backward segments."""
    source, target = transfer.source, transfer.target
    if source[0] == "B":  # what only passes through is in no segment
        source = made.get(transfer.value.number, ("I", source[1]))
    if target[0] == "B":
        found = first_read.get(transfer.result.number, ("I", target[1]))
        target = found if found[1] == target[1] else ("I", target[1])
    return Transfer(transfer.step, source, target)
