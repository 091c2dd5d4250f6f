"""An error that depends on data is raised on one rank; the others raise it where they need it."""

import os
import sys
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from launched import RankFailed, run_ranks

import onefold as flow
from onefold.distributed import collectives, transfer
from onefold.distributed.pending import Pending
from onefold.distributed.rank_error import RankError
from onefold.distributed.world import forget_world, world
from onefold.errors import (
    CommError,
    OnefoldError,
    OnefoldIndexError,
    OnefoldRuntimeError,
    PeerLost,
)
from onefold.kernels.indexing_ref import OutOfRangeError

B, P = flow.sbp.broadcast, flow.sbp.partial_sum
S0 = flow.sbp.split(0)
CHECKS = pytest.mark.parametrize("env", [{}, {"ONEFOLD_CHECK": "1"}], ids=["", "check"])
# Far below the limit of a wait: an error travels at once.
SOON = 25.0


def cpu(*ranks):
    return flow.placement("cpu", list(ranks))


def everyone():
    return cpu(*range(world().size))


def row_ids(bad_ranks, bad=99):
    """Two ids on each rank, out of range on `bad_ranks`."""
    own = [1, bad if world().rank in bad_ranks else 2]
    return flow.tensor(own).to_global(everyone(), S0)


def looked_up(ids):
    weight = flow.ones(8, 3, placement=ids.placement, sbp=B)
    return flow.nn.functional.embedding(ids, weight)


def caught(action, *args):
    """What `action(*args)` gives, or its error as (class, rank that raised it, text)."""
    try:
        return action(*args)
    except OnefoldError as error:
        return type(error).__name__, error.raised_on, str(error)


def total(ids):
    return looked_up(ids).sum().item()


def lookup(bad_ranks):
    return total(row_ids(bad_ranks))


@CHECKS
@pytest.mark.parametrize("size", [2, 4])
def test_a_program_that_catches_the_error_on_all_ranks_goes_on(size, env):
    def program():
        return [caught(lookup, bad) for bad in ((), (1,), (), (0,), (1,), ())]

    started = time.monotonic()
    for rank, found in enumerate(run_ranks(size, program, env=env)):
        for step, bad in ((1, 1), (3, 0), (4, 1)):
            kind, raised_on, text = found[step]
            assert kind == "OutOfRangeError"
            assert raised_on == bad
            assert "index out of range: got 99, but the weight has 8 rows" in text
            assert text.startswith("embedding:" if rank == bad else f"rank {bad}: embedding:")
            if rank != bad:
                assert f"raised again on rank {rank}" in text
                assert "at test_rank_errors.py:" in text
                assert "in total" in text
        assert [found[0], found[2], found[5]] == [6.0 * size] * 3
    assert time.monotonic() - started < SOON


@pytest.mark.parametrize("size", [2, 4])
def test_uncaught_on_all_ranks(size, tmp_path):
    def program():
        try:
            total(row_ids((1,)))
        except IndexError as error:
            (tmp_path / str(world().rank)).write_text(f"{error.raised_on}\n{error}")
            raise

    started = time.monotonic()
    with pytest.raises(RankFailed, match=r"rank 1 failed:(.|\n)*OutOfRangeError: embedding"):
        run_ranks(size, program)
    assert time.monotonic() - started < SOON
    for rank in range(size):
        raised_on, first, *_ = (tmp_path / str(rank)).read_text().splitlines()
        assert raised_on == "1"
        assert first.startswith("embedding:" if rank == 1 else "rank 1: embedding:")


def test_before_the_ranks_have_communicated():
    def program():
        index = flow.zeros(2, dtype=flow.int64, placement=everyone(), sbp=B)
        own = index.to_local().to_torch()
        own += 99 * world().rank
        row = flow.from_torch(own).to_global(everyone(), P, check_meta=False)
        ids = flow.from_torch(own).to_global(everyone(), S0, check_meta=False)
        first = caught(lambda: looked_up(ids).sum(0).numpy())
        return first[:2], row.numpy().tolist()

    assert run_ranks(2, program) == [(("OutOfRangeError", 1), [99, 99])] * 2


@pytest.mark.parametrize("size", [2, 4])
def test_two_ranks_fail_at_once(size):
    def program():
        ends = (0, size - 1)
        return [caught(lookup, bad) for bad in (ends, (), ends, ())]

    for rank, found in enumerate(run_ranks(size, program)):
        for kind, raised_on, text in (found[0], found[2]):
            assert kind == "OutOfRangeError"
            if rank in (0, size - 1):
                assert raised_on == rank
                assert text.startswith("embedding:")
            else:
                assert raised_on in (0, size - 1)
                assert text.startswith(f"rank {raised_on}: embedding:")
        assert [found[1], found[3]] == [6.0 * size] * 2


