"""Attention beyond the samples: split queries, dropout in any layout, errors."""

from functools import partial

import pytest
import torch

import onefold as flow
from onefold.engine.dispatch_plan import num_plans
from onefold.engine.generator import manual_seed
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

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


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.rand(2, 1, 9, 11) < 0.7},
    "rows that see nothing": {"attn_mask": torch.arange(9)[:, None] > torch.arange(11)},
    "added": {"attn_mask": torch.randn(9, 11)},
    "of a head": {"attn_mask": torch.randn(4, 9, 11)},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("own", [4, 2])
@pytest.mark.parametrize("name", MASKS)
def test_the_bits_are_those_of_torchs_kernel(name, own, dtype):
    q, k, v = (torch.randn(2, n, m, 8).to(dtype) for n, m in ((4, 9), (own, 11), (own, 11)))
    given = {"enable_gqa": own != 4, **MASKS[name]}
    mask = given.get("attn_mask")
    if mask is not None and mask.ndim == 3:
        given["attn_mask"] = mask[None]  # with 3 dims torch makes a matrix of scores
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*inputs, **given)
    dy = torch.randn_like(wanted)
    wanted.backward(dy)
    if mask is not None:
        given["attn_mask"] = make_local(mask)
    tensors = [make_local(x).requires_grad_() for x in (q, k, v)]
    found = attention(*tensors, **given)
    found.backward(make_local(dy))
    assert torch.equal(value_of(found), wanted.detach())
    for mine, theirs in zip(tensors, inputs, strict=True):
        assert torch.equal(value_of(mine.grad), theirs.grad)


@pytest.mark.parametrize("shape", [(5, 18), (4, 1, 18), (2, 4, 5, 18)], ids=str)
def test_a_mask_of_float32_beside_float64(shape):
    """Which the CPU's kernel reads wrongly from 16 keys on."""
    q, k, v = (torch.randn(2, 4, n, 8, dtype=torch.float64).requires_grad_() for n in (5, 18, 18))
    mask = torch.randn(shape)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask.double())
    dy = torch.randn_like(wanted)
    wanted.backward(dy)
    tensors = [make_local(x.detach()).requires_grad_() for x in (q, k, v)]
    found = attention(*tensors, make_local(mask))
    found.backward(make_local(dy))
    torch.testing.assert_close(value_of(found), wanted.detach())
    for x, own in zip((q, k, v), tensors, strict=True):
        torch.testing.assert_close(value_of(own.grad), x.grad)


def test_one_op_does_all_forms():
    """The program does not tell which kernel will run, and has no matrix of scores."""

    class Attend(flow.nn.Graph):
        def __init__(self, **how):
            super().__init__()
            self.how = how

        def build(self, q, k):
            return attention(q, k, k, **self.how)

    q, k = make_local(torch.randn(2, 4, 5, 3)), make_local(torch.randn(2, 2, 5, 3))
    bare = make_local(torch.randn(5, 3))
    mask = make_local(torch.ones(5, 5, dtype=torch.bool))
    for first, second, how in (
        (q, q, {}),
        (q, q, {"is_causal": True, "window": 2}),
        (q, k, {"enable_gqa": True, "dropout_p": 0.5}),
        (q, q, {"attn_mask": mask}),
        (bare, bare, {"scale": 2.0}),
    ):
        graph = Attend(**how)
        graph(first, second)
        names_of_steps = {step.name for step in graph.program.steps}
        assert names_of_steps <= {"attention", "view"}
        assert [step.name for step in graph.program.steps].count("attention") == 1


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


@pytest.mark.parametrize("heads_first", [False, True])
def test_dropout_does_not_depend_on_micro_batches(heads_first):
    """Where it is fused: the draw of a micro-batch is that of its place in the batch."""

    class Attend(flow.nn.Graph):
        def build(self, x):
            x = x.transpose(0, 1) if heads_first else x
            y = attention(x, x, x, dropout_p=0.5, window=3)
            return y.transpose(0, 1) if heads_first else y

    x = make_global(torch.randn(4, 2, 5, 3), Placement("cpu", [0, 1]), parse("(S0)"))
    found = []
    for count in (1, 2, 4):
        manual_seed(2)
        graph = Attend()
        graph.config.set_gradient_accumulation_steps(count)
        found.append([value_of(graph(x)) for _ in range(2)])
        assert not torch.allclose(*found[-1])
        for mine, wanted in zip(found[-1], found[0], strict=True):
            torch.testing.assert_close(mine, wanted)


