"""flow.comm: each collective against torch's of the same name, and errors that all ranks raise."""

import warnings

import pytest
import torch
import torch.distributed as dist
from launched import run_ranks

import onefold as flow
from onefold.distributed.world import virtual_world, world

comm = flow.comm


def value(rank, shape=(2, 3), dtype=torch.float32):
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) * (rank + 1) + rank).to(dtype)


def ours(x):
    return flow.tensor(x)


def pairs(rank, size, dtype):
    """(our call, torch's call, our outputs, torch's outputs) of every collective."""
    x = value(rank, dtype=dtype)
    parts = [value(rank + 10 * i, dtype=dtype) for i in range(size)]
    blank = [torch.zeros_like(x) for _ in range(size)]
    long, tall = torch.zeros(size * 2, 3, dtype=dtype), torch.zeros(size, 2, 3, dtype=dtype)
    last = size - 1

    def only(there, tensors):
        return tensors if rank == there else None

    yield "all_reduce", (x,), (0,)
    yield "reduce", (x, last), (0,)
    yield "broadcast", (x, last), (0,)
    yield "all_gather", (blank, x), (0,)
    yield "all_gather_into_tensor", (long, x), (0,)
    yield "all_gather_into_tensor", (tall, x), (0,)
    yield "gather", (x, only(last, blank), last), (1,)
    yield "scatter", (torch.zeros_like(x), only(last, parts), last), (0,)
    yield "reduce_scatter", (torch.zeros_like(x), parts), (0,)
    yield "reduce_scatter_tensor", (torch.zeros_like(x), torch.stack(parts)), (0,)
    yield "reduce_scatter_tensor", (torch.zeros_like(x), torch.cat(parts)), (0,)
    if dtype is not torch.float64:
        yield "all_to_all", (blank, parts), (0,)


def mapped(arg, function):
    if isinstance(arg, torch.Tensor | flow.Tensor):
        return function(arg)
    return [function(x) for x in arg] if isinstance(arg, list) else arg


def _compare(dtype):
    world().connection()
    rank, size = flow.env.get_rank(), flow.env.get_world_size()
    wrong = []
    for name, args, outs in pairs(rank, size, dtype):
        mine = [mapped(arg, ours) for arg in args]
        # Gloo has no outputs with a dim of ranks in front.
        theirs = [mapped(arg, lambda x: x.clone().flatten(0, -2)) for arg in args]
        getattr(comm, name)(*mine)
        if name == "all_to_all":  # Gloo has none of lists: by the definition
            told = [None] * size
            dist.all_gather_object(told, args[1])
            theirs[0] = [sent[rank] for sent in told]
        else:
            with warnings.catch_warnings(action="ignore", category=FutureWarning):  # new names
                getattr(dist, name)(*theirs)
        for out in outs:
            expected = theirs[out]
            if name == "reduce" and rank != args[1]:
                expected = args[0]  # torch leaves what it likes there
            if repr(mapped(mine[out], lambda x: x.to_torch().flatten(0, -2))) != repr(expected):
                wrong.append((name, mine[out], expected))
    return wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_collectives_are_torchs(dtype):
    assert run_ranks(3, _compare, dtype) == [[], [], []]


def _messages():
    rank = flow.env.get_rank()
    x = ours(value(rank))
    if rank == 0:
        comm.send(x, 1)
        comm.send(x, 1, send_meta=False)
        comm.send(x[:, 1], 1)
        comm.send(flow.tensor(3), 1)
        return comm.recv(1).tolist()
    out = flow.zeros(2)
    got = [
        comm.recv(0).tolist(),
        comm.recv(0, (2, 3), torch.float32, "cpu").tolist(),
        comm.recv(0, out=out) is out and out.tolist(),
        comm.recv(0).item(),
    ]
    comm.send(ours(torch.ones(0, 2)), 0)
    return got


def test_messages():
    sent = value(0)
    assert run_ranks(2, _messages) == [
        [],
        [sent.tolist(), sent.tolist(), sent[:, 1].tolist(), 3],
    ]


def _uneven():
    rank = flow.env.get_rank()
    outs = [flow.zeros(1), flow.zeros(3)]
    comm.all_gather(outs, ours(value(rank, (1 + 2 * rank,))))
    row = flow.zeros(2, 2)
    comm.all_reduce(row[rank].fill_(1.0 + rank))  # a view: its base sees the sum
    comm.barrier()
    return [x.tolist() for x in outs], row.tolist()


def test_uneven_parts_and_views():
    parts = [value(0, (1,)).tolist(), value(1, (3,)).tolist()]
    assert run_ranks(2, _uneven) == [(parts, [[3, 3], [0, 0]]), (parts, [[0, 0], [3, 3]])]


