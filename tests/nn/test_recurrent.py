"""Recurrent layers are torch's: values, gradients, names and errors, local and in any layout."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.engine.ops.recurrent_networks import SEQUENCES
from onefold.engine.sbp import parse
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

LAYERS = {
    "rnn": ("RNN", (4, 3), {}),
    "rnn of relu": ("RNN", (4, 3, 2, "relu", False), {"batch_first": True}),
    "gru": ("GRU", (4, 3, 2), {"bidirectional": True}),
    "gru, batch first": ("GRU", (4, 3), {"batch_first": True, "bias": False}),
    "lstm": ("LSTM", (4, 3), {}),
    "lstm with projections": ("LSTM", (4, 3, 2), {"proj_size": 2, "bidirectional": True}),
    "lstm, batch first": ("LSTM", (4, 3, 2), {"batch_first": True, "dropout": 1.0}),
}
CELL_LAYERS = {
    "tanh cell": ("RNNCell", (4, 3), {}),
    "relu cell": ("RNNCell", (4, 3, False, "relu"), {}),
    "lstm cell": ("LSTMCell", (4, 3), {}),
    "gru cell": ("GRUCell", (4, 3), {"bias": False}),
}
# Placements, with layouts of the input's batch and of the weights.
LAYOUTS = [
    ([0, 1], "(N)", "(B)"),
    ([0, 1], "(B)", "(S0)"),
    ([[0, 1], [2, 3]], "(N, B)", "(B, S0)"),
    ([[0, 1], [2, 3]], "(N, N)", "(B, B)"),
]


def pair(name, args, options, **layout):
    ours = getattr(flow.nn, name)(*args, **options, dtype=torch.float64, **layout)
    theirs = getattr(torch.nn, name)(*args, **options).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    ours.load_state_dict({k: v.clone() for k, v in theirs.state_dict().items()})
    return ours, theirs


def random(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def states_of(name, layer, batch):
    """Random states for a layer of torch."""
    lead = (*batch,)
    if not name.endswith("Cell"):
        lead = (layer.num_layers * (1 + layer.bidirectional), *batch)
    sizes = [getattr(layer, "proj_size", 0) or layer.hidden_size, layer.hidden_size]
    found = [random(*lead, size, seed=size + 7) for size in sizes]
    return found if name.startswith("LSTM") else found[:1]


def leaves(made):
    if not isinstance(made, tuple):
        return [made]
    return [leaf for part in made for leaf in leaves(part)]


def results(layer, name, x, states):
    """Outputs, and gradients for the input, the states and the parameters."""
    given = [x, *states]
    for value in given:
        value.requires_grad_()
    hx = (tuple(states) if name.startswith("LSTM") else states[0]) if states else None
    outputs = leaves(layer(x, hx))
    sum((y * y * (i + 1)).sum() for i, y in enumerate(outputs)).backward()
    return [*[y.detach() for y in outputs], *[v.grad for v in (*given, *layer.parameters())]]


def check(found, wanted):
    assert len(found) == len(wanted)
    for mine, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(value_of(mine), right)


ALL = LAYERS | CELL_LAYERS


@pytest.mark.parametrize("with_states", [True, False])
@pytest.mark.parametrize("case", ALL)
def test_local(case, with_states, world):
    name, args, options = ALL[case]
    ours, theirs = pair(name, args, options)
    for shape, batch in {(5, 4): (), (2, 5, 4): (2 if options.get("batch_first") else 5,)}.items():
        if name.endswith("Cell"):
            shape, batch = shape[1:], shape[1:-1]
        states = states_of(name, theirs, batch) if with_states else []
        wanted = results(theirs, name, random(*shape), [s.clone() for s in states])
        found = results(
            ours, name, make_local(random(*shape)), [make_local(s.clone()) for s in states]
        )
        check(found, wanted)
        for model in (ours, theirs):
            model.zero_grad()


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layouts(case, layout, world):
    name, args, options = ALL[case]
    ranks, of_batch, of_weights = layout
    placement = flow.placement("cpu", ranks)
    is_cell = name.endswith("Cell")
    at = 0 if is_cell or options.get("batch_first") else 1
    ours, theirs = pair(name, args, options, placement=placement, sbp=parse(of_weights))
    shape = [4] if is_cell else [2, 2]
    shape[at] = 5
    states = states_of(name, theirs, (5,))
    wanted = results(theirs, name, random(*shape, 4), [s.clone() for s in states])
    x = make_global(random(*shape, 4), placement, parse(of_batch.replace("N", f"S{at}")))
    of_state = parse(of_batch.replace("N", "S0" if is_cell else "S1"))
    found = results(ours, name, x, [make_global(s, placement, of_state) for s in states])
    check(found, wanted)
    if of_weights == "(B)":
        assert all(weight.grad.sbp == (flow.sbp.partial_sum,) for weight in ours.parameters())


def test_a_wrong_weight_is_noticed(world):
    ours, theirs = pair("LSTM", (4, 3), {})
    with torch.no_grad():
        theirs.weight_hh_l0[0, 0] += 1e-3
    wanted = results(theirs, "LSTM", random(5, 2, 4), [])
    with pytest.raises(AssertionError):
        check(results(ours, "LSTM", make_local(random(5, 2, 4)), []), wanted)


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("case", ["rnn", "gru", "lstm with projections", "gru, batch first"])
def test_packed(case, enforce_sorted, world):
    name, args, options = LAYERS[case]
    ours, theirs = pair(name, args, options)
    lengths = [4, 2, 1] if enforce_sorted else [2, 4, 1]
    placement = flow.placement("cpu", [0, 1])
    states = states_of(name, theirs, (3,))

    def run(layer, rnn, x, states):
        def packed(x, hx):
            out, last = layer(rnn.pack_padded_sequence(x, lengths, False, enforce_sorted), hx)
            return rnn.pad_packed_sequence(out)[0], last

        packed.parameters = layer.parameters
        layer.zero_grad()
        packed_layer = type("Packed", (), {"__call__": staticmethod(packed)})()
        packed_layer.parameters = layer.parameters
        return results(packed_layer, name, x, states)

    wanted = run(theirs, torch.nn.utils.rnn, random(4, 3, 4), [s.clone() for s in states])
    local = [make_local(s.clone()) for s in states]
    check(run(ours, flow.nn.utils.rnn, make_local(random(4, 3, 4)), local), wanted)
    ours.to_global(placement, flow.sbp.broadcast)
    x = make_global(random(4, 3, 4), placement, parse("(S1)"))
    laid = [make_global(s, placement, parse("(B)")) for s in states]
    check(run(ours, flow.nn.utils.rnn, x, laid), wanted)


class Counted:
    """Counts how often torch computes forward."""

    def __init__(self, monkeypatch, op):
        self.count, function = 0, op.function

        def counting(*args):
            self.count += 1
            return function(*args)

        monkeypatch.setattr(op, "function", counting)


@pytest.mark.parametrize("case", ["lstm", "gru"])
def test_backward_does_not_compute_forward_again(case, monkeypatch, world):
    name, args, options = ALL[case]
    layer = getattr(flow.nn, name)(*args, **options)
    counted = Counted(monkeypatch, SEQUENCES[layer.mode.lower()])
    x = flow.randn(5, 2, 4)
    y = leaves(layer(x))[0]
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    assert counted.count == 1
    first = [p.grad.numpy().copy() for p in layer.parameters()]
    layer.zero_grad()
    loss.backward()  # torch has freed what it recorded
    assert counted.count == 2
    for p, grad in zip(layer.parameters(), first, strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), grad)
    with flow.no_grad():
        layer(x)
    assert counted.count == 3


def test_what_saved_tensors_hooks_pack_is_computed_again(monkeypatch, world):
    layer = flow.nn.GRU(4, 3)
    counted = Counted(monkeypatch, SEQUENCES["gru"])
    x = flow.randn(5, 2, 4)

    def gradients(pack):
        layer.zero_grad()
        with flow.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = layer(x)[0].sum()
        loss.backward()
        return [p.grad.numpy().copy() for p in layer.parameters()]

    kept = gradients(lambda t: t)
    assert counted.count == 1
    for mine, right in zip(gradients(lambda t: t.clone()), kept, strict=True):
        np.testing.assert_array_equal(mine, right)
    assert counted.count == 3


def test_a_write_to_the_output_leaves_the_gradient_right(world):
    ours, theirs = pair("LSTM", (4, 3), {})
    found = []
    for layer, x in ((ours, make_local(random(5, 2, 4))), (theirs, random(5, 2, 4))):
        y = layer(x)[0]
        y = y.mul_(2.0) if layer is ours else y * 2.0
        (y * y).sum().backward()
        found.append([p.grad for p in layer.parameters()])
    check(*found)


def test_second_gradients_in_float32(world):
    """oneDNN's LSTM has none in torch."""

    def second(dtype):
        flow.manual_seed(0)
        layer = flow.nn.LSTM(4, 3, dtype=torch.float64).to(dtype)
        x = make_local(random(5, 2, 4).to(dtype)).requires_grad_()
        y = layer(x)[0]
        (dx,) = flow.autograd.grad((y * y).sum(), x, create_graph=True)
        (dx * dx).sum().backward()
        return [p.grad.to_torch().double() for p in layer.parameters()]

    for mine, right in zip(second(torch.float32), second(torch.float64), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-3, atol=1e-4)


