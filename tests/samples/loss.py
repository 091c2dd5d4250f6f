"""Samples of losses of elements."""

from collections.abc import Iterator

from torch.nn import functional
from torch.nn.functional import kl_div

from onefold.testing import Sample, T

PAIR = (T(6, 4), T(6, 4))
ODD = (T(5, 3), T(5, 3))
BITS = (T(6, 4, low=0.05, high=0.95), T(6, 4, low=0.0))


def all_reductions() -> Iterator[Sample]:
    for reduction in ("mean", "sum", "none"):
        kw = {"reduction": reduction}
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            yield Sample(name, PAIR, kw)
            yield Sample(name, ODD, kw)
        yield Sample("smooth_l1_loss", PAIR, {**kw, "beta": 0.3})
        yield Sample("huber_loss", PAIR, {**kw, "delta": 0.3})
        yield Sample("binary_cross_entropy", BITS, kw)
        pair = (T(5, 3), T(5, 3, low=0.0))
        yield Sample(
            "binary_cross_entropy_with_logits",
            pair,
            kw,
            torch=functional.binary_cross_entropy_with_logits,
        )
        yield Sample("kl_div", (T(5, 3), T(5, 3, low=0.1)), kw, torch=divergence)
        yield Sample("kl_div", PAIR, {**kw, "log_target": True}, torch=divergence)
        yield Sample("mse_loss", (*PAIR, reduction, T(6, 4, low=0.1)), {}, torch=weighted_mse)


# Torch has no gradients for the weights of bits: written out here.


def bits(x, target, weight, reduction):
    assert reduction == "sum"
    return (weight * functional.binary_cross_entropy(x, target, reduction="none")).sum()


def weighted_logits(x, target, weight, pos_weight):
    positive = pos_weight * target * functional.logsigmoid(x)
    return -(weight * (positive + (1 - target) * functional.logsigmoid(-x))).mean()


def divergence(x, target, reduction, log_target=False):
    """Torch warns that its mean is over the elements."""
    each = functional.kl_div(x, target, reduction="none", log_target=log_target)
    return {"none": each, "sum": each.sum(), "mean": each.mean()}[reduction]


def weighted_mse(x, target, reduction, weight):
    each = weight * (x - target) ** 2
    sums = {"none": each, "sum": each.sum(), "mean": each.sum() / weight.sum()}
    return sums[reduction]


SAMPLES = [
    *all_reductions(),
    Sample("smooth_l1_loss", PAIR, {"beta": 0.0}),
    Sample("mse_loss", (T(), T())),
    Sample("kl_div", (T(6, 4), T(6, 4, low=0.1)), {"reduction": "batchmean"}, torch=kl_div),
    Sample("binary_cross_entropy", (*BITS, T(4, low=0.1)), {"reduction": "sum"}, torch=bits),
    Sample(
        "binary_cross_entropy_with_logits",
        (T(6, 4), T(6, 4, low=0.0), T(6, 4)),
        {"pos_weight": T(4, low=0.5, high=3.0)},
        torch=weighted_logits,
    ),
    Sample("cosine_similarity", (T(6, 4), T(6, 4))),
    Sample("cosine_similarity", (T(5, 3, 4), T(5, 3, 4)), {"dim": -1, "eps": 1e-3}),
]
