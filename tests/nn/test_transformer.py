"""The Transformer and its layers against torch's, with the same weights, in any layout."""

import copy

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldRuntimeError, ShapeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::onefold.FallbackWarning"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning"),  # torch's
]

E, H, N, L, S = 8, 2, 4, 3, 5
CAUSAL = torch.full((L, L), -torch.inf, dtype=torch.float64).triu(1)
PADDED = torch.tensor([[False] * 4 + [True]] * 2 + [[False, True, False, True, False]] * 2)
FLOAT_PADDED = torch.zeros(N, S, dtype=torch.float64).masked_fill(PADDED, -torch.inf)
SIZES = {"d_model": E, "nhead": H, "dim_feedforward": 12, "dropout": 0.0}


def square(lib):
    """An activation that is a function of the user's."""
    return lambda x: x * x


# name: (options of the layer, which inputs, options of the call)
CASES = {
    "encoder layer": ("TransformerEncoderLayer", {}, "S", {}),
    "encoder layer, masks": (
        "TransformerEncoderLayer",
        {"batch_first": True, "activation": "gelu"},
        "S",
        {"src_key_padding_mask": PADDED, "src_mask": torch.ones(S, S, dtype=torch.bool).triu(2)},
    ),
    "encoder layer, norm first": (
        "TransformerEncoderLayer",
        {"norm_first": True, "bias": False, "activation": square},
        "S",
        {"src_key_padding_mask": FLOAT_PADDED},
    ),
    "decoder layer": (
        "TransformerDecoderLayer",
        {},
        "LS",
        {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_key_padding_mask": PADDED},
    ),
    "decoder layer, norm first": (
        "TransformerDecoderLayer",
        {"norm_first": True, "batch_first": True, "activation": "gelu", "bias": False},
        "LS",
        {"memory_mask": torch.ones(L, S, dtype=torch.bool).triu(1)},
    ),
    "model": (
        "Transformer",
        {"num_encoder_layers": 2, "num_decoder_layers": 1},
        "SL",
        {"tgt_mask": CAUSAL, "src_key_padding_mask": PADDED, "memory_key_padding_mask": PADDED},
    ),
    "model, norm first": (
        "Transformer",
        {"num_encoder_layers": 1, "num_decoder_layers": 2, "norm_first": True, "batch_first": True},
        "SL",
        {"tgt_mask": CAUSAL, "tgt_is_causal": True},
    ),
}
MESHES = [
    # ranks, layout of the parameters, of the inputs (split: the batch)
    ([0, 1], "(B)", "(S0)"),
    ([0, 1], "(S0)", "(B)"),
    ([[0, 1], [2, 3]], "(B, S0)", "(S0, B)"),
]


def pair(name, options):
    made = []
    for lib in (flow, torch):
        own = dict(options)
        if own.get("activation") is square:
            own["activation"] = square(lib)
        made.append(getattr(lib.nn, name)(**SIZES, **own).double())
    ours, theirs = made
    random = np.random.default_rng(0)
    with torch.no_grad():
        for param in theirs.parameters():
            param.copy_(torch.from_numpy(random.standard_normal(param.shape) / 2))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def inputs(options, lengths):
    random = np.random.default_rng(1)
    sizes = [{"L": L, "S": S}[one] for one in lengths]
    shapes = [(N, n, E) if options.get("batch_first") else (n, N, E) for n in sizes]
    return [torch.from_numpy(random.standard_normal(shape)) for shape in shapes]


def results(model, given, call):
    leaves = [x.requires_grad_() for x in given]
    y = model(*leaves, **call)
    (y * y).sum().backward()
    tensors = [y, *(x.grad for x in leaves), *(p.grad for p in model.parameters())]
    return [value_of(t) if isinstance(t, flow.Tensor) else t.detach() for t in tensors]


def difference(found, wanted):
    for mine, right in zip(found, wanted, strict=True):
        if not torch.allclose(mine.detach(), right, rtol=1e-8, atol=1e-9):
            return f"{mine} is not {right}"
    return ""


def read(call, make):
    return {k: make(v) if isinstance(v, torch.Tensor) else v for k, v in call.items()}


@pytest.mark.parametrize("case", CASES)
def test_model(case, world):
    name, options, lengths, call = CASES[case]
    ours, theirs = pair(name, options)
    assert list(ours.state_dict()) == list(theirs.state_dict()) and repr(ours) == repr(theirs)
    given = inputs(options, lengths)
    wanted = results(theirs, [x.clone() for x in given], call)
    found = results(ours, [make_local(x.clone()) for x in given], read(call, make_local))
    assert difference(found, wanted) == ""
    batch = 0 if options.get("batch_first") else 1
    for ranks, weights, place in MESHES:
        p = flow.placement("cpu", ranks)
        whole = (flow.sbp.broadcast,) * p.ndim
        laid, _ = pair(name, options)
        laid.to_global(p, whole)
        laid.to_global(sbp=parse(weights))
        sbp = tuple(flow.sbp.split(batch) if s.is_split else s for s in parse(place))
        found = results(
            laid,
            [make_global(x, p, sbp) for x in given],
            read(call, lambda x, p=p, whole=whole: make_global(x, p, whole)),
        )
        assert difference(found, wanted) == "", (ranks, weights)


def test_a_wrong_model_is_noticed(world):
    name, options, lengths, call = CASES["decoder layer"]
    ours, theirs = pair(name, options)
    given = inputs(options, lengths)
    wanted = results(theirs, [x.clone() for x in given], call)
    ours.norm3.eps = 0.1
    found = results(ours, [make_local(x) for x in given], read(call, make_local))
    assert difference(found, wanted) != ""


def test_evaluation(world):
    """torch has another implementation for it."""
    ours, theirs = pair("TransformerEncoderLayer", {"batch_first": True})
    x = inputs({"batch_first": True}, "S")[0]
    with torch.no_grad(), flow.no_grad():
        wanted = theirs.eval()(x, src_key_padding_mask=PADDED)
        found = ours.eval()(make_local(x), src_key_padding_mask=make_local(PADDED))
    torch.testing.assert_close(value_of(found)[~PADDED], wanted[~PADDED])


def test_unbatched(world):
    for options in ({}, {"batch_first": True}):
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
        ours, theirs = pair("Transformer", {**layers, **options})
        given = [x[:, 0] for x in inputs({}, "SL")]
        call = {"tgt_mask": CAUSAL, "src_key_padding_mask": PADDED[0]}
        wanted = theirs(*given, **call)
        found = ours(*map(make_local, given), **read(call, make_local))
        torch.testing.assert_close(value_of(found), wanted)


def test_stacks(world):
    """Copies of one layer, with names as torch's; an activation may be a module."""
    for lib in (flow, torch):
        layer = lib.nn.TransformerEncoderLayer(E, H, 12, activation=lib.nn.GELU())
        stack = lib.nn.TransformerEncoder(layer, 3, lib.nn.LayerNorm(E), enable_nested_tensor=False)
        assert len(stack.layers) == stack.num_layers == 3 and stack.layers[0] is not layer
        first, second = (stack.layers[i].linear1.weight.tolist() for i in (0, 1))
        assert first == second == layer.linear1.weight.tolist()
        assert len(list(stack.parameters())) == 3 * 12 + 2
        if lib is flow:
            mine = repr(stack), list(stack.state_dict())
    assert mine == (repr(stack), list(stack.state_dict()))
    stack = flow.nn.TransformerDecoder(flow.nn.TransformerDecoderLayer(E, H, 12), 2)
    assert stack.norm is None and stack(flow.ones(L, E), flow.ones(S, E)).shape == (L, E)


def test_custom_parts(world):
    class Half(flow.nn.Module):
        def forward(self, src, **options):
            return src * 0.5

    class Sum(flow.nn.Module):
        def forward(self, tgt, memory, **options):
            return tgt + memory

    model = flow.nn.Transformer(E, H, custom_encoder=Half(), custom_decoder=Sum())
    assert model(flow.ones(L, N, E), flow.ones(L, N, E)).numpy().max() == 1.5


def test_initial_weights(world):
    """The distributions are torch's, and the values the same for every layout."""
    flow.manual_seed(0)
    ours = flow.nn.Transformer(32, 4, 1, 1, 48)
    theirs = torch.nn.Transformer(32, 4, 1, 1, 48)
    for name, param in theirs.named_parameters():
        mine = torch.from_numpy(ours.get_parameter(name).numpy().copy())
        assert mine.shape == param.shape
        if param.ndim > 1 or "linear" in name:
            assert mine.std().item() == pytest.approx(param.std().item(), rel=0.5), name
            assert mine.abs().max().item() == pytest.approx(param.abs().max().item(), rel=0.3), name
        else:
            assert torch.equal(mine, param.detach()), name
    flow.manual_seed(0)
    layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": flow.sbp.broadcast}
    laid = flow.nn.Transformer(32, 4, 1, 1, 48, **layout)
    for one, other in zip(laid.parameters(), ours.parameters(), strict=True):
        assert np.array_equal(one.numpy(), other.numpy())


def test_dropout_is_that_of_training(world):
    model = flow.nn.TransformerEncoderLayer(E, H, 12, dropout=0.5)
    x = flow.ones(L, N, E)
    assert not np.allclose(model(x).detach().numpy(), model(x).detach().numpy())
    model.eval()
    assert np.array_equal(model(x).detach().numpy(), model(x).detach().numpy())


def test_in_a_graph(world):
    """A training step: a loss, gradients and an update, equal to the eager one."""
    model, _ = pair("Transformer", {"num_encoder_layers": 1, "num_decoder_layers": 1})
    plain = copy.deepcopy(model)
    src, tgt = map(make_local, inputs({}, "SL"))
    mask = make_local(CAUSAL)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.01)

    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, src, tgt, mask):
            y = self.model(src, tgt, tgt_mask=mask, tgt_is_causal=True)
            loss = (y * y).mean()
            loss.backward()
            return loss

    graph = Graph()
    eager = flow.optim.SGD(plain.parameters(), lr=0.01)
    for _ in range(2):
        found = graph(src, tgt, mask)
        y = plain(src, tgt, tgt_mask=mask, tgt_is_causal=True)
        loss = (y * y).mean()
        loss.backward()
        eager.step()
        eager.zero_grad()
        torch.testing.assert_close(value_of(found), value_of(loss.detach()))


def test_causal_masks(world):
    make, theirs = (lib.nn.Transformer.generate_square_subsequent_mask for lib in (flow, torch))
    assert make(4).tolist() == theirs(4).tolist() and make(4).dtype == torch.float32
    assert make(3, dtype=flow.float64).dtype == torch.float64
    p = flow.placement("cpu", [0, 1])
    laid = make(4, placement=p, sbp=flow.sbp.broadcast)
    assert laid.is_global and laid.numpy().tolist() == theirs(4).tolist()


BAD = [
    (lambda: layer(activation="tanh"), OnefoldRuntimeError, "should be relu/gelu, not tanh"),
    (lambda: model()(flow.ones(L, 2, E), flow.ones(S, 3, E)), ShapeError, "batch number of src"),
    (lambda: model()(flow.ones(L, 2, 4), flow.ones(S, 2, 4)), ShapeError, "feature number of src"),
]


def layer(**options):
    return flow.nn.TransformerEncoderLayer(E, H, **options)


def model():
    return flow.nn.Transformer(E, H, 1, 1, 12)


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_arguments(index, world):
    bad, kind, text = BAD[index]
    with pytest.raises(kind, match=text):
        bad()
