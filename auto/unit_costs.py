"""Unit costs: what each unit of a model takes on one rank, read from a compiled training step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ..graph.ir import UPDATE, Program, ProgramStep, Value
from ..graph.memory_traffic import local_bytes
from ..graph.passes.accumulate_products import accumulate_products
from ..graph.simulator.event_simulation import run
from ..graph.simulator.program_tasks import add_program
from ..graph.simulator.rank_work import Tasks
from .model_units import ROOT, Units
from .recomputation import Activation
from .unit_activations import roots_of, unit_activations
from .unit_links import blocks_of, borrowed_weights, in_whole, joined_units


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Seconds and bytes of one unit on one rank, for one micro-batch."""

    forward: float = 0.0  # seconds of computing
    backward: float = 0.0
    forward_comm: float = 0.0  # seconds of communication along the tensor axis
    backward_comm: float = 0.0
    kept: int = 0  # bytes that forward keeps for backward
    given: int = 0  # of these, what it gives to the next unit
    working: int = 0  # bytes of what else there is at most, while it runs or its backward does
    at_weights: int = 0  # the same while weights are read, or their gradients made
    weights: int = 0  # bytes of parameters
    largest: int = 0  # of the largest of these
    persistent: int = 0  # bytes of parameters, buffers and copies in half precision
    low: int = 0  # bytes of weights as steps read them
    gradients: int = 0  # bytes of the weights' gradients as backward makes them
    apart: int = 0  # of these, what no product adds to its sum over micro-batches
    passing: float = 0.0  # seconds of both, where communication hides behind what need not wait
    activations: tuple[Activation, ...] = ()  # what its steps make in forward
    # By unit, the bytes of its parameters that this one reads, too.
    borrowed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class UnitCosts:
    """The costs of all units of the whole model; `update` is seconds for each byte of weights."""

    units: Mapping[str, UnitCost]
    states: float  # bytes of the optimizer's state for each byte of weights
    update: float
    readers: tuple[str, ...]  # for each input of the step the unit that reads it first
    order: tuple[str, ...]  # the units in the order in which they run
    blocks: tuple[tuple[str, ...], ...]  # runs of these between which a stage may end


def read_costs(program: Program, captured: Program, tasks: Tasks, units: Units) -> UnitCosts:
    """The costs of the units of a model, of which `program` is a step and `captured` what it was.

    `tasks` are of one mesh, and have none yet.
    """
    return _Reading(program, captured, tasks, units).costs()


