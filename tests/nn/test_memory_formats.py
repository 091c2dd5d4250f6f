"""Memory formats of modules: set by `to`, and kept by what reads and writes parameters."""

import copy

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.errors import OnefoldRuntimeError
from onefold.testing.gpu_driver import GpuDriver

LAST = torch.channels_last
B, S0 = flow.sbp.broadcast, flow.sbp.split(0)


def make(lib):
    layers = [lib.Conv2d(3, 8, 3, padding=1), lib.BatchNorm2d(8), lib.Conv2d(8, 4, 1)]
    return lib.Sequential(*layers, lib.ConvTranspose2d(4, 2, 2, 2), lib.Conv3d(2, 3, 2))


def strides(module):
    """Of the local memory of all parameters and buffers, for each shard; not of dims of size 1."""
    tensors = [*module.parameters(), *module.buffers()]
    return [
        [
            [step for step, size in zip(part.stride(), part.shape, strict=True) if size > 1]
            for part in getattr(x, "shards", (x,))
        ]
        for x in tensors
    ]


def is_last(x):
    """Whether the memory of all shards is channels-last and not row-major."""
    last = {4: LAST, 5: torch.channels_last_3d}[x.ndim]
    return all(
        part.is_contiguous(memory_format=last) and not part.is_contiguous() for part in x.shards
    )


@pytest.mark.parametrize("also", [(), (torch.float64,), ("cpu", torch.float64)])
def test_to_turns_what_has_the_dims(world, also):
    """As torch's, which raises an error for modules with tensors of five dims."""
    ours, theirs = make(nn), make(torch.nn)
    kept = [p.numpy().copy() for p in ours.parameters()]
    for module in ours[:4], theirs[:4]:
        module.to(*also, memory_format=LAST)
    assert strides(ours[:4]) == strides(theirs[:4])
    ours.to(memory_format=LAST)
    assert strides(ours[4]) == strides(theirs[4]) and not is_last(ours[4].weight)
    for module in ours[4], theirs[4]:
        module.to(*also, memory_format=torch.channels_last_3d)
    assert strides(ours[4]) == strides(theirs[4]) and is_last(ours[4].weight)
    assert {p.dtype for p in ours.parameters()} == {p.dtype for p in theirs.parameters()}
    for p, before in zip(ours.parameters(), kept, strict=True):
        np.testing.assert_array_equal(p.numpy(), before)
    ours.to(memory_format=torch.contiguous_format)
    assert strides(ours) == strides(make(torch.nn))
    assert ours.to(memory_format=torch.preserve_format) is ours


def test_global_modules(world):
    p = flow.placement("cpu", [0, 1])
    layer = nn.Conv2d(4, 6, 3).to_global(p, B).to(memory_format=LAST)
    value = layer.weight.numpy()
    assert is_last(layer.weight)
    optimizer = flow.optim.SGD(layer.parameters(), lr=0.0)
    for sbp in (S0, flow.sbp.split(1), B):
        layer.to_global(sbp={"weight": sbp})
        layer.weight.grad = flow.zeros_like(layer.weight)
        optimizer.step()  # after which the memory is dense
        assert is_last(layer.weight)
    assert is_last(nn.Conv2d(4, 6, 3).to(memory_format=LAST).to_global(p, B).weight)
    np.testing.assert_array_equal(layer.weight.numpy(), value)


def _joined():
    layer = nn.Conv2d(4, 6, 3).to(memory_format=LAST)
    layer.to_global(flow.placement("cpu", [0, 1]), B)
    optimizer = flow.optim.Adam(layer.parameters())
    x = flow.ones(2, 4, 5, 5, placement=layer.weight.placement, sbp=S0)
    layer(x).sum().backward()
    optimizer.step()
    return is_last(layer.weight), is_last(optimizer.state[layer.weight]["exp_avg"])


def test_two_processes():
    assert run_ranks(2, _joined) == [(True, True)] * 2


