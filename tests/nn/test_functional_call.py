"""functional_call, fused layers, skip_init and other utilities, against torch's."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from onefold.testing.sample_checks import value_of

call = flow.func.functional_call
utils = flow.nn.utils


class Tied(flow.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = flow.nn.Parameter(flow.ones(()))
        self.two = self.one
        self.register_buffer("count", flow.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return x + self.one + self.two


@pytest.mark.parametrize("sbp", [None, flow.sbp.split(0), flow.sbp.broadcast])
def test_other_parameters_and_their_gradients(sbp, world):
    layer = flow.nn.Sequential(flow.nn.Linear(4, 3), flow.nn.Tanh(), flow.nn.Linear(3, 2))
    right = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    torch.manual_seed(0)
    given = {name: torch.randn(p.shape) for name, p in right.named_parameters() if name[0] == "0"}
    layer.load_state_dict(right.state_dict())
    layout = {}
    if sbp is not None:
        layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": sbp}
        layer.to_global(layout["placement"], flow.sbp.broadcast)
    own = {name: flow.tensor(x.numpy(), requires_grad=True, **layout) for name, x in given.items()}
    x = torch.randn(4, 4)
    mine = flow.tensor(x.numpy(), **layout)
    before = [param.numpy().copy() for param in layer.parameters()]
    found = call(layer, own, mine)
    for each in given.values():
        each.requires_grad_()
    wanted = torch.func.functional_call(right, given, x)
    torch.testing.assert_close(value_of(found.detach()), wanted.detach())
    found.square().sum().backward()
    wanted.square().sum().backward()
    for name, each in given.items():
        torch.testing.assert_close(value_of(own[name].grad), each.grad)
    for param, value in zip(layer.parameters(), before, strict=True):
        np.testing.assert_array_equal(param.numpy(), value)
    graph = flow.nn.Graph.trace(lambda *tensors: call(layer, dict(zip(own, tensors)), mine))  # noqa: B905
    assert torch.equal(value_of(graph(*own.values())), value_of(found.detach()))
    with pytest.warns(FutureWarning, match="is deprecated"):
        again = utils.stateless.functional_call(layer, own, (mine,))
    assert torch.equal(value_of(again.detach()), value_of(found.detach()))


def test_tied_parameters_and_buffers(world):
    module, x = Tied(), flow.zeros(())
    two, count = flow.tensor(2.0), flow.tensor(5.0)
    assert call(module, {"one": two}, x).item() == 4
    assert call(module, {"two": two}, (x,)).item() == 4
    assert call(module, {"one": two}, x, tie_weights=False).item() == 3
    assert call(module, ({"one": two}, {"count": count}), x).item() == 4
    assert (count.item(), module.count.item()) == (6, 3)
    assert call(module, {"one": two, "two": two, "count": count}, kwargs={"x": x}).item() == 4
    with pytest.raises(OnefoldValueError, match="which are tied"):
        call(module, {"one": two, "two": flow.tensor(1.0)}, x)
    with pytest.raises(OnefoldValueError, match="appeared in multiple dictionaries"):
        call(module, [{"one": two}, {"one": two}], x)
    with pytest.raises(OnefoldValueError, match="Expected parameter_and_buffer_dicts"):
        call(module, 3, x)
    with pytest.raises(OnefoldTypeError, match="not an onefold Tensor"):
        call(module, {"one": 3}, x)
    with pytest.raises(OnefoldRuntimeError, match=r"Unexpected key\(s\): 'three'"):
        call(module, {"three": two}, x, strict=True)
    with pytest.raises(AttributeError, match="no submodule 'part'"):
        call(module, {"part.three": two}, x)
    assert call(module, {"three": two}, x).item() == 2 and not hasattr(module, "three")
    assert module.one is module.two and module.one.item() == 1


def test_a_parametrized_tensor_is_replaced(world):
    layer = utils.parametrizations.weight_norm(flow.nn.Linear(3, 2, bias=False))
    x = flow.ones(1, 3)
    assert call(layer, {"weight": flow.zeros(2, 3)}, x).numpy().tolist() == [[0, 0]]
    length = {"parametrizations.weight.original0": flow.zeros(2, 1)}
    assert call(layer, length, x).numpy().tolist() == [[0, 0]]
    assert layer(x).numpy().any()


@pytest.mark.parametrize("sbp", [None, flow.sbp.split(0), flow.sbp.broadcast])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d", "Linear"])
def test_batch_normalization_is_folded_into_the_layer(kind, affine, sbp, world):
    torch.manual_seed(0)
    sizes = (4, 6) if kind == "Linear" else (4, 6, 3)
    norm = "BatchNorm1d" if kind == "Linear" else "BatchNorm2d"
    right = getattr(torch.nn, kind)(*sizes, bias=affine), getattr(torch.nn, norm)(6, affine=affine)
    with torch.no_grad():
        for each in (*right[1].parameters(), right[1].running_mean, right[1].running_var):
            each.uniform_(0.5, 2)
    mine = (
        getattr(flow.nn, kind)(*sizes, bias=affine),
        getattr(flow.nn, norm)(6, affine=affine),
    )
    layout = {}
    for layer, other in zip(mine, right, strict=True):
        layer.load_state_dict(other.state_dict())
        layer.eval()
        other.eval()
        if sbp is not None:
            p = flow.placement("cpu", [0, 1])
            layer.to_global(p, flow.sbp.broadcast)
            layer.to_global(p, lambda name, x: sbp if x.ndim else flow.sbp.broadcast)
            layout = {"placement": p, "sbp": flow.sbp.broadcast}
    transpose = [True] if kind == "ConvTranspose2d" else []
    name = "fuse_linear_bn_eval" if kind == "Linear" else "fuse_conv_bn_eval"
    fused = getattr(utils, name)(*mine, *transpose)
    if affine or kind != "Linear":  # torch has none for a linear layer's norm without a weight
        wanted = getattr(torch.nn.utils, name)(*right, *transpose)
        for key, value in wanted.state_dict().items():
            torch.testing.assert_close(value_of(fused.state_dict()[key]), value)
    x = torch.randn(3, 4) if kind == "Linear" else torch.randn(2, 4, 5, 5)
    given = flow.tensor(x.numpy(), **layout)
    torch.testing.assert_close(
        value_of(fused(given).detach()), right[1](right[0](x)).detach(), rtol=1e-4, atol=1e-4
    )
    mine[0].train()
    with pytest.raises(OnefoldRuntimeError, match="Fusion only for eval"):
        getattr(utils, name)(*mine)
    mine[0].eval()
    with pytest.raises(OnefoldRuntimeError, match="without running statistics"):
        getattr(utils, name)(mine[0], getattr(flow.nn, norm)(6, track_running_stats=False).eval())


def test_skip_init_draws_nothing(world):
    flow.manual_seed(1)
    state = flow.get_rng_state()
    layer = utils.skip_init(flow.nn.Linear, 4, out_features=2, dtype=flow.float64)
    assert flow.get_rng_state() == state
    assert layer.weight.shape == (2, 4) and layer.weight.dtype == flow.float64
    p = flow.placement("cpu", [0, 1])
    layer = utils.init.skip_init(flow.nn.Embedding, 4, 2, placement=p, sbp=flow.sbp.split(0))
    assert layer.weight.sbp == (flow.sbp.split(0),)
    assert flow.nn.Linear(3, 3).weight.numpy().any()
    with pytest.raises(OnefoldRuntimeError, match="must support a 'device' arg"):
        utils.skip_init(flow.nn.ReLU)
    with pytest.raises(OnefoldRuntimeError, match="Expected a Module"):
        utils.skip_init(dict)


def test_memory_formats_change_no_value(world):
    layer = flow.nn.Conv2d(3, 4, 3)
    before = layer.weight.numpy().copy()
    assert utils.convert_conv2d_weight_memory_format(layer, torch.channels_last) is layer
    assert utils.convert_conv3d_weight_memory_format(layer, torch.channels_last_3d) is layer
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    assert layer.weight.is_contiguous(memory_format=torch.channels_last)
    assert layer.weight.is_leaf and layer.weight.requires_grad
    utils.convert_conv2d_weight_memory_format(layer, torch.contiguous_format)
    assert not layer.weight.is_contiguous(memory_format=torch.channels_last)


def test_names_of_modules():
    for module in ("clip_grad", "convert_parameters", "fusion", "init", "memory_format", "rnn"):
        there = getattr(torch.nn.utils, module)
        for name in vars(there):
            function = getattr(there, name)
            if name[0] != "_" and getattr(function, "__module__", "") == there.__name__:
                known = name in ("ConvT", "LinearT", "PackedSequence_", "bind") or hasattr(
                    getattr(utils, module), name
                )
                assert known, f"{module}.{name}"
    with pytest.raises(OnefoldRuntimeError, match="pass the parameters to an optimizer"):
        utils.parameters_grouping.ContiguousParamsGroup([[]])
