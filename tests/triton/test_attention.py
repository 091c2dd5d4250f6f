"""Attention and its gradients: masks, windows, packed sequences, shared heads and dropout."""

import math
from functools import partial
from unittest import mock

import pytest
import torch
import triton.language as tl
from device_checks import DEVICE
from hypothesis import given, settings, strategies as st
from torch.nn import functional
from triton_harness import EPS, assert_matches_reference, error, poisoned_memory

from onefold import autograd
from onefold.engine.dispatch_plan import clear_plans
from onefold.engine.generator import manual_seed
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse
from onefold.kernels import attention_ref, packed_attention_ref, random_ref, select
from onefold.kernels.attention_ref import Dropped, Pairs
from onefold.kernels.gpu.attention import attention_config, attention_kernels as gpu
from onefold.kernels.gpu.attention.attention_config import Sizes
from onefold.kernels.gpu.attention.attention_kernels import Form, Heads, attend, attend_grad
from onefold.kernels.gpu.launch import configs
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.recording import record
from onefold.testing.sample_checks import value_of

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Of float64 the reference is the exact value, so that every other order of a sum is off.
SLACK = {torch.float64: 64.0, torch.float32: 8.0}


def make(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype)


def assert_same(reference, *args, **kwargs):
    return assert_matches_reference(reference, *args, slack=SLACK.get(args[0].dtype, 4.0), **kwargs)


