"""flow._C's functions with arguments of their own, against torch, on one device and two ranks."""

import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldValueError, ShapeError

C, F = flow._C, torch.nn.functional


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, Y, SIGNS = values(4, 6), values(4, 6, seed=1), values(4, 6, seed=2).sign()
CLASSES, SHORT = torch.tensor([0, 5, 2, 2]), torch.tensor([0, 5, 2, 2], dtype=torch.int32)
WEIGHT, ZERO_ONE, P = values(6).abs(), torch.rand(4, 6, dtype=torch.float64).round(), X.softmax(1)
IMAGES, PLACES = values(4, 12, 2, 3), torch.tensor([[1], [3]])
LOGS, FIELDS = values(5, 2, 4).log_softmax(2), [values(4, 2, 3), values(4, 1, 3, seed=1)]
LENGTHS, TARGETS = [torch.tensor([5, 4]), torch.tensor([2, 1])], torch.tensor([[1, 2], [3, 3]])


def interactions(diagonal):
    every = torch.cat(FIELDS, 1)
    at = torch.tril_indices(3, 3, diagonal)
    return (every @ every.mT)[:, at[0], at[1]]


CALLS = {
    "cross_entropy": (
        (X, SHORT, WEIGHT, 2, "sum"),
        lambda: F.cross_entropy(X, CLASSES, WEIGHT, ignore_index=2, reduction="sum"),
    ),
    "cross_entropy of probabilities": (
        (X, P, None, -100, "none", 0.1),
        lambda: F.cross_entropy(X, P, reduction="none", label_smoothing=0.1),
    ),
    "sparse_softmax_cross_entropy": (
        (X.view(2, 2, 6), SHORT.view(2, 2)),
        lambda: F.cross_entropy(X, CLASSES, reduction="none").view(2, 2),
    ),
    "softmax_cross_entropy": ((X, P), lambda: F.cross_entropy(X, P, reduction="none")),
    "nll_loss": (
        (X, SHORT, WEIGHT, 5, "mean"),
        lambda: F.nll_loss(X, CLASSES, WEIGHT, ignore_index=5),
    ),
    "smooth_l1_loss": (
        (X, Y, 0.5, "none"),
        lambda: F.smooth_l1_loss(X, Y, reduction="none", beta=0.5),
    ),
    "kl_div_loss": (
        (X, Y, True, "sum"),
        lambda: F.kl_div(X, Y, reduction="sum", log_target=True),
    ),
    "binary_cross_entropy_loss": (
        (P, ZERO_ONE, None, "sum"),
        lambda: F.binary_cross_entropy(P, ZERO_ONE, reduction="sum"),
    ),
    "binary_cross_entropy_with_logits_loss": (
        (X, ZERO_ONE, None, WEIGHT, "none"),
        lambda: F.binary_cross_entropy_with_logits(
            X, ZERO_ONE, pos_weight=WEIGHT, reduction="none"
        ),
    ),
    "margin_ranking_loss": (
        (X, Y, SIGNS, 0.5, "sum"),
        lambda: F.margin_ranking_loss(X, Y, SIGNS, 0.5, reduction="sum"),
    ),
    "ctc_loss": (
        (LOGS, TARGETS, *LENGTHS, 2, 0, False, "none"),
        lambda: F.ctc_loss(LOGS, TARGETS, *LENGTHS, reduction="none"),
    ),
    "combined_margin_loss": (
        (P, CLASSES, 1.0, 0.0, 0.25),
        lambda: P - 0.25 * F.one_hot(CLASSES, 6),
    ),
    "constant": (([2, 3], 0.5), lambda: torch.full((2, 3), 0.5)),
    "one_hot": ((SHORT, 7), lambda: F.one_hot(CLASSES, 7)),
    "one_hot of values": (
        (CLASSES, 6, 0.9, 0.1),
        lambda: F.one_hot(CLASSES, 6).float() * 0.8 + 0.1,
    ),
    "identity": ((X,), lambda: X),
    "amp_white_identity": ((X,), lambda: X),
    "cast": ((X, torch.float32), X.float),
    "reduce_sum": ((X, [0], True), lambda: X.sum(0, True)),
    "reduce_sum of all": ((X,), X.sum),
    "reduce_mean": ((X, [1]), lambda: X.mean(1)),
    "reduce_max": ((X, [1]), lambda: X.amax(1)),
    "reduce_min": ((X, [0, 1], True), lambda: X.amin((0, 1), True)),
    "top_k": ((X, 2), lambda: X.topk(2).indices),
    "arg_sort": ((X, "DESCENDING"), lambda: X.argsort(1, True)),
    "normalize": ((X, 1.0, 1, 1e-9), lambda: F.normalize(X, 1.0)),
    "batch_matmul": (
        (IMAGES, IMAGES, False, True, 0.5),
        lambda: 0.5 * IMAGES @ IMAGES.mT,
    ),
    "gelu_with_approximate": ((X, "tanh"), lambda: F.gelu(X, approximate="tanh")),
    "transpose": ((IMAGES, [1, 3, 2, 0]), lambda: IMAGES.permute(1, 3, 2, 0)),
    "transpose of two": ((IMAGES, 1, 3), lambda: IMAGES.transpose(1, 3)),
    "scatternd": (
        (PLACES, X[:2], [4, 6]),
        lambda: torch.zeros_like(X).index_copy(0, PLACES[:, 0], X[:2]),
    ),
    "tensor_scatter_nd_update": (
        (Y, PLACES, X[:2]),
        lambda: Y.index_copy(0, PLACES[:, 0], X[:2]),
    ),
    "pixel_shuffle": ((IMAGES, 2, 2), lambda: F.pixel_shuffle(IMAGES, 2)),
    "fused_dot_feature_interaction": (
        (FIELDS, X, True, 1),
        lambda: F.pad(torch.cat([X, interactions(0)], 1), (0, 1)),
    ),
    "fused_dot_feature_interaction of sums": (
        (FIELDS, None, False, 0, "sum"),
        lambda: interactions(-1).sum(1, keepdim=True),
    ),
    # Those of a public function.
    "amax": ((X, 1), lambda: X.amax(1)),
    "leaky_relu": ((X, 0.3), lambda: F.leaky_relu(X, 0.3)),
    "concat": (([X, Y], 1), lambda: torch.cat([X, Y], 1)),
}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_calls(world, name, split):
    args, formula = CALLS[name]
    p = flow.placement("cpu", [0, 1])

    def placed(x):
        if not split:
            return flow.tensor(x)
        whole = x.shape[0] == 4
        return flow.tensor(x, placement=p, sbp=flow.sbp.split(0) if whole else flow.sbp.broadcast)

    args = torch.utils._pytree.tree_map_only(torch.Tensor, placed, args)
    found = getattr(C, name.split()[0])(*args).to_torch()
    torch.testing.assert_close(found, formula(), check_dtype=name != "top_k")


