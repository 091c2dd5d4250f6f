"""Memory events of a program on one rank: what each step allocates and frees."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..async_boxing import steps_with_async_boxing
from ..ir import Program, ProgramStep, Value
from .forms import Form
from .liveness import Event
from .storages import Known, Storages, position_of, whole

Lane: TypeAlias = Hashable  # which of several runs of a step, such as a micro-batch
Name: TypeAlias = tuple[int, Lane]  # of a value, and of the buffer that was made for it


class Work(NamedTuple):
    """A step and its lane, whose values it uses.

    A step that reads from other lanes names one for each of its inputs. A step without outputs only
    keeps its inputs live until then.
    """

    step: ProgramStep
    lane: Lane = None
    reads: tuple[Lane, ...] | None = None


class Block(NamedTuple):
    """Steps that run in turn in one lane, and perhaps in others too: the same list each time."""

    steps: Sequence[ProgramStep]
    lane: Lane


def events_of(
    work: Sequence[Work | Block],
    rank: int,
    given: Iterable[tuple[Value, Lane]] = (),
    shared: Iterable[Value] = (),
    wanted: Iterable[tuple[Value, Lane]] = (),
    alone: AbstractSet[int] = frozenset(),
    known: Known | None = None,
) -> list[Event]:
    """One event for each step, in the order in which the executor does them.

    `given` (inputs) and `shared` values (variables, the same in every lane) exist before and are
    not counted, and neither are views of them. `wanted` values stay to the end. Steps of all lanes
    read the values with the numbers `alone` from lane None, in which they are made. A view shares
    the buffer of its base, which is freed after the last use of either. Kernels' own temporaries
    are not known here. `known` is what was found for other ranks, see `Storages`.
    """
    found = _Events(rank, shared, alone, known)
    found.give(given)
    for each in work:
        if isinstance(each, Block):
            found.do_block(each)
        else:
            found.do(each)
    return found.events(wanted)


@dataclass(frozen=True, slots=True)
class _Template:
    """The events of a block, with the values of its lane by their numbers."""

    made: list[list[tuple[int, int]]]  # for each step the new buffers and their bytes
    used: list[tuple[int, int]]  # own buffers, and the last step that uses each
    others: list[tuple[Name, int]]  # the same of other buffers
    outputs: list[tuple[int, bool, Any, Form | None]]  # number, whether an own buffer, which, form


class _Events:
    """The buffers of values, while steps are followed."""

    def __init__(
        self, rank: int, shared: Iterable[Value], alone: AbstractSet[int], known: Known | None
    ) -> None:
        self._rank = rank
        self._storages = Storages(rank, known)
        shared = tuple(shared)
        self._common = {value.number for value in shared} | alone
        self._home: dict[Name, Name | None] = {}  # where a value lies; None: not the program's
        self._forms: dict[Name, Form | None] = {}
        self._labels: list[str] = []
        self._made: list[list[tuple[Name, int]]] = []
        self._last: dict[Name, int] = {}
        self._entries: dict[int, list[Value]] = {}  # by the identity of a block's list of steps
        self._templates: dict[Any, _Template] = {}
        self.give((value, None) for value in shared)

    def give(self, values: Iterable[tuple[Value, Lane]]) -> None:
        """Values that exist before and are not counted."""
        for value, lane in values:
            position, own = position_of(value.meta, self._rank), self._name(value, lane)
            if position is not None:
                self._forms[own] = whole(value.meta, position)
                self._home[own] = None

    def _name(self, value: Value, lane: Lane) -> Name:
        return value.number, None if value.number in self._common else lane

    def _find(self, value: Value, lane: Lane) -> Name:
        """The name of a value that is read."""
        name = value.number, None if value.number in self._common else lane
        if name not in self._home:
            there = position_of(value.meta, self._rank)
            assert there is None, f"value {name} is not there yet"
            self._home[name] = self._forms[name] = None  # of a stage on other ranks
        return name

    def do(self, work: Work) -> None:
        """Follow one step."""
        step, lane, reads = work
        if not step.inputs and not step.outputs:
            self._made.append([])
            self._labels.append(step.name)
            return
        index = len(self._labels)
        home, forms, last = self._home, self._forms, self._last
        names: list[Name | None] = []
        held: list[Form | None] = []
        for place, value in enumerate(step.inputs):
            if type(value) is not Value:
                names.append(None)
                held.append(None)
                continue
            name = self._find(value, lane if reads is None else reads[place])
            names.append(name)
            held.append(forms[name])
            if (lies := home[name]) is not None:
                last[lies] = index
        new: dict[Name, int] = {}
        named: dict[int, Name] = {}  # new memory after the first output that lies in it
        for value, here in zip(step.outputs, self._storages.made(step, held), strict=True):
            own = self._name(value, lane)
            if here is None:
                home[own], forms[own] = None, None
                continue
            forms[own] = here.form
            if here.source >= 0:
                source = names[here.source]
                assert source is not None
                lies = home[source]
            else:
                lies = named.setdefault(here.group, own)
                new[lies] = here.nbytes
            home[own] = lies
            if lies is not None:
                last[lies] = index
        self._made.append([item for item in new.items() if item[1]])
        self._labels.append(step.name)

    def do_block(self, block: Block) -> None:
        """Follow the steps of a block: one by one, or as in a lane where all was the same."""
        steps, lane = block
        entries = self._entries.get(id(steps))
        if entries is None:
            entries = self._entries[id(steps)] = _entries(steps)
        key: list[object] = [id(steps)]
        for value in entries:
            name = self._find(value, lane)
            lies = self._home[name]
            if lies is not None and lies[1] == lane:
                lies = lies[0], _OWN
            key += (lies, self._forms[name])
        known = tuple(key)
        template = self._templates.get(known)
        if template is not None:
            self._repeat(template, block)
            return
        before, self._last = self._last, {}
        start = len(self._labels)
        for step in steps:
            self.do(Work(step, lane))
        self._templates[known] = self._template(block, start)
        before.update(self._last)
        self._last = before

    def _template(self, block: Block, start: int) -> _Template:
        """What was done since event number `start`."""
        lane = block.lane
        used = [(key, index - start) for key, index in self._last.items()]
        outputs: list[tuple[int, bool, Any, Form | None]] = []
        for value in (value for step in block.steps for value in step.outputs):
            name = self._name(value, lane)
            lies = self._home[name]
            own = lies is not None and lies[1] == lane
            form = self._forms[name]
            outputs.append((value.number, own, lies[0] if lies is not None and own else lies, form))
        return _Template(
            [[(key[0], nbytes) for key, nbytes in items] for items in self._made[start:]],
            [(key[0], at) for key, at in used if key[1] == lane],
            [(key, at) for key, at in used if key[1] != lane],
            outputs,
        )

    def _repeat(self, template: _Template, block: Block) -> None:
        lane, start = block.lane, len(self._labels)
        self._labels += [step.name for step in block.steps]
        self._made += [[((number, lane), n) for number, n in its] for its in template.made]
        self._last.update({(number, lane): start + at for number, at in template.used})
        self._last.update({key: start + at for key, at in template.others})
        for number, own, lies, form in template.outputs:
            name = number, lane
            self._home[name] = (lies, lane) if own else lies
            self._forms[name] = form

    def events(self, wanted: Iterable[tuple[Value, Lane]]) -> list[Event]:
        """All events; `wanted` values are live at the end."""
        kept = {self._home.get(self._name(value, lane)) for value, lane in wanted}
        freed: list[list[Name]] = [[] for _ in self._labels]
        for items in self._made:
            for key, _ in items:
                if key not in kept:
                    freed[self._last[key]].append(key)
        return [
            Event(label, tuple(items), tuple(ends))
            for label, items, ends in zip(self._labels, self._made, freed, strict=True)
        ]


_OWN = object()  # in place of the lane of a block


def _entries(steps: Sequence[ProgramStep]) -> list[Value]:
    """The values that steps read and none of them makes before."""
    made: set[int] = set()
    found: dict[int, Value] = {}
    for step in steps:
        for value in step.reads():
            if value.number not in made:
                found.setdefault(value.number, value)
        made.update(value.number for value in step.outputs)
    return list(found.values())


def call_events(program: Program, rank: int, known: Known | None = None) -> list[Event]:
    """The events of one call of a graph without stages; see `steps_with_async_boxing`."""
    return events_of(
        [Work(step) for step in steps_with_async_boxing(program)],
        rank,
        [(value, None) for value in program.inputs],
        [*(variable.value for variable in program.variables), *program.states],
        [(value, None) for value in program.wanted()],
        known=known,
    )


def planned(
    name: str, inputs: Iterable[Value], outputs: tuple[Value, ...] = (), aliases: bool = False
) -> ProgramStep:
    """A step that is only planned. Without outputs it only frees its inputs."""
    return ProgramStep(name, name, tuple(inputs), (), outputs, _never, aliases=aliases)


def _never(*_: object) -> None:
    raise AssertionError("this step is only planned")
