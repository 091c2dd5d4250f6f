"""Attention beyond the samples: split queries, dropout in any layout, errors."""

import pytest
import torch

from onefold.engine.generator import manual_seed
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldError
from onefold.testing.checks import value_of
from onefold.testing.layouts import make_global, make_local

SHAPE = (2, 4, 5, 3)
attention = names.scaled_dot_product_attention


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ranks", [[0, 1], [0, 1, 2]])
def test_split_queries_stay_split(causal, ranks):
    q, k, v = torch.randn(3, *SHAPE, dtype=torch.float64)
    mesh = Placement("cpu", ranks)
    tensors = [make_global(t, mesh, parse(s)) for t, s in ((q, "(S2)"), (k, "(B)"), (v, "(B)"))]
    found = attention(*tensors, is_causal=causal)
    assert short(found.sbp) == "(S2)"
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(value_of(found), wanted)


@pytest.mark.parametrize("heads", [4, 2])
def test_dropout_does_not_depend_on_the_layout(heads):
    q = torch.randn(*SHAPE, dtype=torch.float64)
    k = torch.randn(2, heads, 5, 3, dtype=torch.float64)
    kwargs = {"dropout_p": 0.4, "is_causal": True, "enable_gqa": heads != 4}

    def run(make):
        manual_seed(3)
        tensors = [make(t).requires_grad_() for t in (q, k, k)]
        y = attention(*tensors, **kwargs)
        names.sum(names.mul(y, y)).backward()
        return [value_of(t) for t in (y, *[x.grad for x in tensors])]

    wanted = run(make_local)
    assert not torch.allclose(wanted[0], run_without(q, k, kwargs))
    mesh = Placement("cpu", [[0, 1], [2, 3]])
    for layout in ("(S0, S1)", "(S1, B)", "(B, S2)", "(P, S0)", "(S1, S0)"):
        found = run(lambda t, layout=layout: make_global(t, mesh, parse(layout)))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


def run_without(q, k, kwargs):
    tensors = [make_local(t) for t in (q, k, k)]
    return value_of(attention(*tensors, **{**kwargs, "dropout_p": 0.0}))


def test_errors():
    q = make_local(torch.randn(*SHAPE))
    mask = make_local(torch.ones(5, 5, dtype=torch.bool))
    calls = [
        lambda: attention(q, q, q, mask, is_causal=True),
        lambda: attention(q, q, q, dropout_p=1.5),
        lambda: attention(q, make_local(torch.randn(2, 4, 5, 2)), q),
        lambda: attention(q, make_local(torch.randn(2, 2, 5, 3)), q),
    ]
    for call in calls:
        with pytest.raises(OnefoldError):
            call()