def test_draws_need_no_new_plans():
    q = make_local(torch.randn(*SHAPE))
    attention(q, q, q, dropout_p=0.5, window=2)
    before = num_plans()
    attention(q, q, q, dropout_p=0.5, window=2)
    attention(q, q, q, dropout_p=0.1, window=2)
    assert num_plans() == before


@pytest.mark.parametrize("causal", [False, True])
def test_window_of_split_queries(causal):
    q, k, v = torch.randn(3, *SHAPE, dtype=torch.float64)
    mesh = Placement("cpu", [0, 1, 2])
    kwargs = {"dropout_p": 0.3, "is_causal": causal, "window": 2}

    def run(layouts):
        manual_seed(4)
        tensors = [
            (make_local(t) if s is None else make_global(t, mesh, parse(s))).requires_grad_()
            for t, s in zip((q, k, v), layouts, strict=True)
        ]
        y = attention(*tensors, **kwargs)
        names.sum(names.mul(y, y)).backward()
        return y, [value_of(t) for t in (y, *[x.grad for x in tensors])]

    _, wanted = run((None,) * 3)
    y, found = run(("(S2)", "(B)", "(B)"))
    assert short(y.sbp) == "(S2)"
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_packed_sequences_stay_split_by_heads():
    x = torch.randn(7, 4, 3, dtype=torch.float64)
    starts = torch.tensor([0, 3, 7], dtype=torch.int32)
    mesh = Placement("cpu", [0, 1])
    args = (*[make_global(x, mesh, parse("(S1)"))] * 3,)
    whole = make_global(starts, mesh, parse("(B)"))
    y = names.attention_varlen(*args, whole, whole, 4, 4, is_causal=True)
    assert short(y.sbp) == "(S1)"
    for rows in (slice(0, 3), slice(3, 7)):
        own = x[rows].transpose(0, 1)
        wanted = torch.nn.functional.scaled_dot_product_attention(own, own, own, is_causal=True)
        torch.testing.assert_close(value_of(y)[rows], wanted.transpose(0, 1))


def test_errors_of_windows_and_packed_sequences():
    def given(*shape, dtype=torch.float32):
        return make_local(torch.ones(*shape).to(dtype))

    def packed(q=(7, 4, 3), k=(7, 2, 3), v=(7, 2, 3), starts=(0, 3, 7), dtype=torch.int32,
               longest=4, **kwargs):  # fmt: skip
        own = make_local(torch.tensor(starts, dtype=dtype))
        other = make_local(torch.tensor((0, 3, 7), dtype=dtype))
        return names.attention_varlen(
            given(*q), given(*k), given(*v), own, other, longest, 4, **kwargs
        )

    packed()
    q, mask = given(*SHAPE), given(5, 5, dtype=torch.bool)
    cases = {
        "at least 1": [lambda: packed(window=0), lambda: attention(q, q, q, window=True)],
        "is_causal=True": [lambda: attention(q, q, q, mask, is_causal=True, window=2)],
        "total, heads, features": [lambda: packed(q=(7, 3))],
        "same total and heads": [lambda: packed(v=(6, 2, 3)), lambda: packed(q=(7, 4, 2))],
        "multiple": [lambda: packed(q=(7, 3, 3))],
        "int32 or int64": [lambda: packed(dtype=torch.float32)],
        "one entry more": [lambda: packed(starts=(0, 7))],
        "more than max_seqlen": [lambda: packed(longest=3)],
        "max_seqlen_q": [lambda: packed(longest=-1), lambda: packed(longest=2.0)],
        "must begin with 0": [partial(packed, starts=s) for s in ((1, 3, 7), (0, 5, 4), (0, 3, 9))],
    }
    for text, calls in cases.items():
        for call in calls:
            with pytest.raises(OnefoldError, match=text):
                call()


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
