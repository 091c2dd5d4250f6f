"""flow.distributed under torch's names: the same program with torch and here, on real processes."""

import subprocess
import sys
from datetime import timedelta

import pytest
import torch
from launched import run_ranks
from torch_oracle import IS_NAMED

import onefold as flow
from onefold.distributed.torch_names import MISSING, MODULES, OFFERED
from onefold.distributed.world import virtual_world, world
from onefold.errors import (
    CommTimeout,
    MixedTensorsError,
    OnefoldTypeError,
    OnefoldValueError,
    RankMismatch,
)

dist = flow.distributed


def collectives_of(lib, rank):
    """What every collective gives, with a group of some ranks too."""
    dist, made = lib.distributed, []
    groups = [dist.new_group([0, 2]), dist.new_group([1])]
    group = groups[rank % 2]
    for op in ("SUM", "MAX", "MIN", "PRODUCT", "BAND"):
        x = lib.arange(3) + rank + 1
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        made.append(x.tolist())
    x = lib.full((2,), float(rank))
    dist.all_reduce(x, group=group, async_op=True).wait()
    made.append((x.tolist(), dist.get_rank(groups[0]), dist.get_process_group_ranks(group)))
    out = [lib.zeros(2) for _ in range(3)]
    dist.all_gather(out, lib.full((2,), float(rank)))
    made.append([each.tolist() for each in out])
    x = lib.full((2,), float(rank))
    dist.broadcast(x, group=group, group_src=0)
    made.append(x.tolist())
    ins, outs = [1, 2, 1], [[1, 2, 1][rank]] * 3
    rows = lib.empty(sum(outs))
    dist.all_to_all_single(rows, lib.arange(4.0) + 10 * rank, outs, ins)
    made.append(rows.tolist())
    parts = [lib.full((1,), float(i)) for i in range(3)] if rank == 1 else None
    x = lib.zeros(1)
    dist.scatter(x, parts, src=1)
    into = [lib.zeros(1) for _ in range(3)] if rank == 2 else None
    dist.gather(x, into, dst=2)
    made.append((x.item(), [each.item() for each in into or ()]))
    x, y = lib.full((2,), float(rank)), lib.full((2,), float(rank))
    works = [dist.all_reduce(x, async_op=True), dist.broadcast(y, 1, async_op=True)]
    future = works[0].get_future().then(lambda future: future.value()[0].tolist())
    lib.futures.collect_all([work.get_future() for work in works]).wait()
    made.append((future.wait(), x.tolist(), y.tolist(), dist.get_node_local_rank(5)))
    dist.barrier()
    return made


def sharded_of(lib, rank):
    """Each rank's part of a sum, and the whole of the parts again, under old and new names."""
    dist, made = lib.distributed, []
    for old, new in (
        ("reduce_scatter_tensor", "reduce_scatter_single"),
        ("all_gather_into_tensor", "all_gather_single"),
    ):
        known = new if hasattr(dist, new) else old  # newer torch warns of the old name
        for name in (old, new) if lib is flow else (known, known):
            out = lib.zeros(2 if "scatter" in old else 6)
            getattr(dist, name)(out, lib.arange(6.0 if "scatter" in old else 2.0) * (rank + 1))
            made.append(out.tolist())
    return made


