"""state_dict and load_state_dict as torch programs extend them: hooks, extra state, assigning."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError

LIBS = (flow, torch)


def net(lib):
    return lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.Sequential(lib.nn.Linear(3, 1)))


def test_arguments_of_state_dict(world):
    for lib in LIBS:
        model = net(lib)
        kept = model.state_dict(keep_vars=True)
        assert kept["0.weight"] is model[0].weight and kept["0.weight"].requires_grad
        into = OrderedDict()
        model[0].state_dict(destination=into, prefix="a.")
        assert list(into) == ["a.weight", "a.bias"]
        state = model.state_dict()
        assert list(state._metadata) == ["", "0", "1", "1.0"]
        assert state._metadata["0"] == {"version": 1}
        assert copy.deepcopy(state)._metadata == state._metadata
    into = {}
    assert net(flow)[0].state_dict(into, "a.") is into and list(into) == ["a.weight", "a.bias"]


def events_of_hooks(lib):
    """What hooks of a model see, in order; and the keys of the state that they leave."""
    model, seen = net(lib), []

    def before(module, prefix, keep_vars):
        seen.append(("before", type(module).__name__, prefix, keep_vars))

    def after(module, state, prefix, metadata):
        seen.append(("after", prefix, sorted(metadata)))
        state[prefix + "more"] = 1

    def changed(module, state, prefix, metadata):
        return OrderedDict((k, v) for k, v in state.items() if "bias" not in k)

    handles = [
        model[0].register_state_dict_pre_hook(before),
        model[1][0].register_state_dict_post_hook(after),
        model._register_state_dict_hook(changed),
    ]
    keys = list(model.state_dict())
    for handle in handles:
        handle.remove()
    return seen, keys, list(model.state_dict())


def test_hooks_of_state_dict(world):
    assert events_of_hooks(flow) == events_of_hooks(torch)
    model = net(flow)
    model.register_state_dict_post_hook(lambda *args: 3)
    with pytest.raises(RuntimeError, match="post-hook must return None"):
        model.state_dict()


def events_of_loading(lib):
    model, seen = net(lib), []
    names = {"0.bias": "0.old_bias", "1.0.bias": "1.0.old_bias"}
    state = OrderedDict((names.get(k, k), v) for k, v in net(lib).state_dict().items())

    def rename(module, state, prefix, metadata, strict, missing, unexpected, errors):
        seen.append(("pre", type(module).__name__, prefix, strict, missing, unexpected, errors))
        if prefix + "old_bias" in state:
            state[prefix + "bias"] = state.pop(prefix + "old_bias")

    for layer in (model[0], model[1][0]):
        layer.register_load_state_dict_pre_hook(rename)
    model._register_load_state_dict_pre_hook(lambda state, prefix, *args: seen.append(len(args)))

    def forgive(module, keys):
        seen.append(("post", list(keys.missing_keys), list(keys.unexpected_keys)))
        keys.missing_keys.clear()

    model[1].register_load_state_dict_post_hook(forgive)
    del state["1.0.weight"]
    found = model.load_state_dict(state)
    seen.append((list(found.missing_keys), list(found.unexpected_keys)))
    assert model[0].bias.tolist() == state["0.old_bias"].tolist()
    return seen


def test_hooks_of_loading(world):
    assert events_of_loading(flow) == events_of_loading(torch)


class Extra:
    """A part of a module with more state than tensors."""

    def get_extra_state(self):
        return {"steps": self.steps}

    def set_extra_state(self, state):
        self.steps = state["steps"]


def extra(lib, steps):
    kind = type("Counted", (Extra, lib.nn.Linear), {})
    layer = kind(2, 2)
    layer.steps = steps
    return lib.nn.Sequential(layer)


def test_extra_state(world):
    for lib in LIBS:
        one, other = extra(lib, 3), extra(lib, 5)
        state = one.state_dict()
        assert list(state) == ["0.weight", "0.bias", "0._extra_state"]
        other.load_state_dict(state)
        assert other[0].steps == 3
        plain = lib.nn.Sequential(lib.nn.Linear(2, 2))
        with pytest.raises(RuntimeError, match=r"Unexpected key.*0\._extra_state"):
            plain.load_state_dict(state)
        with pytest.raises(RuntimeError, match=r"Missing key.*0\._extra_state"):
            one.load_state_dict(plain.state_dict())
        with pytest.raises(RuntimeError, match="should never be called"):
            plain.get_extra_state()
        with pytest.raises(RuntimeError, match="should never be called"):
            plain.set_extra_state(1)


def test_extra_state_in_a_graph(world):
    class Graph(flow.nn.Graph):
        def __init__(self, steps):
            super().__init__()
            self.model = extra(flow, steps)

        def build(self, x):
            return self.model(x)

    one, other = Graph(3), Graph(5)
    state = one.state_dict()
    one.model[0].steps = 4
    other.load_state_dict(state)
    assert other.model[0].steps == 3
    assert other.model[0].weight.tolist() == one.model[0].weight.tolist()


def versioned(lib):
    """A layer that reads states of an older form."""

    class Layer(lib.nn.Linear):
        _version = 2

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            self.found = local_metadata.get("version")
            if self.found != 2:
                state_dict[prefix + "bias"] = state_dict.pop(prefix + "offset")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    return lib.nn.Sequential(Layer(2, 2))


def test_an_override_that_reads_older_states(world):
    for lib in LIBS:
        model = versioned(lib)
        model.load_state_dict(model.state_dict())
        assert model[0].found == 2
        old = {"0.weight": lib.ones(2, 2), "0.offset": lib.ones(2) * 7}
        model.load_state_dict(old)
        assert model[0].found is None and model[0].bias.tolist() == [7, 7]
        assert sorted(old) == ["0.offset", "0.weight"], "what was given is not changed"


def test_an_override_alone_loads_at_once(world):
    layer, lists = flow.nn.Linear(2, 1), ([], [], [])
    layer._load_from_state_dict({"a.bias": np.ones(1), "a.c": 1}, "a.", {}, True, *lists)
    assert layer.bias.tolist() == [1] and lists == (["a.weight"], ["a.c"], [])


def test_assign(world):
    p = flow.placement("cpu", [0, 1])
    model = net(flow)
    model.register_buffer("steps", flow.zeros(2))
    before = model[0].weight
    before.requires_grad_(False)
    state = {k: flow.ones(*v.shape, placement=p, sbp=flow.sbp.broadcast, dtype=flow.float64)
             for k, v in model.state_dict().items()}  # fmt: skip
    state["0.bias"] = flow.nn.Parameter(state["0.bias"])
    model.load_state_dict(state, assign=True)
    weight = model[0].weight
    assert weight is not before and isinstance(weight, flow.nn.Parameter) and weight.is_global
    assert weight.dtype == torch.float64 and not weight.requires_grad
    assert model[0].bias is state["0.bias"] and model[1][0].weight.requires_grad
    assert model.steps is state["steps"]
    model.load_state_dict({"0.bias": np.zeros(3)}, strict=False, assign=True)
    assert model[0].bias.numpy().tolist() == [0, 0, 0]
    with pytest.raises(OnefoldRuntimeError, match="size mismatch"):
        model.load_state_dict({"0.bias": flow.ones(4)}, strict=False, assign=True)


def test_a_parameter_that_is_assigned_is_trained_as_the_one_before(world):
    for lib in LIBS:
        layer = lib.nn.Linear(2, 2)
        layer.weight.requires_grad_(False)
        state = {"weight": lib.nn.Parameter(lib.ones(2, 2)), "bias": lib.ones(2)}
        layer.load_state_dict(state, assign=True)
        assert layer.weight is state["weight"]
        assert [p.requires_grad for p in layer.parameters()] == [False, True]


@pytest.mark.parametrize("assign", [False, True])
def test_a_scalar_of_one_element_in_an_old_state(assign, world):
    for lib in LIBS:
        norm = lib.nn.BatchNorm1d(2)
        state = norm.state_dict() | {"num_batches_tracked": lib.tensor([5])}
        norm.load_state_dict(state, assign=assign)
        assert norm.num_batches_tracked.shape == () and norm.num_batches_tracked.item() == 5


def test_what_is_no_mapping(world):
    for lib in LIBS:
        with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got"):
            net(lib).load_state_dict([1])
    with pytest.raises(OnefoldTypeError):
        net(flow).load_state_dict(None)


def test_an_error_comes_before_any_change_also_with_hooks(world):
    model = net(flow)
    before = model[0].weight.tolist()
    called = []
    model.register_load_state_dict_post_hook(lambda *args: called.append(args))
    with pytest.raises(OnefoldRuntimeError, match="size mismatch"):
        model.load_state_dict({"0.weight": np.ones((3, 2)), "0.bias": np.ones(4)}, strict=False)
    assert model[0].weight.tolist() == before and called == []


# Walking by paths, conversions, and what else torch programs call.


def test_paths(world):
    for lib in LIBS:
        model = net(lib)
        model[1].register_buffer("b", lib.zeros(2))
        assert model.get_parameter("1.0.weight") is model[1][0].weight
        assert model.get_buffer("1.b") is model[1].b
        for bad in ("1.b", "1.x", "2.weight"):
            with pytest.raises(AttributeError):
                model.get_parameter(bad)
        with pytest.raises(AttributeError):
            model.get_buffer("1.0.weight")
        model.set_submodule("1.0", lib.nn.ReLU())
        model.set_submodule("1.new", lib.nn.Tanh())
        assert [type(m).__name__ for m in model[1]] == ["ReLU", "Tanh"]
        with pytest.raises(AttributeError):
            model.set_submodule("1.other", lib.nn.ReLU(), strict=True)
        with pytest.raises(ValueError, match="without a target name"):
            model.set_submodule("", lib.nn.ReLU())
        with pytest.raises(ValueError, match="is not an nn"):
            model.set_submodule("1.0", 3)
        assert "b" in dir(model[1]) and "forward" in dir(model) and "0" not in dir(model)


def test_conversions(world):
    for lib in LIBS:
        model = net(lib)
        model.register_buffer("steps", lib.tensor([1, 2]))
        assert model.type(torch.float64) is model
        assert model.steps.dtype == model[0].weight.dtype == torch.float64
        before = model[0].weight
        assert model.to_empty(device="cpu") is model
        assert model[0].weight.shape == (3, 2) and (lib is torch or model[0].weight is before)
        assert model._get_name() == "Sequential"
    p = flow.placement("cpu", [0, 1])
    model = net(flow)
    model.to_global(p, flow.sbp.broadcast)
    assert model.compile(mode="default") is None
    model.to_empty(device=None)
    assert model[0].weight.placement is p


def test_to(world):
    """As torch's: what is integer keeps its dtype."""
    for lib in LIBS:
        model = net(lib)
        model.register_buffer("steps", lib.tensor([1, 2]))
        for args, options, dtype in (
            ((torch.float64, True), {}, torch.float64),
            ((lib.ones(1),), {}, torch.float32),
            (("cpu", torch.float64, False), {}, torch.float64),
            ((None, torch.float32), {}, torch.float32),
            ((), {"tensor": lib.ones(1, dtype=torch.float64)}, torch.float64),
            ((), {"device": "cpu", "dtype": torch.float32, "non_blocking": True}, torch.float32),
            ((), {"memory_format": torch.channels_last}, torch.float32),
        ):
            assert model.to(*args, **options) is model and model.steps.dtype == torch.int64
            assert {p.dtype for p in model.parameters()} == {dtype}
        assert len(list(model.modules(remove_duplicate=False))) == 4
    with pytest.raises(OnefoldTypeError, match="unknown arguments"):
        net(flow).to(placement=1)