def test_loading_writes_into_the_parameter_as_it_lies(world, tmp_path):
    turned, plain = nn.Conv2d(3, 4, 3).to(memory_format=LAST), nn.Conv2d(3, 4, 3)
    saved = turned.state_dict()
    assert is_last(saved["weight"]) and is_last(copy.deepcopy(turned).weight)
    plain.load_state_dict(saved)
    assert not is_last(plain.weight)
    np.testing.assert_array_equal(plain.weight.numpy(), turned.weight.numpy())
    other = nn.Conv2d(3, 4, 3)
    flow.save(other.state_dict(), tmp_path / "weights")
    flow.checkpoint.save(tmp_path / "state", {"model": other}, step=1)
    for load in (
        lambda: turned.load_state_dict(other.state_dict()),
        lambda: turned.load_state_dict(flow.load(tmp_path / "weights")),
        lambda: flow.checkpoint.load(tmp_path / "state", {"model": turned}),
    ):
        with flow.no_grad():
            turned.weight.zero_()
        load()
        assert is_last(turned.weight)
        np.testing.assert_array_equal(turned.weight.numpy(), other.weight.numpy())


def test_writes_keep_the_format(world):
    w = nn.Conv2d(3, 4, 3).to(memory_format=LAST).weight
    with flow.no_grad():
        for write in (
            lambda: w.copy_(flow.ones(4, 3, 3, 3)),
            lambda: w.mul_(2),
            w.normal_,
            w.zero_,
            lambda: nn.init.kaiming_uniform_(w),
            lambda: nn.init.orthogonal_(w),
            lambda: w[0].fill_(1),
        ):
            write()
            assert is_last(w)
        row_major = flow.zeros(4, 3, 3, 3)
        row_major.copy_(w)
        assert not is_last(row_major)
        w.data = row_major  # as torch's, the memory of another tensor
        assert not is_last(w)