def messages_of(lib, rank):
    """A ring in which all send first, objects, and messages in an order of their own."""
    dist, made = lib.distributed, []
    x, y = lib.full((2,), float(rank)), lib.empty(2)
    sent = dist.isend(x, (rank + 1) % 3)
    dist.irecv(y, (rank - 1) % 3).wait()
    sent.wait()
    made.append(y.tolist())
    z = lib.empty(2)
    batch = [(dist.isend, y, (rank + 1) % 3), (dist.irecv, z, (rank - 1) % 3)]
    for work in dist.batch_isend_irecv([dist.P2POp(*each) for each in batch]):
        work.wait()
    made.append(z.tolist())
    if rank == 0:
        first = dist.isend(lib.ones(1), 1, tag=2)
        dist.send(lib.zeros(1), 1, tag=1)
        first.wait()
    elif rank == 1:
        a, b = lib.empty(1), lib.empty(1)
        made.append((dist.recv(b, 0, tag=1), dist.recv(a, 0, tag=2), a.item(), b.item()))
    objects = [None] * 3
    dist.all_gather_object(objects, {"rank": rank, "name": ("loss", 0.5)})
    made.append(objects)
    told = ["x", {"lr": 0.1}] if rank == 1 else [None, None]
    dist.broadcast_object_list(told, src=1)
    mine = [None]
    dist.scatter_object_list(mine, [1, "b", None] if rank == 0 else None, src=0)
    found = [None] * 3 if rank == 2 else None
    dist.gather_object(rank, found, dst=2)
    return made, told, mine, found


@pytest.mark.parametrize("program", [collectives_of, sharded_of, messages_of])
def test_as_torch(program):
    def both():
        world().connection()
        rank = dist.get_rank()
        return program(flow, rank) == program(torch, rank)

    assert run_ranks(3, both) == [True] * 3


MANY = 1 << 17


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (((4,), torch.float32), ((4,), torch.int32)),
        (((3,), torch.float32), ((4,), torch.float32)),
        (((0,), torch.float32), ((4,), torch.float32)),
        (((MANY,), torch.float32), ((4,), torch.float32)),
        (((MANY,), torch.float32), ((MANY - 50, 1), torch.float32)),
        (((4,), torch.float32), ((MANY,), torch.float32)),
    ],
)
def test_a_message_of_another_form_is_an_error(sent, expected):
    def errors():
        try:
            if dist.get_rank() == 0:
                dist.send(flow.ones(sent[0], dtype=sent[1]), 1)
                dist.barrier()
            else:
                into = flow.zeros(expected[0], dtype=expected[1])
                try:
                    dist.recv(into, 0)
                finally:
                    assert not into.any()
        except RankMismatch as error:
            return str(error)

    for text in run_ranks(2, errors):
        assert f"sent float32 {sent[0]}" in text
        assert f"receives {str(expected[1])[6:]} {expected[0]}" in text


def test_a_message_may_have_other_dims():
    def messages():
        found = []
        for size in (0, 6, MANY):
            if dist.get_rank() == 0:
                dist.send(flow.arange(size).reshape(2, -1) if size else flow.zeros(0, 2), 1)
            else:
                into = flow.zeros(size, dtype=flow.int64 if size else flow.float32)
                dist.recv(into, 0)
                found.append(flow.equal(into, flow.arange(size).to(into.dtype)))
        return found

    assert run_ranks(2, messages) == [[], [True] * 3]


def test_wrong_calls():
    def errors():
        me = dist.get_rank()
        sub = dist.new_group([0])
        found = [sub is dist.GroupMember.NON_GROUP_MEMBER, dist.get_world_size(sub)]
        p = flow.placement("cpu", [0, 1])
        for call, kind in (
            (lambda: dist.send(flow.ones(1), me), OnefoldValueError),
            (lambda: dist.isend(flow.ones(1), 7), OnefoldValueError),
            (
                lambda: dist.send(flow.ones(2, placement=p, sbp=flow.sbp.broadcast), 1 - me),
                MixedTensorsError,
            ),
            (lambda: dist.all_reduce(flow.ones(1), "sum"), OnefoldTypeError),
            (lambda: dist.all_reduce(flow.ones(1), group=[0, 1]), OnefoldTypeError),
            (lambda: dist.new_group([0, 5]), RuntimeError),
            (lambda: flow.comm.all_reduce(flow.ones(1), "cube"), OnefoldValueError),
            (lambda: flow.comm.all_reduce(flow.ones(1), ranks=[1 - me]), OnefoldValueError),
        ):
            with pytest.raises(kind):
                call()
        return found

    assert run_ranks(2, errors) == [[False, 1], [True, -1]]


