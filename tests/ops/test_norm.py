"""Norms beyond the samples: layouts of gradients, running statistics, errors."""

import pytest
import torch

from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldError
from onefold.profiler import dispatch
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

F = torch.nn.functional
TWO = Placement("cpu", [0, 1])


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_gradients_of_weights_are_partial_over_a_split_batch(name):
    x = make_global(torch.randn(4, 6), TWO, parse("(S0)")).requires_grad_()
    w = make_global(torch.randn(6), TWO, parse("(B)")).requires_grad_()
    names.sum(getattr(names, name)(x, (6,), w)).backward()
    assert short(x.grad.sbp) == "(S0)"
    assert short(w.grad.sbp) == "(P)"


def test_a_split_normalized_dim_stays_split():
    x = make_global(torch.randn(4, 7), TWO, parse("(S1)"))
    assert short(names.layer_norm(x, (7,)).sbp) == "(S1)"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rms_norm_of_each_dtype(dtype):
    x, w = torch.randn(4, 6).to(dtype), torch.randn(6).to(dtype)
    wanted = F.rms_norm(x, (6,), w)
    found = names.rms_norm(make_local(x), (6,), make_local(w))
    torch.testing.assert_close(value_of(found), wanted)


@pytest.mark.parametrize("layout", ["(B)", "(S0)", "(S1)", "(P)"])
@pytest.mark.parametrize("momentum", [0.1, 1.0])
def test_running_statistics(layout, momentum):
    x = torch.randn(5, 3, 2, dtype=torch.float64)
    mean, var = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    held = [make_global(v, TWO, parse("(B)")) for v in (mean, var)]
    wanted = F.batch_norm(x, mean, var, training=True, momentum=momentum)
    x_global = make_global(x, TWO, parse(layout))
    found = names.batch_norm(x_global, *held, training=True, momentum=momentum)
    torch.testing.assert_close(value_of(found), wanted)
    torch.testing.assert_close(value_of(held[0]), mean)
    torch.testing.assert_close(value_of(held[1]), var)


@pytest.mark.parametrize("layout", [None, "(B)", "(S1)"])
@pytest.mark.parametrize("vectors", [2, 0])
def test_a_batch_that_is_not_split_is_normalized_by_torchs_kernel(layout, vectors):
    tensors = [torch.randn(4, 5, 3, 3), torch.rand(5) + 0.5, torch.randn(5)][: 1 + vectors]
    running = [torch.zeros(5), torch.ones(5)]

    def laid_out(t, sbp):
        return make_local(t) if layout is None else make_global(t, TWO, parse(sbp))

    ours = [laid_out(t.clone(), layout if t.ndim > 1 else "(B)") for t in tensors]
    kept, g = [laid_out(t.clone(), "(B)") for t in running], torch.randn(4, 5, 3, 3)
    for t in (*ours, *tensors):
        t.requires_grad_()
    y = names.batch_norm(ours[0], *kept, *ours[1:], training=True)
    (y * laid_out(g, layout)).sum().backward()
    wanted = F.batch_norm(tensors[0], *running, *tensors[1:], training=True)
    (wanted * g).sum().backward()
    both = [(y, wanted), *((a.grad, b.grad) for a, b in zip(ours, tensors, strict=True))]
    for mine, torchs in both:
        assert torch.equal(value_of(mine), torchs.detach())
    for mine, torchs in zip(kept, running, strict=True):
        torch.testing.assert_close(value_of(mine), torchs)
    assert layout is None or short(y.sbp) == layout


def test_errors():
    x = make_local(torch.randn(2, 6))
    one = make_local(torch.randn(1, 6))
    calls = [
        lambda: names.layer_norm(x, (5,)),
        lambda: names.layer_norm(x, 6),
        lambda: names.group_norm(x, 4),
        lambda: names.batch_norm(x, None, None),
        lambda: names.batch_norm(one, None, None, training=True),
        lambda: names.instance_norm(make_local(torch.randn(2, 3, 1))),
    ]
    for call in calls:
        with pytest.raises(OnefoldError):
            call()
    for name in ("layer_norm", "rms_norm"):
        with pytest.raises(
            OnefoldError, match=r"shape \[\*, 2, 5\], but got input of size \[2, 6\]"
        ):
            getattr(names, name)(x, (2, 5))


@pytest.mark.parametrize("layout", ["(B)", "(S0)", "(S1)", "(S2)", "(P)"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_batch_norm_of_any_layout_has_the_gradients_of_torch(layout, dtype):
    """Weights in the dtype of statistics, as under autocast."""
    wide = torch.promote_types(dtype, torch.float32)
    tensors = [torch.randn(5, 3, 4).to(dtype) + 2, torch.rand(3).to(wide), torch.randn(3).to(wide)]
    g = torch.randn(5, 3, 4).to(dtype)
    ours = [make_global(t, TWO, parse(layout if t.ndim > 1 else "(B)")) for t in tensors]
    exact = [t.double() for t in tensors]
    for t in (*ours, *exact):
        t.requires_grad_()
    y = names.batch_norm(ours[0], None, None, *ours[1:], True)
    (y * make_global(g, TWO, parse("(B)"))).sum().backward()
    wanted = F.batch_norm(exact[0], None, None, *exact[1:], True)
    (wanted * g.double()).sum().backward()
    assert y.dtype == dtype
    close = {"rtol": 0.02, "atol": 0.04} if dtype is torch.bfloat16 else {}
    for mine, torchs in [
        (y, wanted),
        *((a.grad, b.grad) for a, b in zip(ours, exact, strict=True)),
    ]:
        torch.testing.assert_close(value_of(mine).double(), torchs.detach(), **close)


def test_a_momentum_that_changes_needs_no_new_plan():
    x = make_local(torch.randn(4, 3, 2).bfloat16())
    kept = [make_local(t) for t in (torch.zeros(3), torch.ones(3))]
    names.batch_norm(x, *kept, training=True, momentum=0.5)
    with dispatch() as log:
        names.batch_norm(x, *kept, training=True, momentum=0.25)
    assert log.misses == 0


@pytest.mark.parametrize("shape", [(0, 2), (0, 2, 3), (4, 2, 0)])
def test_a_batch_without_elements_leaves_running_statistics(shape):
    x = make_global(torch.zeros(shape), TWO, parse("(S0)"))
    for normalize in (names.batch_norm, names.instance_norm)[: 2 if shape[0] else 1]:
        held = [make_global(torch.full((2,), number), TWO, parse("(B)")) for number in (1.0, 2.0)]
        assert normalize(x, *held, None, None, True).shape == shape
        assert [value.tolist() for value in held] == [[1.0, 1.0], [2.0, 2.0]]
