"""A split batch that has fewer samples than there are ranks costs no more than any other."""

import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse, short
from onefold.profiler import comm
from onefold.testing.manual_layouts import make_global
from onefold.testing.sample_checks import value_of

CALLS = {
    "bias": lambda lib, x: x + x.new_ones(6),
    "product": lambda lib, x: (x * x) * 2.0,
    "gelu": lambda lib, x: lib.nn.functional.gelu(x),
    "where": lambda lib, x: lib.where(x > 0, x, 0.0),
    "bool": lambda lib, x: (x > 0) & (x < 1),
    "cast": lambda lib, x: x.float(),
    "clone": lambda lib, x: x.clone(),
    "norm": lambda lib, x: lib.nn.functional.layer_norm(x, (6,)),
    "groups": lambda lib, x: lib.nn.functional.group_norm(x, 3),
    "flatten": lambda lib, x: x.reshape(len(x), 2, 3).flatten(1),
    "heads": lambda lib, x: x.view(len(x), 2, 1, 3).transpose(1, 2),
    "columns": lambda lib, x: x[:, [0, 2, 2]],
    "inverse": lambda lib, x: lib.linalg.inv(x[:, :4].reshape(-1, 2, 2)),
    "frequencies": lambda lib, x: lib.fft.rfft(x).real,
    "distances": lambda lib, x: lib.cdist(x.reshape(-1, 3, 2), x.reshape(-1, 3, 2)),
}


@pytest.mark.parametrize(
    ("ranks", "layout"),
    [
        ([0, 1], "(S0)"),
        ([0, 1, 2], "(S0)"),
        ([[0, 1], [2, 3]], "(S0, S0)"),
        ([[0, 1], [2, 3]], "(B, S0)"),
    ],
)
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_samples_stay_where_they_are(name, samples, ranks, layout):
    value = torch.randn(samples, 6, dtype=torch.float64, requires_grad=True)
    x = make_global(value.detach(), flow.placement("cpu", ranks), parse(layout)).requires_grad_()
    wanted = CALLS[name](torch, value)
    with comm() as log:
        found = CALLS[name](flow, x)
    assert (short(found.sbp), log.count()) == (layout, 0)
    torch.testing.assert_close(value_of(found), wanted.detach())
    if wanted.requires_grad:
        wanted.sum().backward()
        found.sum().backward()
        assert short(x.grad.sbp) == layout
        torch.testing.assert_close(value_of(x.grad), value.grad)


def test_a_dim_of_one_is_not_split_by_itself():
    x = flow.ones(1, 6, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.partial_sum)
    assert short(flow.sin(x).sbp) == "(S1)"
    assert short(flow.sin(x[:, :1]).sbp) == "(B)"
