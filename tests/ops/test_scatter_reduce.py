"""scatter_reduce and index_reduce have the gradients of torch, and reduce once."""

from itertools import product

import pytest
import torch

import onefold as flow

CASES = [
    *product(["scatter_reduce"], ["sum", "mean", "prod", "amax", "amin"], [True, False]),
    *product(["index_reduce"], ["mean", "prod", "amax", "amin"], [True, False]),
]
LAYOUTS = ["(B)", "(S0)", "(S1)", "(S2)", "(P)"]
PLACE = {"placement": flow.placement("cpu", [0, 1])}


def inputs(name, seed, equal):
    """x, the index and the source; with `equal`, of few values, so that some are equal or 0."""
    torch.manual_seed(seed)
    dim = seed % 3
    shapes = [5, 4, 3], [5, 4, 3]
    shapes[1][dim] = 7
    x, source = (
        (torch.randint(-1, 3, shape) if equal else torch.randn(shape)).double() for shape in shapes
    )
    index = torch.randint(5 - dim, (7,) if name == "index_reduce" else shapes[1])
    return x, dim, index, source


def gradients(autograd, name, x, dim, index, source, how, own):
    """The result, the gradients, and the gradients of a sum of their squares."""
    y = getattr(x, name)(dim, index, source, how, include_self=own)
    first = autograd.grad((y * y).sum(), (x, source), create_graph=True)
    total = sum((each * each).sum() for each in first)
    return y, *first, *autograd.grad(total, (x, source), allow_unused=True)


@pytest.mark.parametrize(("name", "how", "own"), CASES)
def test_gradients_are_torchs(name, how, own, world):
    for seed, layout in product(range(3), LAYOUTS):
        x, dim, index, source = inputs(name, seed, equal=False)
        leaves = [x.requires_grad_(), dim, index, source.requires_grad_()]
        wanted = gradients(torch.autograd, name, *leaves, how, own)
        kinds = {**PLACE, "sbp": flow.sbp.broadcast}
        sbp = {"(P)": flow.sbp.partial_sum}.get(layout, flow.sbp.broadcast)
        if layout[1] == "S":
            sbp = flow.sbp.split(int(layout[2]))
        ours = [
            flow.tensor(each.detach(), **kinds).to_global(sbp=sbp).detach().requires_grad_()
            for each in (x, source)
        ]
        mine = gradients(
            flow.autograd, name, ours[0], dim, flow.tensor(index, **kinds), ours[1], how, own
        )
        for one, other in zip(mine, wanted, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one.to_torch(), other)


@pytest.mark.parametrize(("name", "how", "own"), CASES)
def test_equal_values_and_zeros(name, how, own, world):
    for seed in range(6):
        x, dim, index, source = inputs(name, seed, equal=True)
        if seed == 5:
            x[0, 0, 0] = source[1, 1, 1] = torch.nan
        theirs = [x.requires_grad_(), source.requires_grad_()]
        y = getattr(x, name)(dim, index, source, how, include_self=own)
        dy = torch.randn(5, 4, 3, dtype=torch.float64)
        wanted = torch.autograd.grad(y, theirs, dy)
        ours = [flow.tensor(each.detach()).requires_grad_() for each in theirs]
        made = getattr(ours[0], name)(dim, flow.tensor(index), ours[1], how, include_self=own)
        for one, other in zip(flow.autograd.grad(made, ours, flow.tensor(dy)), wanted, strict=True):
            torch.testing.assert_close(one.to_torch(), other, equal_nan=True)


@pytest.mark.parametrize("name", ["scatter_reduce", "index_reduce"])
@pytest.mark.parametrize("how", ["mean", "amax", "prod"])
def test_backward_does_not_run_forward_again(name, how, world):
    x, dim, index, source = inputs(name, 1, equal=False)
    ours = [flow.tensor(x).requires_grad_(), flow.tensor(source).requires_grad_()]
    y = getattr(ours[0], name)(dim, flow.tensor(index), ours[1], how)
    with flow.profiler.profile() as prof:
        y.sum().backward()
    counts = {row.key: row.count for row in prof.key_averages()}
    # A product of what is not 0 stands for that of the others.
    assert counts.get(name, 0) == (2 if how == "prod" else 0)
    assert not [key for key in counts if "backward" in key]


def test_index_reduce_keeps_a_split_of_other_dims(world):
    x = flow.ones(6, 4, **PLACE, sbp=flow.sbp.split(1))
    index = flow.tensor([0, 2], **PLACE, sbp=flow.sbp.broadcast)
    source = flow.full((2, 4), 3.0, **PLACE, sbp=flow.sbp.split(1))
    with flow.profiler.comm() as log:
        y = flow.index_reduce(x, 0, index, source, "amax")
    assert y.sbp == (flow.sbp.split(1),) and log.count() == 0
    assert y.sum(1).tolist() == [12, 4, 12, 4, 4, 4]


BAD = [
    (RuntimeError, "to be one of", lambda x, i: flow.index_reduce(x, 0, i, x[:2], "sum")),
    (RuntimeError, "source must have shape", lambda x, i: flow.index_reduce(x, 0, i, x, "amax")),
    (RuntimeError, "same dtype", lambda x, i: flow.index_reduce(x, 0, i, x[:2].double(), "amax")),
    (IndexError, "vector", lambda x, i: flow.index_reduce(x, 0, i.view(1, 2), x[:2], "amax")),
    (IndexError, "out of range", lambda x, i: flow.index_reduce(x, 0, i + 5, x[:2], "amax")),
]


@pytest.mark.parametrize(("kind", "text", "call"), BAD)
def test_errors(kind, text, call, world):
    with pytest.raises(kind, match=text):
        call(flow.ones(4, 3), flow.tensor([0, 1]))
