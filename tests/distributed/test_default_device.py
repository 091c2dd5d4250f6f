"""Processes communicate in blocks that make tensors on another device, such as "meta"."""

import pytest
from launched import run_ranks

import onefold as flow
import onefold.distributed as dist
from onefold import nn
from onefold.distributed.device_mesh import init_device_mesh
from onefold.distributed.fsdp import fully_shard
from onefold.distributed.tensor import DTensor, Shard


def communicate(inside):
    rank = dist.get_rank()
    x = flow.full((2,), float(rank))
    with flow.device("meta"):
        dist.barrier()
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        if rank == 0:
            flow.comm.send(x, 1)
        else:
            x = x + flow.comm.recv(0, device="cpu")
        rows = DTensor.from_local(x, init_device_mesh("cpu", (2,)), [Shard(0)])
        model = nn.Linear(64, 64)
        if inside:
            fully_shard(model)
    if not inside:
        fully_shard(model)  # of what has no data yet, without a mesh
    assert all(weight.is_meta for weight in model.parameters())
    model.to_empty(device="cpu")
    return objects, rows.full_tensor().tolist(), model.weight.placements


@pytest.mark.parametrize("inside", [True, False])
def test_in_a_block_of_meta_tensors(inside):
    for objects, rows, placements in run_ranks(2, communicate, inside):
        assert objects == [{"rank": 0}, {"rank": 1}]
        assert rows == [0, 0, 1, 1] and placements == (Shard(0),)