def test_one_process(monkeypatch):
    monkeypatch.setenv("ONEFOLD_TIMEOUT", "60")
    with virtual_world(1):
        assert dist.is_available() and not dist.is_initialized()
        dist.init_process_group("gloo", timeout=timedelta(seconds=5), rank=0, world_size=1)
        assert dist.is_initialized() and dist.get_backend() == "gloo"
        with pytest.raises(ValueError, match="twice"):
            dist.init_process_group("gloo")
        x = flow.ones(2)
        dist.all_reduce(x)
        gathered = [None]
        dist.all_gather_object(gathered, object)
        assert x.tolist() == [1, 1] and gathered == [object]
        assert (dist.get_rank(), dist.get_world_size(), dist.group.WORLD.size()) == (0, 1, 1)
        dist.destroy_process_group()
        assert not dist.is_initialized()


SPAWNED = """
import sys
import onefold.distributed as dist
import onefold.multiprocessing as mp
import onefold as flow

def main(rank, size, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    x = flow.ones(1) * (rank + 1)
    dist.all_reduce(x)
    assert x.item() == 3 and flow.env.get_rank() == rank
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(main, args=(2, sys.argv[1]), nprocs=2)
"""


def test_a_start_that_failed_can_be_repeated(monkeypatch):
    def times_out(self, ranks):
        raise CommTimeout("no other rank came")

    with virtual_world():
        with monkeypatch.context() as patch:
            patch.setattr(type(world()), "ensure", times_out)
            with pytest.raises(CommTimeout):
                dist.init_process_group("gloo")
        assert not dist.is_initialized()
        dist.init_process_group("gloo")
        dist.destroy_process_group()


def test_a_rank_that_is_not_in_the_group():
    x = flow.zeros(3)
    for call in (
        lambda: dist.broadcast(x, group_src=3),
        lambda: dist.broadcast(x, group_src=-1),
        lambda: dist.broadcast_object_list([1], src=3),
        lambda: dist.scatter_object_list([1], [1], src=3),
        lambda: dist.gather_object(1, [0], dst=3),
    ):
        # In a world of one rank, whatever tests before have placed tensors on.
        with virtual_world(), pytest.raises(OnefoldValueError, match=r"group (rank -?\d is|has)"):
            call()


def test_ranks_outside_of_a_group_do_nothing():
    x = flow.zeros(3)
    other = dist.GroupMember.NON_GROUP_MEMBER
    assert dist.all_to_all_single(x, flow.ones(3), group=other) is None
    assert dist.all_reduce(x, group=other) is None
    assert dist.broadcast(x, group=other, group_src=0) is None
    assert dist.reduce(x, group=other, group_dst=0) is None
    assert dist.gather(x, group=other) is None
    assert dist.scatter(x, group=other, group_src=0) is None
    assert x.tolist() == [0, 0, 0]
    assert run_ranks(2, lambda: dist.monitored_barrier(dist.new_group([0]))) == [None, None]


def test_processes_of_a_program(tmp_path):
    """They say which ranks they are, since no launcher does."""
    (tmp_path / "program.py").write_text(SPAWNED)
    command = [sys.executable, tmp_path / "program.py", tmp_path / "meet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_name():
    """Those that are offered are there, and torch has all."""
    for name in OFFERED:
        assert getattr(dist, name) is not None and name in dir(dist)
    for name in MISSING:
        with pytest.raises(AttributeError, match=f"{name} is not offered"):
            getattr(dist, name)
    assert not IS_NAMED or all(hasattr(torch.distributed, name) for name in OFFERED)
    for name in MODULES:
        assert dir(getattr(dist, name)) and name in dir(dist)
    with pytest.raises(ImportError, match=r"every rank runs the same program"):
        __import__("onefold.distributed.rpc")
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = dist.other
