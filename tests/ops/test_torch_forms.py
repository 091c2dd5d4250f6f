"""Functions that torch has in two places, with other arguments in each."""

import pytest
import torch
from torch.nn import functional as F

import onefold as flow
from onefold.errors import OnefoldError

torch.manual_seed(0)
X = torch.rand(4, 6, 5, dtype=torch.float64)
ROW = torch.rand(6, 5, dtype=torch.float64)
SIGNS = torch.tensor([1, -1, 1, -1])
W, B, MEAN, VARIANCE = torch.rand(4, 6, dtype=torch.float64)
INDEX, STARTS = torch.tensor([1, 2, 0, 5, 4, 3]), torch.tensor([0, 2, 2, 4])
NUMBERS = (0, 1, 2)  # of reductions, and of the modes of bags

CALLS = [
    ("embedding", (ROW, INDEX)),
    ("embedding", (ROW, INDEX, 2, True)),
    ("batch_norm", (X, W, B, MEAN, VARIANCE, True, 0.3, 1e-3, True)),
    ("batch_norm", (X, None, None, MEAN, VARIANCE, False, 0.3, 1e-3, True)),
    ("instance_norm", (X, W, B, MEAN, VARIANCE, True, 0.3, 1e-3, True)),
    ("instance_norm", (X, W, None, MEAN, VARIANCE, False, 0.3, 1e-3, False)),
    ("group_norm", (X, 3, W, B, 1e-3, True)),
    ("layer_norm", (X, (5,), ROW[0], None, 1e-3, True)),
    ("dropout", (X, 0.5, False)),
    ("alpha_dropout", (X, 0.5, False)),
    ("feature_alpha_dropout", (X, 0.5, False)),
    ("feature_dropout", (X, 0.5, False)),
    ("native_dropout", (X, 0.5, False)),
    ("native_channel_shuffle", (X, 3)),
    ("rrelu", (X - 0.5, 0.1, 0.5, False, None)),
]
CALLS += [
    ("binary_cross_entropy_with_logits", (X, X)),
    ("cosine_embedding_loss", (X[:, 0], X[:, 1], SIGNS)),
    ("ctc_loss", (X.log_softmax(2), SIGNS.abs().expand(6, 4), (4,) * 6, (2,) * 6)),
    ("hinge_embedding_loss", (X, X.sub(0.5).sign())),
    ("kl_div", (X.log(), X.flip(0))),
    ("margin_ranking_loss", (X, X.flip(0), X.sub(0.5).sign())),
    ("triplet_margin_loss", tuple(X[:3])),
]
for number in NUMBERS:
    CALLS += [
        ("embedding_bag", (ROW, INDEX, STARTS, False, number)),
        ("embedding_bag", (ROW, INDEX, STARTS, False, number, False, None, True, 2)),
        ("binary_cross_entropy_with_logits", (X, X, ROW, W.reshape(6, 1), number)),
        ("cosine_embedding_loss", (X[:, 0], X[:, 1], SIGNS, 0.2, number)),
        ("ctc_loss", (X.log_softmax(2), SIGNS.abs().expand(6, 4), (4,) * 6, (2,) * 6, 0, number)),
        ("hinge_embedding_loss", (X, X.sub(0.5).sign(), 0.7, number)),
        ("margin_ranking_loss", (X, X.flip(0), X.sub(0.5).sign(), 0.2, number)),
        ("poisson_nll_loss", (X, X, False, True, 1e-3, number)),
        ("triplet_margin_loss", (*X[:3], 0.9, 1, 1e-3, True, number)),
        ("kl_div", (X.log(), X.flip(0), number)),
    ]


def results(made):
    return [made] if isinstance(made, (torch.Tensor, flow.Tensor)) else list(made)


@pytest.mark.parametrize("index", range(len(CALLS)), ids=[name for name, _ in CALLS])
def test_arguments_by_place_are_those_of_torch(index, world):
    name, args = CALLS[index]
    theirs = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
    wanted = results(getattr(torch, name)(*theirs))
    if name == "embedding_bag":  # torch leaves out parts that its kernel does not need
        wanted = wanted[:1]
    place = flow.placement("cpu", [0, 1])
    for layout in ({}, {"placement": place, "sbp": flow.sbp.broadcast}):
        for function in (getattr(flow, name), getattr(torch, name), getattr(flow.ops.aten, name)):
            ours = [
                flow.tensor(arg.clone(), **layout) if isinstance(arg, torch.Tensor) else arg
                for arg in args
            ]
            for mine, other in zip(results(function(*ours)), wanted, strict=False):
                torch.testing.assert_close(mine.to_torch(), other)
            for mine, other in zip(ours, theirs, strict=True):  # the running statistics
                if isinstance(other, torch.Tensor):
                    torch.testing.assert_close(mine.to_torch(), other)


