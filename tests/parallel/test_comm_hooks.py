"""Communication hooks of DistributedDataParallel give what torch's give, in real processes."""

import numpy as np
import pytest
import torch
from launched import run_ranks
from torch.distributed.algorithms import ddp_comm_hooks
from torch.futures import Future

import onefold as flow
import onefold.distributed as dist
from onefold import nn
from onefold.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from onefold.errors import OnefoldError, OnefoldRuntimeError, OnefoldTypeError
from onefold.nn.parallel import DistributedDataParallel

HOOKS = ["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "noop_hook"]
MANY = 1e-4  # MiB: several buckets


def layers(lib):
    return lib.Sequential(lib.Linear(4, 16), lib.Tanh(), lib.Linear(16, 16), lib.Linear(16, 3))


def batch(rank, step):
    return np.random.default_rng(10 * step + rank).normal(size=(5, 4)).astype(np.float32)


def theirs(name):
    if name == "noop_hook":
        return ddp_comm_hooks.debugging_hooks.noop_hook
    hook = getattr(ddp_comm_hooks.default_hooks, name)

    def renamed(state, bucket):  # torch refuses the one for bfloat16 by its name, without a GPU
        return hook(state, bucket)

    return renamed


def trained(name, wrapped):
    """The gradients of two steps, and the parameters: ours and torch's."""
    rank = flow.env.get_rank()
    flow.comm.barrier()  # connects, so that torch has its process group
    torch.manual_seed(0)
    plain = layers(torch.nn)
    mine = layers(nn)
    mine.load_state_dict(plain.state_dict())
    own = DistributedDataParallel(mine, bucket_cap_mb=MANY)
    other = torch.nn.parallel.DistributedDataParallel(plain, bucket_cap_mb=MANY)
    ours, hook = getattr(default_hooks, name), theirs(name)
    if wrapped:
        ours = default_hooks.fp16_compress_wrapper(ours)
        hook = ddp_comm_hooks.default_hooks.fp16_compress_wrapper(hook)
    own.register_comm_hook(None, ours)
    other.register_comm_hook(None, hook)
    found = []
    for lib, model, make in ((flow, own, flow.tensor), (torch, other, torch.tensor)):
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
        values = []
        for step in range(2):
            optimizer.zero_grad()
            model(make(batch(rank, step))).square().mean().backward()
            grads = [param.grad for param in model.parameters()]
            values += [(x.shards[0] if lib is flow else x).numpy().copy() for x in grads]
            if name != "noop_hook":  # with which ranks have other weights
                optimizer.step()
        found.append(values)
    return found


def test_the_gradients_are_those_of_torch():
    cases = [(name, wrapped) for name in HOOKS for wrapped in (False, True)]
    for of_rank in run_ranks(2, lambda: [trained(*case) for case in cases]):
        for (name, wrapped), (mine, other) in zip(cases, of_rank, strict=True):
            half = wrapped or "compress" in name
            near = 1e-2 if half else 1e-6
            for one, right in zip(mine, other, strict=True):
                np.testing.assert_allclose(one, right, rtol=near, atol=near / 10, err_msg=name)


def counted():
    """What a hook of the user's sees: the order, the sizes and the views."""
    rank = flow.env.get_rank()
    model = DistributedDataParallel(layers(nn), bucket_cap_mb=MANY)
    seen = []

    def hook(state, bucket):
        state.append(rank)
        views = bucket.gradients()
        assert [x.shape for x in views] == [p.shape for p in bucket.parameters()]
        views[0].mul_(2.0)
        seen.append((bucket.index(), bucket.buffer().numel(), bucket.is_last()))
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / dist.get_world_size())

    state = []
    model.register_comm_hook(state, hook)
    with model.no_sync():
        model(flow.ones(2, 4)).sum().backward()
    assert seen == []
    model.zero_grad()
    model(flow.ones(2, 4)).sum().backward()
    return seen, state, model.module[3].bias.grad.tolist()


def test_a_hook_of_the_users():
    first, second = run_ranks(2, counted)
    assert first[0] == second[0]
    assert [index for index, _, _ in first[0]] == list(range(len(first[0]))) and len(first[0]) > 1
    assert [last for *_, last in first[0]] == [False] * (len(first[0]) - 1) + [True]
    assert sum(size for _, size, _ in first[0]) == 4 * 16 + 16 + 16 * 17 + 17 * 3
    assert first[1] == [0] * len(first[0]) and second[1] == [1] * len(first[0])
    assert first[2] == second[2] == [4.0] * 3  # the hook doubled it by its view


def test_one_process_with_all_ranks(world):
    flow.manual_seed(0)
    model = DistributedDataParallel(layers(nn), process_group=flow.placement("cpu", [0, 1]))
    x = flow.tensor(batch(0, 0))
    model(x).square().mean().backward()
    wanted = [param.grad.numpy() for param in model.parameters()]
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    model.zero_grad()
    model(x).square().mean().backward()
    for param, right in zip(model.parameters(), wanted, strict=True):
        assert param.grad.sbp == param.sbp
        np.testing.assert_allclose(param.grad.numpy(), right, rtol=1e-5, atol=1e-7)


def test_split_parameters_are_summed_without_the_hook(world):
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    module = layers(nn).to_global(p, (flow.sbp.broadcast, flow.sbp.broadcast))
    module.to_global(sbp={"0.*": (flow.sbp.broadcast, flow.sbp.split(0))})
    model = DistributedDataParallel(module)
    seen = []

    def hook(state, bucket):
        seen.extend(bucket.parameters())
        return bucket.buffer()

    model.register_comm_hook(None, hook)
    model(
        flow.ones(4, 4, placement=p, sbp=(flow.sbp.split(0), flow.sbp.broadcast))
    ).sum().backward()
    assert len(seen) == 4 and not {id(p) for p in seen} & {id(p) for p in module[0].parameters()}
    assert module[0].weight.grad.sbp == module[0].weight.sbp


def test_what_is_refused(world):
    model = DistributedDataParallel(layers(nn), process_group=flow.placement("cpu", [0, 1]))
    with pytest.raises(OnefoldTypeError, match="must be callable"):
        model.register_comm_hook(None, 3)
    model.register_comm_hook(None, lambda state, bucket: None)
    with pytest.raises(OnefoldRuntimeError, match="only be called once"):
        model.register_comm_hook(None, debugging_hooks.noop_hook)
    with pytest.raises(OnefoldError, match="must return a future"):
        model(flow.ones(2, 4)).sum().backward()
    short = DistributedDataParallel(layers(nn), process_group=flow.placement("cpu", [0, 1]))

    def hook(state, bucket):
        future = Future()
        future.set_result(bucket.buffer()[:3])
        return future

    short.register_comm_hook(None, hook)
    with pytest.raises(OnefoldError, match="as many elements"):
        short(flow.ones(2, 4)).sum().backward()
    with pytest.raises(ImportError, match="bf16_compress_hook"):
        from onefold.distributed.algorithms.ddp_comm_hooks import powerSGD_hook  # noqa: F401, PLC0415
