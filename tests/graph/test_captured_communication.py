"""CUDA graphs that communicate, between real processes: what replays is recorded calls."""

import json
import os
import sys
import time
import weakref
from functools import cache

import pytest
import torch.distributed as dist
from captured_steps import Train, batches
from launched import RankFailed, run_ranks
from recorded_graphs import Recorder
from source_tree import REPO

import onefold as flow
from onefold import sbp
from onefold.distributed import collectives, current_op
from onefold.distributed.world import world as this_world
from onefold.errors import OnefoldRuntimeError
from onefold.graph import call_list
from onefold.graph.cuda_graphs import captured_calls, stream_capture
from onefold.graph.cuda_graphs.segments import Where

B, S0 = sbp.broadcast, sbp.split(0)
FIRST = "the first call runs without CUDA graphs"
WARM = "the kernels were compiled and loaded by this call, for the capture by the next"
OPTIONS = {"parts": 2, "clip": 0.1}
OF_HOSTS = "CUDA graphs", "step "  # agreements, and the optimizer's comparison of replicas


class Captured:
    def wait(self):
        pass


class Watched(Recorder):
    """Notes how each collective of torch was launched."""

    def __init__(self):
        super().__init__()
        self.mode, self.seen, self.fails = "eager", [], False
        self.graphs, self.forbids = [], False
        for name in ("all_reduce", "all_to_all_single"):
            setattr(dist, name, self.noting(name, getattr(dist, name)))
        collectives._all_gather = self.noting("all_gather", collectives._all_gather)

    def noting(self, name, collective):
        def noted(tensor, *args, **options):
            if not current_op.name.startswith(OF_HOSTS):
                self.seen.append((self.mode, name))
            if self.mode == "capture" and self.forbids:
                raise RuntimeError("operation not permitted when stream is capturing")
            # A capture computes nothing, and waits for nobody.
            return Captured() if self.mode == "capture" else collective(tensor, *args, **options)

        return noted

    def capture(self, function, static):
        if self.fails:
            raise RuntimeError("out of memory")
        self.mode = "capture"
        try:
            replay, result = super().capture(function, static)
        finally:
            self.mode = "eager"

        def replaying():
            self.mode = "replay"
            replay()
            self.mode = "eager"

        self.graphs.append(weakref.ref(replaying))
        return replaying, result

    def calls(self):
        """How the calls since the last question communicated."""
        found, self.seen = [mode for mode, _ in self.seen], []
        return list(dict.fromkeys(found))


def training(**options):
    graph = Train(**OPTIONS, placement=flow.placement("cpu", [0, 1]), sbp=B)
    graph.config.enable_cuda_graph(**options)
    graph.recorder = Watched()
    stream_capture.capturer = lambda kind: graph.recorder
    return graph


def inputs(count):
    return batches(count, rows=8, placement=flow.placement("cpu", [0, 1]), sbp=S0)


def train(events, count=9, **options):
    """Losses, reasons and launches of steps; `events` are done before a step on some ranks."""
    graph = training(**options)
    recorder, given = graph.recorder, inputs(count)
    flow.manual_seed(11)
    losses, reasons, modes = [], [], []
    for number, x in enumerate(given):
        for event in events.get((this_world().rank, number), ()):
            event(graph, recorder)
        recorder.calls()
        loss = graph(x)
        modes.append(recorder.calls())
        reasons.append(graph.cuda_graph_reason)
        losses.append(loss.numpy().tolist())
    plan = [line for line in graph.plan(0).splitlines() if line.startswith("# ")]
    return losses, reasons, modes, plan


def move(graph, recorder):
    weight = graph.model.up.weight
    weight.shards = tuple([x.clone() for x in weight.shards])


def fail(graph, recorder):
    recorder.fails = True


def forbid(graph, recorder):
    recorder.forbids = True


def mend(graph, recorder):
    recorder.fails = recorder.forbids = False


def watch(graph, recorder):
    call_list.watchers.append(lambda step, run: run)


def unwatch(graph, recorder):
    call_list.watchers.clear()


def open_log(graph, recorder):
    recorder.log = flow.profiler.comm()
    recorder.log.__enter__()


def close_log(graph, recorder):
    recorder.log.__exit__(None, None, None)


def both(events, **options):
    one, two = run_ranks(2, lambda: train(events, communication=True, **options))
    assert one[0] == two[0]
    return one, two


@cache
def plain():
    return run_ranks(2, lambda: train({}, mode=False))[0][0]


