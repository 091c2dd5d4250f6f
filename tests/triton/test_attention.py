"""Attention and its gradients: masks, windows, packed sequences, shared heads and dropout."""

import math

import pytest
import torch
from device_checks import DEVICE
from hypothesis import given, settings
from hypothesis import strategies as st
from triton_harness import EPS, assert_twin, error, poisoned_memory

from onefold import autograd
from onefold.engine.generator import manual_seed
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.plan import clear_plans
from onefold.engine.sbp import parse
from onefold.kernels import attention, fused_attention, random, select
from onefold.kernels.fused_attention import Dropped, Pairs
from onefold.kernels.gpu import attention as gpu
from onefold.kernels.gpu.attention import Drop, Form, Heads, attend, attend_grad
from onefold.testing.checks import value_of
from onefold.testing.layouts import make_global, make_local
from onefold.testing.recording import record

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Of float64 the reference is the exact value, so that every other order of a sum is off.
SLACK = {torch.float64: 64.0, torch.float32: 8.0}


def make(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype)


def assert_same(reference, *args):
    return assert_twin(reference, *args, slack=SLACK.get(args[0].dtype, 4.0))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_flash(causal, dtype):
    q, k, v, dy = (make(1, 2, 37, 20, dtype=dtype) for _ in range(4))
    y, logs = assert_same(attention.flash_attention, q, k, v, causal, 0.3)
    assert_same(attention.flash_attention_grad, dy, q, k, v, y, logs, causal, 0.3)


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_copied_by_the_hardware(monkeypatch, causal):
    monkeypatch.setattr(gpu, "_copied", lambda *_: True)
    q, k, v, dy = (make(2, 2, 37, 24, dtype=torch.bfloat16) for _ in range(4))
    y, logs = assert_same(attention.flash_attention, q, k, v, causal, 0.3)
    assert_same(attention.flash_attention_grad, dy, q, k, v, y, logs, causal, 0.3)


def test_layouts():
    # Heads inside the sequence, as a projection makes them, and no dense dim.
    q, k, v = (make(2, 19, 3, 8).transpose(1, 2) for _ in range(3))
    y, logs = assert_same(attention.flash_attention, q, k[:, :, :18], v[:, :, :18], False, 1.0)
    assert y.stride() == q.stride()
    apart = make(2, 3, 19, 16)[..., ::2]
    grads = assert_same(attention.flash_attention_grad, apart, q, k, v, y, logs, True, -1.0)
    assert grads[0].stride() == q.stride()


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)], ids=str)
def test_empty(shape):
    q, k, v = (make(*shape) for _ in range(3))
    y, logs = assert_same(attention.flash_attention, q, k, v, True, 1.0)
    assert_same(attention.flash_attention_grad, q, q, k, v, y, logs, True, 1.0)
    assert_same(attention.attention, q, k, v, None, False, 1.0, False, 0)


def hidden(*shape):
    """A mask in which query 3 sees no key."""
    mask = torch.rand(shape) < 0.5
    mask[..., 3, :] = False
    return mask