def _raised(call):
    try:
        call(flow.env.get_rank())
    except flow.OnefoldError as error:
        return type(error).__name__, str(error)
    return None


BAD = {
    "shape": (lambda r: comm.all_reduce(flow.ones(2 + r)), "RankMismatch", "rank 1 "),
    "dtype": (
        lambda r: comm.broadcast(flow.ones(2).to((torch.float32, torch.int64)[r]), 0),
        "RankMismatch",
        "int64",
    ),
    "rank": (lambda r: comm.reduce(flow.ones(2), 2 * r), "OnefoldValueError", "ranks 0 to 1"),
    "which": (lambda r: comm.broadcast(flow.ones(2), r), "RankMismatch", "same shapes"),
    "length": (
        lambda r: comm.all_gather([flow.ones(2)] * (1 + r), flow.ones(2)),
        "OnefoldValueError",
        "list of 2",
    ),
    "own": (
        lambda r: comm.all_gather([flow.ones(2)] * 2, flow.ones(2 + r)),
        "ShapeError",
        r"tensor_list[1] is float32[2]",
    ),
    "output": (
        lambda r: comm.all_gather_into_tensor(flow.ones(4 + r), flow.ones(2)),
        "ShapeError",
        "(2, 2) or (4,)",
    ),
    "list": (
        lambda r: comm.gather(flow.ones(2), [flow.ones(2)] * 2),
        "OnefoldValueError",
        "leave it out",
    ),
    "no list": (lambda r: comm.scatter(flow.ones(2)), "OnefoldValueError", "scatter_list"),
    "parts": (
        lambda r: comm.all_to_all([flow.ones(2)] * 2, [flow.ones(2 + r)] * 2),
        "RankMismatch",
        "rank 1 sends float32[3] to rank 0",
    ),
    "type": (
        lambda r: comm.all_reduce((flow, torch)[r].ones(2)),
        "OnefoldTypeError",
        "onefold Tensors",
    ),
    "other": (
        lambda r: comm.reduce(flow.ones(2), 0) if r else comm.all_reduce(flow.ones(2)),
        "RankMismatch",
        "rank 1 reduce",
    ),
}


def _bad():
    p = flow.placement("cpu", [0, 1])
    whole = flow.ones(2, placement=p, sbp=flow.sbp.broadcast)
    found = {name: _raised(call) for name, (call, *_) in BAD.items()}
    found["global"] = _raised(lambda r: comm.all_reduce(whole))
    kept = flow.ones(2)
    _raised(lambda r: comm.reduce(kept, 5))
    return found, kept.tolist()


def test_every_rank_raises_alike():
    (first, kept), second = run_ranks(2, _bad)
    assert {name: told for name, told in first.items() if told != second[0][name]} == {}
    assert kept == second[1]
    assert kept == [1, 1]
    assert first.pop("global")[0] == "MixedTensorsError"
    for name, (_, kind, text) in BAD.items():
        assert first[name], name
        assert first[name][0] == kind, first[name]
        assert text in first[name][1]


def test_one_process_is_every_rank():
    with virtual_world(1):
        x, out = flow.ones(2), flow.zeros(2)
        comm.all_reduce(x)
        comm.reduce(x, 0)
        comm.broadcast(x, 0)
        comm.scatter(out, [x])
        comm.all_to_all([out], [x * 2])
        comm.reduce_scatter(out, [out])
        comm.reduce_scatter_tensor(out, out.reshape(1, 2))
        comm.reduce_scatter_tensor(out, out.reshape(2, 1))
        comm.barrier()
        assert (x.tolist(), out.tolist()) == ([1, 1], [2, 2])
        with pytest.raises(RuntimeError, match="this process itself"):
            comm.send(x, 0)
        with pytest.raises(ValueError, match="ranks 0 to 0"):
            comm.recv(1)
    with virtual_world(3):
        x, outs = flow.ones(2), [flow.zeros(2) for _ in range(3)]
        comm.all_reduce(x)
        comm.gather(x, outs)
        comm.broadcast(x, 2)
        assert [y.tolist() for y in outs] == [[3, 3]] * 3
        joined, odd = flow.zeros(6), flow.zeros(2, 1, 3)
        comm.all_gather_into_tensor(odd, x)
        comm.all_gather_into_tensor(joined, x)
        comm.all_gather(outs, x)
        assert joined.tolist() == odd.flatten().tolist() == [3] * 6
        with pytest.raises(RuntimeError, match="differs from rank to rank"):
            comm.scatter(x, outs)