def test_ranks_capture_and_replay_together():
    """In the sixth step a parameter moves on rank 1 alone: both capture again."""
    one, two = both({(1, 5): [move]})
    assert one[0] == plain()
    replayed = ["replay"]
    again = [["eager"], ["capture", "replay"], replayed]
    assert one[2] == two[2] == [["eager"], *again, replayed, *again, replayed]
    assert one[1] == [
        FIRST, WARM, "", "", "",
        "rank 1 has to capture again, and so all ranks do", "", "", "",
    ]  # fmt: skip
    assert two[1] == [FIRST, WARM, "", "", "", WARM, "", "", ""]
    assert one[3][0].startswith("# CUDA graph: ") and ", with " in one[3][0]


def test_results_of_a_call_without_graphs_are_its_own():
    """A view of an input, where one rank alone was ready to replay: of the input, not its copy."""

    def program():
        where = flow.placement("cpu", [0, 1])
        graph = Train(returns=lambda graph, x: x.t(), placement=where, sbp=B)
        graph.config.enable_cuda_graph(communication=True)
        graph.recorder = Watched()
        stream_capture.capturer = lambda kind: graph.recorder
        kept = []
        for number, x in enumerate(inputs(9)):
            if this_world().rank == 1 and number in (5, 6):
                (watch, unwatch)[number - 5](graph, None)
            _, view = graph(x)
            kept.append((view, view.shards[0].clone(), graph.cuda_graph_reason))
        return [bool((view.shards[0] == then).all()) for view, then, _ in kept], kept[5][2]

    for same, why in run_ranks(2, program):
        assert all(same), same
        assert why


def test_off_unless_asked_for():
    def program():
        losses, _, modes, plan = train({}, count=5)
        return losses, modes, plan

    (losses, modes, plan), _ = run_ranks(2, program)
    assert losses == plain()[:5]
    assert set(map(tuple, modes)) == {("eager",)}
    text = "config.enable_cuda_graph(communication=True) captures collectives of NCCL"
    assert any(line.startswith("# between: boxing") and text in line for line in plan)


def test_a_capture_that_fails_on_one_rank():
    """No rank replays what one of them did not capture; later graphs communicate between them."""
    one, two = both({(1, 2): [fail], (1, 3): [mend]})
    assert one[0] == plain()
    assert one[2] == [["eager"]] * 2 + [["capture", "eager"]] + [["eager"]] * 6
    assert two[2] == [["eager"]] * 9
    assert one[1] == two[1]
    failed = "rank 1: the capture failed: out of memory"
    assert one[1][2:5] == [failed, FIRST, WARM]
    assert one[1][5:] == [f"communication runs between graphs: {failed}"] * 4
    assert any(line.endswith(f"communicates with other processes: {failed}") for line in one[3])


def test_a_step_that_fails_in_a_capture_on_one_rank():
    """The others do not raise its error."""
    one, two = both({(1, 2): [forbid], (1, 3): [mend]}, count=6)
    assert one[0] == plain()[:6]
    assert one[1] == two[1]
    text = one[1][2]
    assert text.startswith("rank 1: the capture failed: ")
    assert "operation not permitted when stream is capturing" in text
    assert one[1][5] == f"communication runs between graphs: {text}"


def test_what_looks_at_calls_on_one_rank_sees_each_step():
    """The others do the same for that call, and all keep their graphs."""
    events = {(1, 4): [watch], (1, 5): [unwatch], (0, 6): [open_log], (0, 7): [close_log]}
    one, two = both(events, count=8)
    assert one[0] == plain()[:8]
    looks = "something looks at each step, such as a profile"
    others = "rank {} ran this call without CUDA graphs"
    assert one[1][2:] == ["", "", others.format(1), "", looks, ""]
    assert two[1][2:] == ["", "", looks, "", others.format(0), ""]
    captured, replayed, eager = ["capture", "replay"], ["replay"], ["eager"]
    assert one[2][2:] == [captured, replayed, eager, replayed, eager, replayed]


