"""Dropout beyond the samples: one mask for every layout, forward and backward."""

import pytest
import torch

from onefold.engine.autograd import grad
from onefold.engine.generator import manual_seed
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.errors import OnefoldValueError
from onefold.kernels import random_ref
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import spread, value_of

VALUE = torch.rand(5, 6, 3, dtype=torch.float64) + 1.0


def run(x, p=0.4):
    manual_seed(11)
    x.requires_grad_()
    y = names.dropout(x, p)
    names.sum(y).backward()
    return value_of(y), value_of(x.grad)


@pytest.mark.parametrize("ranks", [[0, 1], [0, 1, 2], [[0, 1], [2, 3]]])
def test_the_mask_is_the_same_in_every_layout(ranks):
    wanted = run(make_local(VALUE))
    mesh = Placement("cpu", ranks)
    for (nd_sbp,) in spread([VALUE], mesh, 12, 0):
        for found, other in zip(run(make_global(VALUE, mesh, nd_sbp)), wanted, strict=True):
            torch.testing.assert_close(found, other)


def test_backward_uses_the_mask_of_forward():
    y, grad = run(make_local(VALUE))
    torch.testing.assert_close(y, VALUE * grad)
    assert set(grad.unique().tolist()) == {0.0, 1 / 0.6}


def test_the_mask_is_drawn_once(monkeypatch):
    """Backward multiplies by the mask that forward drew, where drawing is slow."""
    drawn, keep_mask = [], random_ref.keep_mask

    def noting(*box, **how):
        drawn.append(box)
        return keep_mask(*box, **how)

    monkeypatch.setattr(random_ref, "keep_mask", noting)
    monkeypatch.delattr(random_ref, "dropout_mask")
    x = make_local(VALUE).requires_grad_()
    y = names.dropout(x, 0.4)
    (dx,) = grad(names.sum(names.mul(y, y)), x, create_graph=True)
    (second,) = grad(names.sum(dx), x)
    assert len(drawn) == 1
    scale = value_of(y) / VALUE
    torch.testing.assert_close(value_of(dx), 2 * VALUE * scale**2)
    torch.testing.assert_close(value_of(second), 2 * scale**2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.4, 0.999, 1.0])
def test_a_kept_mask_gives_the_same_bits(p, dtype):
    x, draw = torch.randn(33, 17).to(dtype), {"p": p, "seed": 3, "call": 9}
    right = random_ref.dropout(x, (66, 17), (33, 0), **draw)
    found, keep = random_ref.dropout_with_mask(x, (66, 17), (33, 0), **draw)
    assert torch.equal(found, right)
    assert torch.equal(found.signbit(), right.signbit())
    assert keep.dtype == torch.bool


def test_every_call_draws_anew_and_the_seed_repeats():
    x = make_local(VALUE)
    manual_seed(2)
    first, second = value_of(names.dropout(x)), value_of(names.dropout(x))
    manual_seed(2)
    assert torch.equal(value_of(names.dropout(x)), first)
    assert not torch.equal(first, second)


def test_how_many_are_dropped():
    dropped = (value_of(names.dropout(make_local(torch.ones(200, 200)), 0.3)) == 0).float().mean()
    assert abs(dropped.item() - 0.3) < 0.01


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_nothing_to_do(p, training):
    x = make_local(VALUE)
    assert names.dropout(x, p, training) is x


@pytest.mark.parametrize("name", ["dropout", "dropout2d", "alpha_dropout"])
@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_probability_out_of_range(name, p):
    with pytest.raises(OnefoldValueError, match="between 0 and 1"):
        getattr(names, name)(make_local(VALUE), p)


def test_channels_need_their_dims():
    with pytest.raises(OnefoldValueError, match="dropout2d"):
        names.dropout2d(make_local(torch.ones(3)), 0.5)
