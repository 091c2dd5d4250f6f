"""Programs of several ranks under the rules of NCCL; `nccl_stand_in` says which."""

from itertools import pairwise

import pipelines
import pytest
import torch
import torch.distributed as dist
from launched import RankFailed
from nccl_stand_in import Begun, OfHost, Record, Refused, Waited, check_order, run_like_nccl

import onefold as flow
from onefold import nn
from onefold.distributed import collectives, transfer
from onefold.distributed.wait import begin
from onefold.distributed.world import virtual_world, world
from onefold.errors import OnefoldRuntimeError

B, P, S0, S1 = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split(0), flow.sbp.split(1)
CPU, SUM = torch.device("cpu"), dist.ReduceOp.SUM


# The stand-in itself.


def ring(*ranks):
    """Each rank sends to the next one of the ring, on a communicator of each pair."""
    records = [Record(rank) for rank in ranks]
    for record, after, before in zip(records, (*ranks[1:], *ranks), (ranks[-1], *ranks),
                                     strict=False):  # fmt: skip
        for way, peer in (("sends", after), ("recvs", before)):
            pair = tuple(sorted((record.rank, peer)))
            record.events.append(Begun(len(record.events), str(pair), pair, **{way: ((peer, 8),)}))
    return records


def collective(comm="world", what="sum", number=0, members=(0, 1)):
    return Begun(number, comm, members, what)


def test_communicators_that_connect_in_a_circle():
    with pytest.raises(Refused, match="rank 0 waits in Begun"):
        check_order(ring(0, 1, 2))
    records = ring(0, 1, 2)
    records[2].events.reverse()
    check_order(records)


def test_queues_of_devices():
    one, two = collective(number=0), collective("two", number=1)
    check_order([Record(0, [one, two, Waited(1), Waited(0)]), Record(1, [one, two, Waited(0)])])
    other = [collective("two", number=0), Waited(0), collective(number=1)]
    with pytest.raises(Refused, match="rank 0 waits in Waited"):
        check_order([Record(0, [one, Waited(0), two]), Record(1, other)])
    with pytest.raises(Refused, match="meet in"):
        check_order([Record(0, [one]), Record(1, [collective(what="max")])])
    with pytest.raises(Refused, match="rank 0 waits in OfHost"):
        check_order([Record(0, [OfHost((0, 1))]), Record(1, [])])


def test_messages_that_wait_behind_others():
    """Rank 0 expects an answer before it has sent the question."""
    known = [Begun(0, "world", (0, 1), sends=((1, 8),), recvs=((1, 8),)), Waited(0)]
    peers = [Begun(0, "world", (0, 1), sends=((0, 8),), recvs=((0, 8),)), Waited(0)]
    answer = Begun(2, "world", (0, 1), recvs=((1, 8),))
    question = Begun(3, "world", (0, 1), sends=((1, 8),))
    asked = Begun(2, "world", (0, 1), recvs=((0, 8),))
    answered = Begun(4, "world", (0, 1), sends=((0, 8),))
    theirs = [*peers, asked, Waited(2), answered]
    check_order([Record(0, [*known, question, answer, Waited(2)]), Record(1, theirs)])
    with pytest.raises(Refused, match="rank 1 waits in"):
        check_order([Record(0, [*known, answer, question, Waited(2)]), Record(1, theirs)])


def refused(program):
    with pytest.raises(RankFailed) as failed:
        run_like_nccl(2, program)
    return str(failed.value)


def test_what_is_refused():
    def strided():
        link = world().connection()
        begin(link, link.group((0, 1)), "all_reduce", dist.all_reduce, torch.ones(4, 2).T, SUM)

    def boolean():
        link = world().connection()
        begin(link, link.group((0, 1)), "all_reduce", dist.all_reduce, torch.ones(2) > 0, SUM)

    def changed():
        x = torch.ones(4)
        end = collectives.begin_all_gather(x, (0, 1), [(4,), (4,)])
        x += 1
        end()

    assert "Refused: all_reduce sum torch.float32 8 of a tensor with strides" in refused(strided)
    assert "Refused: all_reduce sum torch.bool 2 of torch.bool" in refused(boolean)
    assert "what is sent changed before the wait" in refused(changed)