def test_all_ranks_fail_in_the_same_op():
    def program():
        def step(bad):
            ids = flow.tensor([1, 99 if bad else 2], placement=everyone(), sbp=B)
            return looked_up(ids).to_global(sbp=S0).sum().item()

        return [caught(step, bad) for bad in (True, False, True, True, False)]

    for rank, found in enumerate(run_ranks(4, program)):
        assert [f[1] if isinstance(f, tuple) else f for f in found] == [rank, 6.0, rank, rank, 6.0]


@CHECKS
def test_a_group_without_the_failing_rank(env):
    """Ranks 0 and 1 complete what they do alone, and raise where they meet rank 3."""

    def program():
        rank = world().rank
        ids = row_ids((3,))
        pair = flow.ones(2, 2, placement=cpu(0, 1), sbp=S0)
        reached = []

        def step():
            rows = looked_up(ids)
            reached.append("looked up")
            half = pair.sum().to_global(sbp=B)
            if rank < 2:
                reached.append(float(half.shards[0]))
            rows.sum().item()
            reached.append("end")

        error = caught(step)[:2]
        again = pair.sum().to_global(sbp=B)
        after = float(again.shards[0]) if rank < 2 else None
        return error, reached, after, total(row_ids(()))

    told = ("OutOfRangeError", 3)
    pair = (told, ["looked up", 4.0], 4.0, 24.0)
    assert run_ranks(4, program, env=env) == [
        pair,
        pair,
        (told, ["looked up"], None, 24.0),
        (told, [], None, 24.0),
    ]


def test_a_rank_that_waits_for_one_that_waits():
    """Rank 0 only communicates with rank 1, which cannot go on without rank 2."""

    def program():
        rank = world().rank
        everyone()

        def step():
            if rank == 2:
                looked_up(flow.tensor([99], placement=cpu(2), sbp=B))
            if rank > 0:
                collectives.all_reduce(torch.ones(1), (1, 2), "sum")
            if rank < 2:
                collectives.all_reduce(torch.ones(1), (0, 1), "sum")

        return caught(step)[:2], float(collectives.all_reduce(torch.ones(1), (0, 1, 2), "sum"))

    assert run_ranks(3, program) == [(("OutOfRangeError", 2), 3.0)] * 3


@CHECKS
def test_messages_between_placements(env):
    def program():
        def step(bad):
            ids = flow.tensor([1, 99 if bad else 2], placement=cpu(0), sbp=B)
            moved = looked_up(ids).to_global(cpu(1), B)
            return (moved * 2).sum().to_global(cpu(0, 1), B).item()

        return [caught(step, bad) for bad in (False, True, False, True, False)]

    for found in run_ranks(2, program, env=env):
        assert [f[:2] if isinstance(f, tuple) else f for f in found] == [
            12.0,
            ("OutOfRangeError", 0),
            12.0,
            ("OutOfRangeError", 0),
            12.0,
        ]


def test_gradients_after_an_error():
    """A failed step leaves what the next one needs: groups, counters and the tape."""

    def program():
        weight = flow.ones(8, 3, placement=everyone(), sbp=B, requires_grad=True)

        def step(bad):
            weight.grad = None
            flow.nn.functional.embedding(row_ids(bad), weight).sum().backward()
            return weight.grad.numpy().sum().item()

        return [caught(step, bad) for bad in ((1,), (), (0, 1), ())]

    for rank, found in enumerate(run_ranks(2, program)):
        assert [found[1], found[3]] == [12.0, 12.0]
        assert found[0][:2] == ("OutOfRangeError", 1)
        assert found[2][:2] == ("OutOfRangeError", rank)


class Lookup(flow.nn.Graph):
    def build(self, ids):
        return looked_up(ids).sum().to_global(sbp=B)


class CrossEntropy(flow.nn.Graph):
    def build(self, logits, target):
        return flow.nn.functional.cross_entropy(logits, target).to_global(sbp=B)


