"""Statistics of float16 and bfloat16 tensors: over split dims as exact as torch's on one device."""

import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks

import onefold as flow
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, parse, short, split
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

F = torch.nn.functional
HALVES = [torch.float16, torch.bfloat16]
PLACEMENTS = [Placement("cpu", ranks) for ranks in ([0, 1], [0, 1, 2], [[0, 1], [2, 3]])]
SHAPE = (5, 6, 7)


def _batch_norm(x):
    return flow.nn.functional.batch_norm(x, None, None, training=True)


def _torch_cross_entropy(x):
    return F.cross_entropy(x, torch.arange(5 * 7).view(5, 7) % 6)


def _cross_entropy(x):
    target = make_local(torch.arange(5 * 7).view(5, 7) % 6)
    if x.is_global:
        target = target.to_global(placement=x.placement, sbp=[broadcast] * len(x.sbp))
    return flow.nn.functional.cross_entropy(x, target)


def _cosine(x):
    return flow.nn.functional.cosine_similarity(x, flow.flip(x, (0,)) + 1, dim=2)


# name: (ours, torch's)
STATISTICS = {
    "layer_norm": (lambda x: flow.layer_norm(x, (7,)), lambda x: F.layer_norm(x, (7,))),
    "layer_norm of two dims": (
        lambda x: flow.layer_norm(x, (6, 7)),
        lambda x: F.layer_norm(x, (6, 7)),
    ),
    "rms_norm": (lambda x: flow.rms_norm(x, (6, 7)), lambda x: F.rms_norm(x, (6, 7), eps=1e-6)),
    "group_norm": (lambda x: names.group_norm(x, 2), lambda x: F.group_norm(x, 2)),
    "instance_norm": (names.instance_norm, F.instance_norm),
    "batch_norm": (_batch_norm, lambda x: F.batch_norm(x, None, None, training=True)),
    "norm": (flow.norm, torch.norm),
    "norm along": (lambda x: flow.norm(x, 2, 1), lambda x: torch.norm(x, 2, 1)),
    "norm of order 3": (
        lambda x: names.vector_norm(x, 3, 2),
        lambda x: torch.linalg.vector_norm(x, 3, 2),
    ),
    "norm of order 1": (
        lambda x: names.vector_norm(x, 1, 0),
        lambda x: torch.linalg.vector_norm(x, 1, 0),
    ),
    "var": (lambda x: flow.var(x, (0, 2)), lambda x: torch.var(x, (0, 2))),
    "var of all": (flow.var, torch.var),
    "std": (lambda x: flow.std(x, 1), lambda x: torch.std(x, 1)),
    "softmax": (lambda x: flow.softmax(x, 1), lambda x: torch.softmax(x, 1)),
    "log_softmax": (lambda x: flow.log_softmax(x, 2), lambda x: torch.log_softmax(x, 2)),
    "logsumexp": (lambda x: flow.logsumexp(x, 0), lambda x: torch.logsumexp(x, 0)),
    "cross_entropy": (_cross_entropy, _torch_cross_entropy),
    "cosine_similarity": (_cosine, lambda x: F.cosine_similarity(x, x.flip(0) + 1, dim=2)),
}


def values(name, dtype, seed):
    """Random numbers of several sizes, of which some parts differ much from others."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(SHAPE, generator=random)
    if name.startswith(("soft", "log_", "logsum", "cross")):
        return (4 * x).to(dtype)
    far = torch.tensor([1.0, 30.0, 300.0])[seed % 3]
    parts = torch.randint(-1, 2, (SHAPE[0], 1, SHAPE[2]), generator=random)
    return (x + far * parts).to(dtype)


def results(function, x, cotangent):
    y = function(x)
    weighed = y * cotangent(y)
    weighed.sum().backward()
    return y.detach(), x.grad


def assert_as_exact(found, wanted, exact):
    """Within the error of torch's own result in this dtype, and a few of its roundings."""
    assert found.dtype is wanted.dtype
    rounding = torch.finfo(wanted.dtype).eps
    error = (wanted.double() - exact).abs().nan_to_num(0.0).max()  # torch's own may be nan
    allowed = 2 * error + 2 * rounding * exact.abs() + rounding * exact.abs().max()
    apart = (found.double() - exact).abs()
    assert bool((apart <= allowed).all()), (apart.max(), exact.flatten()[apart.argmax()], error)


def layouts(placement):
    return st.tuples(*[st.sampled_from([broadcast, *map(split, range(3))])] * placement.ndim)