@pytest.mark.parametrize("mode", NUMBERS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_the_parts_of_bags(mode, last, padding, world):
    weight = ROW.clone().requires_grad_()
    given = (False, mode, False, None, last, padding)
    y, bag, size, most = torch.embedding_bag(weight, INDEX, STARTS, *given)
    _, bag, size, _ = torch.embedding_bag(ROW, INDEX, STARTS, False, 1, *given[2:])
    place = flow.placement("cpu", [0, 1])
    ours = flow.tensor(ROW, placement=place, sbp=flow.sbp.broadcast).requires_grad_()
    rest = [flow.tensor(x, placement=place, sbp=flow.sbp.broadcast) for x in (INDEX, STARTS)]
    mine = flow.embedding_bag(ours, *rest, *given)
    wanted = [y.detach(), bag, size, most if mode == 2 else size]
    for one, other in zip(mine, wanted, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.to_torch(), other)
    (mine[0] ** 2).sum().backward()
    (y**2).sum().backward()
    torch.testing.assert_close(ours.grad.to_torch(), weight.grad)


@pytest.mark.parametrize("mode", NUMBERS)
@pytest.mark.parametrize("dtypes", [(torch.int32, torch.int64), (torch.int64, torch.int32)])
def test_bags_of_indices_and_starts_of_two_dtypes(mode, dtypes, world):
    given = [x.to(dtype) for x, dtype in zip((INDEX, STARTS), dtypes, strict=True)]
    wanted = torch.embedding_bag(ROW, *given, False, mode)
    mine = flow.embedding_bag(*map(flow.tensor, (ROW, *given)), False, mode)
    torch.testing.assert_close(mine[0].to_torch(), wanted[0])
    assert [each.dtype for each in mine[1:]] == [torch.int64] * 3
    assert mine[1].tolist() == [0, 0, 2, 2, 3, 3] and mine[2].tolist() == [2, 0, 2, 2]


def test_other_orders_are_refused(world):
    rows, index, x, w = map(flow.tensor, (ROW, INDEX, X, W))
    with pytest.raises(TypeError, match="with the indices first"):
        flow.embedding(index, rows)
    with pytest.raises(TypeError, match="missing"):
        flow.batch_norm(x, w, w, w, w)
    with pytest.raises(OnefoldError, match="mode must be 0"):
        flow.embedding_bag(rows, index, index, mode="sum")
    with pytest.raises(OnefoldError, match="reduction must be 0"):
        flow.kl_div(x, x, 3)
    with pytest.raises(OnefoldError, match="default generator"):
        flow.rrelu(x, training=True, generator=flow.Generator())
    assert flow.kl_div(x, x, "sum").item() == flow.kl_div(x, x, 2).item()
    assert flow.dropout(x, 0.5, training=False) is flow.dropout(x, 0.5, train=False) is x


def test_layers_keep_their_order(world):
    ours = flow.nn.functional.batch_norm(*map(flow.tensor, (X, MEAN, VARIANCE, W, B)))
    torch.testing.assert_close(ours.to_torch(), F.batch_norm(X, MEAN, VARIANCE, W, B))
    found = F.embedding(flow.tensor(INDEX), flow.tensor(ROW))
    torch.testing.assert_close(found.to_torch(), ROW[INDEX])


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_dropout",
                                  "feature_alpha_dropout"])  # fmt: skip
def test_dropout_in_place(name, world):
    x = flow.ones(4, 6, 5)
    flow.manual_seed(3)
    wanted = getattr(flow, name)(x, 0.5, True)
    flow.manual_seed(3)
    assert getattr(flow, f"{name}_")(x, 0.5, True) is x
    assert flow.equal(x, wanted) and len(wanted.unique()) == 2


def test_native_dropout_has_the_mask(world):
    x = flow.tensor(X).requires_grad_()
    y, mask = flow.native_dropout(x, 0.5, None)
    assert mask.dtype == flow.bool and 0 < mask.sum().item() < mask.numel()
    torch.testing.assert_close(y.to_torch(), X * mask.to_torch() * 2)
    y.sum().backward()
    torch.testing.assert_close(x.grad.to_torch(), mask.to_torch() * 2.0, check_dtype=False)


def test_activations_in_place(world):
    for name, given in (("celu_", (2.0,)), ("selu_", ()), ("threshold_", (0.1, 7.0)),
                        ("rrelu_", (0.1, 0.3))):  # fmt: skip
        x, y = flow.tensor(X - 0.5), X - 0.5
        assert getattr(flow, name)(x, *given) is x
        torch.testing.assert_close(x.to_torch(), getattr(torch, name)(y, *given))
