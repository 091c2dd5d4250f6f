"""nn.functional against torch's: arguments and names of old, in-place functions, OneFlow's."""

import copy

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldRuntimeError, OnefoldValueError, ShapeError
from onefold.testing.sample_checks import value_of

F, T = flow.nn.functional, torch.nn.functional

LAYOUTS = {
    "local": None,
    "split": ([0, 1], [flow.sbp.split(0)]),
    "classes": ([0, 1, 2], [flow.sbp.split(1)]),
    "partial": ([0, 1], [flow.sbp.partial_sum]),
    "mesh": ([[0, 1], [2, 3]], [flow.sbp.split(1), flow.sbp.split(0)]),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def put(x, layout, **more):
    if layout is None or not isinstance(x, torch.Tensor):
        return flow.tensor(x.detach().numpy(), **more) if isinstance(x, torch.Tensor) else x
    p, sbp = flow.placement("cpu", layout[0]), layout[1]
    dims = [each for each in sbp if each.is_split and each.dim >= x.ndim]
    sbp = (flow.sbp.broadcast,) * p.ndim if dims or not x.is_floating_point() else tuple(sbp)
    whole = flow.tensor(x.detach().numpy(), placement=p, sbp=(flow.sbp.broadcast,) * p.ndim)
    return whole.to_global(sbp=sbp).requires_grad_(more.get("requires_grad", False))


def same(found, wanted, **how):
    torch.testing.assert_close(value_of(found.detach()), wanted.detach(), **how)


INPLACE = {
    "celu": (1.3,), "elu": (0.7,), "hardtanh": (-0.5, 0.4), "leaky_relu": (0.2,), "relu": (),
    "rrelu": (0.1, 0.3), "selu": (), "threshold": (0.1, 20.0), "hardsigmoid": (),
    "hardswish": (), "mish": (), "relu6": (), "silu": (),
}  # fmt: skip


@layouts
@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name, layout, world):
    x = torch.linspace(-2, 2, 20, dtype=torch.float64).reshape(4, 5)
    for call in ("inplace", "named"):
        function = name if call == "inplace" else f"{name}_"
        if not hasattr(T, function):
            continue
        given = INPLACE[name]
        more = {"inplace": True} if call == "inplace" else {}
        right = x.clone().requires_grad_()
        mine = put(x, LAYOUTS[layout], requires_grad=True)
        wanted_view, found_view = right * 1, mine * 1
        wanted = getattr(T, function)(wanted_view, *given, **more)
        found = getattr(F, function)(found_view, *given, **more)
        assert found is found_view
        same(found_view, wanted)
        wanted.square().sum().backward()
        found.square().sum().backward()
        same(mine.grad, right.grad)
        assert getattr(F, name)(mine, *given) is not mine


REDUCTIONS = [
    {"reduction": "sum"},
    {"size_average": False},
    {"reduce": False},
    {"size_average": True, "reduce": True},
]
LOSSES = {
    "mse_loss": (torch.randn(4, 3), torch.randn(4, 3)),
    "l1_loss": (torch.randn(4, 3), torch.randn(4, 3)),
    "smooth_l1_loss": (torch.randn(4, 3), torch.randn(4, 3)),
    "kl_div": (torch.randn(4, 3), torch.rand(4, 3)),
    "binary_cross_entropy": (torch.rand(4, 3), torch.rand(4, 3)),
    "binary_cross_entropy_with_logits": (torch.randn(4, 3), torch.rand(4, 3)),
    "cross_entropy": (torch.randn(4, 3), torch.tensor([0, 2, 1, 1])),
    "nll_loss": (torch.randn(4, 3), torch.tensor([0, 2, 1, 1])),
}


@pytest.mark.filterwarnings("ignore:size_average and reduce args:UserWarning")
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.parametrize("name", LOSSES)
def test_the_reductions_of_old(name, world):
    for given in REDUCTIONS:
        for layout in ("local", "split"):
            mine = [put(x, LAYOUTS[layout]) for x in LOSSES[name]]
            wanted = getattr(T, name)(*LOSSES[name], **given)
            same(getattr(F, name)(*mine, **given), wanted)
    weight = torch.arange(1.0, 4) if LOSSES[name][1].dtype == torch.int64 else None
    if weight is not None:  # by position, as torch has them
        wanted = getattr(T, name)(*LOSSES[name], weight, None, 1, None, "sum")
        found = getattr(F, name)(
            *(flow.tensor(x.numpy()) for x in LOSSES[name]),
            flow.tensor(weight.numpy()), None, 1, None, "sum",
        )  # fmt: skip
        same(found, wanted)