def test_dropout_is_the_same_in_every_layout(world):
    placement = flow.placement("cpu", [0, 1])

    def run(laid):
        flow.manual_seed(5)
        layer = flow.nn.LSTM(4, 6, 3, dropout=0.5, dtype=torch.float64)
        x = random(5, 4, 4)
        if laid:
            layer.to_global(placement, flow.sbp.broadcast)
        x = make_global(x, placement, parse("(S1)")) if laid else make_local(x)
        y = layer(x)[0]
        y.sum().backward()
        layer.eval()
        flow.manual_seed(9)
        return [y.detach(), *[p.grad for p in layer.parameters()], layer(x)[0].detach()]

    local = [value_of(value) for value in run(laid=False)]
    check(run(laid=True), local)
    theirs = torch.nn.LSTM(4, 6, 3, dropout=0.5).double().eval()
    flow.manual_seed(5)
    state = flow.nn.LSTM(4, 6, 3, dropout=0.5, dtype=torch.float64).state_dict()
    theirs.load_state_dict({k: v.to_torch().clone() for k, v in state.items()})
    torch.testing.assert_close(local[-1], theirs(random(5, 4, 4))[0].detach())
    assert not torch.allclose(local[0], local[-1])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("ranks", [None, [0, 1]])
def test_in_a_graph(ranks, packed, monkeypatch, world):
    """A training step in a graph is that of eager, and computes forward once, too."""
    rnn = flow.nn.utils.rnn
    layout = {} if ranks is None else {"placement": flow.placement("cpu", ranks)}
    x = random(4, 2, 4)
    x = make_local(x) if ranks is None else make_global(x, layout["placement"], parse("(S1)"))

    def loss_of(layer, x):
        if packed:
            x = rnn.pack_padded_sequence(x, [3, 4], enforce_sorted=False)
        y = layer(x)[0]
        y = rnn.pad_packed_sequence(y)[0] if packed else y
        return (y * y).sum()

    def make():
        flow.manual_seed(0)
        layer = flow.nn.LSTM(4, 3, 2, dropout=0.5, dtype=torch.float64)
        if ranks is not None:
            layer.to_global(layout["placement"], flow.sbp.broadcast)
        flow.manual_seed(1)
        return layer, flow.optim.SGD(layer.parameters(), lr=0.1)

    layer, optimizer = make()
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(layer, x).backward()
        optimizer.step()

    captured, captured_optimizer = make()

    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = captured
            self.add_optimizer(captured_optimizer)

        def build(self, x):
            loss = loss_of(self.layer, x)
            loss.backward()
            return loss

    step = Step()
    counted = Counted(monkeypatch, SEQUENCES["lstm"])
    for _ in range(3):
        step(x)
    shards = 2 if ranks and not packed else 1
    assert counted.count == 3 * 2 * shards
    for mine, right in zip(captured.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(value_of(mine.detach()), value_of(right.detach()))


def test_two_processes(world):
    """A split batch, padded and packed, with a process for each rank."""

    def loss_of(layer, rnn, x):
        y = layer(x)[0]
        z = rnn.pad_packed_sequence(layer(rnn.pack_padded_sequence(x, [4, 3, 1]))[0])[0]
        return (y * y).sum() + (z * z).sum()

    _, theirs = pair("GRU", (4, 3, 2), {})
    state = {k: v.clone() for k, v in theirs.state_dict().items()}

    def program():
        layer = flow.nn.GRU(4, 3, 2, dtype=torch.float64)
        layer.load_state_dict(state)
        placement = flow.placement("cpu", [0, 1])
        layer.to_global(placement, flow.sbp.broadcast)
        x = flow.tensor(random(4, 3, 4), placement=placement, sbp=flow.sbp.split(1))
        loss_of(layer, flow.nn.utils.rnn, x).backward()
        return [p.grad.numpy() for p in layer.parameters()]

    loss_of(theirs, torch.nn.utils.rnn, random(4, 3, 4)).backward()
    for found in run_ranks(2, program):
        for mine, right in zip(found, theirs.parameters(), strict=True):
            np.testing.assert_allclose(mine, right.grad.numpy(), rtol=1e-9)


ERRORS = {
    "mode": lambda nn, x: nn.RNNBase("LSTMS", 3, 4),
    "dropout": lambda nn, x: nn.LSTM(3, 4, 2, dropout=1.5),
    "bias": lambda nn, x: nn.GRU(3, 4, bias=1),
    "batch_first": lambda nn, x: nn.GRU(3, 4, batch_first=None),
    "input_size of another type": lambda nn, x: nn.RNN(3.0, 4),
    "input_size": lambda nn, x: nn.RNN(0, 4),
    "hidden_size": lambda nn, x: nn.RNN(3, 0),
    "num_layers": lambda nn, x: nn.RNN(3, 4, 0),
    "negative projection": lambda nn, x: nn.LSTM(3, 4, proj_size=-1),
    "large projection": lambda nn, x: nn.LSTM(3, 4, proj_size=4),
    "projection of a gru": lambda nn, x: nn.GRU(3, 4, proj_size=2),
    "nonlinearity": lambda nn, x: nn.RNN(3, 4, nonlinearity="elu"),
    "nonlinearity of a cell": lambda nn, x: nn.RNNCell(3, 4, nonlinearity="elu")(x(2, 3)),
    "dims": lambda nn, x: nn.LSTM(3, 4)(x(3)),
    "dims of a rnn": lambda nn, x: nn.RNN(3, 4)(x(3)),
    "dims of a cell": lambda nn, x: nn.GRUCell(3, 4)(x(2, 2, 3)),
    "dims of a cell's state": lambda nn, x: nn.GRUCell(3, 4)(x(2, 3), x(1, 2, 4)),
    "dims of a cell's states": lambda nn, x: nn.LSTMCell(3, 4)(x(2, 3), (x(2, 4), x(1, 2, 4))),
    "size": lambda nn, x: nn.GRU(3, 4)(x(5, 2, 2)),
    "dtype": lambda nn, x: nn.GRU(3, 4)(x(5, 2, 3).double()),
    "dims of a state": lambda nn, x: nn.GRU(3, 4)(x(5, 2, 3), x(2, 4)),
    "dims of an unbatched state": lambda nn, x: nn.GRU(3, 4)(x(5, 3), x(1, 1, 4)),
    "dims of states": lambda nn, x: nn.LSTM(3, 4)(x(5, 2, 3), (x(2, 4), x(2, 4))),
    "dims of unbatched states": lambda nn, x: nn.LSTM(3, 4)(x(5, 3), (x(1, 2, 4), x(2, 4))),
    "size of a state": lambda nn, x: nn.GRU(3, 4)(x(5, 2, 3), x(1, 3, 4)),
    "size of a cell state": lambda nn, x: nn.LSTM(3, 4)(x(5, 2, 3), (x(1, 2, 4), x(1, 2, 5))),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_torchs(case, world):
    with pytest.raises((RuntimeError, ValueError, TypeError)) as theirs:
        ERRORS[case](torch.nn, torch.ones)
    with pytest.raises(flow.errors.OnefoldError) as ours:
        ERRORS[case](flow.nn, flow.ones)
    assert isinstance(ours.value, theirs.type)
    assert str(theirs.value).rstrip(".") in str(ours.value)


def test_a_dropout_that_drops_nothing_warns(world):
    for nn in (torch.nn, flow.nn):
        with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
            nn.LSTM(3, 4, dropout=0.5)


def test_all_weights_and_flatten_parameters(world):
    ours, theirs = pair("LSTM", (4, 3, 2), {"bidirectional": True, "proj_size": 2})
    ours.flatten_parameters()
    shapes = [[w.shape for w in weights] for weights in ours.all_weights]
    assert shapes == [[w.shape for w in weights] for weights in theirs.all_weights]
    assert ours.all_weights[1][0] is ours.weight_ih_l0_reverse
    assert ours._all_weights == theirs._all_weights
    assert max(float(abs(p.numpy()).max()) for p in ours.parameters()) <= 3**-0.5
    assert flow.nn.GRU(2, 3).get_expected_hidden_size(flow.ones(5, 4, 2), None) == (1, 4, 3)


class Training(flow.nn.Graph):
    """A training step of a layer on two ranks."""

    def __init__(self, name, args, options):
        super().__init__()
        p = flow.placement("cpu", [0, 1])
        flow.manual_seed(0)
        layer = getattr(flow.nn, name)(*args, **options)
        self.layer = layer.to_global(p, flow.sbp.broadcast)
        self.add_optimizer(flow.optim.SGD(self.layer.parameters(), lr=0.1))
        batch = (6, 5, 4) if options.get("batch_first") else (5, 6, 4)
        dim = 0 if options.get("batch_first") else 1
        self.x = flow.randn(*batch).to_global(p, flow.sbp.broadcast)
        self.x = self.x.to_global(sbp=flow.sbp.split(dim))

    def build(self, x):
        loss = (self.layer(x)[0] ** 2).sum()
        loss.backward()
        return loss


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_steps_run_after_their_memory_was_planned(name, world):
    expected = Training(*LAYERS[name])
    expected = expected(expected.x).item()
    for _ in range(2):  # a plan runs kernels on tensors without data, and keeps none of them
        planned = Training(*LAYERS[name])
        planned._compile(planned.x)
        planned.memory(0)
        planned.memory(1)
        assert planned(planned.x).item() == expected


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_a_step_has_the_flop_of_forward_and_twice_as_many_of_backward(name, world):
    training = Training(*LAYERS[name])
    training._compile(training.x)
    rows = 6 * 5 / 2  # of each rank
    forward = rows * 2 * sum(p.numel() for p in training.layer.parameters())
    (group,) = training.simulate("cpu").groups
    assert sum(group.flop.values()) == 3 * forward
