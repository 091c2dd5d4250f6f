"""flow._C against formulas in torch, on one device and under layouts; names that are missing."""

import math

import pytest
import torch

import onefold as flow
from onefold.compat import missing_names
from onefold.errors import OnefoldRuntimeError

C, F = flow._C, torch.nn.functional


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, W, V = values(4, 3, 6), values(5, 6, seed=1), values(5, 6, seed=2)
B6, B5, B3, SKIP = values(6, seed=3), values(5, seed=4), values(3, seed=5), values(4, 3, 6, seed=6)
SCORES, MASK = values(2, 3, 4, 4), values(2, 1, 4, 4) > 0
TRIL = torch.ones(4, 4).tril(1).bool()
ROWS = torch.tensor([[0, 2], [1, 1]])

FORMULAS = {
    "matmul": (C.matmul, (X, W), {"transpose_b": True, "alpha": 0.5}, lambda: 0.5 * X @ W.T),
    "matmul of both": (
        C.matmul,
        (X, SKIP),
        {"transpose_a": True},
        lambda: X.transpose(1, 2) @ SKIP,
    ),
    "bias_add": (C.bias_add, (X, B3), {}, lambda: X + B3[:, None]),
    "bias_add, last": (C.bias_add, (X, B6), {"axis": -1}, lambda: X + B6),
    "add": (C.add, (X, SKIP), {"alpha": 2}, lambda: X + 2 * SKIP),
    "relu": (C.relu, (X,), {}, lambda: F.relu(X)),
    "dropout": (C.dropout, (X,), {"p": 0.0, "addend": SKIP}, lambda: X + SKIP),
    "fused_bias_add_gelu": (C.fused_bias_add_gelu, (X, B6), {"axis": 2}, lambda: F.gelu(X + B6)),
    "fused_bias_add_dropout": (
        C.fused_bias_add_dropout,
        (X, B3),
        {"p": 0.0, "axis": 1},
        lambda: X + B3[:, None],
    ),
    "fused_matmul_bias": (C.fused_matmul_bias, (X, W, B5), {}, lambda: F.linear(X, W, B5)),
    "fused_mlp": (
        C.fused_mlp,
        (X, [W, values(2, 5)], [B5, values(2)], True),
        {},
        lambda: F.linear(F.relu(F.linear(X, W, B5)), values(2, 5), values(2)),
    ),
    "fused_mlp, relu": (
        C.fused_mlp,
        (X, [W], [B5], False),
        {},
        lambda: F.relu(F.linear(X, W, B5)),
    ),
    "fused_glu": (
        C.fused_glu,
        (X, W, B5, V),
        {"c": B5, "activation": "silu"},
        lambda: F.linear(X, W, B5) * F.silu(F.linear(X, V, B5)),
    ),
    "fused_glu of one": (
        C.fused_glu,
        (X, torch.cat([W, V])),
        {"activation": "fast_gelu"},
        lambda: F.linear(X, W) * F.gelu(F.linear(X, V), approximate="tanh"),
    ),
    "grouped_matmul": (
        C.grouped_matmul,
        ([X, SKIP], [W, V]),
        {},
        lambda: [F.linear(X, W), F.linear(SKIP, V)],
    ),
    "grouped_matmul_bias": (
        C.grouped_matmul_bias,
        ([X, SKIP], [W, V], [B5, B5]),
        {},
        lambda: [F.linear(X, W, B5), F.linear(SKIP, V, B5)],
    ),
    "fused_scale_mask_softmax": (
        C.fused_scale_mask_softmax,
        (SCORES, MASK),
        {"fill_value": -1e4, "scale": 0.5},
        lambda: (SCORES * 0.5).masked_fill(~MASK, -1e4).softmax(-1),
    ),
    "fused_scale_mask_softmax_dropout": (
        C.fused_scale_mask_softmax_dropout,
        (SCORES, MASK),
        {"fill_value": -1e4, "p": 0.9, "training": False},
        lambda: (SCORES.masked_fill(~MASK, -1e4).softmax(-1),) * 2,
    ),
    "fused_scale_tril": (
        C.fused_scale_tril,
        (SCORES, 1),
        {"fill_value": -5, "scale": 2},
        lambda: (SCORES * 2).masked_fill(~TRIL, -5),
    ),
    "fused_scale_tril_softmax_mask_scale": (
        C.fused_scale_tril_softmax_mask_scale,
        (SCORES,),
        {"p": 0.0, "diagonal": 1, "tril_scale_value": 2.0},
        lambda: ((SCORES * 2).tril(1).softmax(-1),) * 2,
    ),
    "layer_norm": (
        C.layer_norm,
        (X,),
        {"begin_norm_axis": 1, "begin_params_axis": 1, "epsilon": 1e-5},
        lambda: F.layer_norm(X, (3, 6)),
    ),
    "layer_norm_affine": (
        C.layer_norm_affine,
        (X, B6, SKIP[0, 0]),
        {"begin_norm_axis": 2, "begin_params_axis": -1, "epsilon": 1e-3},
        lambda: F.layer_norm(X, (6,), B6, SKIP[0, 0], 1e-3),
    ),
    "rms_norm": (C.rms_norm, (X, B6, [6], 1e-6), {}, lambda: F.rms_norm(X, (6,), B6, 1e-6)),
    "skip_layer_norm": (
        C.skip_layer_norm,
        (X,),
        {"gamma": B6, "beta": B6, "bias": B6, "skip": SKIP, "alpha": 0.5},
        lambda: F.layer_norm(X + B6 + 0.5 * SKIP, (6,), B6, B6),
    ),
    "skip_rms_norm": (
        C.skip_rms_norm,
        (X,),
        {"weight": B6, "skip": SKIP, "epsilon": 1e-6},
        lambda: F.rms_norm(X + SKIP, (6,), B6, 1e-6),
    ),
    "gather": (C.gather, (X, ROWS), {"axis": 1}, lambda: X[:, ROWS]),
    "gather of rows": (C.gather, (X, ROWS), {}, lambda: X[ROWS]),
    "dim_gather": (C.dim_gather, (W, 1, ROWS), {}, lambda: W.gather(1, ROWS)),
}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(world, name, split):
    function, args, options, formula = FORMULAS[name]
    p = flow.placement("cpu", [0, 1])

    def placed(x):
        if not split:
            return flow.tensor(x)
        whole = x.shape[0] % 2 == 0 and x.ndim > 2
        sbp = flow.sbp.split(0) if whole else flow.sbp.broadcast
        return flow.tensor(x, placement=p, sbp=sbp)

    args, options = torch.utils._pytree.tree_map_only(torch.Tensor, placed, (args, options))
    found = function(*args, **options)
    found = torch.utils._pytree.tree_map_only(flow.Tensor, lambda x: x.to_torch(), found)
    torch.testing.assert_close(found, formula())