def of_seen_rows(y, lse):
    """Without the logarithms of rows that see no key, which are each kernel's own."""
    seen = y.any(-1)
    return y, torch.where(seen if seen.shape == lse.shape else seen.mT, lse, 0.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_flash(causal, dtype):
    q, k, v, dy = (make(1, 2, 37, 20, dtype=dtype) for _ in range(4))
    y, lse = assert_same(attention_ref.attention, q, k, v, None, Pairs(causal, 0.3), None)
    assert_same(attention_ref.attention_grad, dy, q, k, v, None, y, lse, Pairs(causal, 0.3), None)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("specialized", [0, 1])
def test_tiles_copied_by_the_hardware(monkeypatch, causal, specialized):
    """Also those of several heads that share their keys."""
    tile = Sizes(16, 16, 4, 2, specialized)
    monkeypatch.setattr(gpu, "_copied", lambda *_: True)
    monkeypatch.setattr(gpu, "sizes_of", lambda *_: tile)
    q, dy = (make(2, 4, 37, 24, dtype=torch.bfloat16) for _ in range(2))
    k, v = (make(2, 2, 37, 24, dtype=torch.bfloat16) for _ in range(2))
    y, lse = assert_same(attention_ref.attention, q, k, v, None, Pairs(causal, 0.3), None)
    assert_same(attention_ref.attention_grad, dy, q, k, v, None, y, lse, Pairs(causal, 0.3), None)


def test_packed_tiles_copied_by_the_hardware(monkeypatch):
    monkeypatch.setattr(gpu, "_copied", lambda *_: True)
    q, dy = (make(50, 4, 16, dtype=torch.bfloat16) for _ in range(2))
    k, v = (make(50, 2, 16, dtype=torch.bfloat16) for _ in range(2))
    starts = torch.tensor([0, 30, 31, 45], dtype=torch.int32)
    rest = (starts, starts, (30, 30), Pairs(True, 0.5, 7))
    y, lse = assert_same(packed_attention_ref.packed_attention, q, k, v, *rest)
    given = (dy, q, k, v, *rest[:2], y, lse, *rest[2:])
    grads = assert_same(packed_attention_ref.packed_attention_grad, *given)
    assert not grads[1][45:].any()


def test_tiles_on_hopper():
    """The fastest on an H200; specialized tiles are only tried."""
    rule = partial(
        attention_config.by_rule, kind="half", queries=4096, keys=4096, form="plain", arch="sm_90"
    )
    made = {work: rule(work, features=128, copied=True) for work in gpu.WORK}
    assert made == {
        "forward": Sizes(64, 128, 4, 1),
        "queries": Sizes(128, 64, 8, 3),
        "keys": Sizes(64, 64, 4, 2),
    }
    assert rule("keys", features=128) == Sizes(32, 128, 8, 2)


def test_programs_that_share_a_processor(monkeypatch):
    """Tiles of 64 features are small: other programs work while one waits. They have one group."""
    made = [
        attention_config.by_rule(work, "half", 64, 4096, 4096, "plain", "sm_90", True)
        for work in gpu.WORK
    ]
    assert all(tile.warps == 4 and tile.queries * tile.keys <= 64 * 64 for tile in made)
    assert [tile.resident for tile in made] == [4, 0, 4]
    monkeypatch.setattr(attention_config, "architecture", lambda: "sm_90")
    tried = attention_config.sizes_allowed("keys", "half", 64, 4096)
    assert {0, 4} <= {tile.resident for tile in tried}


@pytest.mark.parametrize(
    ("version", "works"), [("3.5.1", False), ("3.6.0", False), ("3.7.1", True), ("4.0.0", True)]
)
def test_specialized_tiles_are_tried_where_they_work(version, works, monkeypatch):
    monkeypatch.setattr(attention_config, "architecture", lambda: "sm_90")
    monkeypatch.setattr(attention_config.triton, "__version__", version)
    tried = attention_config.sizes_allowed("forward", "half", 128, 4096)
    assert any(tile.specialized for tile in tried) == works


def test_layouts():
    # Heads inside the sequence, as a projection makes them, and no dense dim.
    q, k, v = (make(2, 19, 3, 8).transpose(1, 2) for _ in range(3))
    y, lse = assert_same(
        attention_ref.attention, q, k[:, :, :18], v[:, :, :18], None, Pairs(False, 1.0), None
    )
    assert y.stride() == q.stride()
    apart = make(2, 3, 19, 16)[..., ::2]
    pairs = Pairs(True, -1.0)
    # The gradient goes by the forward pass of the same pairs, of which torch's on the CPU makes NaN
    # where a causal scale is negative.
    y, lse = select.triton_kernel(attention_ref.attention)(q, k, v, None, pairs, None)
    grads = assert_same(attention_ref.attention_grad, apart, q, k, v, None, y, lse, pairs, None)
    assert grads[0].stride() == q.stride()
    # Some of the heads, as a rank has where heads are split after the forward pass.
    some = [x[:, 1:2] for x in (apart, q, k, v, y, lse)]
    assert_same(attention_ref.attention_grad, *some[:4], None, *some[4:], pairs, None)


@pytest.mark.parametrize(("step", "copied"), [(2**24 - 8, False), (2**24, True)])
def test_rows_far_apart_are_copied(step, copied):
    """As those of a large batch that lies behind the rows: 128 rows of a tile pass 2^31."""
    x = make(1, 1, 2, 8).half()
    far = torch.empty(step + 8, dtype=x.dtype)
    far = far.as_strided(x.shape, (step, step, step, 1)).copy_(x)
    h = gpu.heads_of(far, x, far, None)
    assert h.k is x
    assert (h.q is not far) is (h.v is not far) is copied
    assert torch.equal(h.q, x)
    given = gpu.Given.of(far, h, far, make(1, 1, 2))
    assert (given.dy is not far) is (given.y is not far) is copied


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("length", [5, 0])
def test_gradients_side_by_side(order, length):
    """Two heads of q share one of k and v, which are wider."""
    q, k, v = make(2, 4, length, 8), make(2, 2, length, 8), make(2, 2, length, 16)
    pairs, drop = Pairs(True, 0.3), Dropped(0.5, 7, 9, (2, 4, length, length), (0, 0, 0, 0))
    for dropout in (None, drop):
        given = (q, k, v, None, pairs, dropout)
        y, lse = assert_same(attention_ref.attention, *given)
        dy = make(*y.shape)
        joined = assert_same(
            attention_ref.attention_grad_joined, dy, *given[:4], y, lse, *given[4:], order
        )
        assert joined.shape == (2, length, 4 * 8 + 2 * 8 + 2 * 16) and joined.is_contiguous()


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)], ids=str)
def test_empty(shape):
    q, k, v = (make(*shape) for _ in range(3))
    y, lse = assert_same(attention_ref.attention, q, k, v, None, Pairs(True, 1.0), None)
    assert_same(attention_ref.attention_grad, q, q, k, v, None, y, lse, Pairs(True, 1.0), None)


