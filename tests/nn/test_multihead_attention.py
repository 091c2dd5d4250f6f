"""MultiheadAttention against torch's: every argument, with the same weights, in any layout."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.engine.ops import multi_head_attention
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, ShapeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

# Layouts that no signature fits are gathered with a warning; that is tested with the dispatcher.
pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")

E, H, N, L, S = 8, 2, 4, 5, 6
PADDED = torch.tensor([[False] * 4 + [True] * 2, [False, True] * 3, [False] * 6, [True, False] * 3])
HIDDEN = torch.ones(L, S, dtype=torch.bool).triu(1)


def floats(*shape):
    return torch.from_numpy(np.random.default_rng(len(shape)).standard_normal(shape))


# (arguments of the layer, of the call); `same` makes one tensor query, key and value.
CASES = {
    "self": ({}, {"same": True}),
    "self, no weights": ({}, {"same": True, "need_weights": False}),
    "causal": (
        {"batch_first": True},
        {
            "same": True,
            "need_weights": False,
            "attn_mask": torch.full((L, L), -torch.inf, dtype=torch.float64).triu(1),
            "is_causal": True,
        },
    ),
    "cross": ({}, {"average_attn_weights": False}),
    "bool masks": (
        {"batch_first": True},
        {"attn_mask": HIDDEN, "key_padding_mask": PADDED, "need_weights": False},
    ),
    "float masks": ({}, {"attn_mask": floats(N * H, L, S), "key_padding_mask": floats(N, S)}),
    "sizes": (
        {"kdim": 6, "vdim": 3, "bias": False, "batch_first": True},
        {"need_weights": False, "key_padding_mask": PADDED},
    ),
    "sizes, bias": ({"kdim": 6}, {}),
    "rows": (
        {"add_bias_kv": True, "add_zero_attn": True},
        {"attn_mask": HIDDEN, "need_weights": False},
    ),
    "rows, weights": ({"add_bias_kv": True, "batch_first": True}, {"key_padding_mask": PADDED}),
}
LAYOUTS = [
    # ranks, layout of the batch in the input (None: broadcast), of the packed weight, of the output
    ([0, 1], "S", "(B)", "(B)"),
    ([0, 1], None, "(S0)", "(S1)"),
    ([0, 1], None, "(P)", "(S0)"),
    ([0, 1, 2], "S", "(S0)", "(B)"),
    ([[0, 1], [2, 3]], "S", "(B, S0)", "(B, S1)"),
]


def pair(options, embed_dim=E):
    """Both layers, with random numbers in all parameters."""
    theirs = torch.nn.MultiheadAttention(embed_dim, H, **options).double()
    random = np.random.default_rng(0)
    with torch.no_grad():
        for param in theirs.parameters():
            param.copy_(torch.from_numpy(random.standard_normal(param.shape) / 2))
    ours = flow.nn.MultiheadAttention(embed_dim, H, **options).double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def inputs(options, call):
    """Query, key and value: one tensor, or three."""
    random = np.random.default_rng(1)
    sizes = [(L, E), (S, options.get("kdim", E)), (S, options.get("vdim", E))]
    found = []
    for length, features in sizes[:1] if call.get("same") else sizes:
        shape = (N, length, features) if options.get("batch_first") else (length, N, features)
        found.append(torch.from_numpy(random.standard_normal(shape)))
    return found


def results(layer, given, call):
    """Outputs and the gradients of inputs and parameters."""
    options = {key: value for key, value in call.items() if key != "same"}
    leaves = [x.requires_grad_() for x in given]
    y, weights = layer(*(leaves * 3 if call.get("same") else leaves), **options)
    loss = (y * y).sum() if weights is None else (y * y).sum() + (weights * weights).sum()
    loss.backward()
    seen = [] if weights is None else [weights]
    tensors = [y, *seen, *(x.grad for x in leaves), *(p.grad for p in layer.parameters())]
    return [value_of(t) if isinstance(t, flow.Tensor) else t.detach() for t in tensors]


def difference(found, wanted):
    for mine, right in zip(found, wanted, strict=True):
        if not torch.allclose(mine.detach(), right, rtol=1e-9, atol=1e-11):
            return f"{mine} is not {right}"
    return ""


def read(call, make):
    """The arguments of a call, with masks that `make` makes."""
    return {k: make(v) if isinstance(v, torch.Tensor) else v for k, v in call.items()}


@pytest.mark.parametrize("case", CASES)
def test_local(case, world):
    options, call = CASES[case]
    ours, theirs = pair(options)
    assert list(ours.state_dict()) == list(theirs.state_dict()) and repr(ours) == repr(theirs)
    given = inputs(options, call)
    wanted = results(theirs, [x.clone() for x in given], call)
    found = results(ours, [make_local(x.clone()) for x in given], read(call, make_local))
    assert difference(found, wanted) == ""


@pytest.mark.parametrize("case", CASES)
def test_global(case, world):
    options, call = CASES[case]
    given = inputs(options, call)
    wanted = results(pair(options)[1], [x.clone() for x in given], call)
    batch = 0 if options.get("batch_first") else 1
    for ranks, split, packed, out in LAYOUTS:
        ours, _ = pair(options)
        p = flow.placement("cpu", ranks)
        whole = (flow.sbp.broadcast,) * p.ndim
        ours.to_global(p, whole)

        def choose(name, tensor, packed=packed, out=out, whole=whole):
            if name.startswith("in_proj") or name.endswith("proj_weight"):
                return parse(packed)
            return parse(out) if name == "out_proj.weight" else whole

        ours.to_global(sbp=choose)
        place = whole if split is None else (flow.sbp.split(batch), *whole[1:])
        found = results(
            ours,
            [make_global(x, p, place) for x in given],
            read(call, lambda x, p=p, whole=whole: make_global(x, p, whole)),
        )
        assert difference(found, wanted) == "", (ranks, split, packed)


def test_a_wrong_layer_is_noticed(world):
    options, call = CASES["self"]
    ours, theirs = pair(options)
    given = inputs(options, call)
    with flow.no_grad():
        ours.in_proj_bias[3] = 1.0
    found = results(ours, [make_local(x.clone()) for x in given], call)
    assert difference(found, results(theirs, given, call)) != ""


def test_heads_stay_where_the_packed_weight_is_split(world):
    ours, _ = pair({"batch_first": True})
    p = flow.placement("cpu", [0, 1])
    ours.to_global(p, flow.sbp.broadcast)
    ours.to_global(sbp=lambda name, t: parse({"in": "(S0)", "ou": "(S1)"}[name[:2]])
                   if t.ndim == 2 else parse("(B)"))  # fmt: skip
    x = make_global(floats(N, L, E), p, parse("(B)"))
    y, _ = ours(x, x, x, need_weights=False)
    assert short(y.sbp) == "(P)", "each rank adds what its heads give"


def test_without_weights_the_op_of_attention_is_called(world, monkeypatch):
    called = []
    real = multi_head_attention.scaled_dot_product_attention

    def spy(*args):
        called.append(len(args))
        return real(*args)

    monkeypatch.setattr(multi_head_attention, "scaled_dot_product_attention", spy)
    ours, _ = pair({})
    x = flow.ones(L, N, E, dtype=flow.float64)
    ours(x, x, x)
    assert called == []
    ours(x, x, x, need_weights=False)
    assert len(called) == 1


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mask", [None, HIDDEN, floats(H, L, S)])
def test_unbatched(mask, need_weights, world):
    for batch_first in (False, True):
        ours, theirs = pair({"batch_first": batch_first})
        given = [floats(L, E), floats(S, E) + 1, floats(S, E) - 1]
        call = {"attn_mask": mask, "key_padding_mask": PADDED[1], "need_weights": need_weights}
        if mask is not None and mask.dtype is not torch.bool:
            call["key_padding_mask"] = floats(S)
        wanted = results(theirs, [x.clone() for x in given], call)
        found = results(ours, [make_local(x.clone()) for x in given], read(call, make_local))
        assert difference(found, wanted) == ""


def test_a_query_that_sees_nothing(world):
    ours, theirs = pair({})
    x, mask = floats(L, N, E), torch.zeros(L, L, dtype=torch.bool)
    mask[2] = True
    for call in ({}, {"need_weights": False}):
        wanted = theirs(x, x, x, attn_mask=mask, **call)[0]
        mine = make_local(x)
        found = ours(mine, mine, mine, attn_mask=make_local(mask), **call)[0]
        torch.testing.assert_close(value_of(found), wanted.detach(), equal_nan=True)


def test_masks_of_two_kinds_go_together(world):
    ours, _ = pair({})
    q, k = make_local(floats(L, N, E)), make_local(floats(S, N, E))
    added = torch.zeros(N, S, dtype=torch.float64).masked_fill(PADDED, -torch.inf)
    call = {"attn_mask": make_local(floats(L, S))}
    one = ours(q, k, k, key_padding_mask=make_local(PADDED), **call)[0]
    other = ours(q, k, k, key_padding_mask=make_local(added), **call)[0]
    torch.testing.assert_close(value_of(one), value_of(other))


def test_dropout_is_of_the_weights_and_of_training_alone(world):
    layer = flow.nn.MultiheadAttention(E, H, dropout=0.5)
    x = make_local(floats(L, N, E).float())
    assert (layer(x, x, x)[1].detach().numpy() == 0).any()
    flow.manual_seed(0)
    first = layer(x, x, x, need_weights=False)[0].detach().numpy()
    flow.manual_seed(1)
    assert not np.allclose(first, layer(x, x, x, need_weights=False)[0].detach().numpy())
    layer.eval()
    torch.testing.assert_close(
        value_of(layer(x, x, x)[0].detach()), value_of(layer(x, x, x, need_weights=False)[0])
    )


def test_initial_weights(world):
    flow.manual_seed(0)
    layer = flow.nn.MultiheadAttention(64, 4, add_bias_kv=True)
    theirs = torch.nn.MultiheadAttention(64, 4, add_bias_kv=True)
    for name, param in theirs.named_parameters():
        mine = layer.get_parameter(name).numpy()
        assert mine.shape == tuple(param.shape) and mine.dtype == np.float32, name
        assert mine.std() == pytest.approx(param.std().item(), rel=0.3), name
    bound = (6 / (4 * 64)) ** 0.5
    assert abs(layer.in_proj_weight.numpy()).max() == pytest.approx(bound, rel=1e-2)
    assert not layer.in_proj_bias.numpy().any() and not layer.out_proj.bias.numpy().any()
    flow.manual_seed(0)
    p = flow.placement("cpu", [0, 1])
    laid = flow.nn.MultiheadAttention(64, 4, add_bias_kv=True, placement=p, sbp=flow.sbp.split(0))
    for one, other in zip(laid.parameters(), layer.parameters(), strict=True):
        assert one.sbp == (flow.sbp.split(0),) and np.array_equal(one.numpy(), other.numpy())


def test_in_a_graph(world):
    ours, theirs = pair({"batch_first": True})
    x = floats(N, L, E)
    call = {"key_padding_mask": PADDED[:, :L], "need_weights": False}

    class Graph(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = ours

        def build(self, x, mask):
            return self.layer(x, x, x, key_padding_mask=mask, need_weights=False)[0]

    found = Graph()(make_local(x), make_local(call["key_padding_mask"]))
    torch.testing.assert_close(value_of(found), theirs(x, x, x, **call)[0].detach())


def _launched():
    p = flow.placement("cpu", [0, 1])
    layer, _ = pair({"batch_first": True})
    layer.to_global(p, flow.sbp.broadcast)
    layer.to_global(sbp=lambda name, t: parse("(S0)" if name.startswith("in_proj") else "(B)"))
    x = flow.tensor(floats(N, L, E).numpy(), placement=p, sbp=flow.sbp.broadcast)
    y, _ = layer(x, x, x, need_weights=False)
    (y * y).sum().backward()
    return y.detach().numpy(), layer.in_proj_weight.grad.numpy()


def test_in_a_launched_world(world):
    _, theirs = pair({"batch_first": True})
    x = floats(N, L, E)
    y, _ = theirs(x, x, x, need_weights=False)
    (y * y).sum().backward()
    for found, grad in run_ranks(2, _launched):
        torch.testing.assert_close(torch.from_numpy(found), y.detach())
        torch.testing.assert_close(torch.from_numpy(grad), theirs.in_proj_weight.grad)


X = (L, N, E)
BAD = [
    (lambda: flow.nn.MultiheadAttention(8, 3), OnefoldValueError, "divisible by num_heads"),
    (lambda: flow.nn.MultiheadAttention(0, 3), OnefoldValueError, "must be greater than 0"),
    (lambda: call(flow.ones(2, 2, 2, 8)), ShapeError, "but received 4-D query tensor"),
    (lambda: call(flow.ones(5, 8), flow.ones(*X)), ShapeError, "expected `key` and `value` to be"),
    (lambda: call(flow.ones(*X), flow.ones(*X), flow.ones(4, N, E)), ShapeError, "not match value"),
    (lambda: call(flow.ones(5, 4, 7)), ShapeError, "was expecting embedding dimension of 8"),
    (lambda: call(is_causal=True), OnefoldRuntimeError, "Need attn_mask if specifying"),
    (lambda: call(attn_mask=flow.ones(2, 2)), ShapeError, "2D attn_mask is .*should be"),
    (lambda: call(attn_mask=flow.ones(2, L, L)), ShapeError, "3D attn_mask is .*should be"),
    (lambda: call(attn_mask=flow.ones(4)), ShapeError, "expected `attn_mask` to be `None`, 2-D"),
    (lambda: call(key_padding_mask=flow.ones(L)), ShapeError, "`key_padding_mask` to be `None` or"),
    (lambda: call(key_padding_mask=flow.ones(1, L)), ShapeError, "key_padding_mask shape of"),
    (
        lambda: call(attn_mask=flow.ones(L, L, dtype=flow.int64)),
        OnefoldTypeError,
        "only bool and floating types of attn_mask",
    ),
]


def call(query=None, key=None, value=None, **kwargs):
    x = flow.ones(*X) if query is None else query
    key = x if key is None else key
    return flow.nn.MultiheadAttention(E, H)(x, key, key if value is None else value, **kwargs)


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_arguments(index, world):
    bad, kind, text = BAD[index]
    with pytest.raises(kind, match=text):
        bad()