# Programs.


@pytest.mark.parametrize("mesh", [[0, 1, 2, 3], [[0, 1], [2, 3]], [3, 1, 0]])
def test_boxing(mesh):
    """Between all layouts of an uneven tensor, of dtypes that NCCL has and has not."""

    def program():
        p = flow.placement("cpu", mesh)
        other = flow.placement("cpu", [2, 1])
        seconds = ((S0,), (B,), (P,)) if p.ndim > 1 else ((),)
        layouts = [(first, *second) for first in (S0, S1, B, P) for second in seconds]
        for dtype in (flow.float32, flow.bfloat16, flow.int16, flow.bool, flow.complex64):
            whole = (flow.arange(35).reshape(7, 5) % 2).to(dtype)
            x = flow.tensor(whole.numpy() if dtype != flow.bfloat16 else whole.tolist(),
                            dtype=dtype, placement=p, sbp=(B,) * p.ndim)  # fmt: skip
            for one, two in pairwise(layouts):
                y = x.to_global(sbp=one).to_global(sbp=two)
                assert torch.equal(y.to_torch(), whole.to_torch()), (one, two)
            z = x.to_global(sbp=layouts[0]).to_global(other, S0).to_global(p, layouts[-1])
            assert torch.equal(z.to_torch(), whole.to_torch())
        return True

    assert all(run_like_nccl(4, program))


@pytest.mark.parametrize(
    ("spec", "schedule"),
    [
        (pipelines.Spec(((0, 1), (2, 3)), (0, 1), shortcut=True, tied=True, state=True), "1f1b"),
        (pipelines.Spec(((0,), (1,), (2,), (3,)), (0, 0, 0, 0)), "zb-h1"),
        (pipelines.Spec(((0, 1), (2, 3), (0, 1), (2, 3)), (0, 1, 1, 0)), "interleaved"),
    ],
)
def test_pipelines(spec, schedule):
    def program():
        return pipelines.run(spec, schedule, 4)[1]

    with virtual_world():
        wanted = program()
    for found in run_like_nccl(4, program, timeout=120.0):
        assert not pipelines.differ(found, wanted)


def test_messages_in_a_circle_after_an_error():
    """Each pair of ranks has a communicator of its own then, which the first message connects."""

    def program():
        rank = world().rank
        try:
            if rank == 1:
                world().connection().fail(error := OnefoldRuntimeError("it failed"))
                raise error
            collectives.barrier((0, 1, 2))
        except OnefoldRuntimeError:
            pass
        to, source = (rank + 1) % 3, (rank - 1) % 3
        (got,) = transfer([(to, torch.tensor([rank]))], [(source, (1,), torch.int64, CPU)])
        return world().connection().epoch, got.item()

    assert run_like_nccl(3, program) == [(1, 2), (1, 0), (1, 1)]


def test_a_step_of_data_parallel_training_with_zero_and_clipping():
    class Step(nn.Graph):
        def __init__(self, model, optimizer):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)
            self.config.enable_zero(True, stage=2, shard_min_size=1)

        def build(self, x):
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

    def program():
        flow.manual_seed(0)
        p = flow.placement("cpu", [0, 1])
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to_global(p, B)
        group = {
            "params": model.parameters(),
            "clip_grad_max_norm": 0.5,
            "clip_grad_norm_type": 2.0,
        }
        optimizer = flow.optim.AdamW([group], lr=0.1)
        step = Step(model, optimizer)
        x = flow.randn(8, 6, placement=p, sbp=S0)
        return [step(x).item() for _ in range(3)]

    one, two = run_like_nccl(2, program)
    assert one == two
    assert one[2] < one[0]