class Training(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def test_graphs_and_data_parallel_modules(world):
    def model():
        flow.manual_seed(0)
        return make(nn)[:4]

    def sgd(module):
        return flow.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    p = flow.placement("cpu", [0, 1])
    eager, plain = model().to(memory_format=LAST), model()
    graphed = model().to(memory_format=LAST)
    spread = nn.parallel.DistributedDataParallel(model().to(memory_format=LAST))
    zero = model().to(memory_format=LAST).to_global(p, B).shard_(shard_min_size=1)
    optimizers = [sgd(m) for m in (eager, plain, spread, zero)]
    graph = Training(graphed, sgd(graphed))
    x = flow.randn(4, 3, 6, 6)
    before = strides(eager)
    for _ in range(3):
        given = x, x, x, x.to_global(p, B).to_global(sbp=S0)
        models = eager, plain, spread, zero
        for module, optimizer, images in zip(models, optimizers, given, strict=True):
            (module(images) ** 2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        graph(x)
    assert strides(graphed) == strides(eager) == before
    for a, b, c, d, e in zip(*[m.parameters() for m in (*models, graphed)], strict=True):
        np.testing.assert_array_equal(a.numpy(), e.numpy())
        for other in b, c, d:
            np.testing.assert_allclose(other.numpy(), a.numpy(), rtol=1e-4, atol=1e-5)
        assert a.ndim < 4 or a.shape[-1] == 1 or all(map(is_last, (a, c, d, e)))
    for module, optimizer in zip(models[::2], optimizers[::2], strict=True):
        (buffer,) = optimizer.state[next(module.parameters())].values()
        assert is_last(buffer)


OPTIMIZERS = {
    "SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "AdamW": {}, "RMSprop": {"momentum": 0.5},
    "Adagrad": {}, "Adamax": {}, "NAdam": {}, "RAdam": {}, "Rprop": {}, "ASGD": {}, "Adafactor": {},
    "LAMB": {}, "LARS": {}, "LBFGS": {},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_keep_the_format_of_parameters(world, name):
    """The gradients are row-major on purpose. States are as torch's zeros_like would make them."""
    flow.manual_seed(1)
    start, grads = flow.randn(4, 3, 3, 3), [flow.randn(4, 3, 3, 3) for _ in range(3)]
    found = []
    for last in (False, True):
        p = nn.Parameter(start.clone())
        if last:
            p.data = p.data.to(memory_format=LAST)
        optimizer = getattr(flow.optim, name)([p], lr=0.01, **OPTIMIZERS[name])
        for grad in grads:
            p.grad = grad.clone()
            optimizer.step((lambda p=p: (p * 0).sum()) if name == "LBFGS" else None)
            assert is_last(p) == last
        for value in optimizer.state.get(p, {}).values():
            if isinstance(value, flow.Tensor) and value.shape == p.shape:
                assert is_last(value) == last
        found.append(p.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("first", "then"),
    [(LAST, torch.contiguous_format), (torch.contiguous_format, LAST)],
)
@pytest.mark.parametrize("is_global", [False, True])
def test_states_follow_a_parameter_that_is_turned(world, first, then, is_global):
    """Updates go through memory, so state in another order would meet other elements."""

    def train(formats):
        flow.manual_seed(1)
        layer = nn.Conv2d(3, 4, 3)
        if is_global:
            layer.to_global(flow.placement("cpu", [0, 1]), B)
        optimizer = flow.optim.Adam(layer.parameters(), lr=0.01)
        for memory_format in formats:
            layer.to(memory_format=memory_format)
            for _ in range(2):
                layer.weight.grad = (layer.weight**3).detach()
                optimizer.step()
        return layer.weight.numpy(), optimizer

    wanted, _ = train([torch.contiguous_format] * 2)
    found, optimizer = train([first, then])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    (state,) = [each for each in optimizer.state.values() if each["exp_avg"].ndim == 4]
    assert is_last(state["exp_avg"]) == (then is LAST)


def test_tensors(world):
    x = flow.randn(2, 3, 4, 5)
    t = torch.from_numpy(x.numpy())
    for make_one in (
        lambda x: x.to(memory_format=LAST),
        lambda x: x.to(torch.float64, memory_format=LAST),
        lambda x: x.contiguous(memory_format=LAST),
        lambda x: x.clone(memory_format=LAST),
        lambda x: x.double(memory_format=LAST),
        lambda x: x.contiguous(memory_format=LAST).clone(memory_format=torch.contiguous_format),
    ):
        y, wanted = make_one(x), make_one(t)
        assert y.shards[0].stride() == wanted.stride() and y.dtype == wanted.dtype
        np.testing.assert_array_equal(y.numpy(), wanted.numpy())
        assert y.is_contiguous(memory_format=LAST) == wanted.is_contiguous(memory_format=LAST)
    assert not x.is_contiguous(memory_format=LAST)
    y, like = x.to(memory_format=LAST), t.to(memory_format=LAST)
    for name in "empty_like zeros_like ones_like rand_like randn_like".split():
        for options in ({}, {"memory_format": torch.contiguous_format}, {"dtype": torch.float64}):
            made = getattr(flow, name)(y, **options), getattr(torch, name)(like, **options)
            assert made[0].shards[0].stride() == made[1].stride(), (name, options)
    assert flow.empty(2, 3, 4, 5, memory_format=LAST).is_contiguous(memory_format=LAST)
    x.requires_grad_()
    (x.to(memory_format=LAST) * 2).sum().backward()
    assert (x.grad == 2).all()
    y.add_(1)  # a tensor of its own
    np.testing.assert_array_equal(x.detach().numpy(), t.numpy())
    for call in (
        lambda: flow.ones(2).to(memory_format=LAST),
        lambda: flow.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last_3d),
        lambda: flow.empty(2, memory_format=LAST),
    ):
        with pytest.raises(OnefoldRuntimeError, match=r"required rank [45] tensor to use ch"):
            call()


def test_a_step_on_a_gpu_copies_no_weight_forward_and_no_gradient():
    """What is left: the second weight, turned for the gradient of its input, and the first dy."""

    def copies(last, graphed):
        with virtual_world(), GpuDriver("none") as gpu:
            model = nn.Sequential(nn.Conv2d(16, 32, 3), nn.Conv2d(32, 16, 3))
            x = flow.from_torch(torch.zeros(2, 16, 8, 8).contiguous(memory_format=LAST))
            if last:
                model.to(memory_format=LAST)
            optimizer = flow.optim.AdamW(model.parameters())
            graph = Training(model, optimizer) if graphed else None
            for _ in range(4):
                gpu.launches.clear()
                gpu.torch_work.clear()
                if graph is not None:
                    graph(x)
                    continue
                (model(x) ** 2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            assert not {"copy_", "clone"} & {name for _, name in gpu.torch_work}
            return gpu.launches["pointwise_copy"]

    for graphed in (False, True):
        assert (copies(False, graphed), copies(True, graphed)) == (4, 2)
