"""The state of graphs: its keys, and that training goes on from it under any layout."""

import pickle

import numpy as np
import pytest

import onefold as flow
from onefold import nn, sbp
from onefold.errors import OnefoldError, OnefoldRuntimeError, OnefoldTypeError

B, S0, S1 = sbp.broadcast, sbp.split(0), sbp.split(1)
PAIR = flow.placement("cpu", [0, 1])
QUAD = flow.placement("cpu", [[0, 1], [2, 3]])
LAYOUTS = {  # where, how the first and the second weight are laid out, the input, ZeRO's stage
    "dp": (PAIR, B, B, S0, None),
    "tp": (PAIR, S0, S1, B, None),
    "zero 2": (PAIR, B, B, S0, 2),
    "zero 3": (PAIR, B, B, S0, 3),
    "dp x tp": (QUAD, (B, S0), (B, S1), (S0, B), None),
}
OPTIMIZERS = {
    "sgd": lambda params: flow.optim.SGD(params, lr=0.1),
    "momentum": lambda params: flow.optim.SGD(params, lr=0.1, momentum=0.9),
    "adamw": lambda params: flow.optim.AdamW(params, lr=0.01, weight_decay=0.1),
    "amsgrad": lambda params: flow.optim.AdamW(params, lr=0.01, amsgrad=True),
    "rmsprop": lambda params: flow.optim.RMSprop(params, lr=0.01, centered=True, momentum=0.5),
    "lamb": lambda params: flow.optim.LAMB(params, lr=0.01, weight_decay=0.1),
}


class Train(nn.Graph):
    def __init__(self, layout="dp", optimizer="adamw", scaler=None, seed=0):
        super().__init__()
        flow.manual_seed(seed)
        place, first, second, self.input_sbp, zero = LAYOUTS[layout]
        self.place = place
        whole = (B,) * place.ndim
        self.one = nn.Linear(4, 8, bias=False).to_global(place, whole).to_global(place, first)
        self.two = nn.Linear(8, 4).to_global(place, whole)
        self.two.to_global(place, lambda name, _: second if name == "weight" else whole)
        params = [*self.one.parameters(), *self.two.parameters()]
        self.optimizer = OPTIMIZERS[optimizer](params)
        self.schedule = flow.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.add_optimizer(self.optimizer, lr_sch=self.schedule)
        if scaler is not None:
            self.set_grad_scaler(scaler)
        if zero is not None:
            self.config.enable_zero(stage=zero, shard_min_size=1)

    def build(self, x):
        loss = (self.two(flow.gelu(self.one(x))) ** 2).mean()
        loss.backward()
        return loss

    def steps(self, first, last):
        found = []
        for number in range(first, last):
            values = np.random.default_rng(number).standard_normal((4, 4)).astype(np.float32)
            x = flow.tensor(values, placement=self.place, sbp=self.input_sbp)
            found.append(self(x).item())
        return found


def stored(state):
    """The state after a file: tensors as arrays, and all of it pickled."""

    def plain(value):
        if isinstance(value, flow.Tensor):
            return value.numpy()
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return value

    return pickle.loads(pickle.dumps(plain(state)))


def values(state):
    return {
        (key, inner): value.numpy()
        for key, entry in state.items()
        for inner, value in (entry.items() if isinstance(entry, dict) else [("", entry)])
        if isinstance(value, flow.Tensor)
    }


def same(ours, theirs):
    assert str(stored(ours)) == str(stored(theirs))
    ours, theirs = values(ours), values(theirs)
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        np.testing.assert_array_equal(value, theirs[key])


def test_the_keys_are_those_of_the_reference(world):
    graph = Train(optimizer="momentum")
    assert list(graph.state_dict()) == [
        "one",
        "two",
        "System-Train-TrainStep-Train",
        "System-Train-ParamGroups-Train",
        "System-Train-LRScheduler-Train",
    ]
    graph.steps(0, 3)
    state = graph.state_dict()
    assert list(state["two"]) == ["weight", "bias"]
    assert [key for key in state if key.endswith("-momentum")] == [
        "one.weight-momentum",
        "two.weight-momentum",
        "two.bias-momentum",
    ]
    assert state["System-Train-TrainStep-Train"] == 3
    graph = Train(optimizer="amsgrad", scaler=flow.amp.GradScaler(4.0))
    graph.steps(0, 1)
    state = graph.state_dict()
    found = [key for key in state if key.startswith("one.weight-")]
    assert found == ["one.weight-" + suffix for suffix in ("step", "m", "v", "max_v")]
    assert state["System-Train-GradScaler-Train"] == {
        "scale": 4.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 1,
    }
    assert state["System-Train-ParamGroups-Train"][0][0]["lr"] == 0.01


