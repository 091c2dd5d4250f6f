"""Report data: everything that the page shows, as one tree of records that becomes one JSON.

Times are in seconds (in a timeline in whole nanoseconds), sizes in bytes. None stands for what is
not known, such as times without hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Protocol, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class Searched(Protocol):
    """A strategy that was considered, such as a row of the result of a search."""

    @property
    def name(self) -> str:
        """A short name."""

    @property
    def seconds(self) -> float | None:
        """The time of a step."""

    @property
    def memory(self) -> int | None:
        """The bytes of the rank with the most."""

    @property
    def description(self) -> str:
        """A description of it, or why it was not chosen."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that do the same, and the work of each of them in a call."""

    stages: tuple[int, ...]
    ranks: str
    count: int
    compute: float | None
    communication: float | None
    waiting: float | None
    received: int
    memory: int | None  # at the peak


@dataclass(frozen=True, slots=True)
class Label:
    """The properties that several events share."""

    name: str  # before the number of the micro-batch
    kind: str
    module: str
    nbytes: int  # received; sent by what sends
    alone: int  # the duration when nothing slows it down


@dataclass(frozen=True, slots=True)
class Track:
    """The events of one stream of a group, in order.

    `events` has four numbers for each: that of its label, the time since the event before ended,
    the duration, and the micro-batch, -1 for none.
    """

    group: int
    stream: str
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All events; `unit` is that of times, "s", or "" for a schedule in which actions take 1."""

    unit: str
    span: float
    labels: tuple[Label, ...]
    tracks: tuple[Track, ...]


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """A tensor that is live at the peak: `count` equal ones, such as of several micro-batches."""

    name: str
    kind: str
    form: str  # dtype and shape on the rank
    count: int
    nbytes: int  # of all of them


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of the ranks of a group during a call.

    `series` are bytes at each of the `times`, by kind; what is there all the time is in `constant`.
    `others` counts the tensors at the peak that `live` leaves out, by kind.
    """

    constant: dict[str, int]
    times: tuple[int, ...]
    series: dict[str, tuple[int, ...]]
    peak: int
    peak_at: int  # a time
    moment: str
    live: tuple[LiveTensor, ...]
    others: dict[str, tuple[int, int]]  # how many, and their bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that ranks receive in a call over one level of links, in one kind of collective."""

    kind: str
    link: str
    total: int  # of all ranks
    most: int  # of one


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor that outlives the call; `state` are the bytes that optimizers keep of it."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    sbp: str
    placement: str
    stages: tuple[int, ...]
    numel: int
    nbytes: int  # on each of its ranks
    state: int  # likewise


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """One level of links of a machine; `ranks` is None for the last, which joins all."""

    name: str
    ranks: int | None
    bandwidth: float
    latency: float
    launch: float
    algorithms: tuple[str, ...]
    message: float
    efficiency: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """The numbers of a hardware file."""

    name: str
    peak: dict[str, float]
    memory_bytes: int
    memory_bandwidth: float
    launch: float
    launches_ahead: bool
    contention: float
    narrow: float
    context_bytes: int
    communicator_bytes: int
    host_bandwidth: float | None  # None where a device is the host
    host_bytes: int | None  # None where the file does not say
    curves: dict[str, tuple[tuple[float, float], ...]]
    ops: dict[str, float]
    links: tuple[LinkFacts, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row of a search."""

    name: str
    seconds: float | None
    memory: int | None
    description: str


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers at the top of the page."""

    ranks: int
    different: int
    parameters: int
    step_time: float | None
    tokens: int | None
    tokens_per_second: float | None
    mfu: float | None
    bubble: float | None
    received: int
    memory: int | None
    schedule: str
    micro_batches: int
    stages: int


@dataclass(frozen=True, slots=True)
class Report:
    """The data of a page."""

    title: str
    totals: Totals
    groups: tuple[Group, ...]
    timeline: Timeline | None
    memory: tuple[Memory, ...]  # of each group; empty where it was not asked for
    traffic: tuple[Traffic, ...]
    parameters: tuple[Parameter, ...]
    machine: Machine | None
    searched: tuple[Candidate, ...]

    def as_json(self) -> dict[str, Json]:
        """The tree as dicts, lists, strings and numbers; lists of records become keys and rows."""
        found = _plain(self)
        assert isinstance(found, dict)
        return found


def _plain(node: object) -> Json:
    if isinstance(node, (str, int, float)) or node is None:
        return node
    if is_dataclass(node) and not isinstance(node, type):
        return {each.name: _plain(getattr(node, each.name)) for each in fields(node)}
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    assert isinstance(node, (tuple, list)), node
    if all(type(each) is int for each in node):
        return list(node)
    first = node[0]
    if is_dataclass(first) and not isinstance(first, type):
        keys = [each.name for each in fields(first)]
        return {"keys": list(keys), "rows": [_row(each, keys) for each in node]}
    return [_plain(each) for each in node]


def _row(record: object, keys: Sequence[str]) -> Json:
    return [_plain(getattr(record, key)) for key in keys]
