"""nn.utils against torch's: clipping in every layout, parameters as one vector."""

import math

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldRuntimeError, OnefoldValueError, ShapeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

utils = flow.nn.utils
SHAPES = [(5, 3), (4,), (), (0, 2), (2, 7)]


def gradients(seed=0):
    random = np.random.default_rng(seed)
    return [torch.from_numpy(np.asarray(random.standard_normal(shape))) for shape in SHAPES]


def layouts(text):
    """(parameter, gradient) layouts for each shape, on one or two placements."""
    if text == "local":
        return None
    if text == "two placements":
        return [(([0, 1], [2, 3])[i % 2], "(B)", "(B)") for i in range(5)]
    if text == "mesh":
        ranks = [[0, 1], [2, 3]]
        return [
            (ranks, "(S0, S1)", "(P, B)"),
            (ranks, "(S0, S0)", "(S0, P)"),
            (ranks, "(B, P)", "(P, P)"),
            (ranks, "(B, S1)", "(B, S1)"),
            (ranks, "(B, B)", "(P, S0)"),
        ]
    return [([0, 1, 2], text if t or text in ("(B)", "(P)") else "(B)", "(P)") for t in SHAPES]


def parameters(text):
    made, places = [], layouts(text)
    for index, grad in enumerate(gradients()):
        if places is None:
            param = flow.nn.Parameter(make_local(torch.zeros_like(grad)))
            param.grad = make_local(grad.clone())
        else:
            ranks, own, of_grad = places[index]
            p = flow.placement("cpu", ranks)
            param = flow.nn.Parameter(make_global(torch.zeros_like(grad), p, parse(own)))
            param.grad = make_global(grad, p, parse(of_grad))
        made.append(param)
    made.append(flow.nn.Parameter(flow.zeros(3)))  # without a gradient
    return made


LAYOUTS = ["local", "(B)", "(S0)", "(P)", "mesh", "two placements"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("max_norm", [0.7, 100.0])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf])
def test_clip_grad_norm(layout, max_norm, norm_type, world):
    params = parameters(layout)
    theirs = [torch.zeros_like(g).requires_grad_() for g in gradients()]
    for param, grad in zip(theirs, gradients(), strict=True):
        param.grad = grad.clone()
    full = [p for p in theirs if p.numel()] if math.isinf(norm_type) else theirs  # torch refuses
    wanted = torch.nn.utils.clip_grad_norm_(full, max_norm, norm_type)
    found = utils.clip_grad_norm_(params, max_norm, norm_type)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6) and float(found) > 0
    for mine, right in zip(params, theirs, strict=False):
        assert mine.grad.meta is mine.meta
        torch.testing.assert_close(value_of(mine.grad), right.grad)
    assert params[-1].grad is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_clip_grad_value(layout, world):
    params = parameters(layout)
    utils.clip_grad_value_(params, 0.5)
    for param, grad in zip(params, gradients(), strict=False):
        torch.testing.assert_close(value_of(param.grad), grad.clamp(-0.5, 0.5))


def test_one_parameter_or_none(world):
    param = parameters("(S0)")[0]
    norm = gradients()[0].norm().item()
    assert utils.clip_grad_norm_(param, 1e9).item() == pytest.approx(norm, rel=1e-6)
    assert utils.clip_grad_norm_([], 1.0).item() == 0.0
    assert utils.clip_grad_norm_(iter([param]), 1e9).item() == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_gradients_that_are_not_finite(bad, world):
    for layout in ("local", "(S0)"):
        params = parameters(layout)
        params[1].grad = params[1].grad * bad
        before = [value_of(p.grad).clone() for p in params[:-1]]
        with pytest.raises(OnefoldRuntimeError, match="cannot be clipped"):
            utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
        for param, old in zip(params, before, strict=False):
            assert torch.equal(value_of(param.grad).nan_to_num(), old.nan_to_num())
        assert not math.isfinite(utils.clip_grad_norm_(params, 1.0).item())


