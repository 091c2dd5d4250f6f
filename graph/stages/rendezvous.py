"""Checks that a plan cannot deadlock, by running it with blocking messages.

The messages of every group go through one queue, in the order in which they are posted. A message
moves only when its two ends are at the heads of their queues. A plan that ends under this rule also
ends on Gloo, and on NCCL, where messages between two ranks match by order and a send may wait for
its receive.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import product

from ...errors import OnefoldRuntimeError
from ..schedules.action_order import in_turn
from ..schedules.actions import Action
from .stage_plan import Instruction, Message, StagePlan


def check_rendezvous(plan: StagePlan) -> None:
    """Raise OnefoldRuntimeError, which names the waiting ranks, if a plan would not end.

    Also if the two ends of a transfer are not posted exactly once each.
    """
    staged = plan.staged
    _check_pairs(plan)
    needs: dict[tuple[str, int], list[int]] = {}
    for index, transfer in enumerate(staged.transfers):
        needs.setdefault(transfer.target, []).append(index)
    queues = _Queues(len(plan.instructions))

    def post(group: int, each: Instruction) -> bool:
        if isinstance(each, Action):
            wanted = needs.get((each.kind, each.stage), ())
            return all((index, each.micro_batch) in queues.arrived for index in wanted)
        queues.post(group, each)
        return True

    done = in_turn(plan.instructions, post)
    left = [at < len(its) for at, its in zip(done, plan.instructions, strict=True)]
    if queues.waiting or any(left):
        waiting = [
            f"ranks {list(staged.ranks[group])} before {plan.instructions[group][at]}"
            for group, at in enumerate(done)
            if left[group]
        ]
        raise OnefoldRuntimeError(f"the plan cannot run: {', '.join(waiting)} wait")


class _Queues:
    """The messages of every group that have not moved, and what has arrived."""

    def __init__(self, groups: int) -> None:
        self._queues: list[deque[Message]] = [deque() for _ in range(groups)]
        self.waiting: dict[int, int] = {}  # by the order of a head, the group whose head it is
        self.arrived: set[tuple[int, int]] = set()  # transfers and their micro-batches

    def post(self, group: int, message: Message) -> None:
        """Append a message, and move those whose ends are both at the heads of their queues."""
        self._queues[group].append(message)
        heads = [group] if len(self._queues[group]) == 1 else []
        while heads:
            group = heads.pop()
            head = self._queues[group][0]
            other = self.waiting.pop(head.order, None)
            if other is None:
                self.waiting[head.order] = group
                continue
            self.arrived.add((head.transfer, head.micro_batch))
            for each in (group, other):
                self._queues[each].popleft()
                if self._queues[each]:
                    heads.append(each)


def _check_pairs(plan: StagePlan) -> None:
    """Both ends of each transfer of each micro-batch once, a send after what makes its value."""
    count: Counter[tuple[str, int, int]] = Counter()
    for instructions in plan.instructions:
        done: set[Action] = set()
        last = -1
        for each in instructions:
            if isinstance(each, Action):
                done.add(each)
                continue
            count[each.kind, each.transfer, each.micro_batch] += 1
            source = Action(*plan.staged.transfers[each.transfer].source, each.micro_batch)
            if each.kind == "send" and source not in done:
                raise OnefoldRuntimeError(f"the plan is wrong: {each} comes before {source}")
            if each.order <= last:
                raise OnefoldRuntimeError(f"the plan is wrong: {each} is not in the global order")
            last = each.order
    transfers, micros = range(len(plan.staged.transfers)), range(plan.schedule.micro_batches)
    wanted = set(product(("send", "receive"), transfers, micros))
    wrong = [key for key in sorted({*count, *wanted}) if count[key] != (key in wanted)]
    if wrong:
        raise OnefoldRuntimeError(f"the plan is wrong: {wrong[0]} is there {count[wrong[0]]} times")
