"""Dispatch: one template for all entries, one plan per call, and what boxed inputs are saved as."""

import traceback
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold import profiler
from onefold.engine import dispatch_plan
from onefold.engine.boxing import plan as boxing_plan
from onefold.engine.dispatch_plan import clear_plans, ops
from onefold.engine.dispatcher import arity, unary
from onefold.engine.entry import Form, source
from onefold.engine.meta import Meta
from onefold.engine.names import names
from onefold.engine.op import Op
from onefold.engine.sbp import broadcast, partial_sum, split
from onefold.engine.shard_runner import _shared_runner
from onefold.engine.signature import Signature
from onefold.engine.signature_choice import choose
from onefold.testing import nd_sbps, placements
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

PAIR = flow.placement("cpu", [0, 1])

FORMS = [
    Form(("x",)),
    Form(("x",), saves=(), saves_output=True, aliases=True, makes_views=True),
    Form(("x",), boxing=True),
    Form(("a", "b"), saves=(1,)),
    Form(("a", "b"), attributes=0, out=True, options=("flag", "number")),
    Form(("x", "weight?", "bias?"), saves=(0, 1), several=True, only_first=True),
    Form(("number#", "x"), attributes=False),
    Form(()),
    Form((), several=True),
    Form(("x", "value#"), several=True, one_gradient=True, saves_output=(1,)),
]