def test_dropout_draws_by_the_seed():
    x = flow.ones(1000)
    flow.manual_seed(0)
    one = C.dropout(x, 0.25)
    flow.manual_seed(0)
    dropped, plain = C.fused_scale_mask_softmax_dropout(
        flow.zeros(1000), flow.ones(1000), p=0.25, generator=flow.default_generator
    )
    torch.testing.assert_close(dropped.to_torch() * 1000, one.to_torch())
    assert plain.sum().item() == pytest.approx(1)
    y = flow.ones(8)
    assert C.dropout(y, 0.0, inplace=True) is y
    with pytest.raises(ValueError, match="default generator"):
        C.dropout(x, generator=flow.Generator())


def test_wrong_arguments():
    x = flow.ones(4, 3)
    with pytest.raises(flow.errors.ShapeError, match=r"\(4,\)"):
        C.bias_add(x, flow.ones(4))
    with pytest.raises(ValueError, match="fast_gelu"):
        C.fused_glu(x, flow.ones(2, 3), activation="tanh")
    with pytest.raises(ValueError, match="same dim"):
        C.layer_norm_affine(x, x, x, begin_norm_axis=0, begin_params_axis=1, epsilon=1e-5)
    for axis in (2, -3):
        axes = {"begin_norm_axis": axis, "begin_params_axis": axis, "epsilon": 1e-5}
        for call in (
            lambda axis=axis: C.gather(x, flow.tensor([0]), axis),
            lambda axes=axes: C.layer_norm(x, **axes),
            lambda axes=axes: C.layer_norm_affine(x, x, x, **axes),
            lambda axes=axes: C.layer_norm_affine(x, x, x, **axes | {"begin_norm_axis": 0}),
        ):
            with pytest.raises(flow.errors.OnefoldIndexError, match=r"range of \[-2, 1\]"):
                call()


# Rotary embedding: OneFlow's formula, x * cos + turned(x) * sin, written out.


