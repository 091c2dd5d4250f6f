"""Checks that a plan cannot deadlock, by running it with blocking messages.

The messages of every group go through one queue, in the order in which they are posted. A message
moves only when its two ends are at the heads of their queues. A plan that ends under this rule also
ends on Gloo, and on NCCL, where messages between two ranks match by order and a send may wait for
its receive.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
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
    queues: list[list[Message]] = [[] for _ in plan.instructions]
    arrived: set[tuple[int, int]] = set()

    def post(group: int, each: Instruction) -> bool:
        if isinstance(each, Action):
            wanted = needs.get((each.kind, each.stage), ())
            return all((index, each.micro_batch) in arrived for index in wanted)
        queues[group].append(each)
        while _one_moves(queues, arrived):
            pass
        return True

    done = in_turn(plan.instructions, post)
    left = [at < len(its) for at, its in zip(done, plan.instructions, strict=True)]
    if any(queues) or any(left):
        waiting = [
            f"ranks {list(staged.ranks[group])} before {plan.instructions[group][at]}"
            for group, at in enumerate(done)
            if left[group]
        ]
        raise OnefoldRuntimeError(f"the plan cannot run: {', '.join(waiting)} wait")


def _one_moves(queues: list[list[Message]], arrived: set[tuple[int, int]]) -> bool:
    """Let a message arrive whose ends are both at the heads of their queues, if there is one."""
    heads = {queue[0]: queue for queue in queues if queue}
    for message, queue in heads.items():
        other = heads.get(replace(message, kind="receive"))
        if message.kind == "send" and other is not None:
            queue.pop(0)
            other.pop(0)
            arrived.add((message.transfer, message.micro_batch))
            return True
    return False


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
