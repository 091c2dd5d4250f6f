"""Fused chains: what becomes one kernel, why the rest does not, and that no bit changes.

The pass works where Triton does; here it is told so, and the references run what it makes.
"""

import os
import re

import pytest
import torch
from hypothesis import given, settings, strategies as st
from training_steps import compiled

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.graph.memory_traffic import read_and_written, readable
from onefold.graph.passes import fuse_chains as module
from onefold.graph.passes.fusion_groups import MAX_STEPS, MAX_TENSORS, is_pointwise

B, S = flow.sbp.broadcast, flow.sbp.split


@pytest.fixture(autouse=True)
def _fusing(monkeypatch):
    monkeypatch.setattr(module, "uses_triton", lambda device_type: True)


class Build(nn.Graph):
    """A graph of a function of tensors."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def build(self, *tensors):
        return self.function(*tensors)


def plan_of(function, *tensors):
    graph = Build(function)
    graph(*tensors)
    return graph.plan(0).splitlines()


def notes(lines):
    """What the lines say of fusion, without the bytes."""
    found = [line.partition("  # ")[2] for line in lines if "  # " in line]
    return [note if note.startswith("not") else note.partition(":")[0] for note in found]


def x(*shape):
    return flow.randn(*shape)


def test_a_chain_becomes_one_step_that_says_what_it_saves(world):
    lines = plan_of(lambda a, b: flow.relu(a * b + 1.0) - b, x(8, 16), x(16))
    assert notes(lines) == ["mul, add, relu, sub"]
    assert "= fused(%input.0, %input.1)  # mul, add, relu, sub: 1.1 KiB, not 4.1 KiB" in lines[0]
    assert lines[-1] == (
        "# 4 steps fused into 1 kernels: 1.1 KiB read and written per run, not 4.1 KiB"
    )


def test_values_that_are_wanted_are_written_on_the_way(world):
    def function(a):
        h = flow.exp(a)
        return h, h * 2.0

    graph = Build(function)
    a = x(3, 4)
    h, y = graph(a)
    assert notes(graph.plan(0).splitlines()) == ["exp, mul"]
    assert torch.equal(h.to_torch(), a.exp().to_torch())
    assert torch.equal(y.to_torch(), (a.exp() * 2.0).to_torch())


REDUCTIONS = {
    "all": (lambda v: v.mean(), "mul, mean"),
    "trailing": (lambda v: v.sum(-1), "mul, sum"),
    "leading": (lambda v: v.amax(0), "mul, amax"),
    "several": (lambda v: v.sum((0, 2), keepdim=True), "mul, sum"),
}


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_a_reduction_takes_what_it_reduces(world, kind):
    reduce, wanted = REDUCTIONS[kind]
    a, b = x(3, 4, 5), x(3, 4, 5)
    graph = Build(lambda a, b: reduce(a * b))
    assert torch.equal(graph(a, b).to_torch(), reduce(a * b).to_torch())
    assert notes(graph.plan(0).splitlines()) == [wanted]


def test_a_reduced_value_may_be_wanted_too(world):
    def function(a):
        y = flow.tanh(a * 3.0)
        return y @ y.mT, y.sum(0)

    a = x(4, 5)
    graph = Build(function)
    for found, wanted in zip(graph(a), function(a), strict=True):
        assert torch.equal(found.to_torch(), wanted.to_torch())
    assert notes(graph.plan(0).splitlines()) == ["mul, tanh, sum"]


def test_batch_norm_takes_what_follows(world):
    def function(a, w, b):
        return flow.relu(nn.functional.batch_norm(a, None, None, w, b, True))

    tensors = x(2, 3, 4, 5).to(flow.bfloat16), x(3), x(3)
    graph = Build(function)
    assert torch.equal(graph(*tensors).to_torch(), function(*tensors).to_torch())
    assert notes(graph.plan(0).splitlines()) == ["batch_normalized, relu"]


def test_what_else_is_wanted_stays_beside_the_reduction(world):
    def function(a, b):
        d = (a - b) * 2.0
        return d, (d * d).mean()

    lines = plan_of(function, x(4, 5), x(4, 5))
    assert notes(lines) == ["sub, mul", "mul, mean"]


class Net(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.norm = nn.LayerNorm(8, dtype=dtype)
        self.up, self.down = nn.Linear(8, 16, dtype=dtype), nn.Linear(16, 8, dtype=dtype)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)))) * 0.5


class Train(nn.Graph):
    def __init__(self, net, rate=0.1):
        super().__init__()
        self.net = net
        self.add_optimizer(flow.optim.SGD(net.parameters(), lr=rate))

    def build(self, a, b):
        d = self.net(a) - b
        loss = (d * d).mean()
        loss.backward()
        return loss


def test_a_training_step(world):
    net = Net()
    graph = Train(net)
    graph(x(6, 8), x(6, 8))
    assert notes(graph.plan(0).splitlines()) == [
        "linear, gelu",
        "linear, mul, add, sub",
        "mul, mean",
        "mul, add, mul, sum_rows",
        "mm, gelu_backward",
    ]


def ending(function, *tensors):
    """The notes of a program, which must give the bits of eager."""
    graph = Build(function)
    for found, wanted in zip(graph(*tensors), function(*tensors), strict=True):
        assert torch.equal(found.to_torch(), wanted.to_torch())
    return notes(graph.plan(0).splitlines())


def test_a_product_ends_with_what_follows(world):
    a, b, c = x(4, 6), x(6, 6), x(6)
    end = flow.nn.functional.linear
    assert ending(lambda a, b, c: [flow.relu(end(a, b, c))], a, b, c) == ["linear, relu"]
    assert ending(lambda a, b: [flow.relu(a @ b), a @ b], a, b) == ["matmul, relu"]
    assert ending(lambda a, b, c: [(a @ b) * c + a], a, b, c) == ["matmul, mul, add"]
    # One result, two tensors next to it, one product.
    two = ending(lambda a, b: [flow.relu(a @ b), flow.relu(a @ b) * 2.0], a, b)
    assert two == ["relu, mul"]
    many = ending(lambda a, b, c: [(a @ b) * c + a - a * 2.0 - a.exp()], a, b, c)
    assert many == ["matmul, mul, add, mul, sub, exp, sub"]
    both = ending(lambda a, b: [(a @ b) + (a.exp() @ b)], a, b)
    assert both[-1] == "matmul, add"


def trained(net, fused, inputs, steps=3):
    graph = Train(net)
    losses = [graph(*inputs).item() for _ in range(steps)]
    assert ("= fused(" in graph.plan(0)) == fused
    return losses, [shard for p in net.parameters() for shard in p.shards]


@pytest.mark.parametrize("sbp", [B, S(0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_training_has_the_same_bits(monkeypatch, sbp, dtype):
    results = []
    for fused in (True, False):
        monkeypatch.setattr(module, "uses_triton", lambda device_type, fused=fused: fused)
        with virtual_world():
            flow.manual_seed(3)
            placement = flow.placement("cpu", [0, 1])
            net = Net(dtype).to_global(placement, B)
            inputs = [x(6, 8).to(dtype).to_global(placement, sbp) for _ in range(2)]
            results.append(trained(net, fused, inputs))
    (losses, weights), (other, others) = results
    assert losses == other
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


# Why not.


def late(a):
    h = flow.exp(a)
    p = h.softmax(-1)
    return p, h + p


WHY = {
    "alone": (flow.exp, ["not fused: no pointwise step next to it"]),
    "other numbers": (
        lambda a: flow.digamma(a) + 1.0,
        ["not fused: dtypes that Triton lacks", "not fused: no pointwise step next to it"],
    ),
    "another shape": (
        lambda a: flow.sin(a.sum(0)) + a,
        [
            "not fused: no pointwise step next to it",
            "not fused: %3 has another shape or layout",
        ],
    ),
    "too large": (
        lambda a: [flow.exp(a * float(i)) for i in range(MAX_TENSORS + 3)][-1] + a,
        ["mul, exp, add"],
    ),
}


@pytest.mark.parametrize("kind", WHY)
def test_why_a_step_is_alone(world, kind):
    function, wanted = WHY[kind]
    assert notes(plan_of(function, x(4, 4))) == wanted


def test_a_value_that_is_read_before_does_not_wait(world):
    first, second = notes(plan_of(late, x(4, 4)))
    assert first == "not fused: no pointwise step next to it"
    assert re.fullmatch(r"not fused: softmax reads %\d+ before", second)


def test_kernels_have_limits(world):
    def long(a):
        for _ in range(2 * MAX_STEPS + 5):
            a = flow.sin(a)
        return a

    found = notes(plan_of(long, x(3)))
    assert [note.count("sin") for note in found] == [MAX_STEPS, MAX_STEPS, 5]

    def wide(*tensors):
        total = tensors[0]
        for each in tensors[1:]:
            total = total * each
        return total

    tensors = [x(3) for _ in range(MAX_TENSORS + 4)]
    found = notes(plan_of(wide, *tensors))
    assert len(found) == 2 and all(1 <= note.count("mul") < MAX_TENSORS for note in found)


def test_each_pass_of_a_checkpoint_stays_by_itself(world):
    net = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))

    class Checkpointed(Train):
        def __init__(self):
            super().__init__(net)
            self.net.to(nn.graph.GraphModule).activation_checkpointing = True

    graph = Checkpointed()
    inputs = [x(3, 4), x(3, 4)]
    graph(*inputs)
    for step in compiled(graph, inputs).program.steps:
        kinds = {(part.stage, part.recomputation, part.backward) for part in step.parts}
        assert len(kinds) <= 1


# Any program.

UNARY = [flow.exp, flow.sigmoid, flow.neg, lambda v: v * 0.5, lambda v: v.to(torch.float64) + 1]
BINARY = [flow.add, flow.mul, flow.sub, flow.maximum]
OTHER = [
    lambda v: v.softmax(-1), lambda v: v.mT.contiguous(), lambda v: v.sum(-1, keepdim=True) + v,
    lambda v: v.amax(0), lambda v: v.mean(), lambda v: flow.where(v > 0, v, -v),
]  # fmt: skip


@settings(max_examples=15 if os.environ.get("TRITON_INTERPRET") else 60)
@given(
    links=st.lists(
        st.tuples(st.integers(0, 14), st.integers(0, 9), st.integers(0, 9)), max_size=14
    ),
    wanted=st.sets(st.integers(0, 9), min_size=1, max_size=3),
    sbp=st.sampled_from([B, S(0), S(1)]),
    learn=st.booleans(),
)
def test_any_program_has_the_bits_of_eager(links, wanted, sbp, learn):
    def function(*inputs):
        values = [*inputs, inputs[0] * inputs[2]]
        for kind, i, j in links:
            a, b = values[i % len(values)], values[j % len(values)]
            choice = (*UNARY, *BINARY, *OTHER)[kind]
            square = a.ndim == 2 and tuple(a.shape) == (4, 4)
            if choice in BINARY:
                values.append(choice(a, b))
            elif choice in UNARY or square:
                values.append(choice(a))
        results = [values[i % len(values)] * 1.0 for i in wanted]
        if learn:
            total = sum((y.to(torch.float64).sum() for y in results), (inputs[2] * 0.1).sum())
            results.extend(flow.autograd.grad(total, [w for w in inputs if w.requires_grad],
                                              allow_unused=True))  # fmt: skip
        return [y for y in results if y is not None]

    with virtual_world():
        flow.manual_seed(1)
        placement = flow.placement("cpu", [0, 1])
        inputs = [x(4, 4).to_global(placement, sbp) for _ in range(2)]
        weight = x(4, 4).to_global(placement, sbp).requires_grad_()
        eager = function(*inputs, weight)

        class Program(nn.Graph):
            def build(self, *tensors):
                return function(*tensors, weight)

        graph = Program()
        for found, value in zip(graph(*inputs), eager, strict=True):
            assert found.meta is value.meta
            for a, b in zip(found.shards, value.shards, strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        for step in compiled(graph, inputs).program.steps:
            assert bool(step.parts) == (step.name == "fused")
            assert not is_pointwise(step) or step.note.startswith("not fused: ")
            if step.parts:
                assert read_and_written(step) < sum(map(read_and_written, step.parts))


def test_bytes_as_people_write_them():
    assert [readable(n) for n in (0, 1023, 1024, 5 << 20, 3 << 40)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3072.0 GiB",
    ]  # fmt: skip


@pytest.mark.parametrize("lead", [(6,), (2, 3)], ids=str)
def test_products_write_the_gradients_of_weights_in_float32(lead, world, monkeypatch):
    """Rounded as in half precision, in which the product is: as without fusion."""

    def trained():
        flow.manual_seed(0)
        layer = nn.Linear(4, 5, bias=False)
        optimizer = flow.optim.RMSprop(layer.parameters())

        class Step(nn.Graph):
            def __init__(self):
                super().__init__()
                self.layer = layer
                self.add_optimizer(optimizer)
                self.config.enable_amp(dtype=flow.bfloat16)

            def build(self, x):
                loss = self.layer(x).square().sum()
                loss.backward()
                return loss

        graph = Step()
        losses = [graph(x(*lead, 4)).item() for _ in range(3)]
        return losses, layer.weight.tolist(), graph.program

    *found, program = trained()
    ((_, gradient),) = program.gradients
    step = program.makers()[gradient.number]
    product = "mm_tn" if len(lead) == 1 else "rows_tn"
    assert [part.name for part in step.parts] == [product, "cast"]
    assert gradient.meta.dtype is flow.float32
    monkeypatch.setattr(module, "uses_triton", lambda device_type: False)
    assert found == [*trained()[:2]]