def turned(x, cos, sin, mode, size):
    """x [B, H, M, K] with tables [B or 1, 1, M, size]."""
    head, tail = x[..., :size], x[..., size:]
    if mode == "interval":
        other = torch.stack([-head[..., 1::2], head[..., ::2]], -1).flatten(-2)
    else:
        other = torch.cat([-head[..., size // 2 :], head[..., : size // 2]], -1)
    return torch.cat([head * cos + other * sin, tail], -1)


def angles(positions, mode, size, base):
    i = torch.arange(size)
    pair = i // 2 if mode == "interval" else i % (size // 2)
    return positions.double()[..., None] * (1 / base) ** (2 * pair / size)


@pytest.mark.parametrize("mode", ["interval", "plane"])
@pytest.mark.parametrize("size", [8, 4])
@pytest.mark.parametrize("layout", ["BHMK", "BMHK", "MBHK", "BM(HK)", "BM(H2K)", "BM(H3K)"])
@pytest.mark.parametrize("tables", ["given", "made", "at positions", "made at positions"])
def test_rotary_layouts(mode, size, layout, tables):
    x = values(2, 3, 5, 8)  # BHMK
    length = torch.arange(7 if "at" in tables else 5)
    table = angles(length, mode, size, 100.0)
    places = torch.tensor([[3, 1, 0, 6, 2], [0, 1, 2, 3, 4]])
    own = table[places][:, None] if "at" in tables else table
    wanted = turned(x, own.cos(), own.sin(), mode, size)
    options = {"mode": mode, "base": 100.0, "rotary_size": size}
    if "made" not in tables:
        options |= {"cos": flow.tensor(table.cos()), "sin": flow.tensor(table.sin())}
    if "at" in tables:
        options["position_ids"] = flow.tensor(places[:, None])
    given = x.permute(*["BHMK".index(d) for d in layout]) if "(" not in layout else x
    if "(" in layout:
        parts = 1 if layout == "BM(HK)" else int(layout[4])
        every = torch.stack([x if i == parts - 1 else x * 0 for i in range(parts)], 3)
        given = every.permute(0, 2, 1, 3, 4).flatten(2)
        options |= {"k_size": 8, "tensor_index": parts - 1, "output_layout": "BHMK"}
    found = C.fused_apply_rotary_emb(flow.tensor(given), x_layout=layout, **options).to_torch()
    if "(" not in layout:
        found = found.permute(*[layout.index(d) for d in "BHMK"])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_rotary_outputs_and_errors():
    x = flow.tensor(values(2, 5, 24))
    merged = C.fused_apply_rotary_emb(x, x_layout="BM(HK)", k_size=8)
    apart = C.fused_apply_rotary_emb(x, x_layout="BM(HK)", k_size=8, output_layout="BMHK")
    assert merged.tolist() == apart.flatten(2).tolist()
    assert math.isclose(merged[0, 0, 0].item(), x[0, 0, 0].item())  # position 0 is not turned
    for options, text in (
        ({"x_layout": "KHMB"}, "x_layout"),
        ({"x_layout": "BM(HK)"}, "k_size"),
        ({"x_layout": "BM(H3K)", "k_size": 8}, "tensor_index of 0 to 2"),
        ({"x_layout": "BM(H3K)", "k_size": 8, "tensor_index": 0}, "output_layout"),
        ({"x_layout": "BM(HK)", "k_size": 8, "mode": "other"}, "mode"),
        ({"x_layout": "BM(HK)", "k_size": 8, "cos": x}, "both"),
    ):
        with pytest.raises(ValueError, match=text):
            C.fused_apply_rotary_emb(x, **options)


@pytest.mark.parametrize("name", sorted(missing_names.NAMES))
def test_names_that_are_not_there_say_what_to_use(name):
    assert not hasattr(flow, name)
    with pytest.raises(OnefoldRuntimeError, match=rf"onefold\.{name} is not offered: \w+"):
        getattr(flow, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = flow.nothing


@pytest.mark.parametrize("name", ["is_offloaded", "load", "offload", "index"])
def test_methods_that_are_not_there_say_what_to_use(name):
    with pytest.raises(OnefoldRuntimeError, match=rf"{name}: .*x"):
        getattr(flow.ones(2), name)()


def test_a_tensor_of_a_capture_is_lazy():
    seen, outside = [], flow.ones(2)

    def step(x):
        seen.extend([x.is_lazy, (x + 1).is_lazy, outside.is_lazy])
        return flow.cast(x, flow.float64)

    assert flow.nn.Graph.trace(step)(flow.ones(2)).dtype == flow.float64
    assert seen == [True, True, False]