@pytest.mark.filterwarnings("ignore:Implicit dimension choice:UserWarning")
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_the_dim_that_a_softmax_chooses(name, world):
    for shape in ((3,), (3, 4), (2, 3, 4), (2, 3, 2, 2)):
        x = torch.randn(shape)
        same(getattr(F, name)(flow.tensor(x.numpy())), getattr(T, name)(x))
        wanted = getattr(T, name)(x, 0, 3, torch.float64)
        same(getattr(F, name)(flow.tensor(x.numpy()), 0, 3, torch.float64), wanted)


def test_out_of_normalize(world):
    x, out = flow.ones(2, 2), flow.zeros(2, 2)
    assert F.normalize(x, out=out) is out
    np.testing.assert_allclose(out.numpy(), np.full((2, 2), 0.5**0.5), rtol=1e-6)


@layouts
def test_gumbel_softmax(layout, world):
    logits = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]).repeat(4000, 1)
    flow.manual_seed(0)
    local = F.gumbel_softmax(flow.tensor(logits.numpy()), tau=0.7)
    flow.manual_seed(0)
    x = put(logits, LAYOUTS[layout], requires_grad=True)
    soft = F.gumbel_softmax(x, tau=0.7)
    torch.testing.assert_close(value_of(soft.detach()), value_of(local))
    flow.manual_seed(0)
    hard = F.gumbel_softmax(x, tau=0.7, hard=True)
    values = value_of(hard.detach())
    assert torch.equal(values.round().sum(1), torch.ones(8000))
    assert torch.equal(values.argmax(1), value_of(soft.detach()).argmax(1))
    frequencies = torch.stack([values[0::2].mean(0), values[1::2].mean(0)])
    torch.testing.assert_close(frequencies, logits[:2].softmax(1), atol=0.02, rtol=0)
    weights = put(torch.randn(8000, 3), LAYOUTS[layout])
    grads = [flow.autograd.grad((y * weights).sum(), x)[0] for y in (soft, hard)]
    assert torch.equal(*map(value_of, grads))
    with pytest.warns(UserWarning, match="has no effect"):
        F.gumbel_softmax(flow.ones(3), eps=1e-3)


@layouts
def test_names_of_old(layout, world):
    x = torch.randn(2, 4, 3, 3)
    mine = put(x, LAYOUTS[layout])
    same(F.native_channel_shuffle(mine, 2), T.native_channel_shuffle(x, 2))
    for name, given in {
        "upsample": {"scale_factor": 2, "mode": "bilinear", "align_corners": False},
        "upsample_nearest": {"size": (5, 4)},
        "upsample_bilinear": {"scale_factor": 2},
    }.items():
        with pytest.warns(UserWarning, match="is deprecated"):
            wanted = getattr(T, name)(x, **given)
        with pytest.warns(UserWarning, match=f"{name}` is deprecated"):
            same(getattr(F, name)(mine, **given), wanted)


@layouts
@pytest.mark.parametrize("dims", [(2, 3), (3, 2), (2, 2), (3, 3)])
def test_grouped_mm(dims, layout, world):
    torch.manual_seed(0)
    a = torch.randn((3, 8, 16) if dims[0] == 3 else (8, 16))
    b = torch.randn((3, 16, 24) if dims[1] == 3 else (16, 24))
    ends = {(2, 3): [2, 5, 8], (3, 2): [8, 8, 24], (2, 2): [4, 12, 16], (3, 3): None}[dims]
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    groups = [] if ends is None else list(zip([0, *ends], ends, strict=False))
    wanted = {
        (2, 3): lambda: torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(groups)]),
        (3, 2): lambda: torch.cat([a[g] @ b[:, i:j] for g, (i, j) in enumerate(groups)], 1),
        (2, 2): lambda: torch.stack([a[:, i:j] @ b[i:j] for i, j in groups]),
        (3, 3): lambda: a @ b,
    }[dims]()
    if dims != (3, 2):
        torch.testing.assert_close(T.grouped_mm(a, b, offs=offs), wanted)
    where = LAYOUTS[layout]
    given = None if offs is None else put(offs, where)
    same(F.grouped_mm(put(a, where), put(b, where), offs=given), wanted)
    typed = F.grouped_mm(put(a, where), put(b, where), offs=given, out_dtype=torch.float64)
    assert typed.dtype == torch.float64