def test_a_destination_is_filled(world):
    destination = {"epoch": 3}
    graph = Train()
    assert graph.state_dict(destination) is destination
    assert set(destination) == {"epoch", *graph.state_dict()}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("after_a_call", [False, True])
@pytest.mark.parametrize("file", [False, True])
def test_training_goes_on_bit_for_bit(optimizer, after_a_call, file, world):
    wanted = Train(optimizer=optimizer, scaler=flow.amp.GradScaler(4.0, growth_interval=2))
    wanted.steps(0, 3)
    state = wanted.state_dict()
    state = stored(state) if file else state
    losses = wanted.steps(3, 6)
    other = Train(optimizer=optimizer, scaler=flow.amp.GradScaler(64.0), seed=1)
    other._scaler._interval = 2
    if after_a_call:
        other.steps(7, 9)
    other.load_state_dict(state)
    assert other.steps(3, 6) == losses
    same(other.state_dict(), wanted.state_dict())
    wanted.load_state_dict(state)  # and back again, in the graph that it came from
    assert wanted.steps(3, 6) == losses


@pytest.mark.parametrize("before", LAYOUTS)
@pytest.mark.parametrize("after", LAYOUTS)
def test_a_state_loads_under_another_layout(before, after, world):
    first = Train(before)
    first.steps(0, 2)
    state = first.state_dict()
    other = Train(after, seed=1)
    other.load_state_dict(state)
    for (key, value), (_, given) in zip(
        values(other.state_dict()).items(), values(state).items(), strict=True
    ):
        np.testing.assert_array_equal(value, given, err_msg=str(key))
    losses = other.steps(2, 5)
    np.testing.assert_allclose(losses, first.steps(2, 5), rtol=1e-5)
    if before == after:
        same(other.state_dict(), first.state_dict())


def test_the_state_is_a_snapshot(world):
    graph = Train()
    graph.steps(0, 1)
    state = graph.state_dict()
    kept = stored(state)
    graph.steps(1, 3)
    assert str(stored(state)) == str(kept)


def test_a_graph_of_another_name_and_the_state_of_oneflow(world):
    class Again(Train):
        pass

    graph = Train()
    graph.steps(0, 2)
    state = graph.state_dict()
    losses = graph.steps(2, 4)
    other = Again(seed=1)
    other.load_state_dict(state)
    assert "System-Train-TrainStep-Again" in other.state_dict()
    assert other.steps(2, 4) == losses
    kept = {k: v for k, v in state.items() if "-step" not in k and "ParamGroups" not in k}
    other = Train(seed=1)
    other.load_state_dict(kept)
    assert other.state_dict()["two.bias-step"] == 2


def test_what_both_have_is_taken_if_not_strict(world):
    graph = Train()
    graph.steps(0, 2)
    other = Train(seed=1)
    other.steps(0, 1)
    kept = other.state_dict()["one.weight-m"].numpy()
    other.load_state_dict({"one": graph.one.state_dict(), "three": {}}, strict=False)
    np.testing.assert_array_equal(other.one.weight.numpy(), graph.one.weight.numpy())
    np.testing.assert_array_equal(other.state_dict()["one.weight-m"].numpy(), kept)


def replaced(changes):
    return lambda state: {**state, **changes}


def without(*keys):
    return lambda state: {key: value for key, value in state.items() if key not in keys}


