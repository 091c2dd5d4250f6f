"""Join: ranks with different numbers of batches train as those of torch do, in real processes."""

import numpy as np
import pytest
import torch
from launched import run_ranks
from torch.distributed.algorithms.join import Join as TheirJoin
from torch.nn.parallel import DistributedDataParallel as TheirModel

import onefold as flow
from onefold import nn
from onefold.distributed.algorithms.join import Join, Joinable, JoinHook
from onefold.distributed.optim import ZeroRedundancyOptimizer
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.nn.parallel import DistributedDataParallel


def layers(lib):
    return lib.Sequential(lib.Linear(4, 8), lib.BatchNorm1d(8), lib.Tanh(), lib.Linear(8, 3))


def batch(rank, step):
    """Of any size: each rank computes by itself."""
    draw = np.random.default_rng(10 * step + rank)
    return draw.normal(size=(3 + rank + step % 2, 4)).astype(np.float32)


def values(tensors):
    return [
        (x.shards[0] if isinstance(x, flow.Tensor) else x.detach()).numpy().copy() for x in tensors
    ]


def trained(counts, options, by_method):
    """The parameters and buffers after a Join: ours and torch's; and a step of all ranks."""
    rank = flow.env.get_rank()
    flow.comm.barrier()  # connects, so that torch has its process group
    torch.manual_seed(0)
    plain, mine = layers(torch.nn), layers(nn)
    mine.load_state_dict(plain.state_dict())
    pairs = (
        (flow, DistributedDataParallel(mine), Join, flow.tensor),
        (torch, torch.nn.parallel.DistributedDataParallel(plain), TheirJoin, torch.tensor),
    )
    found = []
    for lib, model, join, make in pairs:
        optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with model.join(**options) if by_method else join([model], **options):
            for step in range(counts[rank]):
                optimizer.zero_grad()
                if step == 1:
                    with model.no_sync():
                        model(make(batch(rank, step))).square().mean().backward()
                model(make(batch(rank, step))).square().mean().backward()
                optimizer.step()
        found.append(values([*model.parameters(), *model.buffers()]))
    if lib is torch:
        drawn = flow.default_generator.get_state()
        optimizer = flow.optim.SGD(mine.parameters(), lr=0.1)
        pairs[0][1](flow.tensor(batch(0, 0))).square().mean().backward()
        optimizer.step()
    return *found, values(mine.parameters()), drawn


@pytest.mark.parametrize("cases", [[(4, 2), (0, 2), (2, 2)], [(1, 3, 5)]])
def test_the_parameters_are_those_of_torch(cases):
    cases = [
        (counts, {"divide_by_initial_world_size": by_all}, by_all)
        for counts in cases
        for by_all in (True, False)
    ]
    of_ranks = run_ranks(len(cases[0][0]), lambda: [trained(*case) for case in cases])
    for results in zip(*of_ranks, strict=True):
        for mine, theirs, _, _ in results:
            for one, other in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
        for *_, after, drawn in results[1:]:  # all ranks go on together
            assert drawn == results[0][3]
            for one, other in zip(after, results[0][2], strict=True):
                np.testing.assert_array_equal(one, other)


def accumulated(counts, options):
    """The gradients after each step of a rank, which are never set to zero: ours and torch's."""
    rank = flow.env.get_rank()
    flow.comm.barrier()
    found = []
    for lib, wrap in ((flow, DistributedDataParallel), (torch, TheirModel)):
        model = wrap(filled(lib.nn.Linear(2, 1, bias=False), lib))
        values = []
        with model.join(**options):
            for step in range(counts[rank]):
                model(lib.full((1, 2), 1.0 + rank + 10 * step)).sum().backward()
                (grad,) = [param.grad for param in model.parameters()]
                values.append((grad.shards[0] if lib is flow else grad).tolist())
        found.append(values)
    return found


def filled(layer, lib):
    with lib.no_grad():
        layer.weight.fill_(2.0)
    return layer