SAME = ((2, 2, 18, 8),) * 3
CASES = {
    "causal": (*SAME, None, True, False, 0),
    "first": ((2, 2, 5, 8), *SAME[1:], None, True, False, 7),
    "vectors": ((6, 4), (35, 4), (35, 3), None, False, False, 0),
    "five dims": ((2, 2, 2, 6, 4), (2, 1, 5, 4), (2, 2, 5, 2), None, False, False, 0),
    "groups": ((2, 4, 18, 8), (2, 2, 18, 8), (2, 2, 18, 8), None, True, True, 0),
    "groups of three dims": ((4, 5, 8), (2, 18, 8), (2, 18, 8), (4, 5, 18), False, True, 0),
    "mask": (*SAME, (2, 1, 18, 18), False, False, 0),
    "mask of keys": (*SAME, (1, 18), False, False, 0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_attention(name, dtype):
    *shapes, mask, causal, grouped, first = CASES[name]
    q, k, v = (make(*shape, dtype=dtype) for shape in shapes)
    kinds = [None]
    if mask is not None:
        kinds = [make(*mask, dtype=dtype)]
        kinds += [hidden(*mask)] if mask[-2] > 3 else [kinds[0] > 0]
    for kind in kinds:
        rest = (kind, causal, 0.4, grouped, first)
        y = assert_same(attention.attention, q, k, v, *rest)
        assert_same(attention.attention_grad, torch.randn_like(y), q, k, v, *rest)


def test_additive_mask_that_hides():
    q, k, v = (make(1, 1, 20, 8, dtype=torch.float64) for _ in range(3))
    mask = torch.zeros(20, 20, dtype=torch.float64).masked_fill(~hidden(20, 20), -math.inf)
    y = assert_same(attention.attention, q, k, v, mask, False, 0.4, False, 0)
    assert torch.equal(y[:, :, 3], torch.zeros(1, 1, 8, dtype=torch.float64))
    grads = assert_same(attention.attention_grad, y, q, k, v, mask, False, 0.4, False, 0)
    assert all(x.isfinite().all() for x in grads)


def test_what_torch_does():
    wide = [make(1, 1, 3, 300) for _ in range(3)]
    rest = (None, False, 1.0, False, 0)
    assert torch.equal(
        select.twin(attention.attention)(*wide, *rest), attention.attention(*wide, *rest)
    )


def plain(q, k, v, seen, scale, factors):
    """What is defined, in float64: weights of the pairs that are seen, times factors."""
    scores = (q.double() @ k.double().mT * scale).masked_fill(~seen, -math.inf)
    weights = torch.where(seen.any(-1, keepdim=True), scores.softmax(-1), 0.0)
    return weights * factors @ v.double()


def assert_defined(h, form, seen, factors=1.0):
    """`attend` and its gradients are those of the definition."""
    with poisoned_memory():
        y, logs = attend(h, form)
        dy = make(*y.shape, dtype=y.dtype)
        grads = attend_grad(dy, h, y, logs, form)
    inputs = [x.detach().double().requires_grad_() for x in h[:3]]
    exact = plain(*inputs, seen, form.scale, factors)
    wanted = torch.autograd.grad(exact, inputs, dy.double())
    limit = 16 * EPS[y.dtype] if y.dtype is not torch.float64 else 1e-13
    for mine, true in zip((y, *grads), (exact.detach(), *wanted), strict=True):
        assert mine.isfinite().all()
        assert error(mine, true) < limit


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [2, 5, 30])
def test_window(window, causal):
    h = Heads(make(1, 2, 21, 8), make(1, 2, 40, 8), make(1, 2, 40, 8), None)
    i, j = torch.arange(21)[:, None] + 9, torch.arange(40)[None, :]
    seen = ((i - j).abs() < window) & ((j <= i) if causal else True)
    assert_defined(h, Form(causal, 0.5, 9, window), seen)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("keys", [20, 21])
def test_dropout(keys, dtype):
    h = Heads(*(make(2, 2, n, 8, dtype=dtype) for n in (18, keys, keys)), None)
    # These are heads 1 and 2 of 4, in batches 3 and 4, queries 5 to 22 of 30.
    drop = Drop(0.3, 1 << 40, -7, heads=4, queries=30, batch=3, head=1)
    keep = random.keep_mask(
        (9, 4, 30, keys),
        (3, 1, 5, 0),
        (2, 2, 18, keys),
        p=0.3,
        seed=1 << 40,
        call=-7,
        device=DEVICE,
    )
    factors = keep.double() / 0.7
    seen = torch.ones(18, keys, dtype=torch.bool)
    assert_defined(h, Form(False, 0.5, 5, drop=drop), seen, factors)


@pytest.mark.parametrize("groups", [1, 2])
def test_packed_sequences(groups):
    q_lengths, k_lengths = [5, 0, 33, 2], [7, 3, 20, 2]
    q = make(1, 2 * groups, sum(q_lengths), 8)
    k, v = make(1, 2, sum(k_lengths), 8), make(1, 2, sum(k_lengths), 8)
    starts = [torch.tensor([0, *x], dtype=torch.int32).cumsum(0, dtype=torch.int32)
              for x in (q_lengths, k_lengths)]  # fmt: skip
    form = Form(True, 0.5, starts=(starts[0], starts[1]), longest=(33, 20))
    dy = make(*q.shape)
    with poisoned_memory():
        y, logs = attend(Heads(q, k, v, None), form)
        grads = attend_grad(dy, Heads(q, k, v, None), y, logs, form)
    for n in range(4):
        rows, columns = (slice(int(s[n]), int(s[n + 1])) for s in starts)
        parts = [x.double().requires_grad_() for x in (q[:, :, rows], k[:, :, columns],
                                                       v[:, :, columns])]  # fmt: skip
        wide = [parts[0], *(x.repeat_interleave(groups, 1) for x in parts[1:])]
        last = k_lengths[n] - q_lengths[n]  # the place of the first query
        there = torch.ones(q_lengths[n], k_lengths[n]).tril(last) > 0
        exact = plain(*wide, there, 0.5, 1.0)
        wanted = torch.autograd.grad(exact, parts, dy[:, :, rows].double())
        assert error(y[:, :, rows], exact.detach()) < 1e-5
        for mine, true, cut in zip(grads, wanted, (rows, columns, columns), strict=True):
            assert error(mine[:, :, cut], true) < 1e-5


KINDS = {
    "groups": ((1, 4, 17, 8), (1, 2, 20, 8), 6, None, Pairs(True, 0.4), None),
    "bool": ((2, 1, 18, 8), (2, 1, 18, 8), 8, (2, 1, 18, 18), Pairs(False, 0.4), None),
    "added": ((2, 2, 5, 8), (2, 1, 33, 8), 8, (1, 33), Pairs(False, 0.4), None),
    "window": ((1, 1, 33, 8), (1, 1, 18, 8), 8, None, Pairs(True, 0.4, 3, 2), None),
    "dropped": ((1, 2, 18, 8), (1, 2, 18, 8), 8, None, Pairs(True, 0.4),
                Dropped(0.3, 7, 9, (3, 5, 18, 18), (1, 2, 0, 0))),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused(name, dtype):
    q_shape, k_shape, features, mask, pairs, drop = KINDS[name]
    q, k = make(*q_shape, dtype=dtype), make(*k_shape, dtype=dtype)
    v = make(*k_shape[:3], features, dtype=dtype)
    if mask is not None:
        mask = hidden(*mask) if name == "bool" else make(*mask, dtype=dtype)
    y, logs = assert_same(fused_attention.fused_attention, q, k, v, mask, pairs, drop)
    dy = torch.randn_like(y)
    assert_same(fused_attention.fused_attention_grad, dy, q, k, v, mask, y, logs, pairs, drop)


@pytest.mark.parametrize("window", [0, 3])
def test_packed_twins(window):
    """Also with sequences of more queries than keys, and rows that are in none."""
    q, k, v = make(45, 2, 8), make(33, 1, 8), make(33, 1, 4)
    starts = torch.tensor([0, 20, 20, 41]), torch.tensor([0, 3, 10, 30])
    rest = (*starts, (21, 20), Pairs(True, 0.5, window))
    y, logs = assert_same(fused_attention.packed_attention, q, k, v, *rest)
    assert not y[41:].any()
    given = (*rest[:2], y, logs, *rest[2:])
    grads = assert_same(fused_attention.packed_attention_grad, torch.randn_like(y), q, k, v, *given)
    assert not grads[1][30:].any()


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)], ids=str)
def test_empty_fused(shape):
    q, k, v = (make(*shape) for _ in range(3))
    y, logs = assert_same(fused_attention.fused_attention, q, k, v, None, Pairs(True, 1.0), None)
    given = (q, q, k, v, None, y, logs, Pairs(True, 1.0), None)
    assert_same(fused_attention.fused_attention_grad, *given)