class _Reading:
    """Reads the costs of units from a program."""

    def __init__(self, program: Program, captured: Program, tasks: Tasks, units: Units) -> None:
        self.program = program
        self.captured = captured
        self.tasks = tasks
        self.units = units
        self.present = sorted(units.present, key=len, reverse=True)
        self.known: dict[str, str | None] = {}

    def costs(self) -> UnitCosts:
        order = self._order()
        first = order[0] if order else ""
        seconds, passing = self._seconds(first), self._passing(first)
        kept = self._kept(first)
        working, at_weights = self._working(first, kept, order)
        given = self._given(first)
        made = unit_activations(self.program, self.captured, self._unit, self.tasks)
        activations = {unit: tuple(each) for unit, each in made.items()}
        weights, largest, persistent, low = self._weights(first)
        gradients: dict[str, int] = {}
        apart: dict[str, int] = {}
        by_products = {value.number for _, value in accumulate_products(self.captured).carried}
        for variable, value in self.captured.gradients:
            unit = self._unit(variable.value.name) or first
            gradients[unit] = gradients.get(unit, 0) + local_bytes(value.meta, 0)
            if value.number not in by_products:
                apart[unit] = apart.get(unit, 0) + local_bytes(value.meta, 0)
        states = sum(local_bytes(value.meta, 0) for value in self.program.states)
        borrowed = borrowed_weights(self.captured, self._unit)
        total = sum(weights.values())
        found = {}
        for name in self.units.names or ("",):
            like = self.units.like.get(name, name)
            # The first layer may begin in a way of its own; in the smaller model it is the same.
            own = name if name == self.units.first_layer else like
            forward, forward_comm, backward, backward_comm = seconds.get(like, (0.0,) * 4)
            found[name] = UnitCost(
                forward, backward, forward_comm, backward_comm,
                kept.get(like, 0), given.get(like, 0), working.get(like, 0),
                at_weights.get(like, 0), weights.get(like, 0), largest.get(like, 0),
                persistent.get(like, 0), low.get(like, 0), gradients.get(like, 0),
                apart.get(like, 0),
                passing.get(like, 0.0), activations.get(own, ()), borrowed.get(like, {}),
            )  # fmt: skip
        updates = [step for step in self.program.steps if step.scope == UPDATE]
        update = self.tasks.amount(updates, 0).seconds
        readers = tuple([self._reader(value, first) for value in self.captured.inputs])
        joined = joined_units(self.captured, self._unit, first, readers)
        whole = self._whole_order(order)
        return UnitCosts(
            units=found,
            states=states / total if total else 0.0,
            update=update / total if total else 0.0,
            readers=readers,
            order=whole,
            blocks=blocks_of(whole, in_whole(joined, self.units.whole)),
        )

    def _unit(self, scope: str) -> str | None:
        """The unit that a scope lies in; None for what is between units."""
        if scope not in self.known:
            path = scope.removeprefix(ROOT).removeprefix(".")
            self.known[scope] = next(
                (u for u in self.present if path == u or path.startswith(f"{u}.")), None
            )
        return self.known[scope]

    def _order(self) -> list[str]:
        found = [self._unit(step.scope) for step in self.captured.steps if not step.backward]
        return list(dict.fromkeys(each for each in found if each is not None))

    def _whole_order(self, order: Sequence[str]) -> tuple[str, ...]:
        """All units in the order in which they run; those that stand together as the model has."""
        place = {name: at for at, name in enumerate(order)}
        layers = [n for n in self.units.names if self.units.like[n] != n or self._inside(n)]
        start = min((place[self.units.like[n]] for n in layers if self.units.like[n] in place),
                    default=0)  # fmt: skip

        def key(pair: tuple[int, str]) -> tuple[int, int]:
            at, name = pair
            if name in layers:
                return start, at
            return place.get(name, start), at

        pairs = sorted(enumerate(self.units.names), key=key)
        return tuple(name for _, name in pairs)

    def _inside(self, name: str) -> bool:
        layers = self.units.layers
        return layers is not None and bool(layers) and name.startswith(f"{layers}.")

    def _placed(
        self, steps: Sequence[ProgramStep], first: str
    ) -> Iterator[tuple[str, ProgramStep]]:
        """Each step with its unit; a step between units belongs to the one before."""
        at = first
        for step in steps:
            found = self._unit(step.scope) if step.scope else None
            at = at if found is None else found
            yield at, step

    def _seconds(self, first: str) -> dict[str, tuple[float, float, float, float]]:
        parts: dict[tuple[str, bool], list[ProgramStep]] = {}
        for unit, step in self._placed(self.program.steps, first):
            if step.scope != UPDATE:
                parts.setdefault((unit, step.backward or step.recomputation > 0), []).append(step)
        found = {}
        for unit in dict.fromkeys(unit for unit, _ in parts):
            both: list[float] = []
            for backward in (False, True):
                amount = self.tasks.amount(parts.get((unit, backward), ()), 0)
                both += [amount.seconds - amount.moved.seconds, amount.moved.seconds]
            found[unit] = (both[0], both[1], both[2], both[3])
        return found

    def _passing(self, first: str) -> dict[str, float]:
        """By unit, for how long the stream that computes is at it, or waits in it.

        Communication does not slow computing down here: what more there is takes no less.
        """
        add_program(self.tasks, self.program)
        line, before = run(self.tasks.tasks), 0.0
        ends = [
            end
            for task, end in zip(line.tasks, line.ends, strict=True)
            if task.rank == 0 and task.stream == "compute"
        ]
        steps = [
            (unit, step)
            for unit, step in self._placed(self.program.steps, first)
            if step.start is None and 0 in self.tasks.taking_part(step)
        ]
        found: dict[str, float] = {}
        for (unit, step), end in zip(steps, ends, strict=True):
            if step.scope != UPDATE:
                found[unit] = found.get(unit, 0.0) + end - before
            before = end
        return found

    def _kept(self, first: str) -> dict[str, int]:
        """By unit, the bytes of what its forward makes and backward reads."""
        owner: dict[int, str] = {}
        roots = roots_of(self.program.steps)
        size: dict[int, int] = {}
        late: set[int] = set()
        for unit, step in self._placed(self.program.steps, first):
            if step.backward or step.recomputation:
                late.update(roots.get(value.number, value.number) for value in step.reads())
                continue
            for value in step.outputs:
                if value.number not in roots:
                    owner[value.number] = unit
                    size[value.number] = local_bytes(value.meta, 0)
        found: dict[str, int] = {}
        for number in late & owner.keys():
            found[owner[number]] = found.get(owner[number], 0) + size[number]
        return found

    def _working(
        self, first: str, kept: Mapping[str, int], order: Sequence[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """By unit, the most bytes besides those that the units up to it keep, and gradients.

        At any step; and at those that read weights, or make their gradients.
        """
        steps = [step for step in self.program.steps if step.scope != UPDATE]
        updates = [step for step in self.program.steps if step.scope == UPDATE]
        roots = roots_of(self.program.steps, in_place=True)
        weights = {variable.value.number for variable in self.program.variables}
        read = {value.number for step in updates for value in step.reads()}
        gradients = {roots.get(number, number) for number in read}
        wanted = {value.number for value in self.program.wanted()}
        ends = gradients | {roots.get(number, number) for number in wanted}
        last: dict[int, int] = {}
        for index, step in enumerate(steps):
            values = (*step.reads(), *step.outputs)
            last.update((roots.get(value.number, value.number), index) for value in values)
        over: dict[int, list[int]] = {}
        for number, index in last.items():
            over.setdefault(index, []).append(number)
        before = dict(zip(order, accumulate(kept.get(unit, 0) for unit in order), strict=True))
        size: dict[int, int] = {}
        found: dict[str, int] = {}
        reading: dict[str, int] = {}
        live = 0
        for index, (unit, step) in enumerate(self._placed(steps, first)):
            made = {value.number: value for value in step.outputs if value.number not in roots}
            for number in made.keys() - ends:
                size[number] = local_bytes(made[number].meta, 0)
                live += size[number]
            more = live - before.get(unit, 0)
            found[unit] = max(found.get(unit, 0), more)
            if made.keys() & gradients or any(value.number in weights for value in step.reads()):
                reading[unit] = max(reading.get(unit, 0), more)
            live -= sum(size.pop(number, 0) for number in over.get(index, ()))
        return found, reading

    def _given(self, first: str) -> dict[str, int]:
        """By unit, the bytes that the forward of a later unit reads of what it makes."""
        owner: dict[int, str] = {}
        size: dict[int, int] = {}
        read: dict[str, dict[int, int]] = {}
        for unit, step in self._placed(self.captured.steps, first):
            if step.backward:
                continue
            for value in step.reads():
                maker = owner.get(value.number)
                if maker not in (None, unit) and maker is not None:
                    read.setdefault(maker, {})[value.number] = size[value.number]
            for value in step.outputs:
                owner[value.number] = unit
                size[value.number] = local_bytes(value.meta, 0)
                source = step.inputs[0] if step.aliases and step.inputs else None
                if type(source) is Value and source.number in owner:
                    owner[value.number] = owner[source.number]
        return {unit: max(values.values()) for unit, values in read.items()}

    def _weights(self, first: str) -> tuple[dict[str, int], ...]:
        """By unit, the bytes of parameters, of the largest, of all that persists, and as read.

        What the optimizer keeps is in none of them.
        """
        weights: dict[str, int] = {}
        largest: dict[str, int] = {}
        persistent: dict[str, int] = {}
        low: dict[str, int] = {}
        param_of = {id(copy.tensor): copy.param for copy in self.program.copies}
        copied = {id(copy.param) for copy in self.program.copies}
        trained = {id(variable.tensor) for variable, _ in self.program.gradients}
        units = {id(v.tensor): self._unit(v.value.name) or first for v in self.program.variables}
        for variable in self.program.variables:
            param = param_of.get(id(variable.tensor), variable.tensor)
            unit, nbytes = units[id(param)], local_bytes(variable.value.meta, 0)
            persistent[unit] = persistent.get(unit, 0) + nbytes
            if id(variable.tensor) in trained:
                weights[unit] = weights.get(unit, 0) + nbytes
                largest[unit] = max(largest.get(unit, 0), nbytes)
            if id(param) in trained and (param is not variable.tensor or id(param) not in copied):
                low[unit] = low.get(unit, 0) + nbytes
        return weights, largest, persistent, low

    def _reader(self, value: Value, first: str) -> str:
        """The unit that reads an input first, through views and boxings."""
        same = {value.number}
        for unit, step in self._placed(self.captured.steps, first):
            if step.backward:
                break
            if not any(each.number in same for each in step.reads()):
                continue
            if step.aliases or step.name == "boxing":
                same.update(each.number for each in step.outputs)
                continue
            return unit
        return first
