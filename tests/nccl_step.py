"""A program of one rank whose second step is an all-reduce, replayed as a CUDA graph.

    RANK=0 WORLD_SIZE=1 python tests/nccl_step.py cuda

One rank has nothing to communicate, so this all-reduce is put into the program. Prints as JSON what
the calls gave, the reasons, and whether the graphs were gone before the process group. On the CPU
recorded calls are replayed, by Gloo.
"""

import json
import sys
import weakref
from dataclasses import replace

import torch
import torch.distributed as dist
from recorded_graphs import Recorder

import onefold as flow
from onefold import nn, sbp
from onefold.distributed.wait import begin
from onefold.distributed.world import world
from onefold.engine import boxing
from onefold.graph.cuda_graphs import segments, stream_capture
from onefold.graph.cuda_graphs.captured_boxing import CapturedBoxing
from onefold.graph.program_executor import Executable

CALLS = 6


class AllReduce(CapturedBoxing):
    """The all-reduce, as a boxing that communicates."""

    is_collective = True
    kinds = ("all_reduce",)
    ranks = frozenset({0})


def all_reduced(shards, consumes=False):
    link = world().connection()
    result = shards[0].clone()
    group = link.group((0,))
    wait = begin(link, group, "all_reduce", dist.all_reduce, result, dist.ReduceOp.SUM)

    def end():
        wait()
        return (result,)

    return end


def function(x, w):
    return flow.softmax(flow.softmax(x @ w, 1), 0)


def executable(x, w):
    """`function`, with an all-reduce before its last step."""
    graph = nn.Graph.trace(lambda x: function(x, w))
    graph._compile(x)
    steps = [*graph.program.steps]
    last = steps.pop()
    given = last.source
    made = given.laid(given.meta)
    made.number = graph.program.last_number() + 1
    moved = replace(
        last, name="boxing", inputs=(given,), outputs=(made,), attrs=(), start=all_reduced,
        run=lambda shards: all_reduced(shards)(), op=None,
    )  # fmt: skip
    index = len(steps)
    steps += [moved, last.substitute({given.number: made})]
    program = replace(graph.program, steps=steps)
    nothing = boxing.plan(given.meta, given.meta)
    segments.boxings = lambda steps: [AllReduce(index, index, nothing)]
    return Executable(program, cuda_graphs=True, communication=True)


def main(device):
    if device == "cpu":
        stream_capture.capturer = lambda kind: recorder
        recorder = Recorder()
    p = flow.placement(device, [0])
    w = flow.randn(16, 16, placement=p, sbp=sbp.broadcast)
    given = [flow.randn(32, 16, placement=p, sbp=sbp.broadcast) for _ in range(CALLS)]
    runs = executable(given[0], w)
    same, reasons = [], []
    for x in given:
        (y,) = runs.run([x])
        reasons.append(runs.cuda_graph_reason)
        same.append(torch.equal(y.shards[0], function(x, w).shards[0]))
    link = world().connection()
    watched = link.watch.replay is not None
    if device == "cuda":
        torch.cuda.synchronize()
    ended = watched and all(work.is_completed() for work in link.watch.replay.works)
    (part,) = runs._captured._parts
    gone = weakref.ref(getattr(part.replay, "__self__", part.replay))
    plan = runs.cuda_graphs()
    del part
    world().disconnect()
    text = {"same": same, "reasons": reasons, "ended": ended, "gone": gone() is None, "plan": plan}
    print(json.dumps(text))


if __name__ == "__main__":
    main(sys.argv[1])
