"""Event simulation: tasks of ranks on streams, each in order, as soon as what they need is done."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from operator import itemgetter
from typing import Literal, TypeAlias

from ...errors import OnefoldRuntimeError

Stream: TypeAlias = Literal["compute", "communication", "copies"]
Lane: TypeAlias = tuple[int, Stream]  # a stream of a rank
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class About:
    """The purpose of a task, for display; it does not affect times."""

    kind: str = ""  # what all tasks of its color have in common, such as "forward"
    module: str = ""
    nbytes: int = 0  # received; sent by what sends
    micro_batch: int | None = None  # with whose number the name ends


_NOTHING = About()


@dataclass(frozen=True, slots=True)
class Task:
    """Work of `rank` on one of its streams, when all tasks with the numbers `needs` have ended.

    Tasks of several ranks with one `meeting` start together, when the last of them can.
    """

    name: str
    rank: int
    stream: Stream
    seconds: float
    needs: tuple[int, ...] = ()
    meeting: Hashable = None
    about: About = _NOTHING

    @property
    def lane(self) -> Lane:
        return self.rank, self.stream


@dataclass(frozen=True)
class Timeline:
    """When each task starts and ends."""

    tasks: Sequence[Task]
    starts: Sequence[float]
    ends: Sequence[float]

    @property
    def makespan(self) -> float:
        return max(self.ends, default=0.0)

    @cached_property
    def busy(self) -> dict[int, float]:
        """By rank, the time in which any of its streams is busy."""
        total: dict[int, float] = {}
        latest: dict[int, float] = {}
        for start, end, task in sorted(
            zip(self.starts, self.ends, self.tasks, strict=True), key=itemgetter(0)
        ):
            before = latest.get(task.rank, 0.0)
            total[task.rank] = total.get(task.rank, 0.0) + max(end - max(start, before), 0.0)
            latest[task.rank] = max(before, end)
        return total


def run(tasks: Sequence[Task], contention: float = 1.0) -> Timeline:
    """Simulate the tasks, which are in the order of each stream; a task's number is its place.

    While a rank communicates its compute takes `contention` times as long. Raises
    OnefoldRuntimeError when no task can start and some are left.

    >>> run([Task("a", 0, "compute", 2.0), Task("b", 1, "compute", 1.0, needs=(0,))]).makespan
    3.0
    """
    return _Run(tasks, contention).timeline()


class _Run:
    def __init__(self, tasks: Sequence[Task], contention: float) -> None:
        self.tasks = tasks
        self.contention = contention
        count = len(tasks)
        self.starts, self.ends = [0.0] * count, [0.0] * count
        self.queues: dict[Lane, deque[int]] = {}
        self.running: dict[Lane, int] = {}
        self.missing = [0] * count
        self.readers: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            self.queues.setdefault(task.lane, deque()).append(number)
            for need in set(task.needs):
                self.missing[number] += 1
                self.readers[need].append(number)
        self.parties = Counter(task.meeting for task in tasks if task.meeting is not None)
        self.arrived: dict[Hashable, list[int]] = {}
        # Of what runs: the work that is left, since when, and how many times as long it takes.
        self.left = [task.seconds for task in tasks]
        self.since = [0.0] * count
        self.slowness = [1.0] * count
        self.turn = [0] * count  # how often the end was computed; older ones are void
        self.events: list[tuple[float, int, int]] = []  # time, task, turn

    def timeline(self) -> Timeline:
        for lane in self.queues:
            self.next(lane, 0.0)
        while self.events:
            now, number, turn = heappop(self.events)
            if turn == self.turn[number]:
                self.end(number, now)
        waiting = [self.tasks[queue[0]] for queue in self.queues.values() if queue]
        if waiting:
            shown = [f"{task.name} of rank {task.rank}" for task in waiting[:_SHOWN]]
            raise OnefoldRuntimeError(f"the tasks cannot run: {', '.join(shown)} wait")
        return Timeline(self.tasks, self.starts, self.ends)

    def next(self, lane: Lane, now: float) -> None:
        """Start the next task of a stream if it can."""
        queue = self.queues[lane]
        if lane in self.running or not queue or self.missing[queue[0]]:
            return
        number = queue[0]
        meeting = self.tasks[number].meeting
        if meeting is None:
            self.start(number, now)
            return
        arrived = self.arrived.setdefault(meeting, [])
        if number not in arrived:
            arrived.append(number)
        if len(arrived) == self.parties[meeting]:
            for each in arrived:
                self.start(each, now)

    def start(self, number: int, now: float) -> None:
        lane = self.tasks[number].lane
        self.queues[lane].popleft()
        self.running[lane] = number
        self.starts[number] = self.since[number] = now
        rank, stream = lane
        slow = stream == "compute" and (rank, "communication") in self.running
        self.pace(number, now, slow)
        if stream == "communication" and (rank, "compute") in self.running:
            self.pace(self.running[rank, "compute"], now, True)

    def pace(self, number: int, now: float, slow: bool) -> None:
        """Compute when a task ends that from now on is as slow as that."""
        if self.slowness[number] != 1.0:
            self.left[number] -= (now - self.since[number]) / self.slowness[number]
        else:
            self.left[number] -= now - self.since[number]
        self.since[number] = now
        self.slowness[number] = self.contention if slow else 1.0
        self.turn[number] += 1
        left = max(self.left[number], 0.0)
        ends = now + (left * self.contention if slow else left)
        heappush(self.events, (ends, number, self.turn[number]))

    def end(self, number: int, now: float) -> None:
        self.ends[number] = now
        lane = self.tasks[number].lane
        del self.running[lane]
        rank, stream = lane
        if stream == "communication" and (rank, "compute") in self.running:
            self.pace(self.running[rank, "compute"], now, False)
        for reader in self.readers[number]:
            self.missing[reader] -= 1
            if not self.missing[reader]:
                self.next(self.tasks[reader].lane, now)
        self.next(lane, now)
