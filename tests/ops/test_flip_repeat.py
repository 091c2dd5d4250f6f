"""Layouts and errors of padding, repeating and triangles."""

import pytest
import torch

import onefold as flow

P2 = flow.placement("cpu", [0, 1])
P3 = flow.placement("cpu", [0, 1, 2])
S0, S1, B = flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast
PARTIAL = flow.sbp.partial_sum


@pytest.mark.parametrize("placement", [P2, P3])
@pytest.mark.parametrize("sbp", [S0, S1])
@pytest.mark.parametrize("diagonal", [-3, 0, 2])
def test_triangles_of_split_matrices(placement, sbp, diagonal):
    value = torch.arange(1.0, 36.0).reshape(7, 5)
    x = flow.tensor(value, placement=placement, sbp=sbp)
    for name in ("tril", "triu"):
        y = getattr(flow, name)(x, diagonal)
        assert y.sbp == (sbp,)
        assert torch.equal(torch.from_numpy(y.numpy()), getattr(torch, name)(value, diagonal))


def test_layouts():
    x = flow.randn(6, 4, placement=P2, sbp=S0)
    assert flow.flip(x, (1,)).sbp == (S0,)
    assert flow.repeat_interleave(x, 3, 0).sbp == (S0,)
    assert x.repeat(2, 1, 3).sbp == (S1,)
    partial = flow.ones(6, 4, placement=P2, sbp=PARTIAL)
    assert flow.pad(partial, (1, 1)).sbp == (PARTIAL,)
    filled = flow.pad(partial, (1, 1), "constant", 2.0)
    assert filled.sbp != (PARTIAL,)
    assert filled[0].tolist() == [2.0, 1.0, 1.0, 1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (RuntimeError, lambda x: flow.pad(x, (1,))),
        (RuntimeError, lambda x: flow.pad(x, (0, 0) * 3)),
        (RuntimeError, lambda x: flow.pad(x, (4, 0), "reflect")),
        (RuntimeError, lambda x: flow.pad(x, (5, 0), "circular")),
        (RuntimeError, lambda x: flow.pad(x, (-3, -2))),
        (RuntimeError, lambda x: flow.pad(x, (1, 1), "mirror")),
        (ValueError, lambda x: flow.pad(x, (1, 1), "reflect", 2.0)),
        (RuntimeError, lambda x: flow.flip(x, (0, 0))),
        (IndexError, lambda x: flow.flip(x, (2,))),
        (RuntimeError, lambda x: flow.roll(x, (1, 2), 0)),
        (RuntimeError, lambda x: x.repeat(2)),
        (RuntimeError, lambda x: flow.repeat_interleave(x, -1, 0)),
        (ValueError, lambda x: flow.repeat_interleave(x, flow.tensor([1, 2]), 0)),
        (RuntimeError, lambda x: flow.repeat_interleave(x, flow.tensor(2), 0, output_size=11)),
        (RuntimeError, lambda x: flow.tril(flow.ones(3))),
        (RuntimeError, lambda x: flow.rot90(x, 1, (0, 0))),
    ],
)
def test_errors(error, call):
    with pytest.raises(error) as caught:
        call(flow.ones(6, 4))
    assert isinstance(caught.value, flow.OnefoldError)
