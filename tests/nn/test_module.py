"""Module: registration, walking, hooks, modes, conversion, state, all as in torch."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, SbpError
from onefold.testing.sample_checks import value_of

nn = flow.nn
B, P, S0 = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split(0)


def net(lib):
    """The same network of both libraries; tied parameters, a shared module, buffers."""

    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = lib.nn.Linear(4, 3)
            self.body = lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Linear(3, 3))
            self.again = self.body
            self.tied = lib.nn.Linear(3, 3)
            self.tied.weight = self.body[1].weight
            self.scale = lib.nn.Parameter(lib.ones(3))
            self.nothing = None
            self.register_parameter("absent", None)
            self.register_buffer("count", lib.zeros(1))
            self.register_buffer("scratch", lib.zeros(2), persistent=False)

        def forward(self, x):
            return self.tied(self.again(self.first(x))) * self.scale + self.count

    return Net()


def filled(model, seed=0):
    generator = np.random.default_rng(seed)
    state = {
        k: generator.standard_normal(tuple(v.shape)).astype("f4")
        for k, v in model.state_dict().items()
    }
    state["tied.weight"] = state["body.1.weight"]
    return {k: state.get(k.replace("again", "body"), v) for k, v in state.items()}


def pair():
    ours, theirs = net(flow), net(torch)
    state = filled(ours)
    ours.load_state_dict(state)
    theirs.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    return ours, theirs


# Names.


def test_names_and_order_are_torchs(world):
    ours, theirs = pair()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for walk in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [n for n, _ in getattr(ours, walk)()] == [n for n, _ in getattr(theirs, walk)()], (
            walk
        )
        if walk in ("named_parameters", "named_buffers"):
            for options in ({"recurse": False}, {"prefix": "p"}, {"remove_duplicate": False}):
                mine = [n for n, _ in getattr(ours, walk)(**options)]
                assert mine == [n for n, _ in getattr(theirs, walk)(**options)], (walk, options)
    assert len(list(ours.parameters())) == len(list(theirs.parameters()))
    assert len(list(ours.modules())) == len(list(theirs.modules()))
    assert ours.get_submodule("body.1") is ours.body[1] and ours.get_submodule("") is ours
    with pytest.raises(AttributeError, match="has no submodule 'no'"):
        ours.get_submodule("body.no")


def test_results_and_gradients_are_torchs(world):
    ours, theirs = pair()
    x = np.random.default_rng(1).standard_normal((5, 4)).astype("f4")
    y, t = ours(flow.tensor(x)), theirs(torch.from_numpy(x))
    torch.testing.assert_close(y.detach().to_torch(), t.detach())
    (y * y).sum().backward()
    (t * t).sum().backward()
    for (name, param), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(value_of(param.grad), wanted.grad, msg=name)


def test_reassigning_keeps_the_place(world):
    for lib in (flow, torch):
        model = net(lib)
        order = list(model.state_dict())
        model.first = lib.nn.Linear(4, 3)
        model.scale = lib.nn.Parameter(lib.zeros(3))
        assert list(model.state_dict()) == order
        model.scale = None
        assert model.scale is None and "scale" not in model.state_dict()
        del model.first
        assert "first.weight" not in model.state_dict()
        with pytest.raises(AttributeError):
            model.first  # noqa: B018


def test_a_name_can_change_its_kind(world):
    m = nn.Module()
    m.x = 3
    m.x = nn.Parameter(flow.ones(1))
    assert [n for n, _ in m.named_parameters()] == ["x"] and "x" not in vars(m)
    del m.x
    m.x = nn.Linear(1, 1)
    m.register_buffer("b", flow.zeros(1), persistent=False)
    assert list(m.state_dict()) == ["x.weight", "x.bias"]
    m.b = flow.ones(2)
    assert m.b.tolist() == [1, 1] and [n for n, _ in m.named_buffers()] == ["b"]


BAD = [
    (
        lambda m: setattr(m, "scale", flow.ones(3)),
        OnefoldTypeError,
        "cannot assign Tensor as parameter 'scale'",
    ),
    (lambda m: setattr(m, "count", 3), OnefoldTypeError, "cannot assign int as buffer 'count'"),
    (
        lambda m: setattr(m, "first", 3),
        OnefoldTypeError,
        "cannot assign int as child module 'first'",
    ),
    (
        lambda m: m.register_parameter("p", flow.ones(1)),
        OnefoldTypeError,
        "expected nn.Parameter or None",
    ),
    (lambda m: m.register_parameter("a.b", None), OnefoldValueError, "without '.'"),
    (lambda m: m.register_parameter("", None), OnefoldValueError, "non-empty"),
    (
        lambda m: m.register_buffer("first", None),
        OnefoldValueError,
        "attribute 'first' already exists",
    ),
    (lambda m: m.register_buffer("b", [1]), OnefoldTypeError, "expected Tensor or None"),
    (lambda m: m.add_module("m", 3), OnefoldTypeError, "int is not a Module subclass"),
    (
        lambda m: setattr(m, "last", torch.nn.Linear(2, 2)),
        OnefoldTypeError,
        r"layer of torch \(torch.nn.modules.linear.Linear\) as 'last'.*use onefold.nn.Linear",
    ),
    (lambda m: setattr(m, "first", torch.nn.ReLU()), OnefoldTypeError, "use onefold.nn.ReLU"),
    (
        lambda m: setattr(m, "scale", torch.nn.Parameter(torch.ones(3))),
        OnefoldTypeError,
        r"parameter of torch .* as 'scale'.*use onefold.nn.Parameter\(onefold.tensor\(data\)\)",
    ),
    (
        lambda m: m.register_parameter("p", torch.nn.Parameter(torch.ones(1))),
        OnefoldTypeError,
        "use onefold.nn.Parameter",
    ),
    (lambda m: m.add_module("m", torch.nn.Tanh()), OnefoldTypeError, "use onefold.nn.Tanh"),
    (lambda m: nn.Sequential(torch.nn.Tanh()), OnefoldTypeError, "use onefold.nn.Tanh"),
    (lambda m: nn.ModuleList([torch.nn.Tanh()]), OnefoldTypeError, "use onefold.nn.Tanh"),
    (lambda m: m.train("yes"), OnefoldValueError, "expected to be boolean"),
    (lambda m: nn.Parameter([1.0]), OnefoldTypeError, "needs an onefold Tensor"),
    (lambda m: nn.Module()(1), NotImplementedError, 'missing the required "forward"'),
    (lambda m: m.to(flow.int64), OnefoldTypeError, "only accepts floating point or complex"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_calls_change_nothing(index, world):
    call, kind, text = BAD[index]
    model = net(flow)
    before = repr(model), list(model.state_dict())
    with pytest.raises(kind, match=text):
        call(model)
    assert (repr(model), list(model.state_dict())) == before


def test_super_init_comes_first(world):
    class Late(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(flow.ones(1))

    with pytest.raises(OnefoldRuntimeError, match=r"before Module.__init__\(\) call"):
        Late()


def test_repr_is_torchs(world):
    assert repr(net(flow)) == repr(net(torch))
    assert repr(nn.Sequential()) == repr(torch.nn.Sequential())


# Modes, apply, hooks.


def test_train_and_eval(world):
    model = net(flow)
    assert model.eval() is model
    assert not any(module.training for module in model.modules())
    model.train()
    assert all(module.training for module in model.modules())


def test_apply_goes_through_every_module(world):
    seen = {}
    for lib in (flow, torch):
        seen[lib] = []
        model = net(lib)
        assert model.apply(lambda m, lib=lib: seen[lib].append(type(m).__name__)) is model
    assert seen[flow] == seen[torch]


def test_requires_grad_and_zero_grad(world):
    model = net(flow)
    model(flow.ones(2, 4)).sum().backward()
    model.zero_grad(set_to_none=False)
    assert all(p.grad.numpy().sum() == 0 for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    model.requires_grad_(False)
    assert not model(flow.ones(2, 4)).requires_grad


def test_forward_hooks(world):
    model, seen = nn.Linear(2, 2), []
    first = model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model.register_forward_pre_hook(lambda m, args: seen.append(args[0].tolist()))
    second = model.register_forward_hook(lambda m, args, y: y * 0 + args[0].sum())
    model.register_forward_hook(lambda m, args, y: seen.append(y.tolist()))
    model(flow.ones(1, 2))
    assert seen == [[[2.0, 2.0]], [[4.0, 4.0]]]
    first.remove()
    second.remove()
    model(flow.ones(1, 2))
    assert seen[2] == [[1.0, 1.0]]


def test_a_pre_hook_may_return_one_value(world):
    model = nn.Identity()
    model.register_forward_pre_hook(lambda m, args: args[0] + 1)
    assert model(flow.zeros(2)).tolist() == [1, 1]


# Conversion in place.


def test_to_global_with_one_sbp_keeps_the_parameters_objects(world):
    model = net(flow)
    before = {n: (p, p.numpy().copy()) for n, p in model.named_parameters()}
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    p = flow.placement("cpu", [0, 1, 2])
    assert model.to_global(p, B) is model
    for name, param in model.named_parameters():
        assert param is before[name][0] and param.sbp == (B,) and param.requires_grad
        assert np.array_equal(param.numpy(), before[name][1])
    assert model.count.is_global and model.scratch.is_global
    assert model.tied.weight is model.body[1].weight
    x = flow.ones(6, 4, placement=p, sbp=S0)
    model(x).sum().backward()
    optimizer.step()
    assert not np.array_equal(model.scale.numpy(), before["scale"][1])
    assert all(b is before[n][0] for n, b in model.named_parameters())
    local = model.to_local()
    assert local is model and model.scale.is_local and model.scale.grad.is_local


def test_to_global_with_a_function_that_chooses(world):
    model = net(flow)
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    model.to_global(p, B_ := (B, B))
    seen = []

    def choose(name, tensor):
        seen.append(name)
        return parse("(B, S0)") if tensor.ndim == 2 else B_

    wanted = {n: t.numpy().copy() for n, t in model.named_parameters()}
    model.to_global(sbp=choose)
    assert seen == [n for n, _ in [*model.named_parameters(), *model.named_buffers()]]
    assert {short(t.sbp) for t in model.parameters()} == {"(B, S0)", "(B, B)"}
    for name, param in model.named_parameters():
        assert np.array_equal(param.numpy(), wanted[name])


def test_gradients_move_along(world):
    model = nn.Linear(4, 4)
    model(flow.ones(2, 4)).sum().backward()
    grad = model.weight.grad.numpy().copy()
    model.to_global(flow.placement("cpu", [0, 1]), B)
    assert model.weight.grad.sbp == (B,) and np.array_equal(model.weight.grad.numpy(), grad)
    model.to_global(sbp=lambda name, t: S0)
    assert model.weight.grad.sbp == (S0,) and np.array_equal(model.weight.grad.numpy(), grad)
    model.double()
    assert model.weight.grad.dtype == torch.float64


def test_a_conversion_that_fails_changes_nothing(world):
    model = net(flow)
    p = flow.placement("cpu", [0, 1])
    model(flow.ones(2, 4)).sum().backward()
    metas = [(t.meta, t.grad.meta) for t in model.parameters()]
    with pytest.raises(SbpError, match="needs a tensor with more than 1 dims"):
        model.to_global(p, flow.sbp.split(1))
    with pytest.raises(SbpError, match="without sbp"):
        model.to_global(p)
    assert [(t.meta, t.grad.meta) for t in model.parameters()] == metas


def test_dtypes(world):
    model = net(flow)
    model.register_buffer("steps", flow.tensor([1, 2]))
    for convert, dtype in [
        (model.half, torch.float16),
        (model.bfloat16, torch.bfloat16),
        (model.double, torch.float64),
        (model.float, torch.float32),
        (lambda: model.to(flow.float64), torch.float64),
        (lambda: model.to("cpu", dtype=flow.float32), torch.float32),
    ]:
        assert convert() is model
        assert {t.dtype for t in model.parameters()} == {dtype} and model.count.dtype == dtype
        assert model.steps.dtype == torch.int64
    assert (
        model.cpu() is model
        and model.to(flow.ones(1, dtype=flow.float64)).scale.dtype == torch.float64
    )


# State.


def test_a_state_dict_has_the_parameters_themselves(world):
    for place in (None, flow.placement("cpu", [0, 1])):
        model = nn.Linear(3, 2)
        if place is not None:
            model.to_global(place, B)
        state = model.state_dict()
        kept = copy.deepcopy(state)
        before = {k: v.numpy().copy() for k, v in state.items()}
        optimizer = flow.optim.SGD(model.parameters(), lr=1.0)
        for param in model.parameters():
            param.grad = flow.ones_like(param)
        optimizer.step()
        with flow.no_grad():
            model.weight.mul_(3)
        for key, param in model.named_parameters():
            assert np.array_equal(state[key].numpy(), param.numpy())
            assert not np.array_equal(before[key], param.numpy())
            assert np.array_equal(before[key], kept[key].numpy())
        state["bias"].zero_()
        assert np.array_equal(model.bias.numpy(), np.zeros(2))
        assert not any(v.requires_grad for v in state.values())
        kept["bias"].zero_()
        model.load_state_dict(kept)
        assert np.array_equal(model.weight.numpy(), before["weight"])
        assert np.array_equal(state["weight"].numpy(), before["weight"])
        assert model.bias.tolist() == [0, 0]
        model.weight.requires_grad_()
        optimizer.step()
        assert kept["bias"].tolist() == [0, 0], "loading shares no memory that changes"


@pytest.mark.parametrize("source", [None, "(B)", "(S0)", "(P)"])
@pytest.mark.parametrize("target", ["(B)", "(S0)", "(P)"])
def test_loading_keeps_dtype_placement_and_sbp(source, target, world):
    here, there = flow.placement("cpu", [0, 1]), flow.placement("cpu", [3, 1, 2])
    model = nn.Linear(3, 5).to_global(here, B)
    model.to_global(sbp=lambda name, t: parse(target))
    metas = {n: t.meta for n, t in model.named_parameters()}
    value = {"weight": np.arange(15.0).reshape(5, 3), "bias": np.arange(5.0)}
    state = (
        value
        if source is None
        else {k: flow.tensor(v, placement=there, sbp=parse(source)) for k, v in value.items()}
    )
    found = model.load_state_dict(state)
    assert repr(found) == "<All keys matched successfully>"
    for name, param in model.named_parameters():
        assert param.meta is metas[name] and param.requires_grad
        assert np.array_equal(param.numpy(), value[name].astype("f4"))


def test_torch_states_load(world):
    theirs, ours = torch.nn.Linear(3, 2), nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.weight.to_torch(), theirs.weight.detach())


def test_loading_is_all_or_nothing(world):
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    state = {
        "0.weight": np.ones((2, 3)),
        "0.bias": np.ones(3),
        "1.weight": flow.ones(1, 2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(1)),
        "2.more": np.ones(1),
    }
    with pytest.raises(OnefoldRuntimeError) as caught:
        model.load_state_dict(state)
    text = str(caught.value)
    for part in (
        "Error(s) in loading state_dict for Sequential",
        "Missing key(s) in state_dict: 1.bias",
        "Unexpected key(s) in state_dict: 2.more",
        "0.bias: size mismatch: the tensor has (2,), the value (3,)",
        "1.weight: the tensor is local but the given value is global",
    ):
        assert part in text
    assert all(np.array_equal(v.numpy(), before[k]) for k, v in model.state_dict().items())
    found = model.load_state_dict({"0.bias": np.ones(2), "x": np.ones(1)}, strict=False)
    assert found.missing_keys == ["0.weight", "1.weight", "1.bias"]
    assert found.unexpected_keys == ["x"] and "missing_keys" in repr(found)
    assert model[0].bias.tolist() == [1, 1]


def test_loading_into_a_graph_in_use_is_noticed(world):
    model = nn.Linear(2, 2)
    x = flow.ones(1, 2, requires_grad=True)
    loss = model(x).sum()
    model.load_state_dict(model.state_dict())
    with pytest.raises(flow.errors.AutogradError, match="modified by an inplace operation"):
        loss.backward()


def test_state_dict_prefix_and_destination(world):
    destination = OrderedDict()
    found = nn.Linear(1, 1).state_dict(destination=destination, prefix="a.")
    assert found is destination and list(found) == ["a.weight", "a.bias"]


def test_deep_copies(world):
    model, _ = pair()
    model(flow.ones(2, 4)).sum().backward()
    duplicate = copy.deepcopy(model)
    assert duplicate.tied.weight is duplicate.body[1].weight and duplicate.again is duplicate.body
    assert duplicate.tied.weight is not model.tied.weight
    before = model.scale.tolist()
    with flow.no_grad():
        duplicate.scale.zero_()
    assert (
        model.scale.tolist() == before
        and duplicate.scale.grad.tolist() == model.scale.grad.tolist()
    )


def _launched():
    rank = flow.env.get_rank()
    flow.manual_seed(rank)  # every process starts with weights of its own
    model = nn.Linear(2, 2)
    model.to_global(flow.placement("cpu", [0, 1]), B)
    flow.manual_seed(0)
    wanted = nn.Linear(2, 2)
    same = np.array_equal(model.weight.numpy(), wanted.weight.numpy())
    model.to_global(sbp=lambda name, t: S0)
    try:
        model.load_state_dict({"weight": np.ones((3, 3))})
        text = ""
    except flow.OnefoldError as error:
        text = str(error)
    model.load_state_dict({"weight": np.arange(4.0).reshape(2, 2), "bias": np.ones(2)})
    return same, text, model.weight.numpy().tolist(), model.weight.shards[0].tolist()


def test_in_a_launched_world():
    results = run_ranks(2, _launched)
    for rank, (same, text, value, shard) in enumerate(results):
        assert same, "the values of the placement's first rank count"
        assert "Missing key(s)" in text and "size mismatch" in text
        assert value == [[0, 1], [2, 3]] and shard == [value[rank]]


def test_what_is_registered_again_takes_the_place():
    for kind, package in ((nn.Module, flow), (torch.nn.Module, torch)):
        module = kind()
        module.register_buffer("mask", None, persistent=False)
        module.register_buffer("mask", package.ones(2), persistent=False)
        assert not module.state_dict()
        module.register_buffer("mask", package.ones(3))
        assert list(module.state_dict()) == ["mask"] and module.mask.shape == (3,)
        module.register_parameter("w", None)
        module.register_parameter("w", package.nn.Parameter(package.zeros(1)))
        module.add_module("part", None)
        module.add_module("part", package.nn.Tanh())
        assert [*module._parameters, *module._buffers, *module._modules] == ["w", "mask", "part"]


def test_parameters_take_attributes(world):
    layer = flow.nn.Linear(2, 2)
    layer.weight.lr_mul = 5.0
    layer.double()
    assert layer.weight.lr_mul == 5.0
    assert not hasattr(layer.bias, "lr_mul")


NAMES_OF_PROGRAMS = "_after _before _call _compute _get _hooked _loading _named _remove _restore"


@pytest.mark.parametrize("lib", [flow, torch], ids=["onefold", "torch"])
def test_names_that_programs_give_their_attributes_and_methods(lib):
    class Cached(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = lib.nn.Linear(2, 2, bias=False)
            self._computed = self._tables = self._gathers = None
            for name in NAMES_OF_PROGRAMS.split():
                setattr(self, name, None)

        def forward(self, x):
            self._computed = self.layer(x)
            return self._computed

    model = Cached()
    model.register_forward_hook(lambda module, args, y: y * 2)
    model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    lib.nn.utils.parametrizations.weight_norm(model.layer)
    model.load_state_dict(model.state_dict())
    model.layer.parametrizations.weight.original0.data.fill_(1.0)
    model.layer.parametrizations.weight.original1.data.fill_(1.0)
    assert len([*model.named_parameters()]) == 2
    np.testing.assert_allclose(model(lib.zeros(1, 2)).detach().numpy(), 2 * 2**0.5, rtol=1e-6)
    assert model._computed.shape == (1, 2) and model._get is None