@pytest.mark.parametrize("size", [2, 4])
def test_in_a_graph(size):
    def program():
        graph, loss = Lookup(), CrossEntropy()
        logits = flow.zeros(2 * size, 8, placement=everyone(), sbp=S0)

        def step(bad):
            return graph(row_ids(bad)).item()

        def losses(bad):
            return loss(logits, row_ids(bad)).item()

        found = [caught(step, bad) for bad in ((), (1,), (), (0,), ())]
        found += [caught(losses, bad) for bad in ((), (1,), ())]
        return found

    for found in run_ranks(size, program):
        assert [found[0], found[2], found[4]] == [6.0 * size] * 3
        assert [found[1][:2], found[3][:2]] == [("OutOfRangeError", 1), ("OutOfRangeError", 0)]
        assert found[5] == found[7] == pytest.approx(2.0794415)
        assert found[6][:2] == ("OnefoldIndexError", 1)


def test_in_a_pipeline():
    class Pipeline(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.first = flow.nn.Embedding(8, 4).to_global(cpu(0), B)
            self.last = flow.nn.Linear(4, 2).to_global(cpu(1), B)
            self.first.to(flow.nn.graph.GraphModule).set_stage(0, cpu(0))
            self.last.to(flow.nn.graph.GraphModule).set_stage(1, cpu(1))
            self.config.set_gradient_accumulation_steps(2)

        def build(self, ids):
            return self.last(self.first(ids)).sum()

    def program():
        graph = Pipeline()

        def step(bad):
            ids = flow.tensor([1, 2, 3, 99 if bad else 4], placement=cpu(0), sbp=B)
            return graph(ids).numpy().tolist()

        return [caught(step, bad) for bad in (False, True, False, True, False)]

    for found in run_ranks(2, program):
        assert found[0] == found[2] == found[4]
        assert found[1][:2] == found[3][:2] == ("OutOfRangeError", 0)


def test_caught_on_one_rank_only(tmp_path):
    """Rank 0 raises at its next communication, outside of the program's `try`; rank 1 hears."""

    def program():
        ids = row_ids((1,))
        try:
            looked_up(ids)
        except IndexError:
            assert world().rank == 1
        try:
            flow.ones(2, placement=everyone(), sbp=P).numpy()
        except OnefoldError as error:
            (tmp_path / str(world().rank)).write_text(f"{type(error).__name__}\n{error}")
            raise

    started = time.monotonic()
    with pytest.raises(RankFailed):
        run_ranks(2, program)
    assert time.monotonic() - started < SOON
    kind, first, *_ = (tmp_path / "0").read_text().splitlines()
    assert kind == "OutOfRangeError"
    assert first.startswith("rank 1: embedding: index out of range")
    kind, text = (tmp_path / "1").read_text().split("\n", 1)
    assert kind == PeerLost.__name__
    assert "rank 0 did not arrive: failed because of another rank, OutOfRangeError" in text


def test_an_error_of_a_local_tensor_stays_on_its_rank():
    def program():
        first = total(row_ids(()))
        bad = caught(lambda: flow.ones(2, 2)[flow.tensor([5 * world().rank])].sum().item())
        return first, bad if isinstance(bad, float) else bad[:2], total(row_ids(()))

    assert run_ranks(2, program) == [(12.0, 2.0, 12.0), (12.0, ("OutOfRangeError", None), 12.0)]


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_communication_and_errors(seed):
    """Steps of random collectives and messages, in which any ranks fail anywhere.

    Each ends with a collective of all ranks, so all raise in it if one does, and the next is whole.
    """
    size, steps = 4, 12

    def events(random):
        for _ in range(int(random.integers(1, 6))):
            yield (
                str(random.choice(["reduce", "gather", "send"])),
                [int(rank) for rank in random.permutation(size)[: random.integers(2, size + 1)]],
            )

    def plan():
        random = np.random.default_rng(seed)
        for _ in range(steps):
            found = list(events(random))
            if random.random() < 0.6:
                failing = [int(r) for r in random.permutation(size)[: random.integers(1, 3)]]
                found.insert(int(random.integers(len(found) + 1)), ("fail", failing))
            yield [*found, ("reduce", list(range(size)))]

    def do(kind, ranks, me, step):
        if me not in ranks:
            return 0.0
        if kind == "fail":
            looked_up(flow.tensor([99], placement=cpu(me), sbp=B))
        if kind == "reduce":
            return float(collectives.all_reduce(torch.tensor(me + step), tuple(ranks), "sum"))
        if kind == "gather":
            parts = collectives.all_gather(
                torch.tensor([me + step]), tuple(ranks), [(1,)] * len(ranks)
            )
            return float(torch.cat(parts).sum())
        after, before = (ranks[(ranks.index(me) + by) % len(ranks)] for by in (1, -1))
        wanted = (before, (1,), torch.int64, torch.device("cpu"))
        (got,) = transfer([(after, torch.tensor([me + step]))], [wanted])
        return float(got)

    def program():
        me = world().rank
        cpu(0, 1, 2, 3)

        def run(step, found):
            return [do(kind, ranks, me, step) for kind, ranks in found]

        return [caught(run, step, found) for step, found in enumerate(plan())]

    def expected(kind, ranks, me, step):
        if me not in ranks:
            return 0.0
        if kind == "send":
            return float(ranks[ranks.index(me) - 1] + step)
        return float(sum(rank + step for rank in ranks))

    for me, found in enumerate(run_ranks(size, program)):
        for step, (result, done) in enumerate(zip(found, plan(), strict=True)):
            failing = [ranks for kind, ranks in done if kind == "fail"]
            if failing:
                assert result[0] == "OutOfRangeError"
                assert result[1] in failing[0]
                assert me not in failing[0] or result[1] == me or "raised again" in result[2]
            else:
                assert result == [expected(kind, ranks, me, step) for kind, ranks in done]


def test_communication_asks_the_store_nothing():
    """What tells of errors costs nothing while there are none."""

    class Counted:
        def __init__(self, store):
            self.store, self.calls = store, 0

        def __getattr__(self, name):
            self.calls += 1
            return getattr(self.store, name)

    def program():
        ids, moved = row_ids(()), flow.ones(3, placement=cpu(0), sbp=B)

        def step():
            return total(ids), moved.to_global(cpu(1), B)

        for _ in range(2):  # then ranks expect each other's next collective
            step()
        link = world().connection()
        link.store = Counted(link.store)
        for _ in range(5):
            step()
        calls, link.store = link.store.calls, link.store.store
        return calls

    assert run_ranks(2, program) == [0, 0]


def test_groups_that_the_program_made_itself_stay_open(tmp_path):
    def program():
        rank = world().rank
        world().disconnect()
        store = dist.FileStore(str(tmp_path / "theirs"))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        os.environ["ONEFOLD_STORE"] = str(tmp_path / "ours")
        forget_world()
        found = [caught(lookup, bad) for bad in ((), (1,), ())]
        ours = torch.ones(1)
        dist.all_reduce(ours)
        world().disconnect()
        dist.destroy_process_group()
        return [f[:2] if isinstance(f, tuple) else f for f in found], float(ours)

    assert run_ranks(2, program) == [([12.0, ("OutOfRangeError", 1), 12.0], 2.0)] * 2


def test_how_an_error_travels():
    error = OutOfRangeError("index 9 is out of bounds\n  argument 0")
    sent = RankError.from_json(RankError.of(error, 3).to_json())
    again = sent.raised_again(1, "all_reduce", "a.py:3 in f", [RankError(5, (), "singular\nx")])
    assert type(again) is OutOfRangeError
    assert again.raised_on == 3
    assert str(again).startswith(
        "rank 3: index 9 is out of bounds\n  argument 0\n  rank 5 failed too: singular\n"
        "  raised again on rank 1, which cannot complete all_reduce, at a.py:3 in f, without rank 3"
    )
    unknown = RankError(0, ("theirs.Own", *sent.classes[1:]), "text").raised_again(1, "", "")
    assert type(unknown) is OnefoldIndexError
    nothing_known = RankError(0, ("theirs.Own",), "text").raised_again(1, "", "")
    assert type(nothing_known) is OnefoldRuntimeError


def test_errors_of_communication_are_not_reported_again():
    def program():
        link = world().connection()
        world().report_error(CommError("lost"))
        return link.epoch

    assert run_ranks(2, program) == [0, 0]


def test_a_device_that_waits_for_the_rank_ends_the_process(tmp_path):
    """Nothing can be raised there: the watch says why, within moments, and ends the process."""

    class NeverDone:
        def is_completed(self):
            return False

    def program():
        link = world().connection()
        if world().rank == 1:
            looked_up(flow.tensor([99], placement=cpu(1), sbp=B))
        sys.excepthook = lambda kind, error, trace: (tmp_path / "said").write_text(str(error))
        counter = link.group((0, 1)).counter
        link.watch.pending = Pending("all_reduce", "sum", (counter,), [NeverDone()])
        if world().rank == 0:
            time.sleep(SOON)

    with pytest.raises(RankFailed, match="rank 0 ended without a result: exit code 1"):
        run_ranks(2, program)
    text = (tmp_path / "said").read_text()
    assert text.startswith("rank 1: embedding: index out of range")
    assert text.endswith("cannot be interrupted, so this process ends.")