def hidden(*shape):
    """A mask in which query 3 sees no key."""
    mask = torch.rand(shape) < 0.5
    mask[..., 3, :] = False
    return mask


def ran_by(call):
    """What a call gives, and the names of the ops that ran."""
    with record() as recorder:
        found = call()
    return found, {call.op.name for call in recorder.calls.values()}


SCORED = {"matmul", "matmul_nt", "softmax", "dropout"}
SHAPES = {
    "vectors": ((6, 4), (35, 4), (35, 3), None),
    "queries of one head": ((5, 8), (4, 6, 8), (6, 3), (5, 6)),
    "keys of one batch": ((2, 4, 5, 8), (1, 4, 6, 8), (2, 1, 6, 8), (6,)),
    "queries of one batch": ((1, 1, 5, 8), (2, 3, 6, 8), (1, 1, 6, 3), (2, 1, 1, 6)),
    "five dims": ((2, 2, 2, 6, 4), (2, 1, 2, 5, 4), (1, 2, 1, 5, 2), (2, 1, 1, 1, 5)),
    "a mask of fewer dims": ((2, 1, 2, 6, 4), (2, 2, 2, 5, 4), (2, 2, 2, 5, 2), (2, 1, 6, 5)),
    "groups": ((4, 5, 8), (2, 18, 8), (2, 18, 8), (4, 5, 18)),
    "groups of keys and of values": ((1, 4, 5, 8), (1, 2, 6, 8), (1, 4, 6, 3), None),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("mask_dtype", [torch.float32, torch.bool], ids=str)
def test_no_shape_makes_scores(name, mask_dtype):
    *shapes, mask_shape = SHAPES[name]
    inputs = [make(*shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    mask = None
    if mask_shape is not None:
        mask = make(*mask_shape) if mask_dtype is torch.float32 else torch.rand(mask_shape) < 0.8
    kwargs = {"enable_gqa": name.startswith("groups")}
    wanted = functional.scaled_dot_product_attention(*inputs, mask, **kwargs)
    dy = torch.randn_like(wanted)
    wanted_grads = torch.autograd.grad(wanted, inputs, dy)

    def run():
        own = [make_local(x.detach()).requires_grad_() for x in inputs]
        given = None if mask is None else make_local(mask)
        y = names.scaled_dot_product_attention(*own, given, **kwargs)
        return y, *autograd.grad([y], own, [make_local(dy)])

    found, ran = ran_by(run)
    assert not ran & SCORED
    for mine, true in zip(found, (wanted.detach(), *wanted_grads), strict=True):
        torch.testing.assert_close(value_of(mine), true, rtol=1e-6, atol=1e-6)


def test_gradient_of_a_mask_of_another_dtype():
    q, k, v = (make(1, 2, 5, 8, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    mask = make(5, 5).requires_grad_()
    # On a GPU torch takes no mask of another dtype.
    given = [x.detach().cpu().requires_grad_() for x in (q, k, v, mask)]
    wanted = functional.scaled_dot_product_attention(*given)
    exact = torch.autograd.grad(wanted, given, torch.ones_like(wanted))
    own = [make_local(x.detach()).requires_grad_() for x in (q, k, v, mask)]
    y = names.scaled_dot_product_attention(*own)
    grads = autograd.grad([y], own, [make_local(torch.ones_like(value_of(y)))])
    for mine, true in zip((y, *grads), (wanted.detach(), *exact), strict=True):
        assert value_of(mine).dtype is true.dtype
        assert error(value_of(mine).cpu(), true) < 0.05


def test_additive_mask_that_hides():
    q, k, v = (make(1, 1, 20, 8, dtype=torch.float64) for _ in range(3))
    mask = torch.zeros(20, 20, dtype=torch.float64).masked_fill(~hidden(20, 20), -math.inf)
    rest = (Pairs(False, 0.4), None)
    y, lse = assert_same(attention_ref.attention, q, k, v, mask, *rest, defined=of_seen_rows)
    assert torch.equal(y[:, :, 3], torch.zeros(1, 1, 8, dtype=torch.float64))
    given = (y, q, k, v, mask, y, lse, *rest)
    grads = assert_same(attention_ref.attention_grad, *given)
    assert all(x.isfinite().all() for x in grads)


@pytest.mark.parametrize("towards", [-math.inf, math.inf])
def test_rows_hidden_by_a_large_number_have_finite_gradients(towards):
    """An ulp of their logarithms, by which a GPU's division may be off, is more than 2^128."""
    q, k, v, dy = (make(1, 1, 20, 8) for _ in range(4))
    mask = torch.zeros(20, 20)
    mask[3] = -3e9
    rest = (Pairs(False, 0.4), None)
    y, lse = gpu.attention(q, k, v, mask, *rest)
    lse[:, :, 3] = lse[:, :, 3].nextafter(torch.tensor(towards))
    grads = gpu.attention_grad(dy, q, k, v, mask, y, lse, *rest)
    assert all(x.isfinite().all() for x in grads)


LEAST = torch.finfo(torch.float32).min
# Numbers of a mask: in row 3, and in its first element.
HIDING = [(LEAST, LEAST), (LEAST, -3e38), (LEAST, 0.0), (LEAST, -math.inf), (0.0, 3e38)]


@pytest.mark.parametrize("numbers", HIDING, ids=str)
def test_the_greatest_and_least_numbers_of_a_mask_are_as_in_torch(numbers):
    """Times log2(e) they would be infinite."""
    q, k, v, dy = (make(1, 2, 20, 8, dtype=torch.float32).cpu() for _ in range(4))
    mask = torch.zeros(20, 20).masked_fill(torch.ones(20, 20).triu(1).bool(), LEAST)
    mask[3], mask[3, 0] = numbers
    given = [x.requires_grad_() for x in (q, k, v)]
    wanted = functional.scaled_dot_product_attention(*given, attn_mask=mask)
    exact = torch.autograd.grad(wanted, given, dy)
    own = [make_local(x.detach().to(DEVICE)).requires_grad_() for x in given]
    y = names.scaled_dot_product_attention(*own, attn_mask=make_local(mask.to(DEVICE)))
    grads = autograd.grad([y], own, [make_local(dy.to(DEVICE))])
    for mine, true in zip((y, *grads), (wanted.detach(), *exact), strict=True):
        torch.testing.assert_close(value_of(mine).cpu(), true, rtol=1e-4, atol=1e-4)


def test_heads_too_wide_for_a_tile_are_left_to_torch():
    wide = [make(1, 1, 3, attention_ref.WIDEST + 1) for _ in range(3)]
    own = map(make_local, wide)
    y, ran = ran_by(lambda: names.scaled_dot_product_attention(*own))
    assert ran == {"attention"}
    torch.testing.assert_close(value_of(y), functional.scaled_dot_product_attention(*wide))


def plain(q, k, v, seen, scale, factors):
    """What is defined, in float64: weights of the pairs that are seen, times factors."""
    scores = (q.double() @ k.double().mT * scale).masked_fill(~seen, -math.inf)
    weights = torch.where(seen.any(-1, keepdim=True), scores.softmax(-1), 0.0)
    return weights * factors @ v.double()


def assert_defined(h, form, seen, factors=1.0):
    """`attend` and its gradients are those of the definition."""
    with poisoned_memory():
        y, lse = attend(h, form)
        dy = make(*y.shape, dtype=y.dtype)
        grads = attend_grad(dy, h, y, lse, form)
    inputs = [x.detach().double().requires_grad_() for x in h[:3]]
    exact = plain(*inputs, seen, form.pairs.scale, factors)
    wanted = torch.autograd.grad(exact, inputs, dy.double())
    limit = 16 * EPS[y.dtype] if y.dtype is not torch.float64 else 1e-13
    for mine, true in zip((y, *grads), (exact.detach(), *wanted), strict=True):
        assert mine.isfinite().all()
        assert error(mine, true) < limit


@pytest.mark.parametrize("scale", [-2.0, -0.3, 0.0, 1e-30, 3.0])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_any_scale(scale, causal, masked):
    """The kernel takes the greatest score of a row before it scales."""
    mask = make(21, 40) > 0 if masked else None
    expanded = None if mask is None else mask.expand(1, 2, 21, 40)
    h = Heads(make(1, 2, 21, 8), make(1, 2, 40, 8), make(1, 2, 40, 8), expanded)
    i, j = torch.arange(21)[:, None] + 19, torch.arange(40)[None, :]
    seen = (j <= i) if causal else torch.ones(21, 40, dtype=torch.bool)
    assert_defined(h, Form(Pairs(causal, scale, 0, 19)), seen if mask is None else seen & mask)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [2, 5, 30])
def test_window(window, causal):
    h = Heads(make(1, 2, 21, 8), make(1, 2, 40, 8), make(1, 2, 40, 8), None)
    i, j = torch.arange(21)[:, None] + 9, torch.arange(40)[None, :]
    seen = ((i - j).abs() < window) & ((j <= i) if causal else True)
    assert_defined(h, Form(Pairs(causal, 0.5, window, 9)), seen)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("keys", [20, 21])
def test_dropout(keys, dtype):
    h = Heads(*(make(2, 2, n, 8, dtype=dtype) for n in (18, keys, keys)), None)
    # These are heads 1 and 2 of 4, in batches 3 and 4, queries 5 to 22 of 30.
    drop = Dropped(0.3, 1 << 40, -7, (9, 4, 30, keys), (3, 1, 5, 0))
    keep = random_ref.keep_mask(
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
    assert_defined(h, Form(Pairs(False, 0.5, first=5), drop), seen, factors)


@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_descriptor_is_empty(monkeypatch, causal):
    """Where a packed sequence has no queries, or no keys: CUDA forbids descriptors of nothing."""
    sizes = []

    def described(x, shape, *args, **kwargs):
        sizes.extend(int(size.handle.data[0]) for size in map(tl.to_tensor, shape))
        return make_descriptor(x, shape, *args, **kwargs)

    make_descriptor = tl.make_tensor_descriptor
    monkeypatch.setattr(tl, "make_tensor_descriptor", described)
    monkeypatch.setattr(gpu, "_copied", lambda *_: True)
    q, k, v, dy = (make(16, 1, 16, dtype=torch.float16) for _ in range(4))
    starts = torch.tensor([0, 5, 5, 16]), torch.tensor([0, 0, 9, 16])
    rest = (*starts, (11, 9), Pairs(causal, 0.5))
    whole = packed_attention_ref.packed_attention
    y, lse = assert_same(whole, q, k, v, *rest, defined=of_seen_rows)
    grad = packed_attention_ref.packed_attention_grad
    assert_same(grad, dy, q, k, v, *starts, y, lse, *rest[2:])
    assert sizes and min(sizes) > 0


@pytest.mark.parametrize("groups", [1, 2])
def test_packed_sequences(groups):
    q_lengths, k_lengths = [5, 0, 33, 2], [7, 3, 20, 2]
    q = make(1, 2 * groups, sum(q_lengths), 8)
    k, v = make(1, 2, sum(k_lengths), 8), make(1, 2, sum(k_lengths), 8)
    starts = [torch.tensor([0, *x], dtype=torch.int32).cumsum(0, dtype=torch.int32)
              for x in (q_lengths, k_lengths)]  # fmt: skip
    form = Form(Pairs(True, 0.5), None, (starts[0], starts[1]), (33, 20))
    dy = make(*q.shape)
    with poisoned_memory():
        y, lse = attend(Heads(q, k, v, None), form)
        grads = attend_grad(dy, Heads(q, k, v, None), y, lse, form)
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
    "float32 added": ((2, 2, 5, 8), (2, 1, 33, 8), 8, (2, 1, 5, 33), Pairs(False, 0.4),
                      Dropped(0.3, 7, 9, (2, 2, 5, 33), (0, 0, 0, 0))),
    "window": ((1, 1, 33, 8), (1, 1, 18, 8), 8, None, Pairs(True, 0.4, 3, 2), None),
    "dropped": ((1, 2, 18, 8), (1, 2, 18, 8), 8, None, Pairs(True, 0.4),
                Dropped(0.3, 7, 9, (3, 5, 18, 18), (1, 2, 0, 0))),
    "drawn from memory": ((1, 2, 18, 8), (1, 2, 18, 8), 8, None, Pairs(True, 0.4),
                          Dropped(0.3, torch.tensor([7, 9], device=DEVICE), 0, (3, 5, 18, 18),
                                  (1, 2, 0, 0))),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused(name, dtype):
    q_shape, k_shape, features, mask, pairs, drop = KINDS[name]
    q, k = make(*q_shape, dtype=dtype), make(*k_shape, dtype=dtype)
    v = make(*k_shape[:3], features, dtype=dtype)
    if mask is not None:
        kind = torch.float32 if name.startswith("float32") else dtype
        mask = hidden(*mask) if name == "bool" else make(*mask, dtype=kind)
    args = (q, k, v, mask, pairs, drop)
    y, lse = assert_same(attention_ref.attention, *args, defined=of_seen_rows)
    dy = torch.randn_like(y)
    assert_same(attention_ref.attention_grad, dy, q, k, v, mask, y, lse, pairs, drop)


@pytest.mark.parametrize("window", [0, 3])
def test_packed_kernels(window):
    """Also with sequences of more queries than keys, and rows that are in none."""
    q, k, v = make(45, 2, 8), make(33, 1, 8), make(33, 1, 4)
    starts = torch.tensor([0, 20, 20, 41]), torch.tensor([0, 3, 10, 30])
    rest = (*starts, (21, 20), Pairs(True, 0.5, window))
    args = (q, k, v, *rest)
    y, lse = assert_same(packed_attention_ref.packed_attention, *args, defined=of_seen_rows)
    assert not y[41:].any()
    given = (*rest[:2], y, lse, *rest[2:])
    grads = assert_same(
        packed_attention_ref.packed_attention_grad, torch.randn_like(y), q, k, v, *given
    )
    assert not grads[1][30:].any()


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)], ids=str)
def test_empty_fused(shape):
    q, k, v = (make(*shape) for _ in range(3))
    y, lse = assert_same(attention_ref.attention, q, k, v, None, Pairs(True, 1.0), None)
    given = (q, q, k, v, None, y, lse, Pairs(True, 1.0), None)
    assert_same(attention_ref.attention_grad, *given)


CALLS = {
    "dropout": (4, None, {"dropout_p": 0.4, "is_causal": True, "enable_gqa": True}),
    "dropout of three dims": (3, None, {"dropout_p": 0.4}),
    "dropout of five dims": (5, None, {"dropout_p": 0.4, "window": 3}),
    "mask": (4, (2, 1, 1, 6), {}),
    "groups": (4, None, {"enable_gqa": True, "is_causal": True}),
}


@pytest.mark.parametrize("name", CALLS)
def test_kernels_do_what_torch_does(name, monkeypatch):
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

    found, ran = ran_by(lambda: run(make_local))
    assert {"attention", "attention_grad"} <= ran
    assert not ran & SCORED
    mesh = Placement(DEVICE, [0, 1, 2])
    layouts = ["(S0)", "(S1)"] if ndim == 4 else ["(S0)"]
    shards = []
    for layout in layouts:
        shards.append(
            run(lambda x, sbp=layout: make_global(x, mesh, parse(sbp if x is not mask else "(B)")))
        )
    monkeypatch.setenv("ONEFOLD_KERNELS", "torch")
    clear_plans()
    wanted, ran_by_torch = ran_by(lambda: run(make_local))
    clear_plans()
    assert ran_by_torch == ran  # the program is the same for every device
    for results in (found, *shards):
        for mine, theirs in zip(results, wanted, strict=True):
            torch.testing.assert_close(mine, theirs)


@settings(max_examples=5)
@given(
    rows=st.integers(1, 40), columns=st.integers(1, 40), features=st.integers(1, 20),
    causal=st.booleans(), first=st.integers(0, 9),
)  # fmt: skip
def test_any_shape(rows, columns, features, causal, first):
    sizes = (rows, features), (columns, features), (columns, 3)
    q, k, v = (make(1, 1, *size) for size in sizes)
    pairs = Pairs(causal, 0.7, 0, first)
    y, lse = assert_same(attention_ref.attention, q, k, v, None, pairs, None)
    given = (torch.randn_like(y), q, k, v, None, y, lse, pairs, None)
    assert_same(attention_ref.attention_grad, *given)


def test_tiles_are_those_of_the_table(monkeypatch):
    shape = (64, 500, 512)
    rule = attention_config.by_rule("forward", "half", *shape, "plain", "sm_90")
    best = rule._replace(keys=32, stages=2)
    name = configs.key("attention_forward", "half", attention_config.shape_class(*shape), "sm_90")
    monkeypatch.setattr(configs, "_table", lambda: {name: best._asdict()})
    monkeypatch.setattr(attention_config, "architecture", lambda: "sm_90")
    sizes_of = attention_config.sizes_of.__wrapped__  # not from the cache, nor into it
    assert sizes_of("forward", "half", *shape, "plain", False) == best != rule
    assert sizes_of("queries", "half", *shape, "plain", False) != best
    assert sizes_of("forward", "half", 64, 513, 512, "plain", False) == rule
    packed = attention_config.by_rule("forward", "half", *shape, "packed", "sm_90")
    assert sizes_of("forward", "half", *shape, "packed", False) == packed


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40), columns=st.integers(1, 40), first=st.integers(-30, 9),
    causal=st.booleans(), window=st.sampled_from([0, 0, 5]), dropped=st.booleans(),
)  # fmt: skip
def test_one_loop_has_the_bits_of_two(rows, columns, first, causal, window, dropped):
    """A loop that branches, as on Hopper, and also where no query sees a key."""
    h = Heads(make(1, 4, rows, 6), make(1, 2, columns, 6), make(1, 2, columns, 6), None)
    drop = Dropped(0.5, 7, 9, (1, 4, rows, columns), (0, 0, 0, 0)) if dropped else None
    form = Form(Pairs(causal, 0.7, window, first), drop)
    dy = make(1, 4, rows, 6)
    found = []
    for once in (False, True):
        with mock.patch.object(gpu, "branch", lambda work, once=once: (once,) * (work != "keys")):
            y, lse = attend(h, form)
            found.append([y, lse, *attend_grad(dy, h, y, lse, form)])
    for one, other in zip(*found, strict=True):
        assert one.isfinite().all() or one is found[0][1]
        assert torch.equal(one, other)
