"""Arguments that make no sense: refused in the function's name, or the result is torch's."""

from zlib import crc32

import pytest
import torch
from bad_input_calls import ENDLESS, NOT_REFUSED, OTHER_WORDS, TWO, calls
from bad_input_objects import object_calls

import onefold as flow
from onefold.errors import OnefoldError
from onefold.testing.bad_input import Call

F = flow.nn.functional
X = flow.ones(2, 3)
INDEX = flow.zeros(2, 3, dtype=flow.int64)
RECURSIVE = {
    "asarray": lambda: flow.asarray([1.0, 2.0], dtype=X),
    "as_strided": lambda: flow.as_strided(X, (2, 2), (1, 2), flow.tensor(0.5)),
}
PART = 12  # one of so many variations is tried here; `python tests/bad_input.py` tries all


def optimizer():
    return flow.optim.AdamW(flow.nn.Linear(3, 2).parameters())


SEEN = {
    "atleast_1d": (TypeError, lambda: flow.atleast_1d(X, 3)),
    "tensordot": (RuntimeError, lambda: flow.tensordot(X, X, dims=-1)),
    "conv2d": (RuntimeError, lambda: F.conv2d(flow.ones(1, 1, 4, 4), flow.ones(1, 1, 0, 2))),
    "size": (IndexError, lambda: X.size(5)),
    "manual_seed": (ValueError, lambda: flow.manual_seed(2**70)),
    "einsum": (TypeError, lambda: flow.einsum(None, X)),
    "embedding": (TypeError, lambda: F.embedding(INDEX, -1)),
    "cross_entropy": (TypeError, lambda: F.cross_entropy(X, -7)),
    "scatter": (TypeError, lambda: flow.scatter(X, "abc", INDEX, 1.0)),
    "rot90": (TypeError, lambda: flow.rot90(X, X)),
    "tensor_split": (RuntimeError, lambda: flow.tensor_split(X, 2**70)),
    "clamp": (TypeError, lambda: X.clone().clamp_("a")),
    "Linear": (TypeError, lambda: flow.nn.Linear("a", 2)),
    "Conv2d": (TypeError, lambda: flow.nn.Conv2d(None, 2, 3)),
    "linear": (TypeError, lambda: flow.nn.Linear(3, 2)("abc")),
    "load_state_dict": (TypeError, lambda: flow.nn.Linear(3, 2).load_state_dict(None)),
    "Adam": (TypeError, lambda: flow.optim.Adam(5)),
    "AdamW": (TypeError, lambda: flow.optim.AdamW([flow.ones(2, requires_grad=True)], lr="abc")),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_was_seen_is_refused_by_name(name):
    kind, call = SEEN[name]
    with pytest.raises(OnefoldError, match=name) as caught:
        call()
    assert isinstance(caught.value, kind)


@pytest.mark.parametrize("name", RECURSIVE)
def test_what_would_call_itself_for_ever_is_refused_by_name(name, world):
    with pytest.raises(OnefoldError, match=f"^{name}: argument"):
        RECURSIVE[name]()


def test_strides_and_offsets_in_tensors(world):
    x = flow.arange(12.0).reshape(3, 4)
    one, two = flow.tensor(1), flow.tensor(2)
    wanted = torch.arange(12.0).as_strided((2, 2), (1, 2), 1)
    assert torch.equal(x.as_strided((two, two), (one, two), one).to_torch(), wanted)


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adafactor", "LAMB"])
def test_options_of_groups_are_checked_before_a_step(name):
    kind = getattr(flow.optim, name)
    w = flow.nn.Parameter(flow.ones(2))
    optim = kind([w])
    for bad in ({"lr": "abc"}, {"weight_decay": [1]}, {"weight_decay": X}):
        with pytest.raises(TypeError, match=f"{name}: '{next(iter(bad))}' must be a number"):
            optim.add_param_group({"params": [flow.nn.Parameter(flow.ones(2))], **bad})
        state = optim.state_dict()
        state["param_groups"][0].update(bad)
        with pytest.raises(TypeError, match=f"{name}: '{next(iter(bad))}' must be a number"):
            optim.load_state_dict(state)
    assert len(optim.param_groups) == 1 and optim.param_groups[0] == kind([w]).param_groups[0]


def test_methods_that_a_distribution_lacks():
    with pytest.raises(NotImplementedError, match="Bernoulli has no cdf") as caught:
        flow.distributions.Bernoulli(0.5).cdf(flow.ones(2))
    assert isinstance(caught.value, OnefoldError)


def test_a_refused_buffer_is_not_registered():
    module = flow.nn.Module()
    with pytest.raises(OnefoldError, match="register_buffer"):
        module.register_buffer("x", flow.ones(2), persistent=X)
    assert not list(module.buffers())


def test_a_refused_seed_changes_nothing():
    flow.manual_seed(7)
    with pytest.raises(OnefoldError):
        flow.manual_seed(2**70)
    assert flow.initial_seed() == 7


@pytest.mark.parametrize("k", [1, -1, 6])
def test_a_number_of_turns_in_a_tensor_stays(k):
    turns = flow.tensor(k)
    found = flow.rot90(X, turns)
    assert turns.item() == k
    assert torch.equal(found.to_torch(), torch.rot90(torch.ones(2, 3), k))


BAD_STATES = [
    None, "abc", {}, {"state": {}}, {"state": "abc", "param_groups": 5},
    {"state": {}, "param_groups": ["abc"]}, {"state": {0: "abc"}, "param_groups": []},
]  # fmt: skip


@pytest.mark.parametrize("state", BAD_STATES, ids=str)
def test_an_optimizer_refuses_a_bad_state(state):
    optim = optimizer()
    before = optim.state_dict()
    with pytest.raises(OnefoldError, match=r"load_state_dict|state dict"):
        optim.load_state_dict(state)
    assert optim.state_dict() == before


class Training(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = flow.nn.Linear(3, 1)
        self.add_optimizer(flow.optim.AdamW(self.model.parameters()))

    def build(self, x):
        loss = self.model(x).sum()
        loss.backward()
        return loss


def test_a_graph_refuses_a_string_in_its_state():
    graph = Training()
    graph(X)
    state = graph.state_dict()
    for key in state:
        with pytest.raises(OnefoldError, match="load_state_dict"):
            graph.load_state_dict({**state, key: "abc"})
    graph.load_state_dict(state)


def test_what_code_of_users_raises_passes():
    def distance(a, b):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        F.triplet_margin_with_distance_loss(X, X, X, distance_function=distance)

    class Layer(flow.nn.Module):
        def forward(self, x):
            return x.shape[7]

    with pytest.raises(IndexError) as caught:
        Layer()(X)
    assert not isinstance(caught.value, OnefoldError)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("placement", [None, TWO], ids=["local", "global"])
def test_a_part_of_all_variations(placement, world):
    """No error from inside, none without a name, no input changed, and no call that hangs."""
    part = 0 if placement is None else 1

    def chosen(text):
        return crc32(text.encode()) % (2 * PART) == part and not text.endswith(ENDLESS)

    failures = [
        failure
        for call in (*calls(placement), *object_calls(placement))
        for failure in call.check(chosen)
        if failure.kind in NOT_REFUSED and not failure.call.endswith(OTHER_WORDS)
    ]
    assert not failures, "\n".join(map(str, failures[:20]))


def broken(x, dim=0):
    return x.shape[dim]


def changing(x, dim=0):
    if not isinstance(dim, int):
        x.add_(1)
        raise OnefoldError("changing: no")
    return x


def nameless(x, dim=0):
    raise OnefoldError("no")


@pytest.mark.parametrize(
    ("function", "kind"), [(broken, "escaped"), (changing, "changed"), (nameless, "unnamed")]
)
def test_a_function_that_does_not_refuse_is_found(function, kind):
    kinds = {each.kind for each in Call(function.__name__, function, (torch.ones(2, 3),)).check()}
    assert kind in kinds


WORDS = {
    "a sequence of tuples (a str, an onefold Tensor), but got": lambda: flow.optim.SGD([1]),
    "argument 1: (argument 0,)\n  argument 2: (('upper', True),)": lambda: flow.linalg.cholesky(
        -flow.eye(2), upper=True
    ),
    "argument 1: (argument 0, -2)": lambda: flow.fft.irfft(flow.ones(3), n=-2),
}


@pytest.mark.parametrize("text", WORDS)
def test_arguments_are_shown_as_they_were_written(text, world):
    with pytest.raises(OnefoldError) as caught:
        WORDS[text]()
    assert text in str(caught.value)