def test_errors_and_rows_behind_the_last_group(world):
    a, b = flow.ones(4, 2), flow.ones(2, 2, 3)
    found = F.grouped_mm(a, b, offs=flow.tensor([1, 3], dtype=flow.int32))
    assert found.numpy().sum(1).tolist() == [6, 6, 6, 0]
    with pytest.raises(ShapeError, match="and `offs` where one has 2 dims"):
        F.grouped_mm(a, b)
    for name in ("scaled_grouped_mm", "deform_conv2d"):
        assert not hasattr(F, name)
        with pytest.raises(OnefoldRuntimeError, match=rf"functional\.{name} is not offered: "):
            getattr(F, name)


# OneFlow's.


@layouts
def test_cross_entropy_of_labels(layout, world):
    logits, labels = torch.randn(6, 5), torch.tensor([0, 4, 2, 2, 1, 3], dtype=torch.int32)
    where = LAYOUTS[layout]
    wanted = T.cross_entropy(logits, labels.long(), reduction="none")
    same(F.sparse_softmax_cross_entropy(put(labels, where), put(logits, where)), wanted)
    x = flow.ones(2)
    assert F.depend(x, flow.ones(3)) is x


def decoded(log_probs, lengths, merge):
    """The labels and scores of one sample after the other."""
    time, batch, classes = log_probs.shape
    labels, scores = torch.zeros(batch, time, dtype=torch.int64), torch.zeros(batch, 1)
    for row in range(batch):
        before, kept = -1, 0
        for step in range(int(lengths[row])):
            value, label = log_probs[step, row].max(0)
            scores[row] -= value
            if label != classes - 1 and not (merge and label == before):
                labels[row, kept] = label
                kept += 1
            before = label
    return labels, scores


@layouts
@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("form", ["rows", "joined", "one"])
def test_ctc_loss(form, reduction, layout, world):
    """Which lengths fit targets that are joined is known from values only."""
    scores = torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(0))
    targets, lengths = torch.tensor([[1, 2], [2, 3]]), torch.tensor([2, 1])
    if form == "joined":
        targets = torch.tensor([1, 2, 2])
    inputs = torch.tensor([6, 5])
    if form == "one":
        scores, targets = scores[:, 0], torch.tensor([1, 2, 2])
        inputs, lengths = torch.tensor(6), torch.tensor(3)
    x, y = scores.clone().requires_grad_(), put(scores, LAYOUTS[layout]).requires_grad_()
    wanted = T.ctc_loss(x.log_softmax(-1), targets, inputs, lengths, reduction=reduction)
    rest = [put(each, LAYOUTS[layout]) for each in (targets, inputs, lengths)]
    found = F.ctc_loss(y.log_softmax(-1), *rest, reduction=reduction)
    wanted.sum().backward()
    found.sum().backward()
    torch.testing.assert_close(value_of(found.detach()), wanted.detach())
    torch.testing.assert_close(value_of(y.grad), x.grad)


@layouts
@pytest.mark.parametrize("merge", [True, False])
def test_ctc_greedy_decoder(merge, layout, world):
    torch.manual_seed(0)
    for time in (1, 7):
        log_probs = torch.randn(time, 4, 3).repeat_interleave(2, 0).log_softmax(2)
        lengths = torch.tensor([2 * time, 1, time, 0])
        where = LAYOUTS[layout]
        found = F.ctc_greedy_decoder(put(log_probs, where), put(lengths, where), merge)
        wanted = decoded(log_probs, lengths, merge)
        same(found[0], wanted[0])
        same(found[1], wanted[1])
    with pytest.raises(ShapeError, match="ctc_greedy_decoder needs"):
        F.ctc_greedy_decoder(flow.ones(2, 3), flow.ones(3))


# OneFlow's layers, from formulas.


@layouts
def test_activations_of_oneflow(layout, world):
    x = torch.randn(4, 6, dtype=torch.float64)
    mine = put(x, LAYOUTS[layout])
    same(flow.nn.QuickGELU()(mine), x * torch.sigmoid(1.702 * x))
    same(flow.nn.SquareReLU()(mine), x.relu().square())