def normal(*shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@pytest.fixture(autouse=True)
def no_plans():
    clear_plans()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_text_of_every_form_is_python(form):
    text = source(form)
    compile(text, "entry", "exec")
    assert "{" not in text
    assert text.splitlines()[0] == "def define(op, plans):"


def test_a_form_without_absent_tensors_does_not_look_for_them():
    assert "is None else" not in source(Form(("a", "b")))
    assert "None if c is None else c.shards" in source(Form(("a", "b", "c?")))


def test_a_gradient_that_needs_no_input_keeps_its_meta():
    text = source(Form(("x",), saves=(), saves_output=True))
    assert "node.args = (x.meta, plan.attrs)\n" in text
    assert "node.out = y.shards\n" in text


def test_tracebacks_show_the_entry_under_the_name_of_the_op():
    with pytest.raises(RuntimeError) as found:
        flow.mm(flow.ones(2, 3), flow.ones(2, 3))
    frames = traceback.extract_tb(found.value.__traceback__)
    (entry,) = [frame for frame in frames if frame.name == "mm"]
    assert entry.line.startswith("plan = prepare(op, call, plans, (input.meta, mat2.meta), (input,")


def test_the_users_line_is_not_that_of_an_entry():
    with pytest.raises(RuntimeError, match=r"called at test_dispatch\.py:\d+ in test_the_users"):
        flow.mm(flow.ones(2, 3), flow.ones(2, 3))


def test_lists_are_taken_for_tuples():
    x = flow.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert names.flip(x, [0]).tolist() == [[3.0, 4.0], [1.0, 2.0]]


@pytest.mark.parametrize("entry", ["tanh", "mm"])
def test_an_op_that_boxes_its_inputs_is_planned_once(entry):
    x = make_global(normal(4, 4), PAIR, (partial_sum,))
    args = (x,) if entry == "tanh" else (x, x)
    with profiler.dispatch() as log, profiler.comm() as traffic:
        first = getattr(names, entry)(*args)
        second = getattr(names, entry)(*args)
    assert (log.ops[entry].calls, log.ops[entry].misses, log.ops[entry].hits) == (2, 1, 1)
    assert {record.op for record in traffic.records} == {entry}
    assert first.meta is second.meta
    wanted = getattr(torch, entry)(*[normal(4, 4)] * len(args))
    assert torch.allclose(value_of(second), wanted)


def test_a_boxed_input_is_the_same_tensor_for_gradients():
    x = make_global(normal(4, 3), PAIR, (split(0),)).requires_grad_()
    y = make_global(normal(4, 3, seed=2), PAIR, (split(1),)).requires_grad_()
    z = names.mul(x, y)
    assert z.node.parents == (x.node, y.node), "there is no boxing on the tape"
    assert {arg.meta for arg in z.node.args} == {z.meta}, "what is saved is what the kernel took"
    names.sum(z).backward()
    assert torch.allclose(value_of(x.grad), normal(4, 3, seed=2))
    assert torch.allclose(value_of(y.grad), normal(4, 3))


def test_boxing_is_an_op_with_a_plan():
    x = make_global(normal(4, 3), PAIR, (split(0),))
    with profiler.dispatch() as log:
        for _ in range(3):
            x.to_global(sbp=broadcast)
    assert (log.ops["to_global"].calls, log.ops["to_global"].misses) == (3, 1)


def test_boxing_that_moves_nothing_shares_memory():
    x = make_global(normal(4, 3), PAIR, (broadcast,))
    y = x.to_global(sbp=split(0))
    assert boxing_plan(x.meta, y.meta).aliases
    assert x.shared and y.shared
    y.fill_(0)
    assert torch.equal(value_of(x), normal(4, 3))


def test_the_views_of_an_op_share_memory():
    x = make_local(normal(4, 3))
    y, z = x.split([1, 3], 0)
    assert x.shared and y.shared and z.shared


class ScaleAttributes(NamedTuple):
    """By how much."""

    factor: float = 2.0
    offset: float = 0.0


class Scale(Op):
    """x * factor + offset, with what its methods are given."""

    name = "test_scale"
    attributes = ScaleAttributes
    saves = ()
    seen: ClassVar[dict[str, object]] = {}

    def kernel(self, x, factor, offset):
        return x * factor + offset

    def rule(self, axis, x, attrs):
        self.seen["rule"] = attrs
        return [Signature((split(i),), (split(i),)) for i in range(x.ndim)]

    def bind(self, local, attrs):
        self.seen["bind"] = attrs
        return super().bind(local, attrs)

    def vjp(self, needs, dy, y, x, attrs):
        self.seen["vjp"] = attrs
        return (names.mul(dy, attrs.factor),)


@pytest.fixture
def scale():
    yield unary(Scale())
    del ops["test_scale"]


@pytest.mark.parametrize("layout", [None, (split(0),), (broadcast,), (partial_sum,)])
def test_the_methods_of_an_op_get_its_record(layout, scale):
    value = normal(4, 3)
    x = make_local(value) if layout is None else make_global(value, PAIR, layout)
    x.requires_grad_()
    y = scale(x, 3.0)
    assert torch.allclose(value_of(y), value * 3)
    names.sum(y).backward()
    assert torch.equal(value_of(x.grad), torch.full_like(value, 3.0))
    expected = {"bind", "vjp"} | ({"rule"} if layout and broadcast not in layout else set())
    assert set(Scale.seen) == expected
    assert set(map(type, Scale.seen.values())) == {ScaleAttributes}
    assert set(Scale.seen.values()) == {(3.0, 0.0)}
    Scale.seen.clear()


def test_attributes_that_an_op_does_not_have_are_an_error(scale):
    with pytest.raises(flow.OnefoldError, match="test_scale"):
        scale(make_local(normal(2)), 1.0, 2.0, 3.0)


CALLS = [
    ("add", ((6, 4), (6, 4)), ()),
    ("expand", ((6, 1),), ((6, 4),)),
    ("expand", ((1,),), ((6, 4),)),
    ("mm", ((6, 4), (4, 6)), ()),
    ("softmax", ((6, 4),), (1, None)),
    ("sum", ((6, 4),), ((0,), False, None)),
    ("tanh", ((6, 4),), ()),
    ("transpose", ((6, 4),), (0, 1)),
]


@given(st.sampled_from(CALLS), placements(max_ranks=4), st.data())
def test_an_op_wants_no_other_layouts_once_it_has_those_it_wanted(call, placement, data):
    """So that inputs are boxed once, and the plan is that of the boxed inputs."""
    name, shapes, attrs = call
    for op in ops[name]:
        metas = tuple(
            Meta.of(shape, torch.float64, placement, data.draw(nd_sbps(shape, placement.ndim)))
            for shape in shapes
        )
        attrs = op.attribute_args(attrs)
        logical = op.infer(*metas, *attrs)
        found = choose(op, metas, metas, attrs, (logical,), placement)
        boxed = tuple(
            meta.like(nd_sbp=nd_sbp) for meta, nd_sbp in zip(metas, found[0], strict=True)
        )
        assert choose(op, boxed, boxed, attrs, (logical,), placement) == found


def test_shapes_share_the_function_of_a_kernel_that_no_shape_is_bound_to(world):
    before = _shared_runner.cache_info()
    for rows in range(7, 12):
        x = flow.ones(rows, 3)
        assert flow.exp2(x).tolist() == [[2.0] * 3] * rows
    after = _shared_runner.cache_info()
    assert after.hits - before.hits >= 4
    assert after.misses - before.misses <= 1


def test_equal_attributes_of_other_types_do_not_share_a_function(world):
    for numbers in ((0.0, 4.0), (0, 4)):
        for dtype in (torch.float32, torch.int64, torch.float64):
            if dtype is torch.int64 and type(numbers[0]) is float:
                continue
            x = torch.arange(-3, 6).to(dtype)
            made = flow.clamp(flow.from_torch(x), *numbers)
            expected = torch.clamp(x, *numbers)
            assert made.dtype == expected.dtype
            assert repr(made.tolist()) == repr(expected.tolist())


def test_parts_of_many_lengths_need_no_more_ops_the_second_time():
    def parts():
        for length in range(2, 300):
            x[:length].unbind(0)
            x[:length].chunk(length, 0)

    x = flow.ones(300)
    parts()
    before = len(dispatch_plan._tables)
    parts()
    assert len(dispatch_plan._tables) == before


def test_entries_by_the_number_of_tensors():
    parts = [flow.full((2, 1), float(i)) for i in range(6)]
    for count in range(1, 7):
        with profiler.dispatch() as log:
            for _ in range(2):
                made = flow.cat(parts[:count], 1)
        assert made.tolist() == [[float(i) for i in range(count)]] * 2
        assert log.ops["cat"].hits >= 1
    assert [op.name for op in ops["cat"]] == ["cat"]
    called = {call for call in arity if call.__name__ == "cat"}
    assert {arity[call] for call in called} == {0, 1, 2, 3, 4}
