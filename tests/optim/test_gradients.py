"""Gradients to their parameters' layouts: right values, few collectives, bounded buckets."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.engine.sbp import parse
from onefold.optim import gradient_layouts as module
from onefold.optim.gradient_layouts import aligned, with_gradients
from onefold.testing.manual_layouts import make_global
from onefold.testing.sample_checks import value_of


def params_with(shapes, own, of_grad, ranks=(0, 1), dtype=torch.float32):
    place, random, made, values = (
        flow.placement("cpu", list(ranks)),
        np.random.default_rng(0),
        [],
        [],
    )
    for shape in shapes:
        value = torch.from_numpy(np.asarray(random.standard_normal(shape))).to(dtype)
        param = flow.nn.Parameter(make_global(torch.zeros_like(value), place, parse(own)))
        param.grad = make_global(value, place, parse(of_grad))
        made.append(param)
        values.append(value)
    return made, values


@pytest.mark.parametrize("bucket", [1, 40, 1 << 20])
@pytest.mark.parametrize("own", ["(B)", "(S0)", "(P)"])
@pytest.mark.parametrize("of_grad", ["(B)", "(S0)", "(P)"])
def test_values(own, of_grad, bucket, world, monkeypatch):
    monkeypatch.setattr(module, "BUCKET_BYTES", bucket)
    shapes = [(5, 2), (3,), (1, 4), (0, 2), (7,)]
    params, values = params_with(shapes, own, of_grad)
    found = aligned(*with_gradients(params))
    for grad, param, value in zip(found, params, values, strict=True):
        assert grad.meta is param.meta
        torch.testing.assert_close(value_of(grad), value)


def test_dtypes_and_placements_stay_apart(world):
    first, one = params_with([(3,), (2, 2)], "(B)", "(P)")
    second, two = params_with([(3,)], "(B)", "(P)", (2, 3))
    third, three = params_with([(3,)], "(B)", "(P)", dtype=torch.float64)
    for grad, value in zip(
        aligned(*with_gradients(first + second + third)), one + two + three, strict=True
    ):
        torch.testing.assert_close(value_of(grad), value)


def test_a_gradient_that_fits_is_taken_as_it_is(world):
    params, _ = params_with([(4, 2)], "(S0)", "(S0)")
    assert aligned(*with_gradients(params))[0] is params[0].grad
    assert aligned([], []) == []


def _collectives(sbp, of_grad):
    params, values = params_with([(5, 2), (3,), (4, 4)], sbp, of_grad)
    with flow.profiler.comm() as log:
        found = aligned(*with_gradients(params))
    right = all(
        torch.allclose(torch.from_numpy(grad.numpy()), value, atol=1e-6)
        for grad, value in zip(found, values, strict=True)
    )
    return right, len(log.records)


def test_partial_gradients_travel_together():
    assert run_ranks(2, _collectives, "(B)", "(P)") == [(True, 1), (True, 1)]
    assert run_ranks(2, _collectives, "(S0)", "(S0)") == [(True, 0), (True, 0)]