CALLS = {
    "dropout": (4, None, {"dropout_p": 0.4, "is_causal": True, "enable_gqa": True}),
    "dropout of three dims": (3, None, {"dropout_p": 0.4}),
    "dropout of five dims": (5, None, {"dropout_p": 0.4, "window": 3}),
    "mask": (4, (2, 1, 1, 6), {}),
    "groups": (4, None, {"enable_gqa": True, "is_causal": True}),
}


@pytest.mark.parametrize("name", CALLS)
def test_kernels_do_what_small_ops_do(name, monkeypatch):
    """The same pairs are dropped, also of shards, and there is no matrix of scores."""
    ndim, mask_shape, kwargs = CALLS[name]
    lead = {3: (4,), 4: (2, 4), 5: (2, 2, 2)}[ndim]
    keys = (2, 2) if kwargs.get("enable_gqa") else lead
    given = [make(*n, 6, 4, dtype=torch.float64) for n in (lead, keys, keys)]
    mask = None if mask_shape is None else torch.rand(mask_shape) < 0.7

    def run(wrap):
        manual_seed(3)
        tensors = [wrap(x).requires_grad_() for x in given]
        rest = () if mask is None else (wrap(mask),)
        y = names.scaled_dot_product_attention(*tensors, *rest, **kwargs)
        grads = autograd.grad([y], tensors, [wrap(given[0])])
        return [value_of(x) for x in (y, *grads)]

    with record() as recorder:
        found = run(make_local)
    ran = {call.op.name for call in recorder.calls.values()}
    assert {"fused_attention", "fused_attention_grad"} <= ran
    assert not ran & {"matmul", "matmul_nt", "softmax", "dropout"}
    mesh = Placement("cpu", [0, 1, 2])
    layouts = ["(S0)", "(S1)"] if ndim == 4 else ["(S0)"]
    shards = []
    for layout in layouts:
        shards.append(
            run(lambda x, sbp=layout: make_global(x, mesh, parse(sbp if x is not mask else "(B)")))
        )
    monkeypatch.setenv("ONEFOLD_KERNELS", "torch")
    clear_plans()
    wanted = run(make_local)
    clear_plans()
    for results in (found, *shards):
        for mine, theirs in zip(results, wanted, strict=True):
            torch.testing.assert_close(mine, theirs)


@settings(max_examples=5)
@given(
    rows=st.integers(1, 40), columns=st.integers(1, 40), features=st.integers(1, 20),
    causal=st.booleans(), first=st.integers(0, 9),
)  # fmt: skip
def test_any_shape(rows, columns, features, causal, first):
    q, k, v = make(1, rows, features), make(1, columns, features), make(1, columns, 3)
    rest = (None, causal, 0.7, False, first)
    y = assert_same(attention.attention, q, k, v, *rest)
    assert_same(attention.attention_grad, torch.randn_like(y), q, k, v, *rest)