def check(name, dtype, x, make, cotangent):
    ours, torchs = STATISTICS[name]
    weights = torch.linspace(-1, 2, 210).roll(x.numel() // 7)

    def as_torch(y):
        return weights[: y.numel()].view(y.shape).to(y.dtype)

    wanted = results(torchs, x.clone().requires_grad_(), as_torch)
    exact = results(torchs, x.double().requires_grad_(), as_torch)
    found = results(ours, make(x).requires_grad_(), lambda y: cotangent(as_torch(value_of(y))))
    for ours_value, torch_value, exact_value in zip(found, wanted, exact, strict=True):
        assert_as_exact(value_of(ours_value), torch_value, exact_value)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_a_local_tensor(name, dtype):
    for seed in range(3):
        check(name, dtype, values(name, dtype, seed), make_local, make_local)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", STATISTICS)
@given(data=st.data())
def test_statistics_of_any_layout(name, dtype, data):
    placement = data.draw(st.sampled_from(PLACEMENTS))
    nd_sbp = data.draw(layouts(placement))

    def make(x):
        return make_global(x, placement, nd_sbp)

    def cotangent(x):
        return make_global(x, placement, (broadcast,) * placement.ndim)

    check(name, dtype, values(name, dtype, data.draw(st.integers(0, 9))), make, cotangent)


@pytest.mark.parametrize("dtype", HALVES)
def test_two_halves_far_apart(dtype):
    x = torch.tensor([300.0] * 4 + [-300.0] * 4).to(dtype)
    laid = make_global(x, PLACEMENTS[0], parse("(S0)"))
    assert value_of(flow.layer_norm(laid, (8,))).abs().eq(1).all()
    assert value_of(flow.norm(laid)).item() == torch.norm(x).item()
    assert value_of(flow.std(laid)).item() == torch.std(x).item()
    # The squares of float16 do not fit into float16, in torch either.
    assert value_of(flow.var(laid)).item() == torch.var(x).item()


def test_weights_of_another_dtype_leave_the_result_as_narrow_as_torch():
    x, w = torch.randn(4, 6).bfloat16(), torch.randn(6)
    wanted = F.layer_norm(x, (6,), w, w)
    laid = make_global(x, PLACEMENTS[0], parse("(S1)")).requires_grad_()
    weight = make_global(w, PLACEMENTS[0], parse("(B)")).requires_grad_()
    y = flow.layer_norm(laid, (6,), weight, weight)
    torch.testing.assert_close(value_of(y), wanted)
    y.sum().backward()
    assert (laid.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)


def test_class_split_cross_entropy_of_many_classes():
    torch.manual_seed(0)
    x = (3 * torch.randn(64, 500)).bfloat16()
    target = torch.randint(0, 500, (64,))
    logits = make_global(x, PLACEMENTS[1], parse("(S1)"))
    laid = make_global(target, PLACEMENTS[1], parse("(B)"))
    exact = F.cross_entropy(x.double(), target).item()
    found = value_of(flow.nn.functional.cross_entropy(logits, laid)).item()
    assert abs(found - exact) <= 0.005 * exact
    assert short(logits.sbp) == "(S1)"


@pytest.mark.parametrize("layout", ["(S0)", "(S1)", "(B)"])
def test_a_mean_loss_over_many_samples(layout):
    torch.manual_seed(0)
    x, target = torch.randn(20000, 30).bfloat16(), torch.randint(0, 30, (20000,))
    logits = make_global(x, PLACEMENTS[0], parse(layout))
    rest = "(S0)" if layout == "(S0)" else "(B)"
    loss = flow.nn.functional.cross_entropy(logits, make_global(target, PLACEMENTS[0], parse(rest)))
    assert_as_exact(value_of(loss), F.cross_entropy(x, target), F.cross_entropy(x.double(), target))


def split_everywhere(name, dtype, ranks):
    """The statistic and its gradient on a tensor whose dims are split in turn."""
    placement = Placement("cpu", list(range(ranks)))
    whole = (broadcast,)
    found = []
    for dim in range(3):
        x = make_global(values(name, dtype, 2), placement, (split(dim),)).requires_grad_()
        y = STATISTICS[name][0](x)
        y.sum().backward()
        found += [value_of(t.to_global(sbp=whole)) for t in (y.detach(), x.grad)]
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_give_the_same_statistics(ranks):
    names_and_dtypes = [(name, dtype) for name in STATISTICS for dtype in HALVES]

    def program():
        return [split_everywhere(*each, ranks) for each in names_and_dtypes]

    wanted = program()
    for found in run_ranks(ranks, program):
        for mine, theirs, (name, dtype) in zip(found, wanted, names_and_dtypes, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                rounding = torch.finfo(dtype).eps
                torch.testing.assert_close(
                    one, other, rtol=2 * rounding, atol=2 * rounding, equal_nan=True, msg=name
                )
