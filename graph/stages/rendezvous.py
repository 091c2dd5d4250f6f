"""Checks that a plan cannot deadlock, by running it with blocking messages.

The messages of every group go through one queue, in the order in which they are posted. A message
moves only when its two ends are at the heads of their queues. A plan that ends under this rule also
ends on Gloo, and on NCCL, where messages between two ranks match by order and a send may wait for
its receive.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import OnefoldRuntimeError
from ..schedules.actions import Action
from .stage_plan import Message, StagePlan


def check_rendezvous(plan: StagePlan) -> None:
    """Raise OnefoldRuntimeError, naming who waits before what, if a plan would not end.

    Also if the two ends of a transfer are not posted exactly once each.
    """
    staged = plan.staged
    _check_pairs(plan)
    needs: dict[tuple[str, int], list[int]] = {}
    for index, transfer in enumerate(staged.transfers):
        needs.setdefault(transfer.target, []).append(index)
    next_of = [0] * len(plan.instructions)
    queues: list[list[Message]] = [[] for _ in plan.instructions]
    arrived: set[tuple[int, int]] = set()
    moved = True
    while moved:
        moved = False
        for group, instructions in enumerate(plan.instructions):
            while next_of[group] < len(instructions):
                each = instructions[next_of[group]]
                if isinstance(each, Message):
                    queues[group].append(each)
                else:
                    wanted = needs.get((each.kind, each.stage), ())
                    if not all((index, each.micro_batch) in arrived for index in wanted):
                        break
                next_of[group] += 1
                moved = True
        heads = {queue[0]: group for group, queue in enumerate(queues) if queue}
        for message, group in heads.items():
            other = replace(message, kind="receive")
            if message.kind == "send" and other in heads:
                queues[group].pop(0)
                queues[heads[other]].pop(0)
                arrived.add((message.transfer, message.micro_batch))
                moved = True
    if any(queues) or any(
        at < len(theirs) for at, theirs in zip(next_of, plan.instructions, strict=True)
    ):
        waiting = [
            f"ranks {list(staged.ranks[group])} before {plan.instructions[group][at]}"
            for group, at in enumerate(next_of)
            if at < len(plan.instructions[group])
        ]
        raise OnefoldRuntimeError(f"the plan cannot run: {', '.join(waiting)} wait")


def _check_pairs(plan: StagePlan) -> None:
    """Both ends of each transfer of each micro-batch once, a send after what makes its value."""
    count: dict[tuple[str, int, int], int] = {}
    for instructions in plan.instructions:
        done: set[Action] = set()
        last = -1
        for each in instructions:
            if isinstance(each, Action):
                done.add(each)
                continue
            key = each.kind, each.transfer, each.micro_batch
            count[key] = count.get(key, 0) + 1
            source = Action(*plan.staged.transfers[each.transfer].source, each.micro_batch)
            if each.kind == "send" and source not in done:
                raise OnefoldRuntimeError(f"the plan is wrong: {each} comes before {source}")
            if each.order <= last:
                raise OnefoldRuntimeError(f"the plan is wrong: {each} is not in the global order")
            last = each.order
    wanted = {
        (kind, index, micro): 1
        for kind in ("send", "receive")
        for index in range(len(plan.staged.transfers))
        for micro in range(plan.schedule.micro_batches)
    }
    if count != wanted:
        wrong = sorted(key for key in {*count, *wanted} if count.get(key) != wanted.get(key))
        raise OnefoldRuntimeError(
            f"the plan is wrong: {wrong[0]} is there {count.get(wrong[0], 0)} times"
        )
