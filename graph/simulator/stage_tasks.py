"""Tasks of a graph with stages: the instructions of each group of ranks, and what is around them.

The steps of one action run in turn, boxings too, as the executor runs them. Messages between stages
overlap with them: a send begins after its action, and an action waits for what it receives. So do
copies to the host and back, on a stream of their own: R waits for those of its F, and B or I for
those of P.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.boxing import disjoint_boxing
from ..ir import ProgramStep, Value
from ..memory_traffic import local_bytes
from ..schedules.actions import Action, Kind
from ..stages.partition import Part
from ..stages.stage_plan import Message, StagePlan
from .comm_costs import Communication
from .event_simulation import About
from .rank_work import Amount, RankWork, Tasks


def add_stages(tasks: Tasks, plan: StagePlan) -> None:
    """Add what each rank does in a call."""
    adding = _Adding(tasks, plan)
    for index in range(len(tasks.works)):
        adding.before(index)
        adding.instructions(index)
    adding.arrivals()
    adding.after()


_KINDS: dict[Kind, str] = {
    "F": "forward",
    "B": "backward",
    "I": "backward",
    "W": "weights",
    "R": "copies",
    "P": "copies",
}
_AWAITED: dict[Kind, Kind] = {"R": "F", "B": "P", "I": "P"}  # whose copies an action waits for


class _Adding:
    def __init__(self, tasks: Tasks, plan: StagePlan) -> None:
        self.tasks = tasks
        self.plan = plan
        self.staged = plan.staged
        self.sums = self.staged.sums_by_part()
        self.crossings = [
            disjoint_boxing(t.value.meta, t.result.meta) for t in self.staged.transfers
        ]
        self.arriving: dict[Part, list[int]] = {}
        for index, transfer in enumerate(self.staged.transfers):
            self.arriving.setdefault(transfer.target, []).append(index)
        self.sent: dict[tuple[int, int], list[int]] = {}  # tasks, by transfer and micro-batch
        self.waiting: list[tuple[int, Action]] = []  # tasks that wait for what they receive
        self.amounts: dict[tuple[int, int], Amount] = {}  # by the identity of a segment's steps
        self.additions: dict[tuple[int, Part], float] = {}
        self.messages: dict[tuple[int, int], Communication] = {}
        self.copies: dict[tuple[int, Action], int] = {}  # tasks, by action

    def before(self, index: int) -> None:
        """Add the transfers of variables and inputs to their ranks."""
        staged = self.staged
        self._in_turn(index, "inputs", [*staged.once, *staged.slices.steps])
        for _ in range(self.plan.schedule.micro_batches):
            self._in_turn(index, "inputs", staged.feeds)

    def instructions(self, index: int) -> None:
        work = self.tasks.works[index]
        group = self.plan.group(work.rank)
        for each in () if group is None else self.plan.instructions[group]:
            if isinstance(each, Action):
                self._act(index, each)
            elif each.kind == "send":
                self._send(index, each)
            else:
                self._begin(index, each)

    def _act(self, index: int, action: Action) -> None:
        """Add an action, overlapped with its copies to the host and back."""
        part, work = (action.kind, action.stage), self.tasks.works[index]
        begins = action.micro_batch == 0
        steps = self.staged.first(part) if begins else self.staged.segments[part]
        found = self.amounts.get((index, id(steps)))
        if found is None:
            found = self.amounts[index, id(steps)] = self._amount(index, part, steps)
        work.done.add(found)
        seconds = found.seconds
        if not begins:
            if (index, part) not in self.additions:
                sums = self.sums.get(part, ())
                self.additions[index, part] = sum(self._adding_up(work, value) for value in sums)
            seconds += self.additions[index, part]
        micro, received = action.micro_batch, found.moved.received
        about = About(_KINDS[action.kind], nbytes=received, micro_batch=micro)
        before = work.last.get("compute")
        number = self.tasks.add(index, "compute", str(action), seconds, about=about)
        self.waiting.append((number, action))
        awaited = Action(_AWAITED.get(action.kind, action.kind), action.stage, micro)
        if (index, awaited) in self.copies:
            self.tasks.need(number, [self.copies.pop((index, awaited))])
        if found.copied:
            about = About("copies", micro_batch=micro)
            first = number if action.kind == "P" else before
            needs = () if first is None else (first,)
            name = f"copies of {action}"
            number = self.tasks.add(index, "copies", name, found.copied, needs, about=about)
            self.waiting.append((number, action))
            self.copies[index, action] = number

    def _amount(self, index: int, part: Part, steps: Sequence[ProgramStep]) -> Amount:
        work = self.tasks.works[index]
        found = self.tasks.amount(steps, index)
        for at in self.arriving.get(part, ()):
            crossing, comm = self.crossings[at], self.tasks.comm
            moved = comm.of([crossing.route], work.rank, work.costs)
            found.moved += Communication(traffic=moved.traffic)
            found.communicate(comm.of(crossing.after.steps, work.rank, work.costs))
        return found

    def _adding_up(self, work: RankWork, value: Value) -> float:
        """The seconds to add a gradient to its sum over the micro-batches."""
        nbytes = 3 * local_bytes(value.meta, work.rank)
        return work.costs.launched(work.costs.moving(nbytes))

    def _begin(self, index: int, each: Message) -> Communication:
        """Add what the host of a rank does to begin a message; the message."""
        work, crossing = self.tasks.works[index], self.crossings[each.transfer]
        key = index, each.transfer
        if key not in self.messages:
            steps = (*crossing.before.steps, crossing.route)
            self.messages[key] = self.tasks.comm.of(steps, work.rank, work.costs)
        moved = self.messages[key]
        if moved.begun:
            name = f"begin {self.staged.transfers[each.transfer].value!r}, {each.micro_batch}"
            about = About(each.kind, micro_batch=each.micro_batch)
            self.tasks.add(index, "compute", name, moved.begun, about=about)
        return moved

    def _send(self, index: int, each: Message) -> None:
        work, crossing = self.tasks.works[index], self.crossings[each.transfer]
        if work.rank not in crossing.route.placement.position:
            return
        action = work.last.get("compute")
        moved = self._begin(index, each)
        late = 0.0 if action is None else self.tasks.tasks[action].seconds
        work.done.communicate(moved)
        before = work.last.get("compute")
        _, sent = crossing.route.traffic(work.rank)
        nbytes = sent * crossing.route.before.dtype.itemsize
        number = self.tasks.add(
            index,
            "communication",
            f"send {self.staged.transfers[each.transfer].value!r}, {each.micro_batch}",
            moved.seconds - moved.begun + self.tasks.hardware.skew * late,
            () if before is None else (before,),
            about=About("send", nbytes=nbytes, micro_batch=each.micro_batch),
        )
        self.sent.setdefault((each.transfer, each.micro_batch), []).append(number)

    def arrivals(self) -> None:
        """Make actions wait for the messages that they need."""
        for number, action in self.waiting:
            needed = self.arriving.get((action.kind, action.stage), ())
            sent = (self.sent.get((at, action.micro_batch), ()) for at in needed)
            self.tasks.need(number, [each for some in sent for each in some])

    def after(self) -> None:
        """Add the work after all micro-batches: gradients between stages, updates."""
        for at, step in enumerate(self.staged.end.program.steps):
            for index in self.tasks.taking_part(step):
                amount = self.tasks.amount([step], index)
                self.tasks.works[index].done.add(amount)
                meeting = self.tasks.meeting(step, index, ("end", at))
                kind = "update" if step.start is None else amount.moved.kind or "update"
                about = About(kind, step.scope, amount.moved.received)
                self.tasks.add(index, "compute", step.name, amount.seconds, (), meeting, about)

    def _in_turn(self, index: int, name: str, steps: Sequence[ProgramStep]) -> None:
        amount = self.tasks.amount(steps, index)
        self.tasks.works[index].done.add(amount)
        if amount.seconds:
            about = About("inputs", nbytes=amount.moved.received)
            self.tasks.add(index, "compute", name, amount.seconds, about=about)