def test_what_cannot_be_captured():
    """Ranks on which it cannot be tell the others why, in their first call."""

    def program():
        found = []
        for name, value in ("TORCH_NCCL_BLOCKING_WAIT", "1"), ("NCCL_GRAPH_MIXING_SUPPORT", "0"):
            os.environ[name] = value if this_world().rank else ""
            graph = training(communication=True)
            for x in inputs(4):
                graph(x)
                found.append(graph.cuda_graph_reason)
            os.environ[name] = ""
        this_world().connection().check = True
        graph = training(communication=True)
        graph(inputs(1)[0])
        return [*found, graph.cuda_graph_reason]

    one, two = run_ranks(2, program)
    waits = "rank 1: with TORCH_NCCL_BLOCKING_WAIT=1 the host waits for each collective"
    mixed = "rank 1: NCCL_GRAPH_MIXING_SUPPORT=0 forbids collectives besides those of CUDA graphs"
    checks = "ONEFOLD_CHECK=1 compares each collective"
    assert one == two
    assert one == [
        *(waits, FIRST, WARM, f"communication runs between graphs: {waits}"),
        *(mixed, FIRST, WARM, f"communication runs between graphs: {mixed}"),
        f"rank 0: {checks}; rank 1: {checks}",
    ]


def test_a_replay_that_does_not_end(tmp_path):
    """The watch ends the process, and says which graph it was."""

    def program():
        graph = training(communication=True)
        late = this_world().rank == 1
        sys.excepthook = lambda kind, error, trace: (tmp_path / "told").write_text(
            f"{kind.__name__}: {error}"
        )
        for number, x in enumerate(inputs(6)):
            if number == 4 and not late:
                graph.recorder.finished = lambda device: lambda: False
            graph(x)
        time.sleep(9 if late else 40)

    with pytest.raises(RankFailed, match="rank 0 ended without a result"):
        run_ranks(2, program, env={"ONEFOLD_TIMEOUT": "4"})
    first, *rest = (tmp_path / "told").read_text().splitlines()
    assert first.startswith(
        "CommTimeout: CUDA graph 1 of 1 (1 all_gather, 9 all_reduce) over ranks"
    )
    assert first.endswith("waited 4 s for other ranks (ONEFOLD_TIMEOUT).")
    assert any(line.startswith("  rank 1 arrived: at test_captured") for line in rest)


def test_graphs_go_before_the_groups_that_they_hold():
    def program():
        graph = training(communication=True)
        for x in inputs(4):
            graph(x)
        graphs, gone = graph.recorder.graphs, []
        assert len(graphs) == 2 and all(each() for each in graphs)
        destroy = dist.destroy_process_group

        def destroying():
            gone.extend(each() is None for each in graphs)
            destroy()

        dist.destroy_process_group = destroying
        this_world().disconnect()
        return gone

    assert run_ranks(2, program) == [[True, True]] * 2


def test_one_rank_as_on_a_gpu():
    """What tests/gpu runs with NCCL."""
    (printed,) = run_ranks(1, REPO / "tests" / "nccl_step.py", "cpu")
    found = json.loads(printed)
    assert found["same"] == [True] * 6
    assert found["reasons"] == [FIRST, WARM, "", "", "", ""]
    assert found["plan"].endswith("with 1 all_reduce")
    assert found["ended"] and found["gone"]


def test_ranks_that_would_capture_in_another_order():
    """Draws are captured on rank 0 alone, as with other kernels on rank 1."""

    def program():
        def where(kind, launched, in_memory, between):
            return Where(kind, launched, not this_world().rank, between)

        where.between = Where.between
        captured_calls.Where = where
        return train({}, communication=True, count=5)

    one, two = run_ranks(2, program)
    text = "ranks would capture what they communicate in different orders"
    assert one[:3] == two[:3]
    assert one[0] == plain()[:5]
    assert one[1] == [text, FIRST, WARM, *[f"communication runs between graphs: {text}"] * 2]


def test_ranks_go_on_after_an_error():
    """Communicators are new then, and so are the graphs that hold them."""

    def program():
        graph = training(communication=True)
        reasons = []
        for number, x in enumerate(inputs(9)):
            try:
                if number == 4 and this_world().rank == 1:
                    error = OnefoldRuntimeError("no data")
                    this_world().report_error(error)
                    raise error
                graph(x)
                reasons.append(graph.cuda_graph_reason)
            except OnefoldRuntimeError as error:
                reasons.append(str(error).splitlines()[0])
        return reasons, graph.recorder.captures

    (one, captures), (two, _) = run_ranks(2, program)
    assert one[:4] == two[:4] == [FIRST, WARM, "", ""]
    assert (one[4], two[4]) == ("rank 1: no data", "no data")
    assert one[5:] == two[5:] == [WARM, "", "", ""]
    assert captures == 4  # the update, too