BAD = {
    "not a state": (lambda state: [1], OnefoldTypeError, "needs a dict .* but got list"),
    "a key too many": (replaced({"three": {}}), OnefoldError, r"unexpected key\(s\) \['three'\]"),
    "the old keys": (replaced({"optimizer.0": {}}), OnefoldRuntimeError, r"'optimizer\.0'"),
    "a module missing": (without("two"), OnefoldRuntimeError, r"missing key\(s\) \['two'\]"),
    "a schedule missing": (
        without("System-Train-LRScheduler-Train"),
        OnefoldRuntimeError,
        r"missing key\(s\) \['System-Train-LRScheduler-Train'\]",
    ),
    "another schedule": (
        replaced({"System-Train-LRScheduler-Train": [{"last": 1}]}),
        OnefoldError,
        "the state of a StepLR has the keys",
    ),
    "two schedules": (
        replaced({"System-Train-LRScheduler-Train": [{}, {}]}),
        OnefoldError,
        "has 1 for System-Train-LRScheduler, but the given state has 2",
    ),
    "a part of the moments": (
        without("one.weight-v"),
        OnefoldRuntimeError,
        r"AdamW keeps \['-m', '-step', '-v'\] of one\.weight, but .* \['-m', '-step'\]",
    ),
    "an unknown parameter": (
        replaced({"one.bias-m": 1}),
        OnefoldRuntimeError,
        r"unexpected key\(s\) \['one.bias-m'\]",
    ),
    "other groups": (
        replaced({"System-Train-ParamGroups-Train": [[{}, {}]]}),
        OnefoldRuntimeError,
        "has 1 parameter groups, but the given state has 2",
    ),
    "other options": (
        replaced({"System-Train-ParamGroups-Train": [[{"lr": 1.0}]]}),
        OnefoldRuntimeError,
        "AdamW has the options .* has no",
    ),
    "another shape": (
        replaced({"two": {"weight": np.zeros((2, 2)), "bias": np.zeros(4)}}),
        OnefoldRuntimeError,
        r"(?s)GraphModules.*two\.weight: size mismatch",
    ),
    "a moment of another shape": (
        replaced({"one.weight-m": np.zeros(3)}),
        OnefoldError,
        r"size mismatch: the tensor has \(8, 4\), the value \(3,\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_state_changes_nothing(name, world):
    change, error, text = BAD[name]
    graph = Train()
    graph.steps(0, 2)
    bad = change(graph.state_dict())
    graph.steps(2, 3)
    before = graph.state_dict()
    with pytest.raises(error, match=text):
        graph.load_state_dict(bad)
    same(graph.state_dict(), before)
    duplicate = Train(seed=1)
    duplicate.load_state_dict(before)
    assert graph.steps(3, 5) == duplicate.steps(3, 5)


def test_the_state_of_another_optimizer(world):
    graph = Train(optimizer="momentum")
    graph.steps(0, 1)
    other = Train()
    with pytest.raises(OnefoldRuntimeError, match="AdamW has the options"):
        other.load_state_dict(graph.state_dict())
    kept = without("System-Train-ParamGroups-Train")(graph.state_dict())
    with pytest.raises(OnefoldRuntimeError, match=r"but the given state has \['-momentum'\]"):
        other.load_state_dict(kept)


@pytest.mark.parametrize(
    ("optimizer", "option", "value"),
    [("rmsprop", "momentum", 0.0), ("rmsprop", "centered", False), ("amsgrad", "amsgrad", False)],
)
def test_an_option_that_was_changed_in_training(optimizer, option, value, world):
    graph = Train("dp", optimizer)
    graph.steps(0, 2)
    graph.optimizer.param_groups[0][option] = value
    graph.steps(2, 4)
    state = stored(graph.state_dict())
    loaded = Train("tp", optimizer, seed=1)
    loaded.load_state_dict(state)
    np.testing.assert_allclose(loaded.steps(4, 6), graph.steps(4, 6), 1e-5)


def test_two_optimizers(world):
    class Both(nn.Graph):
        def __init__(self, seed):
            super().__init__()
            flow.manual_seed(seed)
            self.model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
            self.add_optimizer(flow.optim.AdamW(self.model[0].parameters(), lr=0.1))
            sgd = flow.optim.SGD(self.model[1].parameters(), lr=0.1, momentum=0.5)
            self.add_optimizer(sgd, lr_sch=flow.optim.lr_scheduler.ExponentialLR(sgd, 0.5))

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    first, x = Both(0), flow.ones(2, 3)
    first(x)
    state = first.state_dict()
    assert {"model.0.weight-m", "model.1.bias-momentum"} <= set(state)
    other = Both(1)
    other.load_state_dict(state)
    assert other(x).item() == first(x).item()
    same(other.state_dict(), first.state_dict())