@layouts
def test_rms_layer_norm(layout, world):
    layer = flow.nn.RMSLayerNorm(6, dtype=torch.float64)
    assert list(layer.state_dict()) == ["weight"] and repr(layer) == "RMSLayerNorm(6, eps=1e-06)"
    x = torch.randn(4, 6, dtype=torch.float64)
    mine = put(x, LAYOUTS[layout])
    if mine.is_global:
        layer.to_global(mine.placement, (flow.sbp.broadcast,) * mine.placement.ndim)
    same(layer(mine), x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


@layouts
@pytest.mark.parametrize("planes", [1, 2, 3])
def test_fused_batch_norm(planes, layout, world):
    right = getattr(torch.nn, f"BatchNorm{planes}d")(3)
    mine = getattr(flow.nn, f"FusedBatchNorm{planes}d")(3)
    mine.load_state_dict(right.state_dict())
    x, addend = torch.randn(2, 4, 3, *[2] * planes)
    given = put(x, LAYOUTS[layout])
    if given.is_global:
        mine.to_global(given.placement, (flow.sbp.broadcast,) * given.placement.ndim)
    same(mine(given, put(addend, LAYOUTS[layout])), (right(x) + addend).relu())
    same(mine(given), right(x).relu())
    for name, buffer in right.named_buffers():
        same(mine.get_buffer(name), buffer)


@layouts
@pytest.mark.parametrize("skips", [False, True])
def test_fused_mlp(skips, layout, world):
    x = torch.randn(4, 6)
    given = put(x, LAYOUTS[layout])
    where = {}
    if given.is_global:
        where = {"placement": given.placement, "sbp": (flow.sbp.broadcast,) * given.placement.ndim}
    layer = flow.nn.FusedMLP(6, (8, 5), 3, [0.5, 0.25], 0.1, skips, **where)
    assert [*layer.state_dict()] == [f"{name}_{i}" for i in range(3) for name in ("weight", "bias")]
    assert [p.shape for p in layer.weights()] == [(8, 6), (5, 8), (3, 5)]
    assert all(p.abs().max().item() <= 1 / 5**0.5 for p in (*layer.weights(), *layer.biases()))
    assert (layer(given) == 0).sum().item() > 0 or skips  # dropped
    wanted = x
    for i in range(3):
        wanted = T.linear(wanted, value_of(layer.weight(i)), value_of(layer.bias(i)))
        wanted = wanted if i == 2 and skips else wanted.relu()
    same(layer.eval()(given), wanted)
    with pytest.raises(OnefoldValueError, match="each of 2 hidden layers, but got 1"):
        flow.nn.FusedMLP(6, (8, 5), 3, [0.5])


@layouts
def test_combined_margin_loss(layout, world):
    x = torch.rand(5, 4, dtype=torch.float64) * 1.8 - 0.9
    label = torch.tensor([0, 3, 1, 1, 2])
    rows = torch.arange(5)
    for m1, m2, m3 in ((1.0, 0.5, 0.1), (0.9, 0.0, 0.0), (1.0, 0.0, 0.35)):
        right = x.clone().requires_grad_()
        mine = put(x, LAYOUTS[layout], requires_grad=True)
        changed = torch.cos(m1 * right[rows, label].acos() + m2) - m3
        wanted = right.index_put((rows, label), changed)
        layer = flow.nn.CombinedMarginLoss(m1, m2, m3)
        found = layer(mine, put(label, LAYOUTS[layout]))
        same(found, wanted)
        wanted.square().sum().backward()
        found.square().sum().backward()
        same(mine.grad, right.grad)
    with pytest.raises(ShapeError, match="CombinedMarginLoss needs"):
        layer(flow.ones(2, 3), flow.zeros(3))
    assert repr(copy.copy(layer)) == "CombinedMarginLoss(m1=1.0, m2=0.0, m3=0.35)"


def test_softmax2d_takes_images(world):
    x = torch.randn(2, 3, 4, 5)
    for each in (x, x[0]):
        same(flow.nn.Softmax2d()(flow.tensor(each.numpy())), torch.nn.Softmax2d()(each))
    for shape in ((3,), (3, 4), (1, 2, 3, 4, 5)):
        with pytest.raises(OnefoldValueError, match=f"3D or 4D, got {len(shape)}D instead"):
            flow.nn.Softmax2d()(flow.ones(shape))


@layouts
def test_interpolate_of_an_empty_batch_and_errors(layout, world):
    F = flow.nn.functional
    assert F.interpolate(put(torch.zeros(0, 3, 5, 4), LAYOUTS[layout]), 7).shape == (0, 3, 7, 7)
    x = torch.randn(2, 4, 5, 4)
    own = put(x, LAYOUTS[layout])
    wanted = torch.nn.functional.interpolate(x, (3, 2), mode="area")
    same(F.interpolate(own, [3, 2], mode="area"), wanted)
    for bad in ({}, {"size": 3, "scale_factor": 2}, {"size": 3, "mode": "linear"}):
        with pytest.raises(ValueError if "mode" not in bad else NotImplementedError):
            F.interpolate(own, **bad)
