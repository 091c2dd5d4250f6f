"""Samples of losses of elements."""

from collections.abc import Iterator

from onefold.testing import Sample, T

PAIR = (T(6, 4), T(6, 4))
ODD = (T(5, 3), T(5, 3))
BITS = (T(6, 4, low=0.05, high=0.95), T(6, 4, low=0.0))


def all_reductions() -> Iterator[Sample]:
    for reduction in ("mean", "sum", "none"):
        kw = {"reduction": reduction}
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"):
            if name != "kl_div":
                yield Sample(name, PAIR, kw)
                yield Sample(name, ODD, kw)
        yield Sample("smooth_l1_loss", PAIR, {**kw, "beta": 0.3})
        yield Sample("huber_loss", PAIR, {**kw, "delta": 0.3})
        yield Sample("binary_cross_entropy", BITS, kw)
        yield Sample("binary_cross_entropy_with_logits", (T(5, 3), T(5, 3, low=0.0)), kw)
        yield Sample("kl_div", (T(5, 3), T(5, 3, low=0.1)), kw)
        yield Sample("kl_div", (T(6, 4), T(6, 4)), {**kw, "log_target": True})
        yield Sample("mse_loss", (*PAIR, reduction, T(6, 4, low=0.1)), {}, torch=weighted_mse)


def weighted_mse(x, target, reduction, weight):
    each = weight * (x - target) ** 2
    sums = {"none": each, "sum": each.sum(), "mean": each.sum() / weight.sum()}
    return sums[reduction]


SAMPLES = [
    *all_reductions(),
    Sample("smooth_l1_loss", PAIR, {"beta": 0.0}),
    Sample("mse_loss", (T(), T())),
    Sample("kl_div", (T(6, 4), T(6, 4, low=0.1)), {"reduction": "batchmean"}),
    Sample("binary_cross_entropy", (*BITS, T(4, low=0.1)), {"reduction": "sum"}),
    Sample(
        "binary_cross_entropy_with_logits",
        (T(6, 4), T(6, 4, low=0.0), T(6, 4)),
        {"pos_weight": T(4, low=0.5, high=3.0)},
    ),
    Sample("cosine_similarity", (T(6, 4), T(6, 4))),
    Sample("cosine_similarity", (T(5, 3, 4), T(5, 3, 4)), {"dim": -1, "eps": 1e-3}),
]