@pytest.mark.parametrize("by_all", [True, False])
def test_gradients_that_are_not_set_to_zero(by_all):
    cases = [(1, 3), (3, 1), (2, 2)]
    options = {"divide_by_initial_world_size": by_all}
    for of_rank in run_ranks(2, lambda: [accumulated(case, options) for case in cases]):
        for mine, theirs in of_rank:
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def unread():
    """A parameter that no rank reads keeps None, one that some read has the mean."""
    rank = flow.env.get_rank()

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (nn.Linear(1, 1, bias=False) for _ in range(3))

        def forward(self, x):
            return self.first(x) + (self.second(x) if rank else 0.0)

    model = DistributedDataParallel(Branches())
    with Join([model]):
        for _ in range(rank + 1):
            model.zero_grad()
            model(flow.ones(1, 1)).sum().backward()
    return [None if p.grad is None else p.grad.shards[0].item() for p in model.parameters()]


def test_parameters_that_are_not_read():
    first, second = run_ranks(2, unread)
    assert first == [1.0, 0.5, None]
    assert second == [0.5, 0.5, None]  # alone in its last step


def early():
    rank = flow.env.get_rank()
    model = DistributedDataParallel(nn.Linear(4, 2))
    try:
        with Join([model], throw_on_early_termination=True):
            for step in range(1 + rank):
                model(flow.tensor(batch(rank, step))).sum().backward()
    except OnefoldRuntimeError as error:
        return str(error)
    return ""


def test_all_ranks_may_stop_with_the_first():
    first, second = run_ranks(2, early)
    assert first == "Rank 0 exhausted all inputs."
    assert second.startswith("Detected at least one rank that exhausted inputs")


def counted():
    """A Joinable of the user's."""
    calls = []

    class Hook(JoinHook):
        def main_hook(self):
            calls.append("main")

        def post_hook(self, is_last_joiner):
            calls.append(is_last_joiner)

    class Counter(Joinable):
        join_device = torch.device("cpu")
        join_process_group = flow.placement("cpu", [0, 1])

        def join_hook(self, **kwargs):
            calls.append(kwargs)
            return Hook()

        def step(self):
            return Join.notify_join_context(self)

    counter = Counter()
    with Join([counter], some=3):
        going = [counter.step() for _ in range(1 + 2 * flow.env.get_rank())]
    return calls, going, counter.step()


def test_a_joinable_of_the_users():
    first, second = run_ranks(2, counted)
    assert first == ([{"some": 3}, "main", "main", False], [2], None)
    assert second == ([{"some": 3}, True], [2, 1, 1], None)


def refused():
    model = DistributedDataParallel(nn.Linear(4, 2))
    texts = []
    p = flow.placement("cpu", [0, 1])
    for x in (flow.ones(2, 4, placement=p, sbp=flow.sbp.split(0)),):
        try:
            with Join([model]):
                model(x)
        except OnefoldRuntimeError as error:
            texts.append(str(error))
    model.register_comm_hook(None, lambda state, bucket: bucket.buffer())
    try:
        with Join([model]):
            pass
    except OnefoldRuntimeError as error:
        texts.append(str(error))
    return texts


def test_what_is_refused(world):
    for inputs, hook in run_ranks(2, refused):
        assert "one of these is global" in inputs and "communication hook" in hook
    with pytest.raises(OnefoldValueError, match="at least one joinable"):
        Join([])
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), flow.optim.Adam)
    with pytest.raises(OnefoldTypeError, match=r"ZeroRedundancyAdam\. Leave an optimizer out"):
        Join([model, optimizer])
    models = [
        DistributedDataParallel(nn.Linear(2, 2), process_group=flow.placement("cpu", ranks))
        for ranks in ([0, 1], [1, 2])
    ]
    with pytest.raises(OnefoldValueError, match="multiple process groups"):
        Join(models)


def test_one_process_with_all_ranks_has_as_many_batches_on_each(world):
    model = DistributedDataParallel(nn.Linear(4, 2), process_group=flow.placement("cpu", [0, 1]))
    with Join([model]):
        model(flow.ones(2, 4)).sum().backward()
    assert model.module.bias.grad.tolist() == [2.0, 2.0]
