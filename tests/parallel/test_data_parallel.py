"""DistributedDataParallel: the gradients of one process with the whole batch."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch
from launched import run_ranks
from torch_oracle import needs_this_torch

import onefold as flow
from onefold import nn
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.nn.parallel import DistributedDataParallel
from onefold.nn.parallel.scatter_gather import scatter_kwargs

B, S0 = flow.sbp.broadcast, flow.sbp.split(0)
MANY = 1e-5  # MiB: every parameter is a bucket


def add_layers(model, lib):
    """Layers, a batch norm, a weight that is read twice and one that is not read."""
    model.first = lib.Linear(4, 6)
    model.norm = lib.BatchNorm1d(6)
    model.square = lib.Linear(6, 6, bias=False)
    model.unused = lib.Linear(2, 2)
    model.last = lib.Linear(6, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        add_layers(self, nn)

    def forward(self, x):
        x = self.norm(self.first(x))
        return self.last(self.square(self.square(x).tanh()))


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        add_layers(self, torch.nn)

    forward = Net.forward


def net():
    flow.manual_seed(5)
    return Net().double()


def torch_net():
    model = TorchNet().double()
    model.load_state_dict({k: torch.tensor(v.numpy()) for k, v in net().state_dict().items()})
    return model


def batches():
    """For each of 3 steps, 8 samples and their targets."""
    draw = np.random.default_rng(0)
    return [(draw.normal(size=(8, 4)), draw.normal(size=(8, 3))) for _ in range(3)]


def trained_by_torch(steps=1):
    """The state after 3 updates on whole batches, by gradients of `steps` batches."""
    model = torch_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches():
        optimizer.zero_grad()
        for _ in range(steps):
            torch.nn.functional.mse_loss(model(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()
    return {name: value.numpy() for name, value in model.state_dict().items()}


def train(model, make, steps=1, read=lambda value: value.numpy()):
    """The same with our model, which gets what `make` makes of arrays; the parameters as arrays."""
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches():
        optimizer.zero_grad()
        with model.no_sync():
            for _ in range(steps - 1):
                nn.functional.mse_loss(model(make(x)), make(y)).backward()
        nn.functional.mse_loss(model(make(x)), make(y)).backward()
        for name, param in model.named_parameters():
            assert "unused" in name or param.grad.sbp == param.sbp
        optimizer.step()
    return {name: read(value) for name, value in model.state_dict().items()}


def assert_same(found, wanted):
    assert {name.removeprefix("module.") for name in found} == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(
            found[f"module.{name}"], value, rtol=1e-9, atol=1e-12, err_msg=name
        )


@pytest.mark.parametrize("ranks", [[0], [0, 1], [0, 1, 2], [[0, 1], [2, 3]]])
@pytest.mark.parametrize("cap", [None, MANY])
def test_global_batches(ranks, cap, world):
    p = flow.placement("cpu", ranks)
    model = DistributedDataParallel(net(), process_group=p, bucket_cap_mb=cap)
    split = (S0, *(B,) * (p.ndim - 1))
    found = train(model, lambda x: flow.tensor(x, placement=p, sbp=split))
    assert_same(found, trained_by_torch())


def test_groups_and_meshes_say_over_which_ranks():
    def program():
        mesh = flow.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        group = flow.distributed.new_group([0, 2] if mesh["b"].get_local_rank() == 0 else [1, 3])
        part = slice(0, 4) if mesh["a"].get_local_rank() == 0 else slice(4, 8)
        found = []
        for options in ({"process_group": group}, {"device_mesh": mesh["a"]}):
            model = DistributedDataParallel(net(), **options)
            trained = train(
                model, lambda x: flow.tensor(x[part]), read=lambda value: value.to_local().numpy()
            )
            found.append((model.placement.flat_ranks, trained))
        return found

    for rank, found in enumerate(run_ranks(4, program)):
        for ranks, trained in found:
            assert ranks == ((0, 2) if rank % 2 == 0 else (1, 3))
            assert_same(trained, trained_by_torch())


def test_gradients_of_several_batches_are_summed_once(world):
    p = flow.placement("cpu", [0, 1])
    model = DistributedDataParallel(net(), process_group=p)

    def make(x):
        return flow.tensor(x, placement=p, sbp=S0)

    with flow.profiler.comm() as log:
        found = train(model, make, steps=3)
    assert_same(found, trained_by_torch(steps=3))
    assert sum(record.op == "gradients" for record in log.records) == 3


def test_a_local_batch_of_a_virtual_world_is_that_of_every_rank(world):
    model = DistributedDataParallel(net(), process_group=flow.placement("cpu", [0, 1, 2]))
    x = flow.tensor(batches()[0][0])
    y = model.eval()(x)
    assert y.is_local and y.shape == (8, 3)
    found, wanted = train(model.train(), flow.tensor), trained_by_torch()
    found["module.norm.running_var"] = wanted["norm.running_var"]  # unbiased: 24 samples, not 8
    assert_same(found, wanted)


def test_the_gradient_of_a_local_input_is_that_of_one_process(world):
    model = DistributedDataParallel(net(), process_group=flow.placement("cpu", [0, 1]))
    x, wanted = flow.tensor(batches()[0][0]), torch.tensor(batches()[0][0])
    x.requires_grad = wanted.requires_grad = True
    model(x).square().mean().backward()
    torch_net()(wanted).square().mean().backward()
    np.testing.assert_allclose(x.grad.numpy(), wanted.grad.numpy(), atol=1e-12)


def test_gradients_add_up_as_in_torch(world):
    """A second backward adds to the mean of the first."""
    model = DistributedDataParallel(net(), process_group=flow.placement("cpu", [0, 1, 2, 3]))
    wanted = torch_net()
    for x, _ in batches():
        model(flow.tensor(x)).square().mean().backward()
        wanted(torch.tensor(x)).square().mean().backward()
    for name, param in wanted.named_parameters():
        if param.grad is not None:
            found = model.module.get_parameter(name).grad.numpy()
            np.testing.assert_allclose(found, param.grad.numpy(), atol=1e-12, err_msg=name)


def test_a_module_may_return_a_loss_and_other_things(world):
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x, *, target, scale=1.0):
            y = self.inner(x)
            return {"loss": nn.functional.mse_loss(y, target) * scale, "y": (y, None)}

    flow.manual_seed(0)
    model = DistributedDataParallel(Loss(), process_group=flow.placement("cpu", [0, 1]))
    flow.manual_seed(0)
    plain = Loss()
    x, y = (flow.tensor(a, dtype=flow.float32) for a in batches()[0])
    found, wanted = model(x, target=y, scale=2.0), plain(x, target=y, scale=2.0)
    assert found["loss"].is_local and found["y"][1] is None
    np.testing.assert_allclose(found["loss"].item(), wanted["loss"].item(), rtol=1e-6)
    found["loss"].backward()
    wanted["loss"].backward()
    np.testing.assert_allclose(
        model.module.inner.weight.grad.numpy(), plain.inner.weight.grad.numpy(), rtol=1e-5
    )


def test_buckets_leave_while_backward_runs(world):
    p = flow.placement("cpu", [0, 1])
    model = DistributedDataParallel(net(), process_group=p, bucket_cap_mb=MANY)
    x = flow.tensor(batches()[0][0], placement=p, sbp=S0)
    loss = model(x).square().mean()
    seen = []
    model.module.first.weight.register_post_accumulate_grad_hook(
        lambda _: seen.extend(len(round.ends) for round in model._reducer.rounds.values())
    )
    with flow.profiler.comm() as log:
        loss.backward()
    sums = [r.total_bytes() for r in log.records if r.op == "gradients"]
    assert len(sums) == 7 and len(model._reducer.buckets) == 9, "two are not read"
    assert seen[0] >= 5
    with flow.profiler.comm() as log:
        DistributedDataParallel(net(), process_group=p)(x).square().mean().backward()
    together = [r.total_bytes() for r in log.records if r.op == "gradients"]
    assert len(together) == 1 and sum(together) == sum(sums)


def test_without_sync_gradients_stay_where_they_were_made(world):
    p = flow.placement("cpu", [0, 1])
    model = DistributedDataParallel(nn.Linear(4, 2), process_group=p)
    x = flow.ones(4, 4, placement=p, sbp=S0)
    with model.no_sync(), flow.profiler.comm() as log:
        model(x).sum().backward()
    assert log.count() == 0 and short(model.module.weight.grad.sbp) == "(P)"
    assert model.require_backward_grad_sync
    model(x).sum().backward()
    assert short(model.module.weight.grad.sbp) == "(B)"
    assert model.module.weight.grad.numpy().tolist() == [[8.0] * 4] * 2


def test_a_wrapper_that_is_gone_leaves_no_hooks(world):
    module, seen = nn.Linear(4, 3), []

    def hook(state, bucket):
        seen.append(state)
        return bucket.buffer()

    for number in range(2):
        model = DistributedDataParallel(module, process_group=flow.placement("cpu", [0, 1]))
        model.register_comm_hook(number, hook)
        with model.no_sync():
            model(flow.ones(2, 4)).sum().backward()
        assert module.weight.grad.sbp != (B,) and not seen
        model(flow.ones(2, 4)).sum().backward()
        assert set(seen) == {number} and module.weight.grad.sbp == (B,)
        module.zero_grad()
        seen.clear()
        del model


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_sum_gradients_too(world, copied):
    model = DistributedDataParallel(net(), process_group=flow.placement("cpu", [0, 1]))
    x = flow.tensor(batches()[0][0])
    model(x).sum().backward()
    other = copied(model)
    other.zero_grad()
    with other.no_sync():
        other(x).sum().backward()
    assert other.module.last.weight.grad.sbp != (B,)
    other.zero_grad()
    other(x).sum().backward()
    for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
        assert mine is not theirs and (mine.grad is None) == (theirs.grad is None)
        assert mine.grad is None or mine.grad.sbp == (B,)


def test_a_backward_that_failed_leaves_nothing_behind(world):
    p = flow.placement("cpu", [0, 1])
    model = DistributedDataParallel(nn.Linear(4, 2), process_group=p, bucket_cap_mb=MANY)
    x = flow.ones(4, 4, placement=p, sbp=S0, requires_grad=True)
    x.register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(x).sum().backward()
    assert model.module.weight.grad is None
    model(x.detach()).sum().backward()
    assert model.module.weight.grad.numpy().tolist() == [[4.0] * 4] * 2


def test_a_backward_inside_of_another(world):
    p = flow.placement("cpu", [0, 1])
    flow.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 4), process_group=p, bucket_cap_mb=MANY)
    wanted = copy.deepcopy(model.module)
    x = flow.randn(4, 4, placement=p, sbp=S0)

    def losses(model):
        h = model(x)

        @flow.enable_grad()
        def inner(grad):
            (model(x) * 2).sum().backward()

        h.register_hook(inner)
        return model(h.tanh()).square().sum()

    for each in (model, wanted):
        losses(each).backward()
    for found, right in zip(model.module.parameters(), wanted.parameters(), strict=True):
        assert short(found.grad.sbp) == "(B)"
        np.testing.assert_allclose(found.grad.numpy(), right.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_in_a_graph(world):
    p = flow.placement("cpu", [0, 1])
    model = DistributedDataParallel(net(), process_group=p)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x, y):
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            return loss

    step = Train()
    for batch in batches():
        step(*(flow.tensor(x, placement=p, sbp=S0) for x in batch))
    assert_same({k: v.numpy() for k, v in model.state_dict().items()}, trained_by_torch())


@needs_this_torch
def test_the_arguments_are_those_of_torch():
    ours = inspect.signature(DistributedDataParallel.__init__).parameters
    theirs = inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
    assert {k: v.default for k, v in ours.items()} == {k: v.default for k, v in theirs.items()}
    assert list(ours) == list(theirs)


def test_it_wraps_the_module_itself(world):
    module = net()
    model = DistributedDataParallel(module, process_group=flow.placement("cpu", [0, 1]))
    assert model.module is module and all(p.sbp == (B,) for p in module.parameters())
    assert all(name.startswith("module.") for name in model.state_dict())
    model.load_state_dict(copy.deepcopy(model.state_dict()))


def test_a_module_that_is_global_stays_as_it_is(world):
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    module = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)).to_global(p, (B, B))
    module.to_global(sbp={"0.*": parse("(B, S0)"), "1.weight": parse("(B, S1)")})
    wanted = copy.deepcopy(module)
    model = DistributedDataParallel(module)
    x = flow.randn(6, 4, placement=p, sbp=(S0, B))
    model(x).square().mean().backward()
    wanted(x).square().mean().backward()
    assert short(module[0].weight.grad.sbp) == "(B, S0)"
    for found, right in zip(module.parameters(), wanted.parameters(), strict=True):
        np.testing.assert_allclose(found.grad.numpy(), right.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_what_is_refused(world):
    p, other = flow.placement("cpu", [0, 1]), flow.placement("cpu", [1, 2])
    with pytest.raises(OnefoldRuntimeError, match="is not needed when a module doesn't have any"):
        DistributedDataParallel(nn.ReLU())
    with pytest.raises(OnefoldTypeError, match=r"onefold Module, but got torch\..*Linear"):
        DistributedDataParallel(torch.nn.Linear(2, 2))
    with pytest.raises(OnefoldValueError, match="device_ids can only be None or contain a single"):
        DistributedDataParallel(net(), device_ids=[0, 1])
    with pytest.raises(OnefoldTypeError, match="process_group must be None"):
        DistributedDataParallel(net(), process_group="gloo")
    with pytest.raises(OnefoldRuntimeError, match="Cannot specify both"):
        DistributedDataParallel(net(), process_group=p, device_mesh=p)
    with pytest.raises(OnefoldValueError, match="the module is on"):
        DistributedDataParallel(net().to_global(p, B), process_group=other)
    with pytest.raises(OnefoldValueError, match="bucket_cap_mb must be above 0"):
        DistributedDataParallel(net(), bucket_cap_mb=-1)
    with pytest.raises(OnefoldValueError, match="mixed_precision cannot be set here"):
        DistributedDataParallel(net(), mixed_precision=object())


def _launched(cap):
    rank = flow.env.get_rank()
    flow.manual_seed(5 + 100 * rank)  # rank 0 has the weights of the oracle
    model = DistributedDataParallel(Net().double(), bucket_cap_mb=cap)
    return train(model, lambda x: flow.tensor(x[4 * rank : 4 * rank + 4]))


@pytest.mark.parametrize("cap", [None, MANY])
def test_two_processes_with_half_of_the_batch_each(cap):
    wanted = trained_by_torch()
    for found in run_ranks(2, _launched, cap):
        assert_same(found, wanted)


def _uneven():
    rank = flow.env.get_rank()
    flow.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    model = DistributedDataParallel(layers, static_graph=True)  # which trusts later parts
    for x, y in ((range(4), range(4)), (range(2), range(2, 8))):  # the rows of rank 0 and 1
        model.zero_grad()
        own = flow.tensor(batches()[0][0][list((x, y)[rank])], dtype=flow.float32)
        model(own).square().mean().backward()
    return [param.grad.numpy() for param in model.parameters()]


def test_parts_of_several_sizes_are_averaged_as_in_torch(world):
    flow.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    x = flow.tensor(batches()[0][0], dtype=flow.float32)
    ((plain(x[:2]).square().mean() + plain(x[2:]).square().mean()) / 2).backward()
    for found in run_ranks(2, _uneven):
        for mine, param in zip(found, plain.parameters(), strict=True):
            np.testing.assert_allclose(mine, param.grad.numpy(), rtol=1e-5, atol=1e-6)


def _disagreeing():
    model = DistributedDataParallel(nn.Linear(4, 3))
    try:
        model(flow.ones(4, 4 + flow.env.get_rank()))
    except flow.OnefoldError as error:
        return str(error)


def test_the_first_call_checks_the_parts():
    for text in run_ranks(2, _disagreeing):
        assert "Sizes of tensors" in text


def _of_sizes(*sizes):
    """The batch norm's mean after calls with these sizes of the ranks' parts, or the error."""
    rank = flow.env.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)))
    try:
        for each in sizes:
            first = sum(each[:rank])
            model(flow.arange(first, first + each[rank]).float()[:, None].expand(-1, 2))
    except flow.OnefoldError as error:
        return str(error)
    return model.module[0].running_mean.numpy()


def test_every_call_checks_the_parts():
    """A batch norm needs the size of the whole batch."""
    plain = torch.nn.BatchNorm1d(2)
    for rows in (4, 7):
        plain(torch.arange(rows).float()[:, None].expand(-1, 2))
    for found in run_ranks(2, _of_sizes, (2, 2), (4, 3)):
        np.testing.assert_allclose(found, plain.running_mean.numpy(), rtol=1e-6)
    for text in run_ranks(2, _of_sizes, (2, 2), (2, 6)):
        assert "(2, 2)" in text and "(6, 2)" in text


@pytest.mark.parametrize("compiled", [False, True])
def test_one_rank_evaluates_alone(compiled):
    """As scripts that report on rank 0 do; the value is that of the rank's own batch."""

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x, target=None):
            y = self.net(x)
            return y if target is None else flow.nn.functional.mse_loss(y, target)

    def program():
        rank = flow.env.get_rank()
        inner = WithLoss()
        model = DistributedDataParallel(flow.compile(inner) if compiled else inner)
        optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
        there = torch_net()
        found, expected = [], []
        for step in range(3):
            gen = torch.Generator().manual_seed(10 * step + rank)
            x = torch.randn(4, 4, generator=gen, dtype=torch.float64)
            mine = flow.from_torch(x)
            model.train()
            optimizer.zero_grad()
            model(mine, flow.zeros(4, 3, dtype=flow.float64)).backward()
            optimizer.step()
            if rank != step % 2:  # one after the other, and the last rank alone
                continue
            model.eval()
            state = {k: torch.tensor(v.numpy()) for k, v in inner.net.state_dict().items()}
            there.load_state_dict(state)
            there.eval()
            with flow.no_grad():
                for _ in range(rank + 1):
                    loss = model(mine, target=flow.zeros(4, 3, dtype=flow.float64))
                    found += [loss.item(), model(mine).sum().item()]
            for _ in range(rank + 1):
                y = there(x)
                expected += [(y**2).mean().item(), y.sum().item()]
        assert all(param.is_global for param in model.parameters())
        return np.allclose(found, expected, rtol=1e-9)

    assert run_ranks(2, program) == [True, True]


def test_functions_for_lists_of_devices_take_one():
    model, x = flow.nn.Linear(2, 3), flow.ones(4, 2)
    functions = flow.nn.parallel
    copies = functions.replicate(model, [0])
    given, options = scatter_kwargs((x,), {"name": 1}, [0])
    assert functions.scatter([x], [0]) == [[x]] and options == ({"name": 1},)
    made = functions.gather(functions.parallel_apply(copies, given), 0)
    np.testing.assert_array_equal(made.detach().numpy(), model(x).detach().numpy())
    for call in (
        lambda: functions.replicate(model, [0, 1]),
        lambda: functions.scatter(x, [0, 1]),
        lambda: functions.gather([x, x], 0),
    ):
        with pytest.raises(NotImplementedError, match=r"2 devices.*DistributedDataParallel"):
            call()