def test_complex_parameters_keep_both_parts(world):
    def dtypes(lib):
        made = []
        for name in ("half", "bfloat16", "float", "double"):
            model = lib.nn.Linear(2, 2)
            model.shift = lib.nn.Parameter(lib.ones(2, dtype=lib.complex64) * 1j)
            getattr(model, name)()
            made.append((model.weight.dtype, model.shift.dtype, model.shift.tolist()))
        return made

    assert dtypes(flow) == dtypes(torch)


def test_a_module_can_be_pickled_and_copied(world):
    model = net(flow)
    state = dict(vars(model[0]))
    for table in ("_state_dict_hooks", "_backward_hooks"):
        del state[table]
    old = flow.nn.Linear.__new__(flow.nn.Linear)
    old.__setstate__(state)  # of a version that had not these hooks
    assert old(flow.ones(1, 2)).shape == (1, 3) and list(old.state_dict()) == ["weight", "bias"]
    duplicate = copy.deepcopy(model)
    duplicate[0].register_full_backward_hook(lambda *args: None)
    assert not model[0]._backward_hooks


def test_pickles(world):
    model = flow.nn.Sequential(flow.nn.ReLU())
    assert repr(pickle.loads(pickle.dumps(model))) == repr(model)


def test_errors_are_onefolds(world):
    with pytest.raises(OnefoldValueError):
        net(flow).set_submodule("", flow.nn.ReLU())