def torchs():
    """The same gradients in torch, without the empty one, of which some norms are not defined."""
    theirs = [torch.zeros_like(g).requires_grad_() for g in gradients() if g.numel()]
    for param, grad in zip(theirs, [g for g in gradients() if g.numel()], strict=True):
        param.grad = grad.clone()
    return theirs


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("norm_type", ["inf", "-inf", -math.inf, 0, -2.0, 0.5])
def test_all_norm_types(layout, norm_type, world):
    params, theirs = parameters(layout), torchs()
    found = utils.clip_grad_norm_(params, 0.01, norm_type, foreach=False)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, 0.01, norm_type)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
    given = [p.grad for p in params[:-1] if p.grad.numel()]
    for grad, param in zip(given, theirs, strict=True):
        torch.testing.assert_close(value_of(grad), param.grad)


def test_norm_types(world):
    with pytest.raises(OnefoldValueError, match="norm_type must be a number or infinity"):
        utils.clip_grad_norm_(parameters("(B)"), 1.0, math.nan)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_clipping_in_two_parts(layout, world):
    params, theirs = parameters(layout), torchs()
    total = utils.get_total_norm([p.grad for p in params[:-1]], 2.0)
    wanted = torch.nn.utils.get_total_norm([p.grad for p in theirs], 2.0)
    assert total.item() == pytest.approx(wanted.item(), rel=1e-6)
    utils.clip_grads_with_norm_(params, 0.7, total)
    torch.nn.utils.clip_grads_with_norm_(theirs, 0.7, wanted)
    given = [p.grad for p in params[:-1] if p.grad.numel()]
    for grad, param in zip(given, theirs, strict=True):
        torch.testing.assert_close(value_of(grad), param.grad, rtol=1e-6, atol=1e-8)
    assert utils.get_total_norm([]).item() == 0.0
    with pytest.raises(OnefoldRuntimeError, match="cannot be clipped"):
        utils.get_total_norm(flow.tensor([math.inf]), error_if_nonfinite=True)


def test_the_old_name_warns(world):
    params = parameters("local")
    with pytest.warns(FutureWarning, match="clip_grad_norm` is now deprecated"):
        found = utils.clip_grad_norm(params, 1.0, 2.0, False)
    assert found.item() == pytest.approx(
        torch.nn.utils.clip_grad_norm_(torchs(), 1.0).item(), rel=1e-6
    )


@pytest.mark.parametrize("sbp", [None, "(B)", "(S0)", "(P)"])
def test_parameters_as_one_vector(sbp, world):
    theirs = [torch.randn(3, 2, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    place = flow.placement("cpu", [0, 1])
    params = [
        flow.nn.Parameter(make_local(t) if sbp is None else make_global(t, place, parse(sbp)))
        for t in theirs
    ]
    vector = utils.parameters_to_vector(params)
    torch.testing.assert_close(
        value_of(vector.detach()), torch.nn.utils.parameters_to_vector(theirs)
    )
    metas = [p.meta for p in params]
    utils.vector_to_parameters(vector.detach() * 2, iter(params))
    for param, meta, value in zip(params, metas, theirs, strict=True):
        assert param.meta is meta and param.requires_grad
        torch.testing.assert_close(value_of(param.detach()), value * 2)
    with pytest.raises(ShapeError, match="the vector has 10 elements, but the parameters have 11"):
        utils.vector_to_parameters(vector[1:].detach(), params)


def _launched():
    rank = flow.env.get_rank()
    p = flow.placement("cpu", [0, 1])
    params = []
    for sbp in ("(S0)", "(B)"):
        param = flow.nn.Parameter(flow.zeros(3, 2, placement=p, sbp=parse(sbp)))
        param.grad = flow.tensor(
            np.arange(6.0, dtype="f4").reshape(3, 2), placement=p, sbp=parse("(P)")
        )
        params.append(param)
    alone = flow.nn.Parameter(flow.zeros(2, placement=flow.placement("cpu", [1]), sbp=parse("(B)")))
    alone.grad = flow.ones(2, placement=alone.placement, sbp=alone.sbp)
    norm = utils.clip_grad_norm_([*params, alone], 1.0).item()
    return rank, norm, [param.grad.numpy().tolist() for param in [*params, alone]]


def test_every_process_gets_the_same_norm():
    first, second = run_ranks(2, _launched)
    assert first[1:] == second[1:]
    norm = math.sqrt(2 * 55 + 2)
    assert first[1] == pytest.approx(norm, rel=1e-6)
    assert np.allclose(first[2][0], np.arange(6.0).reshape(3, 2) / norm, rtol=1e-5)