def test_global_creation(world):
    p, sbp = flow.placement("cpu", [0, 1]), [flow.sbp.split(0)]
    x = C.global_constant([4], 3.0, dtype=flow.float64, placement=p, sbp=sbp)
    assert (x.tolist(), x.dtype, x.sbp) == ([3.0] * 4, flow.float64, tuple(sbp))
    y = C.global_arange(0, 8, 2, placement=p, sbp=sbp)
    assert (y.tolist(), y.sbp) == ([0, 2, 4, 6], tuple(sbp))
    assert C.global_empty([4], dtype=flow.int32, placement=p, sbp=sbp).shape == (4,)


def test_a_tensor_is_updated_in_place(world):
    x = flow.zeros(4)
    assert C.tensor_scatter_nd_update(x, flow.tensor([[1]]), flow.ones(1), True) is x
    assert x.tolist() == [0, 1, 0, 0]


def test_functions_are_found_once_and_errors_name_them(world):
    assert C.leaky_relu is C.leaky_relu
    assert C.amax.__module__ == flow.amax.__module__
    with pytest.raises(AttributeError, match=r"flow\._C has no function 'nothing'"):
        _ = C.nothing
    x = flow.ones(4, 6)
    for call, error, text in (
        (lambda: C.sparse_softmax_cross_entropy(x, flow.tensor([1])), ShapeError, r"\(1,\)"),
        (lambda: C.arg_sort(x, "UP"), OnefoldValueError, "'ASCENDING' or 'DESCENDING'"),
        (lambda: C.pixel_shuffle(x, 2, 3), ShapeError, "divisible by 6"),
        (
            lambda: C.fused_dot_feature_interaction([x[None]], pooling="max"),
            OnefoldValueError,
            "pooling",
        ),
        (lambda: C.fused_mlp(x, [], [], False), OnefoldValueError, "0 weights and 0 biases"),
        (lambda: C.fused_mlp(x, [x, x], [x[0]], False), OnefoldValueError, "2 weights and 1"),
    ):
        with pytest.raises(error, match=text):
            call()
